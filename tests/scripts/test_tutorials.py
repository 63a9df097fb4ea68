"""The tutorials run, and their pages show what they print."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "docs"
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
# close_the_gap trains for minutes, and its last digits differ between machines; the nightly workflow runs it.
QUICK = ("find_the_gap", "trust_a_judge", "gate_a_pull_request", "detect_and_choose")


@pytest.fixture(scope="module")
def generator():
    pytest.importorskip("matplotlib")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        patch.setenv("MPLBACKEND", "agg")
        yield importlib.import_module("tutorial_pages")


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("name", QUICK)
def test_its_page_shows_what_it_prints(generator, name):
    page = TUTORIALS / f"{name}.md"
    pages = generator.render_tutorial(page.with_suffix(".py"))
    assert page.read_text("utf-8") == pages[page], "stale: run `make tutorials`"
    for figure in set(pages) - {page}:
        assert figure.is_file()


def test_every_tutorial_has_a_page_with_its_code(generator):
    assert {path.stem for path in generator.list_tutorials()} == {path.stem for path in TUTORIALS.glob("*.md")}
    for path in generator.list_tutorials():
        page = path.with_suffix(".md").read_text("utf-8")
        for cell in generator.read_cells(path):
            assert cell.is_text or f"```python\n{cell.source}\n```" in page


def test_a_cell_shows_its_last_value(generator):
    assert generator.run_cell("x = 2\nprint(x)\nx + 1", {}) == ("2\n", 3)
    assert generator.run_cell("x = 2", {}) == ("", None)
