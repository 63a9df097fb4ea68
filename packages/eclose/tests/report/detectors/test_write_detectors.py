"""A detector report from files: a judged run or a file of verdicts, with scores that belong to its responses."""

from __future__ import annotations

import json

import pytest

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.detectors.study_statistics import StudySettings
from eclose.errors import UserError
from eclose.files.jsonl import read_records, write_records
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.report.detectors.write import write_detector_report
from eclose.values.verdict import FailureClass, TraceGroup
from tests.detectors.study_making import MODELS, make_scores
from tests.report.making import make_cases, make_questions

FEW = StudySettings(resamples=10)
CASES = make_cases(make_questions(20), 80)


def truth_of(case):
    verdict = case.verdict
    if verdict.trace_group is TraceGroup.RELIABLE:
        return "reliable"
    return str(verdict.failure_class) if verdict.trace_group is TraceGroup.GAP else "locally_unsound"


SCORES = make_scores(1, {case.response.id: truth_of(case) for case in CASES})


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_records(folder / "instances.jsonl", list(dict.fromkeys(case.instance for case in CASES)))
    write_records(folder / "responses.jsonl", [case.response for case in CASES])
    write_records(folder / "judgments.jsonl", [case.judgment for case in CASES])
    for kind in MODELS:
        write_records(folder / f"scores-{kind}.jsonl", [row for row in SCORES if row.detector is kind])
    return folder


@pytest.fixture
def no_figures(monkeypatch):
    """Tables alone: drawing takes seconds."""
    monkeypatch.setattr("eclose.report.detectors.write.explain_missing_figures", lambda: "no matplotlib")


def score_files(run):
    return sorted(run.glob("scores-*.jsonl"))


def read(paths):
    return json.loads(paths["detectors.json"].read_text())


@pytest.mark.slow
def test_a_judged_run_becomes_tables_and_figures(run, tmp_path):
    paths = write_detector_report(run, score_files(run), tmp_path / "out", settings=FEW)
    figures = {f"figures/detector-{name}.{kind}" for name in ("scores", "sweep") for kind in ("pdf", "svg")}
    assert set(paths) == {"detectors.json", "detectors.md", "detectors.tex", *figures}
    assert all(path.stat().st_size > 0 and path.is_relative_to(tmp_path / "out") for path in paths.values())
    data = read(paths)
    judges = {case.judgment.judge for case in CASES}
    assert all(judge in data["labels"] for judge in judges)
    groups = [case.verdict.trace_group for case in CASES]
    assert data["groups"]["reliable"] == groups.count(TraceGroup.RELIABLE)
    assert data["groups"]["gap"] == groups.count(TraceGroup.GAP)
    deviations = [case.verdict.failure_class for case in CASES if case.verdict.in_gap]
    assert data["groups"]["path_deviation"] == deviations.count(FailureClass.PATH_DEVIATION)
    assert data["responses"] == len(CASES)
    assert [row["records"] for row in data["counts"]] == [
        sum(row.detector is kind for row in SCORES) for kind in MODELS
    ]
    assert data["notices"][-1].startswith("No manifest says which responses these scores")


@pytest.mark.usefixtures("no_figures")
def test_scores_with_reasons_survive_the_file(run, tmp_path):
    data = read(write_detector_report(run, score_files(run), tmp_path / "out", settings=FEW))
    for row in data["counts"]:
        parts = [*(row["groups"][name] for name in ("reliable", "gap", "locally_unsound")), row["undecided"]]
        for reason in (Unscored.NO_ANSWER, Unscored.TOO_LONG):
            expected = sum(score.unscored is reason and score.detector == row["detector"] for score in SCORES)
            assert sum(part["unscored"].get(str(reason), 0) for part in parts) == expected


@pytest.mark.usefixtures("no_figures")
def test_verdicts_of_people_take_the_place_of_the_judge(run, tmp_path):
    (run / "judgments.jsonl").unlink()
    settled = tmp_path / "people.jsonl"
    write_records(settled, [case.row for case in CASES[:60]])
    paths = write_detector_report(run, score_files(run), tmp_path / "out", verdicts=settled, settings=FEW)
    data = read(paths)
    assert data["labels"] == "The groups rest on the settled verdicts in people.jsonl."
    assert data["responses"] == len(CASES)
    assert data["undecided"]["no verdict"] == 20


