"""All that is wrong at once, or the first so many."""

from __future__ import annotations

from pathlib import Path

import pytest

from eclose.errors import UserError
from eclose.store.records.file_problems import raise_problems


def test_nothing_wrong_is_no_refusal():
    raise_problems(Path("a.csv"), [])


def test_problems_are_told_together_without_repeating_the_file():
    with pytest.raises(UserError, match=r"^a\.csv: cannot be used as it is\. row 1: x; row 2: y; and 2 more\.$"):
        raise_problems(Path("a.csv"), ["a.csv row 1: x", "row 2: y", "z", "z"], most=2)
