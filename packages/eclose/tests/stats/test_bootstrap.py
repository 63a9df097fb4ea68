from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.stats import bootstrap as resampling
from eclose.stats.bootstrap import (
    SettingScores,
    StratifiedDesign,
    bootstrap,
    bootstrap_rates,
    bootstrap_setting_means,
    bootstrap_weighted_rates,
    paired_hierarchical_design,
    pooled_questions_design,
    shared_questions_design,
)
from eclose.stats.ranking import (
    ScoredResponses,
    assign_folds,
    resampled_aurocs,
    resampled_held_out_rates,
    resampled_recalls,
)

from . import loops

CLOSE = {"rtol": 0, "atol": 1e-12}
RESAMPLES = 40
DATASETS = StratifiedDesign(np.array([0, 1, 0, 2, 1, 1, 0, 2, 2, 1]))

seeds = pytest.mark.parametrize("seed", range(4))


def rng(seed):
    return np.random.default_rng(seed)


def marks(seed, *shape):
    """Hits among counted responses, about a quarter of them not counted."""
    counted = (rng(seed).random(shape) < 0.75).astype(float)
    return counted * (rng([seed, 1]).random(shape) < 0.6), counted


def cases_of(cluster, clusters):
    """The cases of drawn clusters, one cluster after another."""
    return [case for drawn in clusters for case in np.flatnonzero(cluster == drawn)]


# Clusters, in one stratum or several.


@seeds
@pytest.mark.parametrize("strata", [None, DATASETS])
def test_rates_resampled_by_cluster(seed, strata):
    cluster = np.concatenate([np.arange(10), rng(seed).integers(10, size=20)])
    hits, counted = marks(seed, 30, 3)
    replicates = bootstrap_rates(hits, counted, cluster, rng=rng(seed), resamples=RESAMPLES, strata=strata)
    for values, row in zip(
        replicates.draws, loops.drawn(strata or StratifiedDesign.single(10), seed, RESAMPLES), strict=True
    ):
        cases = cases_of(cluster, loops.expanded(row))
        expected = [loops.pooled_rate(hits[:, column], counted[:, column], cases) for column in range(3)]
        np.testing.assert_allclose(values, expected, **CLOSE)
    expected = [loops.pooled_rate(hits[:, column], counted[:, column], range(30)) for column in range(3)]
    np.testing.assert_allclose(replicates.values, expected, **CLOSE)


def test_a_groups_own_interval_draws_only_questions_of_the_group():
    """A.5: questions are sampled from those represented in the group, whatever their numbers."""
    hits = np.array([[1.0], [0.0], [1.0]])
    numbered, renumbered = (
        bootstrap_rates(hits, np.ones((3, 1)), np.array(cluster), rng=rng(0), resamples=200)
        for cluster in ([3, 7, 900], [0, 1, 2])
    )
    np.testing.assert_array_equal(numbered.draws, renumbered.draws)
    assert numbered.estimate().undefined == 0


def test_strata_draw_all_their_clusters_those_without_a_case_too():
    hits = np.ones((1, 1))
    replicates = bootstrap_rates(
        hits, hits, np.array([0]), rng=rng(0), resamples=200, strata=StratifiedDesign.single(2)
    )
    # Cluster 0 is missing from a quarter of the resamples of two.
    missing = int((loops.drawn(StratifiedDesign.single(2), 0, 200)[:, 0] == 0).sum())
    assert 20 < missing < 80
    assert replicates.estimate() == (1.0, (1.0, 1.0), missing)


def test_unknown_labels_leave_a_rate_undefined_rather_than_zero():
    # Two questions; the second was never judged.
    hits, counted = np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]])
    replicates = bootstrap_rates(hits, counted, np.array([0, 1]), rng=rng(0), resamples=200)
    only_unknown = loops.drawn(StratifiedDesign.single(2), 0, 200)[:, 1] == 2
    np.testing.assert_array_equal(np.isnan(replicates.draws[:, 0]), only_unknown)
    assert replicates.estimate() == (1.0, (1.0, 1.0), int(only_unknown.sum()))
    nothing = bootstrap_rates(hits * 0, counted * 0, np.array([0, 1]), rng=rng(0), resamples=10)
    assert nothing.estimate() == (None, None, 10)


def test_no_cases_are_undefined_in_every_resample():
    nothing = bootstrap_rates(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(0, np.intp), rng=rng(0), resamples=10)
    assert nothing.estimate() == (None, None, 10)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=1, max_size=20), st.integers(0, 9))
