"""How the forms of an audit are written. Apart, because the command line needs the names before anything else."""

from __future__ import annotations

from enum import StrEnum


class Layout(StrEnum):
    """A line of JSON a form, or a table for spreadsheets."""

    JSONL = "jsonl"
    CSV = "csv"
