"""Folders of trained verifiers: ``verifier.json`` says which kind it is, and the card what it was trained on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eclose.detection.verifier.linear import LinearVerifier, parse_linear_verifier
from eclose.errors import UserError
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from pathlib import Path


VERIFIER_FILE = "verifier.json"


def refuse_used_folder(folder: Path) -> None:
    """Raise UserError where a folder exists and has content."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder. Name another folder with --out.")


def write_json(path: Path, value: Any) -> None:
    """Write JSON values atomically and readably."""
    with AtomicFile(path) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def save_linear_verifier(verifier: LinearVerifier, folder: Path) -> None:
    """Write a linear verifier into its folder."""
    write_json(folder / VERIFIER_FILE, verifier.to_json())


def load_verifier(folder: Path) -> LinearVerifier:
    """Load a verifier from the folder that training wrote.

    Args:
        folder: The folder.

    Raises:
        UserError: The folder holds no verifier, or one of another release.
    """
    path = folder / VERIFIER_FILE
    if not path.is_file():
        raise UserError(f"{folder}: holds no {VERIFIER_FILE}. Name a folder that eclose verifier train wrote.")
    try:
        document = json.loads(path.read_bytes())
        kind = document["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is no verifier ({error}).") from error
    if kind == "linear":
        return parse_linear_verifier(document, str(path))
    raise UserError(f"{path}: is of the unknown kind {kind!r}. It was trained by another release.")
