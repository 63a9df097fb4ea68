"""What can be written of a report. Imports nothing, so that a command can name it at once."""

from __future__ import annotations

from enum import StrEnum


class ReportFormat(StrEnum):
    """The files of a report, by kind."""

    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"
    LATEX = "latex"
    FIGURES = "figures"
