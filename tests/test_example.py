"""The committed example is what the demonstration makes today."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts" / "docs"
LARGEST = 1_500_000


@pytest.fixture(scope="module")
def generator():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("example_report")


@pytest.mark.slow
def test_it_is_up_to_date(generator):
    assert not generator.is_stale(generator.make_report()), "docs/example/report.html is stale: run `make docs`"


def test_it_is_small_and_its_data_can_be_compared(generator):
    page = generator.TARGET.read_text("utf-8")
    assert len(page.encode()) < LARGEST
    unpacked = generator.unpack_data(page)
    assert "world-2wiki-42-0/candidate" in unpacked
    assert "world-2wiki-42-0/candidate" not in page
