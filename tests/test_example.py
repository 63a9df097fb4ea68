"""The committed example is what the demonstration makes today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
LARGEST = 1_500_000


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_example", DOCS / "generate_example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_it_is_up_to_date(generator):
    stored = generator.unpacked(generator.TARGET.read_text("utf-8"))
    made = generator.unpacked(generator.page())
    assert stored == made, "docs/example/report.html is stale: run `make docs`"


def test_it_is_small_and_its_data_can_be_compared(generator):
    page = generator.TARGET.read_text("utf-8")
    assert len(page.encode()) < LARGEST
    unpacked = generator.unpacked(page)
    assert "world-2wiki-42-0/candidate" in unpacked
    assert "world-2wiki-42-0/candidate" not in page
