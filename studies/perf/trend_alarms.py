"""False alarms of ``eclose gate --trend`` over whole lives at the limit, and its delay when the rate doubles.

A life is a year of days with some questions each, and one to three responses to a question that are alike (intraclass
correlation 0.3). At the limit, a bet of any kind is fair, so alarms are as frequent as they can be without a fault.
The delay is counted in days from the change, after a past at the limit and after a longer one at half of it, with
gamblers who start every day and with one who bets from the start.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.stats.anytime import ALARM_LEVEL, measure_log_evidence
from eclose.stats.clustered_rates import QuestionHitCounts
from studies.perf.result import print_result

if TYPE_CHECKING:
    from eclose.stats.arrays import Floats

DAYS = 365
CORRELATION = 0.3
ALARM = -np.log(ALARM_LEVEL)
NEVER = 10**6
"""Stands for the delay of a life without an alarm, so that the median is right."""


class Design(NamedTuple):
    """A limit, and the questions of a day."""

    limit: float
    questions: int


DESIGNS = (Design(0.05, 40), Design(0.15, 40), Design(0.15, 5))
DELAYED = Design(0.1, 50)
PASTS = ((100, 1.0), (300, 0.5))
"""Days before the change, and the rate by then over the limit."""
AFTER = 100


def draw_values(rates: Floats, questions: int, rng: np.random.Generator) -> Floats:
    """Return the mean response of every question of every day, whose expected value is the rate of the day."""
    spread = 1 / CORRELATION - 1
    own = rng.beta(rates * spread, (1 - rates) * spread, (questions, len(rates))).T
    responses = rng.integers(1, 4, own.shape)
    return (rng.binomial(responses, own) / responses).ravel()


def measure_evidence(rates: Floats, design: Design, rng: np.random.Generator, *, restarts: bool = True) -> Floats:
    """Return the evidence against the limit at the end of each day of a life."""
    window = np.repeat(np.arange(len(rates)), design.questions)
    values = draw_values(rates, design.questions, rng)
    return measure_log_evidence(values, window, np.array([design.limit]), restarts=restarts)[:, 0]


def count_false_alarms(design: Design, lives: int) -> int:
    """Return the number of lives at the limit with an alarm."""
    rng = np.random.default_rng(20261120)
    rates = np.full(DAYS, design.limit)
    return sum(bool((measure_evidence(rates, design, rng) >= ALARM).any()) for _ in range(lives))


def measure_delay(past: int, share: float, lives: int, *, restarts: bool) -> float:
    """Return the median number of days from the doubling of the limit to the first alarm after it."""
    rng = np.random.default_rng(7)
    rates = np.repeat(DELAYED.limit * np.array([share, 2.0]), [past, AFTER])
    delays = []
    for _ in range(lives):
        alarms = np.flatnonzero(measure_evidence(rates, DELAYED, rng, restarts=restarts)[past:] >= ALARM)
        delays.append(int(alarms[0]) + 1 if len(alarms) else NEVER)
    return float(np.median(delays))


def main() -> int:
    """Simulate the lives and print whether the goal holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=10_000, help="lives at the limit, of each design")
    lives = parser.parse_args().lives
    uppers, shares = [], []
    for design in DESIGNS:
        alarms = count_false_alarms(design, lives)
        # A life is a unit of its own, so these are the limits of Clopper and Pearson; 95 % on one side.
        interval = QuestionHitCounts(((1, 0, alarms), (0, 1, lives - alarms))).interval(0.9)
        assert interval is not None
        uppers.append(interval.high)
        shares.append(alarms / lives)
        print(
            f"limit {design.limit:g}, {design.questions} questions a day: {alarms:,} of {lives:,} lives of {DAYS} days "
            f"with a false alarm, {shares[-1]:.4f}, at most {interval.high:.4f}",
            flush=True,
        )
    delays = {}
    for past, share in PASTS:
        sooner, later = (measure_delay(past, share, max(lives // 10, 20), restarts=flag) for flag in (True, False))
        delays[f"{past} days at {share:g} x"] = sooner
        late = f"{later:g} days" if later < NEVER else f"more than {AFTER} days"
        print(
            f"{past} days at {share:g} x the limit of {DELAYED.limit:g}, then 2 x, {DELAYED.questions} questions a day:"
            f" alarm after {sooner:g} days, by one gambler from the start after {late}",
            flush=True,
        )
    return print_result(
        name="false alarms of gate --trend over a whole life at the limit",
        value=round(max(shares), 4),
        unit=f"of {lives:,} lives of a year, the most of {len(DESIGNS)} designs",
        goal=f"<= {ALARM_LEVEL:g}, with its upper bound; median delay when the rate doubles <= 10 days",
        holds=max(uppers) <= ALARM_LEVEL and max(delays.values()) <= 10,
        upper=round(max(uppers), 4),
        delay_days=delays,
    )


if __name__ == "__main__":
    sys.exit(main())