def test_intervals_of_rates_stay_between_0_and_1(cases, seed):
    cluster = np.array([question for question, _, _ in cases])
    counted = np.array([[float(labelled)] for _, _, labelled in cases])
    hits = counted * np.array([[float(hit)] for _, hit, _ in cases])
    value, interval, undefined = bootstrap_rates(hits, counted, cluster, rng=rng(seed), resamples=30).estimate()
    assert (value is None) == (undefined == 30) == (interval is None)
    if interval is not None:
        assert 0 <= interval.low <= interval.high <= 1


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20), st.randoms(use_true_random=False)
)
def test_the_order_of_cases_and_their_copies_do_not_matter(cases, random):
    def rate(listed):
        cluster, hits = np.array([q for q, _ in listed]), np.array([[float(hit)] for _, hit in listed])
        return bootstrap_rates(hits, np.ones_like(hits), cluster, rng=rng(1), resamples=20)

    once, shuffled, twice = rate(cases), rate(random.sample(cases, len(cases))), rate(cases * 2)
    for other in (shuffled, twice):
        np.testing.assert_allclose(other.values, once.values, **CLOSE)
        np.testing.assert_allclose(other.draws, once.draws, **CLOSE)
    # As new questions, copies leave the rate as it is.
    as_new = rate(cases + [(question + 100, hit) for question, hit in cases])
    np.testing.assert_allclose(as_new.values, once.values, **CLOSE)


# Strata of fixed weight (B.6).


@seeds
def test_weighted_rates_combine_stratum_means(seed):
    hits = (rng(seed).random((10, 4)) < 0.8).astype(float)
    shares = np.array([1276.0, 559.0, 1017.0])
    replicates = bootstrap_weighted_rates(hits, DATASETS, shares, rng=rng(seed), resamples=RESAMPLES)

    def combined(units, column):
        means = []
        for stratum in range(3):
            labels = [hits[unit, column] for unit in units if DATASETS.stratum[unit] == stratum]
            means.append(sum(labels) / len(labels))
        return sum(share * mean for share, mean in zip(shares, means, strict=True)) / sum(shares)

    for values, row in zip(replicates.draws, loops.drawn(DATASETS, seed, RESAMPLES), strict=True):
        np.testing.assert_allclose(values, [combined(loops.expanded(row), column) for column in range(4)], **CLOSE)
    np.testing.assert_allclose(replicates.values, [combined(range(10), column) for column in range(4)], **CLOSE)


def test_a_weighted_rate_by_hand():
    # Strata of 1 and 2 units with rates 1 and 1/2, weighing 1 and 3: 1/4 + 3/8.
    hits, strata = np.array([[1.0], [1.0], [0.0]]), StratifiedDesign(np.array([0, 1, 1]))
    replicates = bootstrap_weighted_rates(hits, strata, np.array([1.0, 3.0]), rng=rng(0), resamples=100)
    assert replicates.values[0] == pytest.approx(5 / 8)
    assert {Fraction(value).limit_denominator(100) for value in replicates.draws[:, 0]} == {
        Fraction(1, 4),
        Fraction(5, 8),
        Fraction(1),
    }


# Hierarchies of backbones, questions and seeds.

DESIGNS = {
    "paired hierarchical": paired_hierarchical_design(DATASETS, backbones=3, seeds=3),
    "shared questions": shared_questions_design(DATASETS, backbones=3, seeds=3),
    "pooled questions and seeds": pooled_questions_design(10, seeds=3),
}
designs = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)


@seeds
@designs
def test_settings_are_the_loop_fed_with_the_same_draws(seed, design):
    hits, counted = marks(seed, design.backbones, 3, 10, 2)
    stratum = design.datasets.stratum
    replicates = bootstrap_setting_means(SettingScores(hits, counted), design, rng=rng(seed), resamples=RESAMPLES)
    weights = loops.drawn_settings(design, seed, RESAMPLES)
    for resample, values in enumerate(replicates.draws):
        np.testing.assert_allclose(values, loops.setting_mean(hits, counted, stratum, weights, resample), **CLOSE)
    expected = loops.setting_mean(hits, counted, stratum, design.original(), 0)
    np.testing.assert_allclose(replicates.values, expected, **CLOSE)


@designs
def test_settings_do_not_depend_on_the_block_size(monkeypatch, design):
    table = SettingScores(*marks(0, design.backbones, 3, 10, 2))
    expected = bootstrap_setting_means(table, design, rng=rng(0), resamples=20)
    monkeypatch.setattr(resampling, "RESAMPLE_BLOCK", 7)
    again = bootstrap_setting_means(table, design, rng=rng(0), resamples=20)
    np.testing.assert_allclose(again.draws, expected.draws, **CLOSE)


@designs
def test_every_part_of_a_draw_has_its_full_size(design):
    weights = loops.drawn_settings(design, 3, 50)
    assert weights.backbone.shape == (50, design.backbones)
    np.testing.assert_array_equal(weights.seeds.sum(axis=2), 3)
    for units in design.datasets.members:
        np.testing.assert_array_equal(weights.questions[:, :, units].sum(axis=2), len(units))


