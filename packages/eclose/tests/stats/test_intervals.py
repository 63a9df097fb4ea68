import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from eclose.stats.intervals import Interval, percentile_interval, wilson_interval

proportions = st.integers(1, 3_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.slow
@given(proportions)
def test_wilson_is_scipys(proportion):
    successes, trials = proportion
    oracle = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson_interval(successes, trials) == pytest.approx((oracle.low, oracle.high), abs=1e-9)


@given(proportions)
def test_wilson_stays_between_0_and_1_and_holds_the_proportion(proportion):
    successes, trials = proportion
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1


def test_wilson_of_one_success_in_two_by_hand():
    # z = 1, so zz = 1: centre 1/2 + 1/4 = 3/4, spread sqrt(1/8 + 1/16) = sqrt(3)/4, all over 1 + 1/2.
    assert wilson_interval(1, 2, z=1) == pytest.approx(((3 - 3**0.5) / 6, (3 + 3**0.5) / 6), abs=1e-15)


def test_wilson_reaches_its_ends_exactly():
    assert wilson_interval(0, 7).low == 0.0
    assert wilson_interval(7, 7).high == 1.0


def test_wilson_without_trials_is_undefined():
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize("successes,trials", [(-1, 3), (4, 3), (1, 0)])
def test_wilson_refuses_what_is_no_proportion(successes, trials):
    with pytest.raises(ValueError, match=f"got {successes}/{trials}"):
        wilson_interval(successes, trials)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_percentile_is_numpys_quantile_of_what_is_defined(level):
    draws = np.random.default_rng(1).normal(size=501)
    tail = (1 - level) / 2
    with_gaps = np.insert(draws, [0, 100, 501], np.nan)
    assert percentile_interval(with_gaps, level) == tuple(np.quantile(draws, [tail, 1 - tail]))


def test_percentile_interpolates_by_hand():
    # Eleven draws 0..10: the 2.5 % point lies a quarter of the way from 0 to 1.
    assert percentile_interval(np.arange(11.0)) == pytest.approx(Interval(0.25, 9.75), abs=1e-12)


def test_percentile_of_undefined_draws_is_undefined():
    assert percentile_interval(np.full(3, np.nan)) is None
    assert percentile_interval(np.zeros(0)) is None
