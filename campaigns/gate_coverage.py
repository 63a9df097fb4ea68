"""Coverage of the interval of a rate, and false passes of a gate at its limit, over many designs.

One response a question: all counts are enumerated, so the figures are exact. Eight responses a question that share half
of their variance (beta-binomial, intraclass correlation 0.5), and one to fifteen of them: ``REPETITIONS`` draws. A gate
whose limit is the true rate passes where the lower end lies above it: at most one run in 40 by intent, one in 25 here.

The repetitions take every limit from the sums of a sample alone, many at once. The package's own interval is never
narrower: the rule that makes it monotone can only widen it. A part of the samples is run through it to show that.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from math import lgamma, log, log1p, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result

from eclose.stats.beta_quantiles import beta_upper_quantile
from eclose.stats.clustered_rates import QuestionHitCounts, _Sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.stats.arrays import Floats

QUESTIONS = (10, 20, 30, 50, 100, 300, 1_000)
RATES = (0.80, 0.90, 0.95, 0.97, 0.98, 0.99)
CORRELATION = 0.5
REPETITIONS, CHECKED = 20_000, 2
SEED = 17
COVERAGE, FALSE_PASS = 0.94, 0.04
TAIL = 0.025


class Cell(NamedTuple):
    """Coverage of a design, and how often the interval lies above the truth."""

    design: str
    questions: int
    rate: float
    coverage: float
    false_pass: float
    width: float

    @property
    def holds(self) -> bool:
        """Whether both goals are reached."""
        return self.coverage >= COVERAGE and self.false_pass <= FALSE_PASS

    def __str__(self) -> str:
        """Return a line of the table."""
        figures = f"{self.coverage:8.4f} {self.false_pass:10.4f} {self.width:7.3f}"
        return f"{self.design:22} {self.questions:9,} {self.rate:6.2f} {figures}{'' if self.holds else '  <-'}"


def cell(design: str, questions: int, rate: float, ends: Floats, weights: Floats) -> Cell:
    """Weigh the intervals of a design; each row of ``ends`` is an interval."""
    low, high = ends.T
    covered, above = (low <= rate) & (rate <= high), low > rate
    return Cell(
        design, questions, rate, float(weights @ covered), float(weights @ above), float(weights @ (high - low))
    )


def single(questions: int) -> Iterator[Cell]:
    """Yield cells with one response a question: every number of failures with its probability."""
    failures = np.arange(questions + 1)
    ends = np.array([QuestionHitCounts(_rows(questions, int(count))).interval() for count in failures])
    for rate in RATES:
        logs = [_log_chance(questions, int(count), 1 - rate) for count in failures]
        yield cell("one a question", questions, rate, ends, np.exp(logs))


def _rows(questions: int, failures: int) -> tuple[tuple[int, int, int], ...]:
    rows = ((1, 0, questions - failures), (0, 1, failures))
    return tuple(row for row in rows if row[2])


def _log_chance(n: int, k: int, p: float) -> float:
    return _log_comb(n, k) + k * log(p) + (n - k) * log1p(-p)


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def clustered(questions: int, rate: float, sizes: Floats, name: str, rng: np.random.Generator) -> tuple[Cell, int]:
    """Draw several responses a question; return the cell, and how many of the checked intervals are narrower here."""
    spread = (1 - CORRELATION) / CORRELATION
    chance = rng.beta((1 - rate) * spread, rate * spread, (REPETITIONS, questions))
    failures = rng.binomial(sizes.astype(int), chance).astype(float)
    ends = np.stack([1 - _limits(failures, sizes), _limits(sizes - failures, sizes)], axis=1)
    inside = 0
    for few, (low, high) in zip(failures[:CHECKED], ends[:CHECKED], strict=True):
        interval = QuestionHitCounts.of(sizes - few, few).interval()
        assert interval is not None
        inside += interval.low > low + 1e-9 or interval.high < high - 1e-9
    return cell(name, questions, rate, ends, np.full(REPETITIONS, 1 / REPETITIONS)), inside


def _limits(kind: Floats, sizes: Floats) -> Floats:
    """Compute the limit of every sample, without the rule that makes it monotone."""
    sums = _Sums(kind.sum(axis=1), (kind**2).sum(axis=1), float(sizes.sum()), float((sizes**2).sum()))
    distinct, inverse = np.unique(np.stack(sums[:2], axis=1), axis=0, return_inverse=True)
    limits = np.ones(len(distinct))
    partly = distinct[:, 0] < sums.cases
    kinds = sums._replace(kind=distinct[partly, 0], kind_squares=distinct[partly, 1])
    a, b = kinds.beta().parameters
    limits[partly] = beta_upper_quantile(a, b, TAIL)
    return limits[inverse.ravel()]


def monotone() -> tuple[int, int]:
    """Count the steps to one more failure, and those that raised an end of the interval."""
    steps = raised = 0
    for questions in (1, 2, 10, 100, 1_000):
        ends = [QuestionHitCounts(_rows(questions, count)).interval() for count in range(questions + 1)]
        for before, after in pairwise(ends):
            assert before is not None
            assert after is not None
            steps += 1
            raised += after.low > before.low or after.high > before.high
    rng = np.random.default_rng(SEED)
    for questions, size in ((1, 50), (2, 8), (10, 8), (30, 3)):
        failures, sizes = np.zeros(questions), np.full(questions, float(size))
        before = QuestionHitCounts.of(sizes - failures, failures).interval()
        while (failures < sizes).any():  # failures come one by one, wherever there is room
            failures[rng.choice(np.flatnonzero(failures < sizes))] += 1
            after = QuestionHitCounts.of(sizes - failures, failures).interval()
            assert before is not None
            assert after is not None
            steps += 1
            raised += after.low > before.low + 1e-11 or after.high > before.high + 1e-11
            before = after
    return steps, raised


def narrowest() -> float:
    """Return the least width of the interval of a single question, over every number of failures in fifty responses."""
    intervals = [QuestionHitCounts(((50 - count, count, 1),)).interval() for count in range(51)]
    return min(ends.high - ends.low for ends in intervals if ends is not None)


def main() -> int:
    """Print the table and whether every cell holds."""
    rng = np.random.default_rng(SEED)
    print(f"{'design':22} {'questions':>9} {'rate':>6} {'coverage':>8} {'false pass':>10} {'width':>7}")
    cells, narrower = [], 0
    for questions in QUESTIONS:
        rows = list(single(questions))
        designs: dict[str, Floats] = {
            "8 a question": np.full(questions, 8.0),
            "1-15 a question": 1.0 + np.arange(questions, dtype=float) % 15,
        }
        for rate in RATES:
            for name, sizes in designs.items():
                row, inner = clustered(questions, rate, sizes, name, rng)
                rows.append(row)
                narrower += inner
        rows.sort(key=lambda row: (row.design, row.rate))
        print("\n".join(map(str, rows)), flush=True)
        cells += rows
    steps, raised = monotone()
    width = narrowest()
    error = sqrt(COVERAGE * (1 - COVERAGE) / REPETITIONS)
    print(f"{REPETITIONS:,} repetitions a clustered cell: a standard error of {error:.4f} at {COVERAGE}")
    print(
        f"narrower than computed here: {narrower} of {CHECKED * 2 * len(QUESTIONS) * len(RATES)} of the package's own"
    )
    print(
        f"one failure more: {steps:,} steps, {raised} raise an end; a single question: a width of {width:.3f} or more"
    )
    least, most = min(row.coverage for row in cells), max(row.false_pass for row in cells)
    print(f"least coverage {least:.4f}, most false passes {most:.4f}, over {len(cells)} cells")
    holds = all(row.holds for row in cells) and not raised and not narrower and width > 0.5
    return print_result(
        name="interval of a rate",
        value=round(least, 4),
        unit="least coverage",
        goal=f">= {COVERAGE}, false passes <= {FALSE_PASS}, monotone, no single question without width",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
