"""Evaluation of a calibrated detector against loops over single responses, on random ranks with ties."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, isnan

import numpy as np
import pytest

from eclose.detectors.calibrate import CalibrationSettings, calibrate_detectors, calibrate_run
from eclose.detectors.evaluate import evaluate_detector, evaluate_run, trace_abstention, trace_cascade
from eclose.detectors.joined import StudyInputs
from eclose.detectors.overlap import TextControl
from eclose.detectors.scores import DetectorBand, DetectorKind
from eclose.detectors.study_statistics import DetectorIdentity, StudyGroup, StudySettings
from eclose.errors import UserError
from eclose.stats.bootstrap import StratifiedDesign
from eclose.values.instance import Instance, Passage
from tests.detectors.study_making import GAP, make_responses, make_verifier_scores, write_labelled_run
from tests.stats import loops

FEW = StudySettings(resamples=20)


def make_case(seed, questions=50):
    responses, verdicts, truth = make_responses(seed, questions=questions)
    rng = np.random.default_rng(seed)
    verdicts = [
        replace(row, verdict=replace(row.verdict, correct=[True, False, None][rng.integers(3)])) for row in verdicts
    ]
    ids = {row.instance_id: row.benchmark for row in verdicts}
    instances = {
        id_: Instance(id_, "Who took a step?", (Passage("p", "T", "Text."),), benchmark=name)
        for id_, name in ids.items()
    }
    return instances, responses, verdicts, truth, make_verifier_scores(seed + 50, truth)


@pytest.fixture(scope="module")
def calibration():
    _, responses, verdicts, _, scores = make_case(1)
    return calibrate_detectors(StudyInputs(scores, responses, verdicts))[0]


@pytest.fixture(scope="module")
def evaluated(calibration):
    instances, responses, verdicts, truth, scores = make_case(2)
    evaluation = evaluate_detector(calibration, StudyInputs(scores, responses, verdicts), instances, FEW)
    ranks = {row.response_id: calibration.combine_heads(row).score for row in scores}
    decided = {row.response_id: row for row in verdicts if row.verdict.trace_group is not None}
    return evaluation, ranks, decided, truth


@pytest.mark.slow
def test_rates_at_the_calibrated_threshold_by_loops(evaluated):
    evaluation, ranks, decided, truth = evaluated
    questions = sorted({(row.benchmark, row.instance_id) for row in decided.values()})
    number = {id_: questions.index((row.benchmark, row.instance_id)) for id_, row in decided.items()}
    draws = loops.drawn(StratifiedDesign.single(len(questions)), FEW.seed, FEW.resamples)
    names = {StudyGroup.GAP: GAP, StudyGroup.RELIABLE: ("reliable",), StudyGroup.PATH_DEVIATION: ("path_deviation",)}
    for group, kinds in names.items():
        rows = [(id_, ranks[id_]) for id_ in decided if truth[id_] in kinds and ranks.get(id_) is not None]

        def share(weights, rows=rows):
            flags = [
                rank < evaluation.calibration.threshold
                for question in loops.expanded(weights)
                for id_, rank in rows
                if number[id_] == question
            ]
            return sum(flags) / len(flags) if flags else np.nan

        estimate = evaluation.flagged[group]
        assert estimate.value == pytest.approx(share(np.ones(len(questions))))
        values = np.array([share(row) for row in draws])
        defined = values[~np.isnan(values)]
        assert estimate.interval == pytest.approx(tuple(np.quantile(defined, [0.025, 0.975])))


def test_every_decided_response_is_in_one_band(evaluated):
    evaluation, ranks, decided, truth = evaluated
    counts = {group: sum(evaluation.bands[band][group] for band in DetectorBand) for group in StudyGroup}
    assert counts[StudyGroup.RELIABLE] == sum(truth[id_] == "reliable" for id_ in decided)
    assert counts[StudyGroup.GAP] == sum(truth[id_] in GAP for id_ in decided)
    unscored = sum(evaluation.bands[DetectorBand.UNSCORED][group] for group in ("reliable", "gap", "locally_unsound"))
    assert unscored == sum(ranks.get(id_) is None for id_ in decided) > 0
    assert evaluation.responses == len(decided)


def test_the_study_has_the_ranks_and_all_controls(evaluated, calibration):
    evaluation, ranks, decided, truth = evaluated
    results = {result.detector: result for result in evaluation.study.results}
    controls = {DetectorIdentity(DetectorKind.CONTROL, control) for control in TextControl}
    assert set(results) == {calibration.identity} | controls
    rows = [(ranks[id_], truth[id_]) for id_ in sorted(decided) if ranks.get(id_) is not None]
    scores = np.array([rank for rank, _ in rows])
    failed = np.array([kind in GAP for _, kind in rows])
    reliable = np.array([kind == "reliable" for _, kind in rows])
    expected = loops.auroc(scores, failed, reliable)
    assert results[calibration.identity].separations[StudyGroup.GAP].auroc.value == pytest.approx(expected)
    assert expected > 0.6
    # All traces and questions are alike, so that a control tells nothing.
    for control in controls:
        assert results[control].separations[StudyGroup.GAP].auroc.value == 0.5


def make_curve(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    ranks = rng.integers(8, size=size) / 7
    ranks[rng.random(size) < 0.15] = np.nan
    kind = rng.choice(["reliable", "gap", "unsound"], size=size)
    return ranks, kind, [[True, False, None][index] for index in rng.integers(3, size=size)]


@pytest.mark.parametrize("seed", range(8))
def test_the_abstention_curve_by_loops(seed):
    ranks, kind, correct = make_curve(seed)
    points = trace_abstention(ranks, kind == "reliable", correct)
    thresholds = sorted({rank for rank in ranks if not isnan(rank)})
    assert [point.threshold for point in points] == [None, *thresholds]
    for point in points:
        answered = [n for n, rank in enumerate(ranks) if point.threshold is None or rank >= point.threshold]
        assert point.answered == len(answered)
        assert point.coverage == len(answered) / len(ranks)
        assert point.reliable == sum(kind[n] == "reliable" for n in answered) / len(answered)
        labels = [correct[n] for n in answered if correct[n] is not None]
        assert point.correctness_known == len(labels)
        assert point.correct == (sum(labels) / len(labels) if labels else None)


@pytest.mark.parametrize("seed", range(8))
def test_the_cascade_curve_by_loops(seed):
    ranks, kind, _ = make_curve(seed)
    points = trace_cascade(ranks, kind == "gap", kind == "unsound")
    assert [point.threshold for point in points] == [*sorted({rank for rank in ranks if not isnan(rank)}), None]
    gaps = sum(kind == "gap")
    for point in points:
        judged = [n for n, rank in enumerate(ranks) if point.threshold is None or isnan(rank) or rank < point.threshold]
        trusted = [n for n in range(len(ranks)) if n not in judged]
        assert (point.judged, point.saved) == (len(judged), len(trusted))
        assert point.gaps_missed == sum(kind[n] == "gap" for n in trusted)
        assert point.unsound_missed == sum(kind[n] == "unsound" for n in trusted)
        assert point.recall == (pytest.approx(1 - point.gaps_missed / gaps) if gaps else None)


def test_judge_calls_at_equal_recall(evaluated, calibration):
    evaluation, _, decided, _ = evaluated
    gaps = evaluation.study.groups[StudyGroup.GAP]
    for calls in evaluation.judge_calls:
        needed = ceil(calls.recall * gaps - 1e-9)
        expected = min(point.judged for point in evaluation.cascade if gaps - point.gaps_missed >= needed)
        assert calls.judged[calibration.identity] == expected
        assert calls.by_chance == ceil(calls.recall * len(decided) - 1e-9)
        # Equal scores leave a control nothing to order by: all responses or none.
        control = DetectorIdentity(DetectorKind.CONTROL, TextControl.STEPS)
        assert calls.judged[control] == len(decided)
    assert evaluation.judge_calls[0].judged[calibration.identity] < evaluation.judge_calls[0].by_chance


@pytest.mark.slow
def test_another_benchmark_or_model_is_refused(calibration):
    instances, responses, verdicts, _, scores = make_case(3, questions=20)
    other = [replace(row, benchmark="strategyqa") for row in verdicts]
    with pytest.raises(UserError, match="of strategyqa"):
        evaluate_detector(calibration, StudyInputs(scores, responses, other), instances, FEW)
    allowed = evaluate_detector(
        calibration, StudyInputs(scores, responses, other), instances, FEW, allow_other_benchmark=True
    )
    assert "do not carry over" in allowed.study.notices[0]
    with pytest.raises(UserError, match="the scores are of verifier with linear@1"):
        evaluate_detector(
            calibration,
            StudyInputs([replace(row, model="linear@1") for row in scores], responses, verdicts),
            instances,
            FEW,
        )


@pytest.mark.slow
def test_the_retention_follows_from_the_calibration():
    instances, responses, verdicts, _, scores = make_case(4, questions=30)
    settings = CalibrationSettings(max_false_positive_rate=0.07)
    (calibration,) = calibrate_detectors(StudyInputs(scores, responses, verdicts), settings)
    evaluation = evaluate_detector(calibration, StudyInputs(scores, responses, verdicts), instances)
    assert evaluation.study.settings.retention == 0.93


@pytest.mark.slow
def test_a_run_that_made_the_calibration_is_told(tmp_path):
    _, responses, verdicts, _, scores = make_case(5)
    first, second = tmp_path / "first", tmp_path / "second"
    write_labelled_run(first, responses, verdicts, scores)
    _, responses, verdicts, _, scores = make_case(6)
    responses = [replace(row, answer="y") for row in responses]
    write_labelled_run(second, responses, verdicts, scores)
    (calibration,) = calibrate_run([first], [first / "scores-verifier.jsonl"], verdicts=first / "people.jsonl").values()
    notices = {
        run: evaluate_run(
            [run], [run / "scores-verifier.jsonl"], calibration, verdicts=run / "people.jsonl", settings=FEW
        ).study.notices
        for run in (first, second)
    }
    assert any("was made from these responses" in sentence for sentence in notices[first])
    assert not any("was made from these responses" in sentence for sentence in notices[second])
