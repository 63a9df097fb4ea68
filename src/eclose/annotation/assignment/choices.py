"""Choices for the tasks and people of a project. Imports nothing heavy, so that commands load fast."""

from __future__ import annotations

from enum import StrEnum


class ScreeningMode(StrEnum):
    """Effect of screening on the responses to a question."""

    REQUIRED = "required"
    """Responses are annotated when their question is settled as eligible, and not at all when it is ineligible."""
    ADVISORY = "advisory"
    """Responses are annotated whatever the screeners decide."""


class CrewRole(StrEnum):
    """Role of a person who joins a running project."""

    ANNOTATOR = "annotator"
    ADJUDICATOR = "adjudicator"
    SCREENER = "screener"
    SCREENING_ADJUDICATOR = "screening-adjudicator"
