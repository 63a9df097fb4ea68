import statistics
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.stats.intervals import wilson_interval
from eclose.stats.rates import Rate, mean_or_none, sample_sd_or_none

labels = st.lists(st.sampled_from([True, False, None]), max_size=30)
numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20)


@pytest.mark.slow
@given(labels)
def test_a_rate_counts_every_label_once(given_labels):
    rate = Rate.of(given_labels)
    unknown = given_labels.count(None)
    assert rate == Rate(given_labels.count(True), len(given_labels) - unknown, unknown)


@given(labels)
def test_duplicating_every_label_leaves_value_and_bounds_unchanged(given_labels):
    once, twice = Rate.of(given_labels), Rate.of(given_labels * 2)
    assert (once.value, once.bounds) == (twice.value, twice.bounds)


@given(labels)
def test_bounds_are_reached_by_reading_the_unjudged_all_one_way(given_labels):
    rate = Rate.of(given_labels)
    lowest, highest = (
        Rate.of(label is True or (label is None and guess) for label in given_labels) for guess in (0, 1)
    )
    assert rate.bounds == (None if lowest.n == 0 else (lowest.value, highest.value))


def test_a_rate_without_cases_is_undefined():
    assert (Rate(0, 0).value, Rate(0, 0).wilson, Rate(0, 0).bounds) == (None, None, None)


def test_a_rate_of_unjudged_cases_alone_could_be_anything():
    assert Rate(0, 0, unjudged=2).value is None
    assert Rate(0, 0, unjudged=2).bounds == (0, 1)


@pytest.mark.parametrize(
    "rate,bounds",
    [
        # One hit of two; the open case is a miss or nothing: 1/3 or 1/2.
        (Rate(1, 2, 1, never_hits=1), (1 / 3, 1 / 2)),
        # A hit or nothing: 1/2 or 2/3.
        (Rate(1, 2, 1, never_misses=1), (1 / 2, 2 / 3)),
        # Nothing judged: if the case counts at all, there is one value it can have.
        (Rate(0, 0, 1, never_hits=1), (0, 0)),
        (Rate(0, 0, 1, never_misses=1), (1, 1)),
        # A miss or nothing, and a hit or nothing: everything between 0/1 and 1/1.
        (Rate(0, 0, 2, never_hits=1, never_misses=1), (0, 1)),
    ],
)
def test_bounds_where_an_open_case_may_be_none(rate, bounds):
    assert rate.bounds == bounds


def test_a_rate_by_hand():
    # One hit of two judged; two more could make it 1/4 or 3/4.
    rate = Rate.of([True, None, False, None])
    assert (rate.value, rate.bounds) == (0.5, (0.25, 0.75))
    assert rate.wilson == wilson_interval(1, 2)


def test_mean_is_undefined_when_one_value_is():
    assert mean_or_none([0.25, None]) is None
    assert mean_or_none([None]) is None
    assert mean_or_none([]) is None


@given(numbers)
def test_mean_and_sd_are_the_standard_librarys(values):
    assert mean_or_none(values) == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-12)
    assert sample_sd_or_none(values) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9)


def test_mean_takes_any_iterable_once():
    assert mean_or_none(value for value in (1.0, 2.0)) == 1.5
    assert mean_or_none([nan]) != 0


def test_sd_of_one_value_is_undefined():
    assert sample_sd_or_none([3.0]) is None
    assert sample_sd_or_none(value for value in (1.0, 3.0)) == pytest.approx(2**0.5)
