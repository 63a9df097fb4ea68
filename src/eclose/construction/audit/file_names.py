"""What the files of an audit are called. Apart, because the command line needs the names before anything else."""

from __future__ import annotations

from enum import StrEnum

REPORT = "audit-report.json"
"""What people found."""


class FormFormat(StrEnum):
    """A line of JSON a form, or a table for spreadsheets."""

    JSONL = "jsonl"
    CSV = "csv"
