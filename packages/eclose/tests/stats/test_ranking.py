from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from eclose.stats.bootstrap import StratifiedDesign
from eclose.stats.ranking import (
    ScoredResponses,
    assign_folds,
    auroc,
    recall_at_retention,
    resampled_aurocs,
    resampled_held_out_rates,
    resampled_recalls,
    resampled_thresholds,
    sweep_thresholds,
    threshold_at_retention,
)

from . import loops

seeds = pytest.mark.parametrize("seed", range(10))

FAILED, RELIABLE, NEITHER = range(3)
responses = st.lists(st.tuples(st.integers(-20, 20), st.sampled_from([FAILED, RELIABLE, NEITHER])), max_size=40)


def scored_of(pairs, transform=float):
    scores = np.array([transform(score) for score, _ in pairs], float)
    group = np.array([group for _, group in pairs], int)
    return ScoredResponses(scores, group == FAILED, group == RELIABLE)


def random_scored(seed, size=120, levels=25):
    """Scores with many ties; about a tenth of the responses are in neither group."""
    rng = np.random.default_rng(seed)
    group = rng.choice([FAILED, RELIABLE, NEITHER], size, p=[0.3, 0.6, 0.1])
    scores = (rng.integers(levels, size=size) + 4 * (group == RELIABLE)) / levels
    return ScoredResponses(scores, group == FAILED, group == RELIABLE)


def resampled(scored, weights):
    """The responses of a resample, physically repeated."""
    rows = loops.expanded(weights)
    return scored.scores[rows], scored.failed[rows], scored.reliable[rows]


@seeds
def test_auroc_with_ties_is_scikit_learns(seed):
    scored = random_scored(seed)
    labelled = scored.failed | scored.reliable
    assert auroc(scored) == pytest.approx(roc_auc_score(scored.reliable[labelled], scored.scores[labelled]), abs=1e-9)


def test_auroc_by_hand():
    # Failed 1 and 3 against reliable 2 and 3: wins 1, 1, 0 and a tie, 1/2: 5/8.
    scored = ScoredResponses(np.array([1.0, 3.0, 2.0, 3.0]), np.array([1, 1, 0, 0], bool), np.array([0, 0, 1, 1], bool))
    assert auroc(scored) == 2.5 / 4


@pytest.mark.parametrize("end", [np.inf, -np.inf])
def test_infinite_scores_tie_with_each_other(end):
    scored = ScoredResponses(np.array([end, end]), np.array([True, False]), np.array([False, True]))
    assert auroc(scored) == 0.5


@seeds
def test_threshold_and_recall_straight_from_the_definition(seed):
    scored = random_scored(seed, size=int(np.random.default_rng(seed).integers(3, 120)))
    assert threshold_at_retention(scored) == loops.threshold(scored.scores, scored.reliable)
    expected = loops.recall(scored.scores, scored.failed, scored.reliable)
    assert recall_at_retention(scored) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "reliable,expected",
    [
        # One of 20 is exactly 5 %, so the second lowest score is allowed; one of 19 is more.
        (range(1, 21), 2.0),
        (range(1, 20), 1.0),
        # Two tie at the bottom of 40: exactly 5 %.
        ([1, 1, *range(2, 40)], 2.0),
        # Three tie at the bottom: flagging them would be 3 of 41.
        ([1, 1, 1, *range(2, 40)], 1.0),
    ],
)
def test_a_twentieth_is_meant_exactly(reliable, expected):
    scores = np.array(list(reliable), float)
    everyone = np.ones(len(scores), bool)
    assert threshold_at_retention(ScoredResponses(scores, ~everyone, everyone)) == expected


@pytest.mark.parametrize("retention,spared", [(0.9, Fraction(1, 10)), (0.7, Fraction(3, 10)), (1.0, Fraction(0))])
@seeds
def test_other_retentions(seed, retention, spared):
    scored = random_scored(seed)
    assert threshold_at_retention(scored, retention) == loops.threshold(scored.scores, scored.reliable, spared)
    expected = loops.recall(scored.scores, scored.failed, scored.reliable, spared)
    assert recall_at_retention(scored, retention) == pytest.approx(expected, abs=1e-12)


