"""Names of the files in a run's folder, shared by the commands that write and read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

INSTANCES_FILE = "instances.jsonl"
"""Questions with their passages."""
RESPONSES_FILE = "responses.jsonl"
"""Responses to the questions, one or several for each."""
JUDGMENTS_FILE = "judgments.jsonl"
"""Judgments of the responses, one for each."""
VERDICTS_FILE = "verdicts.jsonl"
"""Labels of the responses without a judge's name: of people, or known truths."""
SCREENING_FILE = "screening.jsonl"
"""Eligibility of the questions (appendix A.3.1)."""
VALIDATION_FILE = "validation.json"
"""Agreement of the judge with human labels."""
REPORT_FOLDER = "report"
REPORT_PAGE = "report.html"
"""Folder of the report."""
FAMILIES_FILE = "families.jsonl"
"""All families that were constructed."""
TRAIN, DEVELOPMENT = "train.jsonl", "development.jsonl"
"""The same families, split for training."""
CARD_FILE = "README.md"
"""The data card, under the name that dataset hubs display."""
GROWTH_FILE = "growth.json"
"""What a run that takes new responses records about itself."""
RUN_LEDGER_FILE = "ledger.sqlite"
"""The calls and outcomes of a run, unless --ledger names another ledger."""
FOLDER_MANIFEST = "manifest.json"
"""Manifest of a folder that is written in one step, such as an export of annotations."""


def list_paths(paths: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return one path, or several, as a list: functions of the interface take either."""
    return [Path(paths)] if isinstance(paths, Path | str) else [Path(path) for path in paths]