@pytest.mark.usefixtures("no_figures")
def test_unjudged_responses_are_counted_by_reason(run, tmp_path):
    write_records(run / "judgments.jsonl", [case.judgment for case in CASES[:-5]])
    data = read(write_detector_report(run, score_files(run), tmp_path / "out", settings=FEW))
    assert data["left_out"] == {"it was not judged": 5}
    assert data["responses"] == len(CASES) - 5
    lost = {case.response.id for case in CASES[-5:]}
    for row in data["counts"]:
        expected = sum(score.response_id in lost and score.detector == row["detector"] for score in SCORES)
        assert row["unknown_responses"] == expected


@pytest.mark.usefixtures("no_figures")
def test_scores_of_other_responses_are_refused_unless_allowed(run, tmp_path):
    path = run / "scores-ragas.jsonl"
    inputs = [run / "instances.jsonl", run / "responses.jsonl"]
    manifest = Manifest("detect", {}, hash_files(inputs), hash_files([path]), RecordCounts(1, 1))
    manifest.write(run / "scores-ragas.jsonl.manifest.json")
    data = read(write_detector_report(run, path, tmp_path / "fresh", settings=FEW))
    assert not any("scores" in notice for notice in data["notices"])
    write_records(run / "responses.jsonl", [case.response for case in CASES[::-1]])
    with pytest.raises(UserError, match=r"responses.jsonl is not the file .* Score the responses again"):
        write_detector_report(run, path, tmp_path / "out", settings=FEW)
    assert not (tmp_path / "out").exists()
    paths = write_detector_report(run, path, tmp_path / "out", settings=FEW, allow_stale=True)
    assert any(notice.startswith("STALE: responses.jsonl") for notice in read(paths)["notices"])


def test_files_without_usable_scores_are_refused(run, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(UserError, match="no score in this file"):
        write_detector_report(run, empty, tmp_path / "out", settings=FEW)
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"response_id": "r", "detector": "ragas", "model": "m", "score": 1.5}\n')
    with pytest.raises(UserError, match=r"wrong.jsonl.*not between 0 and 1"):
        write_detector_report(run, wrong, tmp_path / "out", settings=FEW)
    with pytest.raises(UserError, match="two scores of ragas"):
        write_detector_report(run, [run / "scores-ragas.jsonl"] * 2, tmp_path / "out", settings=FEW)


@pytest.mark.usefixtures("no_figures")
def test_two_runs_are_studied_together(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for name, records in (
        ("instances", list(dict.fromkeys(case.instance for case in CASES))),
        ("responses", [case.response for case in CASES[40:]]),
        ("judgments", [case.judgment for case in CASES[40:]]),
    ):
        write_records(other / f"{name}.jsonl", records)
    with pytest.raises(UserError, match="two responses have the id"):
        write_detector_report([run, other], score_files(run), tmp_path / "out", settings=FEW)
    write_records(run / "responses.jsonl", [case.response for case in CASES[:40]])
    write_records(run / "judgments.jsonl", [case.judgment for case in CASES[:40]])
    data = read(write_detector_report([run, other], score_files(run), tmp_path / "out", settings=FEW))
    assert data["responses"] == len(CASES)
    assert {row["unknown_responses"] for row in data["counts"]} == {0}


@pytest.mark.usefixtures("no_figures")
def test_without_matplotlib_the_tables_are_written(run, tmp_path):
    paths = write_detector_report(run, score_files(run), tmp_path / "out", settings=FEW)
    assert set(paths) == {"detectors.json", "detectors.md", "detectors.tex"}


def test_a_record_of_a_score_is_read_as_it_was_written(tmp_path):
    records = [
        DetectorScore(response_id="a", detector=DetectorKind.CLOSURE, model="m", score=0.0, details={"p": [0.5]}),
        DetectorScore(
            response_id="b", detector=DetectorKind.CLOSURE, model="m", score=None, unscored=Unscored.NO_TRACE
        ),
    ]
    write_records(tmp_path / "s.jsonl", records)
    assert list(read_records(tmp_path / "s.jsonl", DetectorScore)) == records