@seeds
def test_every_threshold_of_the_sweep_straight_from_the_definition(seed):
    scored = random_scored(seed)
    sweep = sweep_thresholds(scored)
    labelled = scored.scores[scored.failed | scored.reliable]
    assert list(sweep.thresholds) == [*sorted(set(labelled)), np.inf]
    for limit, fpr, recall in zip(*sweep, strict=True):
        assert fpr == pytest.approx(np.mean([score < limit for score in scored.scores[scored.reliable]]), abs=1e-12)
        assert recall == pytest.approx(np.mean([score < limit for score in scored.scores[scored.failed]]), abs=1e-12)


@given(responses)
def test_the_sweep_encloses_the_auroc_and_holds_the_point_of_the_threshold(pairs):
    scored = scored_of(pairs)
    sweep = sweep_thresholds(scored)
    assert (sweep is None) == (auroc(scored) is None)
    if sweep is None:
        return
    fpr, recall = sweep.false_positive_rates, sweep.recalls
    assert (fpr[0], recall[0], fpr[-1], recall[-1]) == (0, 0, 1, 1)
    assert np.sum(np.diff(fpr) * (recall[1:] + recall[:-1]) / 2) == pytest.approx(auroc(scored), abs=1e-12)
    at = list(sweep.thresholds).index(threshold_at_retention(scored))
    assert fpr[at] <= 1 / 20
    assert recall[at] == pytest.approx(recall_at_retention(scored), abs=1e-12)


@seeds
def test_weights_are_the_expanded_resample(seed):
    scored = random_scored(seed, size=30, levels=6)
    weights = loops.drawn(StratifiedDesign.single(30), seed, 25)
    results = (
        resampled_aurocs(weights, scored),
        resampled_thresholds(weights, scored.scores, scored.reliable),
        resampled_recalls(weights, scored),
    )
    for row, values in zip(weights, zip(*results, strict=True), strict=True):
        scores, failed, reliable = resampled(scored, row)
        expected = (
            loops.auroc(scores, failed, reliable),
            loops.threshold(scores, reliable),
            loops.recall(scores, failed, reliable),
        )
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)


@seeds
def test_refitted_folds_are_the_expanded_resample(seed):
    scored = random_scored(seed, size=45, levels=8)
    # Three responses a question; folds are dealt to questions and stay as they are.
    question = np.repeat(np.arange(15), 3)
    fold = assign_folds(np.arange(15) % 2, rng=np.random.default_rng(seed))[question]
    weights = loops.drawn(StratifiedDesign.single(15), seed, 20)[:, question]
    for row, values in zip(weights, resampled_held_out_rates(weights, scored, fold), strict=True):
        rows = loops.expanded(row)
        expected = loops.cross_fitted(scored.scores[rows], scored.failed[rows], scored.reliable[rows], fold[rows])
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)
    transfer = resampled_held_out_rates(scored.ones, scored, fold)[0]
    assert transfer == pytest.approx(loops.cross_fitted(scored.scores, scored.failed, scored.reliable, fold), abs=1e-12)


def test_cross_fitting_by_hand():
    # Fold 0 holds a reliable 2, fold 1 a reliable 5 and failed 1 and 3. Calibrated on fold 1, 2 < 5 is flagged;
    # calibrated on fold 0, of 5, 1 and 3 only 1 < 2 is. One of two reliable, one of two failed.
    scored = ScoredResponses(np.array([2.0, 5.0, 1.0, 3.0]), np.array([0, 0, 1, 1], bool), np.array([1, 1, 0, 0], bool))
    assert resampled_held_out_rates(scored.ones, scored, np.array([0, 1, 1, 1])).tolist() == [[0.5, 0.5]]


