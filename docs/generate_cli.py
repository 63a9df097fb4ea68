"""Write docs/cli.md from the program's own --help, or with --check fail when it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

import typer.main
from pages import generate
from typer.testing import CliRunner

from eclose.cli.main import app

TARGET = Path(__file__).parent / "cli.md"
WIDTH = "100"


def paths() -> list[list[str]]:
    """Every command as the words that lead to it, in the order of the help."""
    found: list[list[str]] = []

    def visit(command: object, words: list[str]) -> None:
        found.append(words)
        for name, child in getattr(command, "commands", {}).items():
            visit(child, [*words, name])

    visit(typer.main.get_command(app), [])
    return found


def section(words: list[str]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="eclose", env={"COLUMNS": WIDTH})
    if result.exit_code:
        raise SystemExit(f"`eclose {' '.join(words)} --help` failed: {result.output}")
    return f"## `{' '.join(['eclose', *words])}`\n\n```text\n{result.output.strip()}\n```\n"


def page() -> str:
    head = "# Command line\n\nGenerated from the program's own help by `make docs`; do not edit.\n"
    return "\n".join([head, *map(section, paths())])


if __name__ == "__main__":
    sys.exit(generate(TARGET, page()))
