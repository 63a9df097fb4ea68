"""Choices that commands offer. Imports nothing heavy, so that their help loads fast."""

from __future__ import annotations

from enum import StrEnum


class ScreeningMode(StrEnum):
    """Effect of screening on the responses to a question."""

    REQUIRED = "required"
    """Responses are annotated when their question is settled as eligible, and not at all when it is ineligible."""
    ADVISORY = "advisory"
    """Responses are annotated whatever the screeners decide."""


class PracticeMode(StrEnum):
    """Practice examples before the first task."""

    REQUIRED = "required"
    """Tasks open when a person has answered all examples."""
    OPTIONAL = "optional"
    """The overview offers the examples; tasks are open at once."""
    NONE = "none"


class InvitedRole(StrEnum):
    """Role of a person who joins a running project without tasks."""

    ADJUDICATOR = "adjudicator"
    SCREENING_ADJUDICATOR = "screening-adjudicator"
    LEAD = "lead"


class AuditFormFormat(StrEnum):
    """Format of a file of audit forms: JSON Lines, or a table for spreadsheets."""

    JSONL = "jsonl"
    CSV = "csv"


class LabelExportFormat(StrEnum):
    """A format of exported labels."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
