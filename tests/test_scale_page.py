"""The page on scale quotes its records."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_table_is_that_of_the_projection():
    record = (DOCS / "records" / "scale_projection.txt").read_text()
    table = "".join(line for line in record.splitlines(keepends=True) if line.startswith("|"))
    assert table
    assert table in (DOCS / "scale.md").read_text()
