"""The entry of a command in a table, for packages that add commands; it imports nothing that takes time."""

from __future__ import annotations

from typing import Any, NamedTuple


class CommandEntry(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    target: str
    """``module:name`` of a function, or of a Typer application whose commands are those of the group."""
    help: str
    """The first sentence of the command's own help."""
    context_settings: dict[str, Any] | None = None