def test_a_fold_that_cannot_be_calibrated_leaves_the_rates_undefined():
    # All reliable responses are in fold 0, so nothing calibrates it; the failed one in fold 1 is judged.
    scored = ScoredResponses(np.array([2.0, 5.0, 1.0]), np.array([0, 0, 1], bool), np.array([1, 1, 0], bool))
    fpr, recall = resampled_held_out_rates(scored.ones, scored, np.array([0, 0, 1]))[0]
    assert np.isnan(fpr)
    assert recall == 1.0


def test_folds_share_each_stratum_evenly():
    strata = np.repeat([0, 1, 2], [278, 255, 333])
    fold = assign_folds(strata, rng=np.random.default_rng(42))
    for stratum in range(3):
        sizes = np.bincount(fold[strata == stratum], minlength=5)
        assert len(sizes) == 5
        assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(fold, assign_folds(strata, rng=np.random.default_rng(42)))
    assert not np.array_equal(fold, assign_folds(strata, rng=np.random.default_rng(43)))


def test_as_many_folds_as_asked_for():
    assert sorted(assign_folds(np.zeros(7, int), 3, rng=np.random.default_rng(0))) == [0, 0, 0, 1, 1, 2, 2]


def test_a_missing_score_is_refused():
    with pytest.raises(ValueError, match="a score is missing"):
        ScoredResponses(np.array([np.nan]), np.array([True]), np.array([False]))


def test_failed_and_reliable_at_once_is_refused():
    with pytest.raises(ValueError, match="failed and reliable at once"):
        ScoredResponses(np.array([1.0]), np.array([True]), np.array([True]))


@pytest.mark.parametrize("group", [FAILED, RELIABLE, NEITHER])
def test_one_group_alone_says_nothing(group):
    scored = scored_of([(1, group), (2, group)])
    assert auroc(scored) is None
    assert recall_at_retention(scored) is None
    assert sweep_thresholds(scored) is None
    assert (threshold_at_retention(scored) is None) == (group != RELIABLE)


def test_no_responses_say_nothing():
    scored = scored_of([])
    assert (auroc(scored), recall_at_retention(scored), threshold_at_retention(scored)) == (None, None, None)


def test_a_resample_without_reliable_responses_has_no_threshold():
    scored = scored_of([(1, FAILED), (2, RELIABLE)])
    weights = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(resampled_thresholds(weights, scored.scores, scored.reliable), [np.nan, 2, 2])
    np.testing.assert_array_equal(resampled_recalls(weights, scored), [np.nan, 1, np.nan])
    np.testing.assert_array_equal(resampled_aurocs(weights, scored), [np.nan, 1, np.nan])


@pytest.mark.slow
@given(responses)
def test_negated_scores_turn_auroc_around(pairs):
    value, turned = auroc(scored_of(pairs)), auroc(scored_of(pairs, lambda score: -score))
    assert turned == (None if value is None else pytest.approx(1 - value, abs=1e-12))


@pytest.mark.slow
@given(responses, st.sampled_from([lambda x: x**3 + 2 * x, lambda x: np.exp(x / 10), lambda x: 7 * x - 100]))
def test_a_monotone_transform_changes_nothing_but_the_threshold(pairs, transform):
    plain, bent = scored_of(pairs), scored_of(pairs, transform)
    assert auroc(bent) == auroc(plain)
    assert recall_at_retention(bent) == recall_at_retention(plain)
    threshold = threshold_at_retention(plain)
    assert threshold_at_retention(bent) == (None if threshold is None else transform(threshold))


@pytest.mark.slow
@given(responses, st.randoms(use_true_random=False))
def test_the_order_of_responses_does_not_matter(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    for statistic in (auroc, recall_at_retention, threshold_at_retention):
        assert statistic(scored_of(shuffled)) == statistic(scored_of(pairs))


@pytest.mark.slow
@given(responses)
def test_duplicating_every_response_changes_nothing(pairs):
    for statistic in (auroc, recall_at_retention, threshold_at_retention):
        assert statistic(scored_of(pairs * 2)) == statistic(scored_of(pairs))
