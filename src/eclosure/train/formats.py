"""Choices of an export, apart from the code that writes it: the command line names them before anything else."""

from __future__ import annotations

from enum import StrEnum


class Edits(StrEnum):
    """Which evidence edits of a family are written."""

    FIRST = "first"
    """The one of the switch test."""
    ALL = "all"
