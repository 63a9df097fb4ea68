"""The page on scale quotes its records."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
WRITTEN_ELSEWHERE = {"records/scale_diagnose.txt", "records/scale_page.txt"}
"""Records of measurements at a million responses, which may still be missing."""


def test_the_table_is_that_of_the_projection():
    record = (DOCS / "records" / "scale_projection.txt").read_text()
    table = "".join(line for line in record.splitlines(keepends=True) if line.startswith("|"))
    assert table
    assert table in (DOCS / "scale.md").read_text()


def test_every_page_it_names_is_there():
    links = set(re.findall(r"\]\(([^)#]+)\)", (DOCS / "scale.md").read_text())) - WRITTEN_ELSEWHERE
    assert links
    assert not [link for link in links if not (DOCS / link).is_file()]
