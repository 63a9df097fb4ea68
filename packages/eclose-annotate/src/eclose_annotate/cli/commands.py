"""The commands that let people label, by name."""

from __future__ import annotations

from eclose.cli.command_entry import CommandEntry

COMMANDS = {
    "label": CommandEntry(
        "eclose_annotate.cli.label:label",
        "Label a sample of your responses in the browser, without accounts, and correct the rates of the run.",
    ),
    "annotate": CommandEntry(
        "eclose_annotate.cli.annotate:app",
        "Let people label responses; each decision is shown only what it may rest on.",
    ),
}
