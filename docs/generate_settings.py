"""Write docs/train-settings.md from the settings themselves, or with --check fail when it is stale."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields
from pathlib import Path

from pages import generate

from eclose.training.config import EClosureConfig
from eclose.training.recipe import MODEL_HELP, TrainedModelSettings

TARGET = Path(__file__).parent / "train-settings.md"
HEAD = """\
# Settings of training

Generated from the program by `make docs`; do not edit. The same names in a recipe, as flags (`--learning-rate 1e-4`)
and in Python. Every other field of Transformers' `TrainingArguments` is a setting as well, with its own default.
"""


def table(title: str, rows: list[tuple[str, object, str]]) -> str:
    lines = [f"| `{name}` | {shown(default)} | {text.replace('|', '/')} |" for name, default, text in rows]
    return "\n".join([f"\n## {title}\n", "| setting | default | meaning |", "|---|---|---|", *lines, ""])


def shown(default: object) -> str:
    return "required" if default is MISSING else f"`{default}`"


def page() -> str:
    weights = [(field.name, field.default, MODEL_HELP[field.name]) for field in fields(TrainedModelSettings)]
    ours = [
        (field.name, field.default, str(field.metadata["help"]))
        for field in fields(EClosureConfig)
        if field.name in EClosureConfig.__annotations__
    ]
    return HEAD + table("The model", weights) + table("Training", ours)


if __name__ == "__main__":
    sys.exit(generate(TARGET, page()))
