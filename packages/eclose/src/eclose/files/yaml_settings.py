"""Files of settings in YAML: one mapping of names to values."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError
from eclose.files.json_reader import require_regular_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def read_yaml_settings(path: Path, kind: str) -> dict[str, Any]:
    """Read a YAML file of settings; ``kind`` names the file in messages, such as "a recipe"."""
    import yaml  # noqa: PLC0415 - takes a moment to load

    require_regular_file(path)
    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise UserError(f"{path}: {kind} consists of `name: value` lines.")
    return settings


def describe_unknown_setting(name: str, known: Iterable[str]) -> str:
    """Return the message for a setting that does not exist, with the most similar name."""
    similar = get_close_matches(name, list(known), n=1)
    return f"{name}: no such setting" + (f"; did you mean {similar[0]}?" if similar else "")
