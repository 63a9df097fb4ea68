"""The commands that make and serve the synthetic world, by name."""

from __future__ import annotations

from eclose.cli.command_entry import CommandEntry

COMMANDS = {
    "world": CommandEntry(
        "eclose_world.cli:app",
        "Make a multi-hop benchmark whose truth is known, judge responses to it exactly, serve a model for it.",
    ),
}
