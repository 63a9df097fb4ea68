"""Write docs/cli.md from the program's own --help, or with --check fail when it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import typer.main

from eclosure.cli.main import app

TARGET = Path(__file__).parent / "cli.md"
WIDTH = 100


def sections(command: click.Command, name: str, parent: click.Context | None = None) -> list[str]:
    """The help of a command and of everything below it."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    path = context.command_path
    parts = [f"## `{path}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                parts += sections(found, child, context)
    return parts


def page() -> str:
    head = "# Command line\n\nGenerated from the program's own help by `make docs`; do not edit.\n"
    return "\n".join([head, *sections(typer.main.get_command(app), "eclosure")])


def main() -> int:
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(page(), "utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text("utf-8") == page():
        return 0
    sys.stderr.write("docs/cli.md is stale: run `make docs`.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
