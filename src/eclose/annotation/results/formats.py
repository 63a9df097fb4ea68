"""What an export is made of, by name. Light, so that commands can name it before they need anything."""

from __future__ import annotations

from enum import StrEnum

ANNOTATIONS, SCREENING_ANNOTATIONS = "annotations.jsonl", "screening-annotations.jsonl"
"""What each person said."""
LABELS, VERDICTS = "labels.jsonl", "verdicts.jsonl"
"""What holds."""
OPEN, MANIFEST = "open.jsonl", "manifest.json"


class Format(StrEnum):
    """How labels are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
