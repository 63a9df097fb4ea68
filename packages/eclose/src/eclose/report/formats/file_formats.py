"""The file formats of a report. This module imports nothing else, so commands can use it at start-up."""

from __future__ import annotations

from enum import StrEnum


class ReportFormat(StrEnum):
    """A kind of file in a report."""

    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"
    LATEX = "latex"
    FIGURES = "figures"


class FailureFormat(StrEnum):
    """A kind of file of the list of failures."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"
