import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.stats import bootstrap as resampling
from eclose.stats.bootstrap import (
    BootstrapReplicates,
    StratifiedDesign,
    bootstrap,
    draw_resample_counts,
    paired_hierarchical_design,
    resample_block_sizes,
    shared_questions_design,
)
from eclose.stats.intervals import percentile_interval

from . import loops

STRATA = StratifiedDesign(np.array([0, 2, 1, 0, 2, 2, 0, 2]))


@pytest.mark.parametrize("block", [1, 3, 7, 1_000])
def test_draws_do_not_depend_on_the_block_size(monkeypatch, block):
    hierarchies = [
        design(STRATA, backbones=3, seeds=3) for design in (paired_hierarchical_design, shared_questions_design)
    ]
    expected = loops.drawn(STRATA, 42, 20)
    expected_settings = [loops.drawn_settings(design, 42, 20) for design in hierarchies]
    monkeypatch.setattr(resampling, "RESAMPLE_BLOCK", block)
    np.testing.assert_array_equal(loops.drawn(STRATA, 42, 20), expected)
    for design, settings in zip(hierarchies, expected_settings, strict=True):
        for part, expected_part in zip(loops.drawn_settings(design, 42, 20), settings, strict=True):
            np.testing.assert_array_equal(part, expected_part)


def test_the_same_seed_draws_the_same():
    np.testing.assert_array_equal(loops.drawn(STRATA, 42, 20), loops.drawn(STRATA, 42, 20))
    assert not np.array_equal(loops.drawn(STRATA, 42, 20), loops.drawn(STRATA, 43, 20))


def test_a_stratum_keeps_its_draws_whatever_the_size_of_the_others():
    other = StratifiedDesign(np.array([0, 0, 0, 1, 1, 1, 1]))
    np.testing.assert_array_equal(loops.drawn(STRATA, 1, 20)[:, [0, 3, 6]], loops.drawn(other, 1, 20)[:, :3])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 2**32))
def test_each_stratum_is_drawn_as_often_as_it_is_large(numbers, seed):
    stratum = np.unique(numbers, return_inverse=True)[1]
    weights = loops.drawn(StratifiedDesign(stratum), seed, 12)
    for number in range(stratum.max() + 1):
        np.testing.assert_array_equal(weights[:, stratum == number].sum(axis=1), (stratum == number).sum())


def test_counts_are_counts_of_uniform_draws():
    counts = draw_resample_counts(np.random.default_rng(3), 5, 4)
    drawn = np.random.default_rng(3).integers(4, size=(5, 4))
    np.testing.assert_array_equal(counts, [[(row == unit).sum() for unit in range(4)] for row in drawn])


def test_every_unit_is_drawn_once_on_average():
    # Each weight has variance 7/8 or less; the mean of 4,000 is within five standard errors of 1.
    means = loops.drawn(StratifiedDesign.single(8), 0, 4_000).mean(axis=0)
    assert np.abs(means - 1).max() < 5 * (7 / 8 / 4_000) ** 0.5


def test_members_and_original():
    assert [units.tolist() for units in STRATA.members] == [[0, 3, 6], [2], [1, 4, 5, 7]]
    np.testing.assert_array_equal(STRATA.original(), np.ones((1, 8)))
    assert StratifiedDesign.single(0).members == []


@pytest.mark.parametrize("resamples,sizes", [(0, []), (1, [1]), (256, [256]), (600, [256, 256, 88])])
def test_blocks_add_up(resamples, sizes):
    assert list(resample_block_sizes(resamples)) == sizes


def test_many_units_are_drawn_in_smaller_blocks(monkeypatch):
    expected = loops.drawn(STRATA, 42, 20)
    assert list(resample_block_sizes(3, units=10**9)) == [1, 1, 1]
    monkeypatch.setattr(resampling, "RESAMPLE_WEIGHTS", 3 * 8)
    assert list(resample_block_sizes(7, units=8)) == [3, 3, 1]
    np.testing.assert_array_equal(loops.drawn(STRATA, 42, 20), expected)


def test_bootstrap_evaluates_the_sample_and_each_resample_alike():
    values = np.arange(8.0)
    replicates = bootstrap(STRATA, lambda w: (w @ values)[:, np.newaxis], rng=np.random.default_rng(5), resamples=300)
    assert replicates.values.tolist() == [28.0]
    expected = [[values[loops.expanded(row)].sum()] for row in loops.drawn(STRATA, 5, 300)]
    np.testing.assert_allclose(replicates.draws, expected, rtol=0, atol=1e-12)


def test_estimates_carry_value_interval_and_what_was_undefined():
    draws = np.random.default_rng(0).normal(size=(50, 2))
    draws[:3, 1] = np.nan
    replicates = BootstrapReplicates(np.array([0.5, np.nan]), draws)
    first, second = replicates.estimates(level=0.9)
    assert first == (0.5, percentile_interval(draws[:, 0], 0.9), 0)
    assert second == (None, percentile_interval(draws[3:, 1], 0.9), 3)
    assert replicates.estimate() == (0.5, percentile_interval(draws[:, 0]), 0)


def test_a_difference_is_paired_and_undefined_where_either_side_is():
    draws = np.array([[1.0, 0.5], [np.nan, 0.5], [3.0, np.nan], [2.0, 4.0]])
    difference = BootstrapReplicates(np.array([2.0, 0.5]), draws).difference(0, 1)
    assert difference == (1.5, percentile_interval(np.array([0.5, -2.0])), 2)
    assert BootstrapReplicates(np.array([2.0, 0.5]), draws).difference(1, 1, level=0.5) == (0.0, (0.0, 0.0), 1)
