"""``eclose diagnose`` of one run, of several, and against another; ``eclose report`` writes the same."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.diagnosis.diagnose import JudgedCase
from eclose.files import jsonl
from eclose.report import figures
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment, StepJudgment
from eclose.values.response import Response, Trace
from tests.report.making import make_cases, make_questions

FILES = {"report.html", "report.md", "diagnosis.json", "junit.xml", "tables.tex", "figures"}


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def refusal(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exception is not None
    return str(result.exception)


def put(folder, cases):
    folder.mkdir()
    jsonl.write_records(folder / "instances.jsonl", {case.instance.id: case.instance for case in cases}.values())
    jsonl.write_records(folder / "responses.jsonl", [case.response for case in cases])
    jsonl.write_records(folder / "judgments.jsonl", [case.judgment for case in cases])
    return folder


@pytest.fixture(scope="module")
def questions():
    return make_questions(8)


@pytest.fixture(scope="module")
def runs(questions, tmp_path_factory):
    """Two runs of 24 responses: six questions each, four of them shared."""
    folder = tmp_path_factory.mktemp("runs")
    new, old = make_cases(questions[2:], 24, seed=2), make_cases(questions[:6], 24)
    return put(folder / "new", new), put(folder / "old", old)


@pytest.mark.slow
@pytest.mark.figures
def test_a_report_has_the_same_bytes_as_that_of_a_diagnosis(runs, tmp_path):
    output = command("diagnose", runs[0], "--against", runs[1], "--out", tmp_path / "one")
    written = command("report", runs[0], "--against", runs[1], "--out", tmp_path / "two")
    assert {path.name for path in (tmp_path / "two").iterdir()} == FILES
    for path in sorted((tmp_path / "one").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    assert "24 responses to 6 questions\n" in output
    assert "24 responses" not in written
    assert written.splitlines()[-1].endswith("figures: 10 figure files")


@pytest.mark.slow
def test_only_the_formats_asked_for_are_written(runs, tmp_path):
    command("report", runs[0], "-f", "json", "-f", "markdown", "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"diagnosis.json", "report.md"}


@pytest.mark.parametrize("unjudged", [56, 60])
def test_missing_labels_give_bounds_and_no_rate(unjudged, tmp_path):
    """L is missing in nearly all responses: LGG and TRR can then only be settled as misses, and drift to zero."""
    cases = [
        JudgedCase(
            Instance(f"q{number}", "Where?", (Passage("0", "", "Arica."),), "Arica"),
            Response(f"r{number}", f"q{number}", Trace.of("So."), "Arica"),
            Judgment(
                f"r{number}",
                "judge",
                () if number < unjudged else (StepJudgment(substantive=True, sound=True),),
                aligned=True,
                closed=number >= 28,
                complete=True,
                correct=True,
                unjudged={Criterion.LOCAL_SOUNDNESS: "invalid"} if number < unjudged else {},
            ),
        )
        for number in range(60)
    ]
    output = command("diagnose", put(tmp_path / "run", cases), "--out", tmp_path / "out")
    assert re.search(r"^LGG +too little judged +32 +28 +0\.0 to 46\.7$", output, re.MULTILINE)
    assert re.search(r"^LSR +too little judged", output, re.MULTILINE)
    assert f"L (every step holds) has no label for {unjudged} of 60 responses" in output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "No response is in the local-global gap" not in page
    # Without a single label of soundness, LSR has no card: nothing of it could be shown.
    assert page.count("<b>too little judged</b>") == (3 if unjudged < len(cases) else 2)


@pytest.mark.slow
@pytest.mark.figures
def test_figures_left_out_are_said_in_a_line(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda _: None)
    output = command("report", runs[0], "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"figures"}
    assert output.splitlines()[-1].strip() == figures.explain_missing_figures()
    assert "no figures" not in command("report", runs[0], "-f", "json", "-o", tmp_path)


@pytest.mark.figures
def test_figures_asked_for_by_name_are_not_left_out_in_silence(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda _: None)
    message = refusal("report", runs[0], "-f", "figures", "-o", tmp_path)
    assert message == f"--format figures: {figures.explain_missing_figures()}"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_comparison_is_printed_with_what_was_left_aside(runs, tmp_path):
    output = command("diagnose", runs[0], "--against", runs[1], "--out", tmp_path)
    assert "Against old" in output
    assert "Compared on 4 questions that both runs answer: 16 responses here, 16 there." in output
    assert "Not compared: 2 questions (8 responses) of this run only; 2 questions (8 responses) of the other" in output
    assert re.search(r"^TRR +reliability +[\d.]+ n \d+", output, re.MULTILINE)
    comparison = json.loads((tmp_path / "diagnosis.json").read_text())["comparison"]
    assert sum(row["responses"] for row in comparison["transitions"]) == comparison["pairs"] == 16


@pytest.mark.slow
def test_runs_of_several_models_are_diagnosed_together(runs, questions, tmp_path):
    other = put(tmp_path / "third", make_cases(questions[2:], 16, seed=3))
    output = command("diagnose", runs[0], other, "--out", tmp_path / "out")
    assert "40 responses to 6 questions" in output
    ids = [row["name"] for row in _tests(tmp_path / "out")]
    assert len(set(ids)) == 40
    # Ids stand in both runs, so each response is called after its run.
    assert {case_name.split("/")[0] for case_name in ids} == {"new", "third"}


def _tests(folder):
    from xml.etree import ElementTree

    return [element.attrib for element in ElementTree.parse(folder / "junit.xml").iter("testcase")]


@pytest.mark.slow
def test_ids_that_occur_once_stay_as_they_are(runs, questions, tmp_path):
    mine = make_cases(questions[:2], 8, seed=3)
    renamed = [
        replace(
            case,
            response=replace(case.response, id=f"x{number}"),
            judgment=replace(case.judgment, response_id=f"x{number}"),
        )
        for number, case in enumerate(mine)
    ]
    other = put(tmp_path / "x", renamed)
    command("report", runs[0], other, "-f", "junit", "--out", tmp_path / "out")
    assert {f"x{number}" for number in range(8)} < {row["name"] for row in _tests(tmp_path / "out")}


def test_responses_are_never_counted_twice(runs, tmp_path):
    assert "named twice" in refusal("diagnose", runs[0], runs[0].parent / "." / "new")
    copy = shutil.copytree(runs[0], tmp_path / "copy")
    assert "every response of new is in copy too" in refusal("diagnose", runs[0], copy)


@pytest.mark.slow
def test_a_run_can_be_held_against_a_judgment_of_the_same_responses(runs, tmp_path):
    """As with another judge, or another effort."""
    copy = shutil.copytree(runs[0], tmp_path / "copy")
    output = command("diagnose", runs[0], "--against", copy, "--out", tmp_path / "out")
    assert "Of 24 pairs of responses 24 stay in their class; 0 became reliable, 0 no longer are." in output


@pytest.mark.slow
def test_runs_over_other_questions_are_refused(runs, questions, tmp_path):
    cases = [
        replace(case, instance=replace(case.instance, question="Another one?"))
        for case in make_cases(questions[2:], 8, seed=5)
    ]
    other = put(tmp_path / "other", cases)
    assert "the same id is the same question" in refusal("diagnose", runs[0], "--against", other)
    assert "the same id is the same question" in refusal("diagnose", runs[0], other)


@pytest.mark.slow
def test_a_folder_that_is_no_judged_run_is_told(runs, tmp_path):
    assert "instances.jsonl" in refusal("diagnose", runs[0], "--against", tmp_path)
    assert "instances.jsonl" in refusal("report", tmp_path)
