"""A page for each command, with the text of its ``--help``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer.main
from pages import DOCS
from typer.testing import CliRunner

from eclose.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = DOCS / "reference" / "cli"
WIDTH = "100"
NOTE = "<!-- Generated from the help of the program by `make docs`; do not edit. -->\n"


def read_help(words: list[str]) -> str:
    """Return the help of a command as it is printed."""
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="eclose", env={"COLUMNS": WIDTH})
    if result.exit_code:
        raise SystemExit(f"`eclose {' '.join(words)} --help` failed: {result.output}")
    return result.output.strip()


def list_commands(command: Any, words: list[str]) -> Iterator[list[str]]:
    """Yield a command and those below it, each as the words that call it."""
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, [*words, name])


def format_page(name: str, command: Any) -> str:
    """Return the page of a command, with a section for each command below it."""
    parts = [f"# eclose {name}\n", NOTE]
    for words in list_commands(command, [name]):
        if len(words) > 1:
            parts.append(f"## eclose {' '.join(words)}\n")
        parts.append(f"```text\n{read_help(words)}\n```\n")
    return "\n".join(parts)


def make_pages() -> dict[Path, str]:
    """Return the pages of all commands and the list of them."""
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    pages = {FOLDER / f"{name}.md": format_page(name, command) for name, command in commands.items()}
    rows = [f"| [`eclose {name}`]({name}.md) | {_summarize(command)} |" for name, command in sorted(commands.items())]
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    pages[FOLDER / "index.md"] = f"# Command line\n\n{NOTE}\n{table}\n\n```text\n{read_help([])}\n```\n"
    return pages


def _summarize(command: Any) -> str:
    """Return the first sentence of a command's help on one line."""
    first, _, _ = (command.help or "").strip().partition("\n\n")
    return " ".join(first.split()).replace("|", "\\|")
