"""A breaking counts as caught only where its own test fails by what the line decides."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from scripts import breakings
from scripts.breakings import ROOT, PytestRun, read_rows, try_row
from tests.tables import each_row

ROW = read_rows()[0]
PASSED = PytestRun(0, 2, (), 0, "2 passed")
FAILED = PytestRun(1, 1, ("AssertionError: assert None is True",), 0, "1 failed, 1 passed")
MISSING = PytestRun(4, 0, (), 0, "ERROR: not found")


@each_row(read_rows())
def test_row_names_text_that_its_file_holds_once_and_a_test_that_exists(row):
    assert (ROOT / "packages" / row.file).read_text("utf-8").count(row.now) == 1
    path, _, function = row.test.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.fixture(autouse=True)
def one_file(monkeypatch, tmp_path):
    """A package of the row's file alone: a copy of the rest would take longer than everything else here."""
    copy = tmp_path / "packages" / ROW.file
    copy.parent.mkdir(parents=True)
    copy.write_text((ROOT / "packages" / ROW.file).read_text("utf-8"), "utf-8")
    monkeypatch.setattr(breakings, "ROOT", tmp_path)


def play(monkeypatch, *runs):
    """Let the runs of pytest have these results, one after the other; return the package that each of them saw."""
    packages, results = [], iter(runs)

    def run_test(test, lane, folder, seconds):
        packages.append((lane, (folder / ROW.file.partition("/src/")[2]).read_text("utf-8")))
        return next(results)

    monkeypatch.setattr(breakings, "run_test", run_test)
    return packages


def test_row_is_caught_when_its_test_passes_before_and_fails_after_the_change(monkeypatch):
    packages = play(monkeypatch, PASSED, FAILED)
    assert try_row(ROW, 1).reason is None
    source = (ROOT / "packages" / ROW.file).read_text("utf-8")
    assert packages == [("fast", source), ("fast", source.replace(ROW.now, ROW.broken))]


def test_row_outside_the_fast_lane_is_run_in_all_lanes(monkeypatch):
    packages = play(monkeypatch, replace(MISSING, code=5), PASSED, FAILED)
    outcome = try_row(ROW, 1)
    assert (outcome.reason, outcome.lane) == (None, "full")
    assert [lane for lane, _ in packages] == ["fast", "full", "full"]


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ((PASSED, PASSED), "passes on the broken package"),
        ((FAILED,), "does not pass on the unchanged package"),
        ((replace(PASSED, passed=0),), "does not pass on the unchanged package"),
        ((MISSING, MISSING), "does not exist"),
        ((PASSED, replace(FAILED, code=2, failures=())), "for another reason"),
        ((PASSED, replace(FAILED, failures=(), errors=1)), "for another reason"),
        ((PASSED, replace(FAILED, failures=("ImportError: cannot import name 'x'",))), "for another reason"),
        ((PASSED, replace(FAILED, code=-1, failures=())), "for another reason"),
    ],
)
def test_row_is_not_caught_by_anything_but_an_ordinary_failure(monkeypatch, runs, reason):
    play(monkeypatch, *runs)
    assert reason in try_row(ROW, 1).reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"now": "text of no file"}, "holds the text 0 times"),
        ({"now": "return"}, "holds the text"),
        ({"file": "core/none.py"}, "holds the text 0 times"),
        ({"broken": "return ("}, "is no Python"),
    ],
)
def test_row_that_cannot_be_applied_is_refused(change, reason):
    assert reason in try_row(replace(ROW, **change), 1).reason
