"""Tests of ``campaigns/gate_coverage.py``: enumeration, draws, and that a narrow interval is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from campaigns import gate_coverage
from eclose.stats.clustered_rates import QuestionHitCounts


def test_single_responses_are_enumerated_exactly():
    cells = list(gate_coverage.single(30))
    assert [cell.rate for cell in cells] == list(gate_coverage.RATES)
    assert all(cell.holds for cell in cells)
    counts = np.arange(31)
    low = stats.beta.ppf(0.025, counts, 31 - counts)
    above = np.nan_to_num(low) > 0.9
    assert cells[1].false_pass == pytest.approx(stats.binom.pmf(counts, 30, 0.9)[above].sum())


@pytest.mark.parametrize("n", [300, 1_000])
def test_chances_of_all_counts_add_up(n):
    chances = np.exp([gate_coverage._log_chance(n, count, 0.02) for count in range(n + 1)])
    assert chances == pytest.approx(stats.binom.pmf(np.arange(n + 1), n, 0.02), abs=1e-12)


def test_limits_of_many_samples_are_those_of_each():
    rng = np.random.default_rng(1)
    sizes = 1.0 + np.arange(12) % 4
    failures = rng.binomial(sizes.astype(int), 0.2, (20, 12)).astype(float)
    failures[0] = sizes
    upper = gate_coverage._limits(failures, sizes)
    for row, limit in zip(failures, upper, strict=True):
        interval = QuestionHitCounts.of(sizes - row, row).interval()
        assert 1 - interval.low >= limit - 1e-9
    assert upper[0] == 1


def test_a_cell_below_a_goal_is_marked():
    ends = np.array([(0.85, 0.95), (0.91, 0.99)])
    narrow = gate_coverage.cell("some", 10, 0.9, ends, np.array([0.93, 0.07]))
    assert (narrow.coverage, narrow.false_pass) == pytest.approx((0.93, 0.07))
    assert not narrow.holds
    assert str(narrow).endswith("<-")


def test_drawn_responses_share_their_fate(monkeypatch):
    monkeypatch.setattr(gate_coverage, "REPETITIONS", 400)
    rng = np.random.default_rng(2)
    cell, narrower = gate_coverage.clustered(30, 0.9, np.full(30, 8.0), "8 a question", rng)
    assert cell.coverage > 0.94
    assert narrower == 0


def test_a_single_question_has_a_wide_interval():
    assert gate_coverage.narrowest() > 0.9
