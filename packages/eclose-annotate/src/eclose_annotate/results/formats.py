"""File names and formats of an export. Imports nothing heavy, so that commands load fast."""

from __future__ import annotations

from enum import StrEnum

ANNOTATIONS, SCREENING_ANNOTATIONS = "annotations.jsonl", "screening-annotations.jsonl"
"""Annotations of each person."""
LABELS, VERDICTS = "labels.jsonl", "verdicts.jsonl"
"""Final labels."""
OPEN, INELIGIBLE_RESPONSES, MANIFEST = "open.jsonl", "ineligible.jsonl", "manifest.json"
DRAFTS = "drafts.jsonl"
"""Unfinished work of people whose tasks went to others."""
TIMES = "times.jsonl"
"""Times of each person for each pass."""


class LabelExportFormat(StrEnum):
    """A format of exported labels."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
