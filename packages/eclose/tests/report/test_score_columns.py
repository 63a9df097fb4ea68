"""Scores beside judged responses: read from run folders, never invented, and laid out for list and plot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.api.results import diagnose
from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.detectors.study_statistics import DetectorIdentity
from eclose.files.jsonl import write_records
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.files.step import PipelineStep, companion_file_path
from eclose.report.scores import (
    ScoreColumn,
    build_score_entries,
    build_unscored_facet,
    layout_score_plot,
    name_score_columns,
    read_score_columns,
)
from eclose.values.verdict import TraceGroup
from tests.report.making import make_cases, make_questions

CASES = make_cases(make_questions(3), 12)
IDS = [case.response.id for case in CASES]


def score(number, value, detector=DetectorKind.CLOSURE, model="nli@1"):
    reason = None if value is not None else Unscored.NO_ANSWER
    return DetectorScore(response_id=IDS[number], detector=detector, model=model, score=value, unscored=reason)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_records(folder / "instances.jsonl", {case.instance.id: case.instance for case in CASES}.values())
    write_records(folder / "responses.jsonl", [case.response for case in CASES])
    write_records(folder / "judgments.jsonl", [case.judgment for case in CASES])
    return folder


@pytest.mark.slow
def test_a_response_has_a_score_or_a_reason_and_never_zero_for_nothing(run):
    write_records(run / "scores-closure.jsonl", [score(0, 0.25), score(1, None), score(2, 0.0)])
    (column,) = diagnose(run).context.scores
    assert [column.get_value(id_) for id_ in IDS[:4]] == [0.25, "no answer", 0.0, "not run"]
    (entry,) = build_score_entries([column], IDS)
    assert entry["column"] == [0.25, "no answer", 0.0, *["not run"] * 9]
    assert (entry["key"], entry["name"], entry["model"]) == ("closure", "closure", "nli@1")


@pytest.mark.slow
def test_records_that_are_not_used_are_counted(run):
    stranger = replace(score(0, 0.1), response_id="stranger")
    records = [score(0, 0.5), score(0, 0.5), score(0, 0.6), stranger]
    write_records(run / "scores-closure.jsonl", records)
    with (run / "scores-closure.jsonl").open("a") as file:
        file.write("{}\n")
    (column,), _, rejected = read_score_columns([run], IDS)
    assert column.scores == {IDS[0]: 0.5}
    assert sum(rejected["scores-closure.jsonl"].values()) == 4
    assert rejected["scores-closure.jsonl"]["no such response"] == 1
    assert len(rejected["scores-closure.jsonl"]) == 4
    assert "scores-closure.jsonl" in diagnose(run).context.rejected


@pytest.mark.slow
def test_scores_of_other_responses_are_left_out_and_the_report_is_made(run):
    stage = PipelineStep("detect", {}, (run / "instances.jsonl", run / "responses.jsonl"), run / "scores-closure.jsonl")
    write_records(stage.out, [score(0, 0.5)])
    note_provenance(stage)
    assert diagnose(run).context.scores[0].scores == {IDS[0]: 0.5}
    text = (run / "responses.jsonl").read_text()
    (run / "responses.jsonl").write_text(text + text.splitlines()[0] + "\n")
    results = diagnose(run)
    assert results.context.scores == ()
    assert [sentence for sentence in results.notices if "scores-closure.jsonl" in sentence] == [
        *results.context.score_notices
    ]
    assert "Its scores are not shown" in results.context.score_notices[0]
    assert diagnose(run, allow_stale=True).context.scores[0].scores == {IDS[0]: 0.5}


def note_provenance(stage):
    manifest = Manifest("detect", {}, hash_files(stage.inputs), hash_files([stage.out]), RecordCounts(1, 1))
    manifest.write(companion_file_path(stage.out, "manifest.json"))


def test_ids_of_several_runs_get_the_name_of_their_run(run, tmp_path):
    write_records(run / "scores-closure.jsonl", [score(0, 0.5)])
    column = read_score_columns([run, tmp_path / "none"], [f"run/{id_}" for id_ in IDS])[0][0]
    assert column.scores == {f"run/{IDS[0]}": 0.5}


def test_two_models_and_two_files_have_names_of_their_own():
    identity = DetectorIdentity(DetectorKind.CLOSURE, "nli@1")
    columns = [
        ScoreColumn(identity, "scores-closure.jsonl"),
        ScoreColumn(identity, "scores-again.jsonl"),
        ScoreColumn(DetectorIdentity(DetectorKind.CLOSURE, "t5_xxl_true_nli_mixture"), "scores-t5.jsonl"),
        ScoreColumn(DetectorIdentity(DetectorKind.VERIFIER, "linear@2"), "scores-verifier.jsonl"),
        ScoreColumn(DetectorIdentity(DetectorKind.CONTROL, "number of steps"), "scores-control.jsonl"),
    ]
    names = ["closure (scores-closure.jsonl)", "closure (scores-again.jsonl)", "T5 closure", "verifier"]
    names.append("number of steps")
    assert name_score_columns(columns) == names
    keys = [entry["key"] for entry in build_score_entries(columns, IDS)]
    assert keys == ["closure", "closure-2", "closure-3", "verifier", "control"]


def test_the_filter_of_missing_scores_knows_detector_and_reason():
    entries = [
        {"key": "ragas", "name": "RAGAS-style", "column": [0.5, "no claim", 0.1, 0.2]},
        {"key": "closure", "name": "closure", "column": [0.5, "too long", "no answer", 0.0]},
    ]
    facet = build_unscored_facet(entries)
    hits = {
        name: [number for number, bits in enumerate(facet["column"]) if bits & bit] for name, _, bit in facet["options"]
    }
    assert hits == {
        "any": [1, 2],
        "ragas": [1],
        "closure": [1, 2],
        "because-no-answer": [2],
        "because-no-claim": [1],
        "because-too-long": [1],
    }
    assert build_unscored_facet([{"key": "a", "name": "a", "column": [0.0, 1.0]}]) is None
    assert build_unscored_facet([]) is None


def test_the_plot_counts_every_response_once():
    column = ScoreColumn(DetectorIdentity(DetectorKind.CLOSURE, "nli"), "scores-closure.jsonl")
    column.scores.update({id_: number / 10 for number, id_ in enumerate(IDS[:11])})
    ((_, _, histograms),) = layout_score_plot([column], CASES)
    assert sum(part.scored for part in histograms) == 11
    assert sum(part.unscored for part in histograms) == 1
    groups = {None: "undecided", TraceGroup.LOCALLY_UNSOUND: "unsound"}
    for part in histograms:
        members = [
            column.scores[case.response.id]
            for case in CASES
            if groups.get(case.verdict.trace_group, str(case.verdict.trace_group)) == part.kind
            and case.response.id in column.scores
        ]
        assert part.scored == len(members)
        assert part.mean == (pytest.approx(100 * sum(members) / len(members), abs=1e-3) if members else None)
        assert all(0 <= start <= 95 and 0 < height <= 100 for start, height in part.bars)
        assert part.show == f"outcome={part.kind}&sort=low-closure"
    # A score of 1 is in the last bar, not beyond it.
    assert max(start for part in histograms for start, _ in part.bars) == 95
    # Without any score there is no bar, no mean, and no zero.
    ((_, _, empty),) = layout_score_plot([ScoreColumn(column.detector, "x")], CASES)
    assert {(part.bars, part.mean, part.mean_text) for part in empty} == {((), None, "–")}
