"""Rows of a caller's table as a file: records of the package, dicts, and what is neither."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from eclose.errors import SettingError
from eclose.files.jsonl import read_records
from eclose.files.tables import ensure_data_file
from eclose.values.instance import Instance, Passage

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = Instance("q", "Where?", (Passage("0", "Bridge", "In Lund."),), "Lund", aliases=("Lund, Sweden",), hops=2)


def test_records_of_the_package_are_rows_as_files_hold_them(tmp_path: Path) -> None:
    path = ensure_data_file([QUESTION, {"id": "r"}], tmp_path)
    first, second = path.read_text().splitlines()
    assert json.loads(second) == {"id": "r"}
    path.write_text(f"{first}\n")
    assert list(read_records(path, Instance)) == [QUESTION]


@pytest.mark.parametrize("row", ["text", Instance, 1])
def test_what_is_no_row_is_named_by_its_type(tmp_path: Path, row: object) -> None:
    with pytest.raises(SettingError, match=rf"row 2: is of type {type(row).__name__}\. Rows are dicts"):
        ensure_data_file([{"id": "r"}, row], tmp_path)
