"""Choices of an export of families. The command line offers them, so this module imports nothing slow."""

from __future__ import annotations

from enum import StrEnum


class ExportRowFormat(StrEnum):
    """Formats of an export."""

    TRL_SFT = "trl-sft"
    TRL_PREFERENCE = "trl-preference"
    DATASETS = "datasets"


class ExportedEdits(StrEnum):
    """Evidence edits of a family that are written as rows."""

    FIRST = "first"
    """The edit of the switch test."""
    ALL = "all"
