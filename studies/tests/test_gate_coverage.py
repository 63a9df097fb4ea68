"""Tests of ``studies/campaigns/gate_coverage.py``: enumeration, draws, and that a narrow interval is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from studies.campaigns import gate_coverage


def test_single_responses_are_enumerated_exactly():
    cells = list(gate_coverage.single(30))
    assert [cell.rate for cell in cells] == list(gate_coverage.RATES)
    assert all(cell.holds for cell in cells)
    counts = np.arange(31)
    low = stats.beta.ppf(0.025, counts, 31 - counts)
    above = np.nan_to_num(low) > 0.95
    assert cells[1].false_pass == pytest.approx(stats.binom.pmf(counts, 30, 0.95)[above].sum())


@pytest.mark.parametrize("n", [300, 1_000])
def test_chances_of_all_counts_add_up(n):
    chances = np.exp([gate_coverage._log_chance(n, count, 0.02) for count in range(n + 1)])
    assert chances == pytest.approx(stats.binom.pmf(np.arange(n + 1), n, 0.02), abs=1e-12)


def test_excluded_rates_are_those_outside_the_packages_interval():
    rng = np.random.default_rng(1)
    sizes = 1.0 + np.arange(30) % 4
    failures = rng.binomial(sizes.astype(int), 0.2, (20, 30)).astype(float)
    failures[0] = sizes
    for rate in (0.05, 0.3, 0.4):
        flags = gate_coverage.excluded(rate, failures, sizes)
        for row, excluded in zip(failures, flags, strict=True):
            assert excluded or 1 - gate_coverage.interval(sizes, row).low >= rate
    assert flags.any()
    assert not flags[0]
    assert not gate_coverage.excluded(0.05, failures, sizes).any()


def test_a_cell_below_a_goal_is_marked():
    narrow = gate_coverage.Cell("some", 10, 0.9, 0.5, coverage=0.93, false_pass=0.07, width=0.1)
    assert not narrow.holds
    assert str(narrow).endswith("<-")


@pytest.mark.parametrize("design", gate_coverage.DESIGNS)
def test_every_design_covers_the_rate_when_responses_share_their_fate(monkeypatch, design):
    monkeypatch.setattr(gate_coverage, "REPETITIONS", 400)
    cell, narrower = gate_coverage.clustered(design, 30, 0.8, 0.5, np.random.default_rng(2))
    assert cell.coverage > 0.94
    assert cell.false_pass < 0.04
    assert narrower == 0


@pytest.mark.slow
def test_no_step_to_a_further_failure_raises_an_end():
    assert gate_coverage.monotone(40, np.random.default_rng(3)) == 0


@pytest.mark.slow
def test_a_single_question_has_a_wide_interval():
    assert gate_coverage.narrowest() > 0.9
