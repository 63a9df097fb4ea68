"""File name and form format of an audit, without further imports: the command line reads them for its help."""

from __future__ import annotations

from enum import StrEnum

AUDIT_REPORT_FILE = "audit-report.json"
"""File of the report in the folder of an audit."""


class AuditFormFormat(StrEnum):
    """Format of a file of forms: JSON Lines, or a table for spreadsheets."""

    JSONL = "jsonl"
    CSV = "csv"
