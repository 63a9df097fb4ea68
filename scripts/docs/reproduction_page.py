"""The page of the paper's claims in miniature, from the record of the study."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pages import DOCS, ROOT

sys.path.insert(0, str(ROOT))  # for the campaigns

from studies.campaigns.miniature_study.page import format_page

if TYPE_CHECKING:
    from pathlib import Path

RECORD = DOCS / "records" / "miniature"
PAGE = DOCS / "reproduction.md"


def make_pages() -> dict[Path, str]:
    """Return the page."""
    return {PAGE: format_page(RECORD, RECORD / "stage_times.csv")}
