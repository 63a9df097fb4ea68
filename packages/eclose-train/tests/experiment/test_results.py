"""Results of an experiment from its folder: people's labels and what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.errors import RecordError, UserError
from eclose.files.jsonl import write_records
from eclose.files.manifest import hash_file
from eclose.values.judgment import Judgment
from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.experiment.report.build import build_experiment_report
from eclose_train.experiment.results import collect_results
from tests.experiment.judged import TRAINING, write_judged_experiment

pytestmark = pytest.mark.slow
GOOD = Verdict(locally_sound=True, aligned=True, closed=True, complete=True, correct=True)
UNTUNED = ResponseSource("Small")


def write_labels(folder, *rows):
    write_records(folder / "labels.jsonl", rows)
    return folder / "labels.jsonl"


def test_labels_find_their_responses_by_source_and_id(tmp_path):
    labels = write_labels(
        tmp_path,
        SettledVerdict("r-wiki-0", "wiki-0", GOOD, source=UNTUNED),
        SettledVerdict("r-wiki-1", "wiki-1", GOOD, source=UNTUNED),
        SettledVerdict("r-wiki-1", "wiki-1", GOOD, source=ResponseSource("Unknown")),
    )
    evaluator = collect_results(write_judged_experiment(tmp_path, labels=labels)).evaluator
    assert evaluator.name == "high"
    assert [(case.question_id, case.dataset) for case in evaluator.cases] == [("wiki-0", "wiki"), ("wiki-1", "wiki")]
    # The first cell closes all questions but every third.
    assert [case.judge.closed for case in evaluator.cases] == [False, True]
    assert evaluator.not_in_runs == 1


def test_verdicts_of_other_judges_stand_beside_those_of_the_judge(tmp_path):
    rows = [SettledVerdict(f"r-wiki-{number}", f"wiki-{number}", GOOD, source=UNTUNED) for number in range(2)]
    experiment = write_judged_experiment(tmp_path, labels=write_labels(tmp_path, *rows))
    write_records(tmp_path / "low.jsonl", [Judgment("r-wiki-1", "world", (), aligned=False)])
    evaluator = collect_results(experiment, {"low": tmp_path / "low.jsonl"}).evaluator
    assert [verdict.aligned for verdict in evaluator.others["low"]] == [None, False]


@pytest.mark.parametrize(
    "rows,error,message",
    [
        ([SettledVerdict("r-wiki-0", "wiki-0", GOOD)], UserError, "is in 10 cells. Name the source"),
        ([SettledVerdict("r-wiki-0", "wiki-5", GOOD, source=UNTUNED)], RecordError, "on question 'wiki-5'"),
        ([SettledVerdict("other", "wiki-5", GOOD)], UserError, "no verdict is on a judged response"),
    ],
)
def test_labels_that_fit_no_single_response_are_refused(tmp_path, rows, error, message):
    experiment = write_judged_experiment(tmp_path, labels=write_labels(tmp_path, *rows))
    with pytest.raises(error, match=message):
        collect_results(experiment)


def test_two_verdicts_on_one_response_are_refused(tmp_path):
    other = SettledVerdict("r-wiki-0", "wiki-0", Verdict(correct=False), source=UNTUNED)
    labels = write_labels(tmp_path, SettledVerdict("r-wiki-0", "wiki-0", GOOD, source=UNTUNED), other)
    with pytest.raises(RecordError, match="two different verdicts"):
        collect_results(write_judged_experiment(tmp_path, labels=labels))


def test_runs_with_other_prompts_are_refused_and_the_data_are_recorded(tmp_path):
    experiment = write_judged_experiment(tmp_path)
    results = collect_results(experiment)
    assert {run.pool for run in results.provenance.values()} == {hash_file(tmp_path / "questions.jsonl")[:19]}
    other = replace(experiment.resolved["Large"], training={**TRAINING, "demonstrations": 3})
    changed = replace(experiment, resolved={**experiment.resolved, "Large": other})
    with pytest.raises(UserError, match=r"differ in prompt: sha256:\w+ \(Small\), sha256:\w+ \(Large\)"):
        build_experiment_report(replace(results, provenance=collect_results(changed).provenance))


def test_planned_runs_without_results_are_listed(tmp_path):
    experiment = write_judged_experiment(
        tmp_path,
        ablations=["e_closure-S", "e_closure-T"],
        ablation_backbone="Small",
        skip=["Large sft 2", "Small e_closure-T 1", "Small e_closure-T 2"],
        bootstrap={"main": {"resamples": 10, "seed": 1}, "ablations": {"resamples": 10, "seed": 1}},
    )
    report = build_experiment_report(collect_results(experiment), experiment.plan.bootstrap)
    assert report.missing == (
        "Responses of SFT on Large, seed 2: all 10 are missing.",
        "Ablations: responses of w/o T on Small, seed 1: all 10 are missing.",
        "Ablations: responses of w/o T on Small, seed 2: all 10 are missing.",
        "Switch test: no run is finished.",
    )
    assert all(gain.reliability_gain.interval is None for gain in report.ablations[0].gains)