def test_what_each_design_draws_anew_and_what_it_shares():
    paired, shared, pooled = (loops.drawn_settings(design, 3, 50) for design in DESIGNS.values())
    assert {tuple(row) for row in shared.backbone} == {(0, 1, 2)}
    assert set(paired.backbone.ravel()) == {0, 1, 2}
    assert len({tuple(row) for row in paired.backbone}) > 10
    assert paired.questions.shape == (50, 3, 10)
    assert not np.array_equal(paired.questions[:, 0], paired.questions[:, 1])
    assert shared.questions.shape == (50, 1, 10)
    assert pooled.questions.shape == (50, 1, 10)
    assert pooled.backbone.shape == (50, 1)
    for weights in (paired, shared):
        assert not np.array_equal(weights.seeds[:, 0], weights.seeds[:, 1])


BACKBONE, SEED, QUESTION, COLUMN = np.ogrid[:3, :3, :10, :2]
OPPOSED = np.array([1.0, -1.0, 0.0])


def settings_of(cells, design=DESIGNS["paired hierarchical"]):
    """The bootstrap of a table given as a function of backbone, seed, question and column."""
    values = np.broadcast_to(cells, (3, 3, 10, 2))
    return bootstrap_setting_means(SettingScores(values, np.ones_like(values)), design, rng=rng(8), resamples=100)


def test_methods_share_their_draws():
    # The second method is 0.25 better everywhere, so its paired gain never moves while the rates do.
    table = settings_of((BACKBONE + SEED + QUESTION) / 30 + COLUMN / 4)
    assert np.std(table.draws[:, 0]) > 0
    value, interval, _ = table.difference(1, 0)
    assert (value, *interval) == pytest.approx((0.25, 0.25, 0.25), abs=1e-12)


def test_a_method_without_seeds_does_not_move_with_them():
    # Nothing but the seed differs: a tuned method moves, the untuned one repeats its value and stays.
    table = settings_of(np.where(COLUMN == 0, 0.5, SEED / 2))
    np.testing.assert_allclose(table.draws[:, 0], 0.5, **CLOSE)
    assert np.std(table.draws[:, 1]) > 0


def test_one_seed_draw_serves_all_datasets():
    # A seed that helps in dataset 0 hurts as much in dataset 1: with one draw for both, nothing moves.
    table = settings_of(0.5 + OPPOSED[DATASETS.stratum[QUESTION]] * SEED / 4)
    np.testing.assert_allclose(table.draws, 0.5, **CLOSE)


def test_only_shared_questions_cancel_between_backbones():
    # A question that helps backbone 0 hurts backbone 1.
    cells = 0.5 + OPPOSED[BACKBONE] * QUESTION / 20
    np.testing.assert_allclose(settings_of(cells, DESIGNS["shared questions"]).draws, 0.5, **CLOSE)
    assert np.std(settings_of(cells).draws) > 0


def test_backbones_are_drawn_and_settings_weigh_the_same():
    # Nothing but the backbone differs, so a replicate is the mean of the drawn ones, whatever the dataset sizes.
    drawn = loops.drawn_settings(DESIGNS["paired hierarchical"], 8, 100).backbone
    np.testing.assert_allclose(settings_of(BACKBONE / 2).draws[:, 0], drawn.mean(axis=1) / 2, **CLOSE)


def test_an_undefined_rate_matters_only_where_its_seed_is_drawn():
    # Seed 2 has no judged response: the sample is undefined, and so is every resample that draws it.
    hits = np.ones((1, 3, 10, 1))
    counted = hits.copy()
    counted[:, 2] = hits[:, 2] = 0
    design = DESIGNS["pooled questions and seeds"]
    replicates = bootstrap_setting_means(SettingScores(hits, counted), design, rng=rng(0), resamples=200)
    hit_by_it = loops.drawn_settings(design, 0, 200).seeds[:, 0, 2] > 0
    assert 0 < hit_by_it.sum() < 200
    np.testing.assert_array_equal(np.isnan(replicates.draws[:, 0]), hit_by_it)
    assert replicates.estimate() == (None, (1.0, 1.0), int(hit_by_it.sum()))


# Thresholds refitted in every resample (A.5).


@seeds
def test_detectors_are_refitted_in_every_resample(seed):
    question = np.repeat(np.arange(20), 3)
    group = rng(seed).integers(3, size=60)
    scored = ScoredResponses(rng(seed).integers(12, size=60) / 12, group == 0, group > 1)
    fold = assign_folds(np.arange(20) % 3, rng=rng(42))[question]

    def evaluate(weights):
        of_responses = weights[:, question]
        return np.column_stack(
            [
                resampled_aurocs(of_responses, scored),
                resampled_recalls(of_responses, scored),
                resampled_held_out_rates(of_responses, scored, fold),
            ]
        )

    design = StratifiedDesign.single(20)
    replicates = bootstrap(design, evaluate, rng=rng(seed), resamples=RESAMPLES)
    for values, row in zip(replicates.draws, loops.drawn(design, seed, RESAMPLES), strict=True):
        cases = cases_of(question, loops.expanded(row))
        sample = scored.scores[cases], scored.failed[cases], scored.reliable[cases]
        expected = [loops.auroc(*sample), loops.recall(*sample), *loops.cross_fitted(*sample, fold[cases])]
        np.testing.assert_allclose(values, expected, **CLOSE)
