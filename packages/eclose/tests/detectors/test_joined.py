"""The detector study against loops written straight from appendix A.5, and what becomes of every record."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from random import Random

import numpy as np
import pytest

from eclose.detectors.joined import NO_RECORD, NO_VERDICT, StudyInputs, study_detectors
from eclose.detectors.scores import DetectorKind, DetectorScore
from eclose.detectors.study_statistics import (
    DISJOINT_GROUPS,
    FAILURE_GROUPS,
    GAP_CLASSES,
    StudyGroup,
    StudySettings,
    list_study_groups,
)
from eclose.errors import SettingError, UserError
from eclose.stats.bootstrap import StratifiedDesign
from eclose.stats.ranking import assign_folds
from eclose.values.verdict import Verdict
from tests.detectors.study_making import CLASSES, GAP, MODELS, VERDICTS, make_responses, make_scores
from tests.stats import loops

FEW = StudySettings(resamples=25)
MEMBERS = {
    StudyGroup.RELIABLE: ("reliable",),
    StudyGroup.GAP: GAP,
    **{StudyGroup(name): (name,) for name in CLASSES},
    StudyGroup.LOCALLY_UNSOUND: ("locally_unsound",),
}


class LoopStudy:
    """The study of one detector on some responses, one resample and one response after another."""

    def __init__(self, truth, responses, verdicts, scores, detector, settings, used=None):
        self.settings = settings
        decided = {id_: kind for id_, kind in truth.items() if any(kind in names for names in MEMBERS.values())}
        benchmark = {row.instance_id: row.benchmark for row in verdicts}
        question_ids = {response.id: response.instance_id for response in responses}
        self.questions = sorted({(benchmark[question_ids[id_]], question_ids[id_]) for id_ in decided})
        names = [name for _, name in self.questions]
        value = {record.response_id: record.score for record in scores if record.detector is detector}
        self.ids = [id_ for id_ in sorted(decided) if used is None or id_ in used]
        self.kind = [decided[id_] for id_ in self.ids]
        self.question = np.array([names.index(question_ids[id_]) for id_ in self.ids])
        self.scores = np.array([np.nan if value.get(id_) is None else value[id_] for id_ in self.ids])
        # Folds number the datasets in the order of the sorted questions.
        order = list(dict.fromkeys(dataset for dataset, _ in self.questions))
        strata = np.array([order.index(dataset) for dataset, _ in self.questions])
        fold = assign_folds(strata, settings.folds, rng=np.random.default_rng(settings.seed))
        self.fold = fold[self.question]

    def rows(self, group):
        return [row for row, kind in enumerate(self.kind) if kind in MEMBERS[group]]

    def resample(self, weights):
        """The scored responses of a resample, each as often as its question was drawn."""
        drawn = [
            row
            for question in loops.expanded(weights)
            for row in np.flatnonzero(self.question == question)
            if not isnan(self.scores[row])
        ]
        return np.array(drawn, int)

    def statistics(self, group, rows):
        failed, reliable = (np.isin(rows, self.rows(name)) for name in (group, StudyGroup.RELIABLE))
        scores = self.scores[rows]
        held_out = loops.cross_fitted(scores, failed, reliable, self.fold[rows])
        fpr = loops.recall(scores, reliable, reliable)
        return [loops.auroc(scores, failed, reliable), loops.recall(scores, failed, reliable), fpr, *held_out]

    def all_draws(self, group):
        design = StratifiedDesign.single(len(self.questions))
        weights = loops.drawn(design, self.settings.seed, self.settings.resamples)
        return [self.statistics(group, self.resample(row)) for row in [np.ones(len(self.questions)), *weights]]

    def mean_draws(self, group):
        """Means over questions drawn among those represented in the group."""
        rows = self.rows(group)
        represented = sorted({self.question[row] for row in rows})
        weights = loops.drawn(StratifiedDesign.single(len(represented)), self.settings.seed, self.settings.resamples)
        return [self.mean(rows, represented, drawn) for drawn in [np.ones(len(represented)), *weights]]

    def mean(self, rows, represented, weights):
        values = [
            self.scores[row]
            for index in loops.expanded(weights)
            for row in rows
            if self.question[row] == represented[index] and not isnan(self.scores[row])
        ]
        return sum(values) / len(values) if values else np.nan


def assert_estimate(estimate, values):
    point, draws = values[0], np.array(values[1:], float)
    assert estimate.value == (None if isnan(point) else pytest.approx(point, abs=1e-12))
    defined = draws[~np.isnan(draws)]
    assert estimate.undefined == len(draws) - len(defined)
    if len(defined):
        assert estimate.interval == pytest.approx(tuple(np.quantile(defined, [0.025, 0.975])), abs=1e-12)
    else:
        assert estimate.interval is None


def assert_result(result, loop):
    for group in StudyGroup:
        assert_estimate(result.means[group], loop.mean_draws(group))
        assert result.scored[group] == sum(not isnan(loop.scores[row]) for row in loop.rows(group))
    for group in FAILURE_GROUPS:
        draws = loop.all_draws(group)
        assert_estimate(result.separations[group].auroc, [row[0] for row in draws])
        assert_estimate(result.separations[group].recall, [row[1] for row in draws])
        if group is StudyGroup.GAP:
            assert_estimate(result.false_positive_rate, [row[2] for row in draws])
            assert_estimate(result.held_out_false_positive_rate, [row[3] for row in draws])
            assert_estimate(result.held_out_recall, [row[4] for row in draws])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_statistic_and_interval_by_loops(seed):
    responses, verdicts, truth = make_responses(seed)
    scores = make_scores(seed, truth)
    study = study_detectors(StudyInputs(scores, responses, verdicts), FEW)
    assert [result.detector.kind for result in study.results] == list(MODELS)
    for result in study.results:
        assert_result(result, LoopStudy(truth, responses, verdicts, scores, result.detector.kind, FEW))


@pytest.mark.slow
def test_the_common_responses_by_loops():
    responses, verdicts, truth = make_responses(3)
    scores = make_scores(3, truth)
    study = study_detectors(StudyInputs(scores, responses, verdicts), FEW)
    values = {
        kind: {row.response_id for row in scores if row.detector is kind and row.score is not None} for kind in MODELS
    }
    shared = set.intersection(*values.values())
    decided = {row.response_id for row in verdicts if row.verdict.trace_group is not None}
    assert study.common_responses == len(shared & decided)
    assert study.unshared == len((set.union(*values.values()) - shared) & decided) > 0
    for result in study.common:
        assert_result(result, LoopStudy(truth, responses, verdicts, scores, result.detector.kind, FEW, shared))


def drop_scores(scores, detector, ids):
    return [record for record in scores if record.detector is not detector or record.response_id not in ids]


@pytest.mark.parametrize("missing,repeated", [(0, False), (1, False), (2, True)])
def test_common_responses_are_studied_above_one_percent_only(missing, repeated):
    # One of 100 responses is exactly 1 %.
    responses, verdicts, truth = make_responses(
        4, questions=100, kinds=("reliable", "path_deviation"), shares=(0.7, 0.3)
    )
    used = [response for response in responses if response.id.endswith("-0")]
    truth = {response.id: truth[response.id] for response in used}
    scores = make_scores(4, truth, missing=0)
    scores = drop_scores(scores, DetectorKind.CLOSURE, list(truth)[:missing])
    study = study_detectors(StudyInputs(scores, used, verdicts), FEW)
    assert study.unshared == missing
    assert bool(study.common) is repeated


def test_equal_scores_on_the_common_responses_give_the_same_result():
    responses, verdicts, truth = make_responses(5)
    scores = make_scores(5, truth, missing=0)
    whole = study_detectors(StudyInputs(scores, responses, verdicts), FEW)
    # A detector that scored half of the responses leaves the others as they were.
    half = drop_scores(scores, DetectorKind.CLOSURE, list(truth)[::2])
    study = study_detectors(StudyInputs(half, responses, verdicts), FEW)
    assert [row.separations for row in study.results[:2]] == [row.separations for row in whole.results[:2]]
    assert [row.means for row in study.results[:2]] == [row.means for row in whole.results[:2]]
    assert study.results[2].scored == study.common[2].scored == study.common[0].scored
    assert study.results[2].separations == study.common[2].separations


def test_detectors_with_the_same_scores_have_the_same_intervals():
    responses, verdicts, truth = make_responses(6)
    scores = make_scores(6, truth, kinds=[DetectorKind.CLOSURE], missing=0)
    twin = [replace(record, model="modernbert-nli") for record in scores]
    study = study_detectors(StudyInputs([*scores, *twin], responses, verdicts), FEW)
    first, second = study.results
    assert first.detector != second.detector
    assert (first.means, first.separations) == (second.means, second.separations)
    assert first.held_out_recall == second.held_out_recall


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_the_sum_of_its_classes(seed):
    # Relations of tests/paper/derivations/detectors.py: weighted means of scores and AUROCs, summed detections.
    responses, verdicts, truth = make_responses(seed, kinds=tuple(VERDICTS)[:4], shares=(0.6, 0.15, 0.1, 0.15))
    study = study_detectors(StudyInputs(make_scores(seed, truth), responses, verdicts), FEW)
    for result in study.results:
        total = result.scored[StudyGroup.GAP]
        assert total == sum(result.scored[name] for name in GAP_CLASSES)
        parts = [(result.scored[name] / total, result.means[name].value) for name in GAP_CLASSES]
        assert result.means[StudyGroup.GAP].value == pytest.approx(sum(weight * mean for weight, mean in parts))
        for statistic in ("auroc", "recall"):
            parts = [
                (result.scored[name] / total, getattr(result.separations[name], statistic).value)
                for name in GAP_CLASSES
            ]
            whole = getattr(result.separations[StudyGroup.GAP], statistic).value
            assert whole == pytest.approx(sum(weight * part for weight, part in parts))


def test_the_order_of_records_changes_nothing():
    responses, verdicts, truth = make_responses(7)
    scores = make_scores(7, truth)
    study = study_detectors(StudyInputs(scores, responses, verdicts), FEW)
    random = Random(1)
    shuffled = study_detectors(
        StudyInputs(*(random.sample(records, len(records)) for records in (scores, responses, verdicts))), FEW
    )
    assert [row.separations for row in shuffled.results] == [row.separations for row in study.results]
    assert [row.means for row in shuffled.results] == [row.means for row in study.results]
    assert [row.held_out_recall for row in shuffled.results] == [row.held_out_recall for row in study.results]
    assert [row.scores for row in shuffled.results] == [row.scores for row in study.results]
    assert shuffled.counts == study.counts


def test_every_record_is_counted_once():
    responses, verdicts, truth = make_responses(8, questions=60)
    scores = make_scores(8, truth, missing=0.3)
    stranger = DetectorScore(response_id="elsewhere", detector=DetectorKind.CLOSURE, model=MODELS["closure"], score=0.5)
    # Two responses lose their verdict, and a verdict is about a response of another run.
    lost = {row.response_id for row in verdicts[:2]}
    labels = [*verdicts[2:], replace(verdicts[5], response_id="elsewhere")]
    study = study_detectors(StudyInputs([*scores, stranger], responses, labels), FEW)
    assert study.unknown_verdicts == 1
    assert study.undecided[NO_VERDICT] == 2
    expected = [kind for id_, kind in truth.items() if id_ not in lost]
    for reason in ("no label L", "no label A and C"):
        assert study.undecided[reason] == expected.count(reason) > 0
    assert study.unclassified == {"closure_failure": expected.count("closure_failure")}
    for group, names in MEMBERS.items():
        assert study.groups[group] == sum(kind in names for kind in expected)
    assert sum(study.groups[group] for group in DISJOINT_GROUPS) + sum(study.undecided.values()) == study.responses
    assert study.responses == len(responses)
    for detector, counts in study.counts.items():
        records = [row for row in [*scores, stranger] if row.detector is detector.kind]
        assert counts.records == len(records)
        assert counts.unknown_responses == (detector.kind is DetectorKind.CLOSURE)
        parts = [*(counts.groups[group] for group in DISJOINT_GROUPS), counts.undecided]
        assert sum(part.responses for part in parts) == len(responses)
        for part in (*counts.groups.values(), counts.undecided):
            assert part.scored + sum(part.unscored.values()) == part.responses
        # Records in = records used, unscored, of undecided responses, or of other responses.
        record_count = sum(part.responses - part.unscored.get(NO_RECORD, 0) for part in parts)
        assert counts.records == record_count + counts.unknown_responses
        result = next(row for row in study.results if row.detector == detector)
        assert counts.used == sum(len(result.scores[group]) for group in DISJOINT_GROUPS)
        for group in StudyGroup:
            assert counts.groups[group].scored == result.scored[group]
        reasons = {}
        for row in records:
            if row.unscored is not None:
                reasons[str(row.unscored)] = reasons.get(str(row.unscored), 0) + 1
        total = {reason: sum(part.unscored.get(reason, 0) for part in parts) for reason in reasons}
        assert total == reasons


def test_an_empty_group_is_undefined_and_not_zero():
    responses, verdicts, truth = make_responses(9, kinds=("reliable", "locally_unsound"), shares=(0.7, 0.3))
    study = study_detectors(StudyInputs(make_scores(9, truth), responses, verdicts), FEW)
    for result in study.results:
        for group in (StudyGroup.GAP, *GAP_CLASSES):
            assert result.scored[group] == 0
            assert (result.means[group].value, result.means[group].interval) == (None, None)
            separation = result.separations[group]
            assert (separation.auroc.value, separation.auroc.interval) == (None, None)
            assert (separation.recall.value, separation.recall.interval) == (None, None)
        assert result.held_out_recall.value is None
        assert result.sweep is None
        assert result.held_out_false_positive_rate.value is not None
        assert result.separations[StudyGroup.LOCALLY_UNSOUND].auroc.value is not None


def test_without_reliable_responses_nothing_is_calibrated():
    responses, verdicts, truth = make_responses(10, kinds=("path_deviation", "locally_unsound"), shares=(0.5, 0.5))
    study = study_detectors(StudyInputs(make_scores(10, truth), responses, verdicts), FEW)
    for result in study.results:
        assert result.threshold is None
        assert result.false_positive_rate.value is None
        assert result.held_out_false_positive_rate.value is None
        assert result.separations[StudyGroup.GAP].recall.value is None
        assert result.means[StudyGroup.GAP].value is not None


def test_a_detector_that_scored_nothing_is_undefined_throughout():
    responses, verdicts, truth = make_responses(11)
    scores = make_scores(11, truth, missing=0)
    blank = [
        replace(record, model="blank", score=None, unscored="too long")
        for record in scores
        if record.detector is DetectorKind.CLOSURE
    ]
    study = study_detectors(StudyInputs([*scores, *blank], responses, verdicts), FEW)
    result = study.results[2]
    assert result.detector.model == "blank"
    assert {estimate.value for estimate in result.means.values()} == {None}
    assert result.threshold is None
    assert study.counts[result.detector].used == 0
    # The other detectors share no response with it.
    assert study.common_responses == 0
    assert {row.separations[StudyGroup.GAP].auroc.value for row in study.common} == {None}


def test_ties_at_the_threshold_flag_nobody():
    responses, verdicts, truth = make_responses(12, kinds=("reliable", "path_deviation"), shares=(0.7, 0.3))
    scores = [DetectorScore(response_id=id_, detector=DetectorKind.ALIGNMENT, model="m", score=0.5) for id_ in truth]
    (result,) = study_detectors(StudyInputs(scores, responses, verdicts), FEW).results
    assert result.threshold == 0.5
    assert result.separations[StudyGroup.GAP].auroc.value == 0.5
    assert result.separations[StudyGroup.GAP].recall.value == 0
    assert result.false_positive_rate.value == result.held_out_false_positive_rate.value == 0


def test_one_threshold_and_one_point_of_the_sweep_serve_all_groups():
    responses, verdicts, truth = make_responses(13, questions=80)
    study = study_detectors(StudyInputs(make_scores(13, truth), responses, verdicts), FEW)
    for result in study.results:
        by_id = dict(result.scores[StudyGroup.LOCALLY_UNSOUND])
        flagged = sum(score < result.threshold for score in by_id.values())
        recall = result.separations[StudyGroup.LOCALLY_UNSOUND].recall.value
        assert recall == pytest.approx(flagged / len(by_id))
        at = list(result.sweep.thresholds).index(result.threshold)
        assert result.sweep.recalls[at] == pytest.approx(result.separations[StudyGroup.GAP].recall.value)
        assert result.sweep.false_positive_rates[at] == pytest.approx(result.false_positive_rate.value)


def test_other_settings_reach_the_statistics():
    responses, verdicts, truth = make_responses(14, questions=60)
    scores = make_scores(14, truth)
    plain = study_detectors(StudyInputs(scores, responses, verdicts), FEW).results[0]
    loose = study_detectors(StudyInputs(scores, responses, verdicts), replace(FEW, retention=0.6)).results[0]
    assert loose.threshold > plain.threshold
    assert 0.2 < loose.false_positive_rate.value <= 0.4
    other = study_detectors(StudyInputs(scores, responses, verdicts), replace(FEW, seed=1)).results[0]
    assert other.means[StudyGroup.GAP].value == plain.means[StudyGroup.GAP].value
    assert other.means[StudyGroup.GAP].interval != plain.means[StudyGroup.GAP].interval


@pytest.mark.parametrize("name", VERDICTS)
def test_groups_of_a_verdict(name):
    expected = {group for group, names in MEMBERS.items() if name in names}
    assert set(list_study_groups(VERDICTS[name])) == expected


def test_an_unsound_response_is_in_no_class_of_the_gap():
    verdict = Verdict(locally_sound=False, aligned=True, closed=False, complete=True)
    assert list_study_groups(verdict) == (StudyGroup.LOCALLY_UNSOUND,)


def test_records_that_do_not_belong_together_are_refused():
    responses, verdicts, truth = make_responses(15)
    scores = make_scores(15, truth, missing=0)
    with pytest.raises(UserError, match="two scores of ragas"):
        study_detectors(StudyInputs([*scores, scores[0]], responses, verdicts), FEW)
    with pytest.raises(UserError, match="two verdicts"):
        study_detectors(StudyInputs(scores, responses, [*verdicts, verdicts[0]]), FEW)
    with pytest.raises(UserError, match="two responses have the id"):
        study_detectors(StudyInputs(scores, [*responses, responses[0]], verdicts), FEW)
    with pytest.raises(UserError, match="names question 'other'"):
        study_detectors(StudyInputs(scores, responses, [replace(verdicts[0], instance_id="other"), *verdicts[1:]]), FEW)
    with pytest.raises(UserError, match="no score to study"):
        study_detectors(StudyInputs([], responses, verdicts), FEW)
    with pytest.raises(UserError, match="no response has labels"):
        study_detectors(StudyInputs(scores, responses, []), FEW)


@pytest.mark.parametrize("change", [{"folds": 1}, {"resamples": 0}, {"retention": 0}, {"level": 1}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(SettingError):
        StudySettings(**change)


def test_generators_of_a_detectors_own_family_are_named():
    responses, verdicts, truth = make_responses(16)
    scores = [replace(row, model="Qwen/Qwen3-4B@abc") for row in make_scores(16, truth, kinds=[DetectorKind.CLOSURE])]
    assert study_detectors(StudyInputs(scores, responses, verdicts), FEW).same_family_pairs == (
        ("Qwen/Qwen3-4B@abc", "qwen3-8b"),
    )
    other = study_detectors(StudyInputs(make_scores(16, truth), responses, verdicts), FEW)
    assert other.same_family_pairs == ()
