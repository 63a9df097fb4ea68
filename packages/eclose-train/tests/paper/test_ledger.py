"""No printed number is forgotten, none is counted twice, and a wrong digit would be noticed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from .ledger import GIVEN, NOT_DERIVABLE, account, derivations, matches, report, total
from .printed import Kind, cells, rules, verify


def test_every_printed_number_is_accounted_for_once() -> None:
    assert sum(counts.total() for counts in account().values()) == len(cells())
    assert total()[Kind.CONTRADICTION] == 1


@pytest.mark.parametrize("name", [GIVEN, NOT_DERIVABLE])
def test_lists_count_what_they_list(name: str) -> None:
    for rule in rules(name):
        assert sum(matches(rule, cell) for cell in cells().values()) == int(rule["cells"]), rule


def test_report_adds_up() -> None:
    *_, last = report().splitlines()
    assert last.split()[-1] == str(len(cells()))


@pytest.mark.slow
def test_one_unit_off_is_noticed() -> None:
    """No derived number would pass with another last digit."""
    missed = []
    for cell, derivation in derivations():
        if derivation.kind is not Kind.DERIVED or not cell.unit:
            continue
        for wrong in (cell.value + cell.unit, cell.value - cell.unit):
            decimals = len(cell.printed.partition(".")[2])
            with contextlib.suppress(AssertionError):
                verify(replace(cell, printed=f"{float(wrong):.{decimals}f}"), derivation)
                missed.append(cell)
    assert missed == []
