"""File names and formats of an export. Imports nothing heavy, so that commands load fast."""

from __future__ import annotations

from enum import StrEnum

ANNOTATIONS, SCREENING_ANNOTATIONS = "annotations.jsonl", "screening-annotations.jsonl"
"""Annotations of each person."""
LABELS, VERDICTS = "labels.jsonl", "verdicts.jsonl"
"""Final labels."""
TIMES = "times.jsonl"
"""Times of each person for each pass."""
OPEN, MANIFEST = "open.jsonl", "manifest.json"


class LabelExportFormat(StrEnum):
    """A format of exported labels."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
