"""The comment for a pull request: short, with the outcome, the gap, what changed, and nothing a value made of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.files import jsonl
from eclose.report.gate_comment import COMMENT_MARK
from tests.report.hostile import PAYLOADS, hostile_case
from tests.report.test_overview import asked


def written(folder, cases):
    folder.mkdir()
    jsonl.write_records(folder / "instances.jsonl", {entry.instance.id: entry.instance for entry in cases}.values())
    jsonl.write_records(folder / "responses.jsonl", [entry.response for entry in cases])
    jsonl.write_records(folder / "judgments.jsonl", [entry.judgment for entry in cases])
    return folder


@pytest.fixture
def runs(tmp_path):
    new = [asked(number=number, closed=number % 3 > 0, correct=number % 3 > 0) for number in range(60)]
    old = [asked(number=number) for number in range(60)]
    return written(tmp_path / "new", new), written(tmp_path / "old", old)


def test_a_comment_says_the_outcome_the_gap_and_what_changed(runs):
    new, old = runs
    limits = {"min_trr": 0.85, "max_lgg": 0.05, "max_unjudged": 0.1, "max_lgg_rise": 0.02, "max_trr_drop": 0.02}
    result = eclose.gate(new, against=old, **limits)
    comment = result.comment(report_url="https://example.org/run").replace("\u00a0", " ")
    lines = comment.splitlines()
    assert len(lines) < 60
    assert lines[:2] == [COMMENT_MARK, "### Reliability: ❌ failed"]
    assert "Of 60 responses, **33.3 % [" in comment
    assert "look right step by step, and fail as a whole** (the judge's own figure, not validated)" in comment
    assert comment.count("| ❌ failed |") + comment.count("| ✅ passed |") + comment.count("| ⚠️") == len(result.checks)
    assert "Clearly worse" not in comment or "what got better, and what worse" in comment
    assert "33.3 % instead of 0.0 % look right step by step" in comment
    assert "<details><summary>One of them, opened" in comment
    assert comment.rstrip().endswith("(<https://example.org/run>)")


def test_the_command_writes_what_python_returns(runs, tmp_path):
    new, old = runs
    path = tmp_path / "out" / "comment.md"
    path.parent.mkdir()
    arguments = ["gate", new, "--max-lgg", 0.05, "--against", old, "--max-lgg-rise", 0.02, "--comment", path]
    outcome = CliRunner().invoke(app, [*map(str, arguments)])
    assert outcome.exit_code == 100, outcome.output
    assert f"{path}: written" in outcome.output
    assert path.read_text("utf-8") == eclose.gate(new, max_lgg=0.05, against=old, max_lgg_rise=0.02).comment()


def test_a_passing_gate_has_no_example_and_no_comparison():
    comment = eclose.gate([asked(number=number) for number in range(60)], min_trr=0.5).comment()
    assert "### Reliability: ✅ passed" in comment
    assert "<details>" not in comment
    assert "Against" not in comment


@cache
def hostile_comment(word):
    cases = [hostile_case(number, word) for number in range(3)]
    cases = [replace(entry, judgment=replace(entry.judgment, aligned=False)) for entry in cases]
    return eclose.gate(cases, max_lgg=0.5).comment(report_url=f"https://e.org/{word}")


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_hostile_text_makes_no_markup_and_no_line(payload):
    comments = [hostile_comment(payload), hostile_comment("harmless")]
    assert len(comments[0].splitlines()) <= len(comments[1].splitlines()) + 2
    body = comments[0].rpartition("[Every response")[0]
    for tag in ("<img", "<script", "<svg", "<a ", "<iframe"):
        assert tag not in body.replace("\\<", "").lower()
