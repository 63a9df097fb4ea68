"""The commands that let people label, by name."""

from __future__ import annotations

from eclose.cli.tables.command_entry import CommandEntry

COMMANDS = {
    "label": CommandEntry(
        "eclose.cli.label:label",
        "Label a sample of your responses in the browser, without accounts, and correct the rates of the run.",
    ),
    "annotate": CommandEntry(
        "eclose.cli.annotate.project:app",
        "Let people label responses; each decision is shown only what it may rest on.",
    ),
}
