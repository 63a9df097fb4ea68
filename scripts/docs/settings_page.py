"""The page of training settings, from the settings themselves."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from pages import DOCS

from eclose.training.config import EClosureConfig
from eclose.training.recipe import MODEL_HELP, TrainedModelSettings

if TYPE_CHECKING:
    from pathlib import Path

TARGET = DOCS / "train-settings.md"
HEAD = """\
# Settings of training

Generated from the program by `make docs`; do not edit. The same names in a recipe, as flags (`--learning-rate 1e-4`)
and in Python. Every other field of Transformers' `TrainingArguments` is a setting as well, with its own default.
"""


def format_table(title: str, rows: list[tuple[str, object, str]]) -> str:
    """Return a section with a table of settings."""
    lines = [f"| `{name}` | {format_default(default)} | {text.replace('|', '/')} |" for name, default, text in rows]
    return "\n".join([f"\n## {title}\n", "| setting | default | meaning |", "|---|---|---|", *lines, ""])


def format_default(default: object) -> str:
    """Return a default value as the table has it."""
    return "required" if default is MISSING else f"`{default}`"


def make_pages() -> dict[Path, str]:
    """Return the page."""
    weights = [(field.name, field.default, MODEL_HELP[field.name]) for field in fields(TrainedModelSettings)]
    ours = [
        (field.name, field.default, str(field.metadata["help"]))
        for field in fields(EClosureConfig)
        if field.name in EClosureConfig.__annotations__
    ]
    return {TARGET: HEAD + format_table("The model", weights) + format_table("Training", ours)}
