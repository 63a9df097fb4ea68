"""Bounds that hold at every moment, against plain loops, another library, and simulated lives."""

import json
from math import isclose, log
from pathlib import Path

import numpy as np
import pytest

from eclose.stats.anytime import bound_from_below, find_alarm, measure_log_evidence

GLIDE = json.loads((Path(__file__).parents[1] / "fixtures/anytime/glide_bounds.json").read_text())
STAKES = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64]


def windows_of(*windows):
    values = np.array([value for window in windows for value in window], float)
    return values, np.repeat(np.arange(len(windows)), [len(window) for window in windows])


def wealth_of_gamblers(windows, limit):
    """The wealth at the end of each window, gambler by gambler and value by value."""
    share = [1 / (1 + log(start)) for start in range(1, len(windows) + 2)]
    totals = []
    for end in range(1, len(windows) + 1):
        total = share[end]
        for start in range(end):
            for stake in STAKES:
                wealth = (share[start] - share[start + 1]) / len(STAKES)
                for window in windows[start:end]:
                    for value in window:
                        wealth *= 1 - stake + stake * value / limit
                total += wealth
        totals.append(total)
    return totals


@pytest.mark.parametrize("limit", [0.05, 0.3, 1.0])
def test_evidence_is_the_wealth_of_all_gamblers_together(limit):
    rng = np.random.default_rng(3)
    windows = [list(rng.choice([0, 0.5, 1], size)) for size in (4, 1, 6, 2)]
    evidence = measure_log_evidence(*windows_of(*windows), np.array([limit]))[:, 0]
    assert np.exp(evidence).tolist() == pytest.approx(wealth_of_gamblers(windows, limit))


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("limit", [0.1, 0.5])
def test_evidence_at_the_limit_is_one_on_average_whatever_the_next_value_is(restarts, limit):
    past = [[1, 0, 0, 1], [0, 0, 0.5]]
    means = [
        np.exp(measure_log_evidence(*windows_of(*past, [value]), np.array([limit]), restarts=restarts)[-1, 0])
        for value in (0, 1)
    ]
    before = np.exp(measure_log_evidence(*windows_of(*past), np.array([limit]), restarts=restarts)[-1, 0])
    assert isclose((1 - limit) * means[0] + limit * means[1], before, rel_tol=1e-9)


def test_the_order_of_the_values_of_a_window_does_not_matter():
    one, other = windows_of([1, 0, 0.5, 0], [0, 1]), windows_of([0, 0.5, 0, 1], [1, 0])
    limits = np.array([0.1, 0.4])
    assert measure_log_evidence(*one, limits) == pytest.approx(measure_log_evidence(*other, limits))


def test_bounds_are_those_of_another_library_where_both_know_much():
    count = GLIDE["responses"]
    windows = [[1] * hits + [0] * (count - hits) for hits in GLIDE["hits"]]
    bounds = bound_from_below(*windows_of(*windows), GLIDE["level"])
    # Asymptotic bounds are too low at first; from the tenth window on, both agree to half a point.
    assert bounds[9:] == pytest.approx(np.maximum.accumulate(GLIDE["lower"])[9:], abs=0.005)


def test_a_bound_never_falls_and_is_held_below_the_rate():
    rng = np.random.default_rng(5)
    values = (rng.random(4_000) < 0.3).astype(float)
    bounds = bound_from_below(values, np.arange(4_000) // 100)
    assert (np.diff(bounds) >= 0).all()
    assert 0.25 < bounds[-1] <= 0.3


@pytest.mark.parametrize(
    ("windows", "low"), [(([0, 0, 0],), 0.0), (([1] * 200,), 0.9), (([0] * 50, [0] * 50), 0.0), ((), None)]
)
def test_bounds_of_values_that_are_all_alike(windows, low):
    bounds = bound_from_below(*windows_of(*windows))
    assert len(bounds) == len(windows)
    assert low is None or low <= bounds[-1] <= (low and 1.0)


def test_an_alarm_comes_when_the_bound_leaves_the_limit():
    windows = [[1, *[0] * 19]] * 10 + [[1, *[0] * 3] * 5] * 10
    values, window = windows_of(*windows)
    alarm = find_alarm(values, window, 0.1)
    assert alarm == int(np.flatnonzero(bound_from_below(values, window) >= 0.1)[0])
    assert 10 <= alarm < 20
    assert find_alarm(values, window, 0.3) is None
    assert find_alarm(values[:200], window[:200], 0.1) is None


def test_a_single_hit_is_an_alarm_where_the_limit_is_zero():
    windows = [[0] * 10] * 200 + [[1]]
    assert find_alarm(*windows_of(*windows), 0.0) == 200
    assert find_alarm(*windows_of(*windows), 1.0) is None


def test_a_change_after_a_long_good_past_is_found_sooner_with_gamblers_who_start_late():
    rng = np.random.default_rng(7)
    rates = np.repeat([0.05, 0.2], [3_000, 1_500])
    values, window = (rng.random(4_500) < rates).astype(float), np.arange(4_500) // 50
    evidence = {
        restarts: measure_log_evidence(values, window, np.array([0.1]), restarts=restarts)[:, 0]
        for restarts in (True, False)
    }
    assert 60 <= int(np.argmax(evidence[True] >= log(20))) < 70
    assert not (evidence[False][:80] >= log(20)).any()


@pytest.mark.slow
def test_at_most_one_life_in_twenty_at_the_limit_has_an_alarm():
    rng = np.random.default_rng(9)
    window = np.arange(2_000) // 20
    alarms = [find_alarm((rng.random(2_000) < 0.1).astype(float), window, 0.1) is not None for _ in range(400)]
    # 5 % of 400 is 20.
    assert 0 < sum(alarms) <= 20
