"""Coverage of the interval of a rate, and false passes of a gate at its limit, over many designs.

One response a question: all counts are enumerated, so the figures are exact. Several: ``REPETITIONS`` draws of
failures that share a part of their variance within a question (beta-binomial), for equal and unequal numbers of
responses. A gate whose limit is the true rate passes where the lower end lies above it: at most one run in 40 by
intent, one in 25 here.

Whether an end passes the truth is decided without the end, by the probability that the package compares with the tail.
Subsets, which make the interval monotone, can only widen it and are left out. The package's own intervals of the first
``CHECKED`` samples of a cell give the width, and show that none of them is narrower.
"""

from __future__ import annotations

import sys
from math import lgamma, log, log1p, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.stats.clustered_rates import CONFIDENCE_LEVEL, QuestionHitCounts, rate_survival
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eclose.stats.arrays import Flags, Floats
    from eclose.stats.intervals import Interval

QUESTIONS = (10, 20, 30, 50, 100, 300)
RATES = (0.80, 0.95, 0.99)
CORRELATIONS = (0.1, 0.5, 0.9)
REPETITIONS, CHECKED, SIZE_DRAWS = 10_000, 20, 20
STEPS = 100_000
SEED = 17
COVERAGE, FALSE_PASS = 0.94, 0.04
TAIL = (1 - CONFIDENCE_LEVEL) / 2


def equal_sizes(questions: int, _: np.random.Generator) -> Floats:
    """Return eight responses for every question."""
    return np.full(questions, 8.0)


def cycled_sizes(questions: int, _: np.random.Generator) -> Floats:
    """Return one to fifteen responses."""
    return (np.arange(questions) % 15).astype(np.float64) + 1


def zipf_sizes(questions: int, _: np.random.Generator) -> Floats:
    """Return responses in inverse proportion to the rank of a question, eight on average."""
    shares = 1 / np.arange(1, questions + 1)
    sizes: Floats = np.maximum(1, np.round(shares / shares.sum() * questions * 8))
    return sizes


def dominated_sizes(questions: int, _: np.random.Generator) -> Floats:
    """Return eight responses for every question but the first, which has 20 % of all."""
    return np.array([2.0 * (questions - 1), *[8.0] * (questions - 1)])


def lognormal_sizes(questions: int, rng: np.random.Generator) -> Floats:
    """Return responses drawn from a lognormal distribution with median 5 and a standard deviation of 1."""
    sizes: Floats = np.maximum(1, np.round(np.exp(rng.normal(log(5), 1, questions))))
    return sizes


DESIGNS: dict[str, Callable[[int, np.random.Generator], Floats]] = {
    "8 a question": equal_sizes,
    "1-15 a question": cycled_sizes,
    "Zipf, mean 8": zipf_sizes,
    "one question has 20 %": dominated_sizes,
    "lognormal": lognormal_sizes,
}


class Cell(NamedTuple):
    """Coverage of a design, and how often the interval lies above the truth."""

    design: str
    questions: int
    rate: float
    correlation: float
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
        cell = f"{self.design:22} {self.questions:9,} {self.rate:6.2f} {self.correlation:4.1f}"
        return f"{cell} {figures}{'' if self.holds else '  <-'}"


def single(questions: int) -> Iterator[Cell]:
    """Yield cells with one response a question: every number of failures with its probability."""
    failures = np.arange(questions + 1)
    low, high = np.array(
        [interval(np.ones(questions), (failures[1:] <= count).astype(np.float64)) for count in failures]
    ).T
    for rate in RATES:
        weights = np.exp([_log_chance(questions, int(count), 1 - rate) for count in failures])
        covered, above = weights @ ((low <= rate) & (rate <= high)), weights @ (low > rate)
        yield Cell("one a question", questions, rate, 0.0, float(covered), float(above), float(weights @ (high - low)))


def interval(sizes: Floats, failures: Floats) -> Interval:
    """Return the package's interval of the rate of successes."""
    ends = QuestionHitCounts.of(sizes - failures, failures).interval()
    assert ends is not None
    return ends


def _log_chance(n: int, k: int, p: float) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p)


def clustered(
    design: str, questions: int, rate: float, correlation: float, rng: np.random.Generator
) -> tuple[Cell, int]:
    """Draw several responses a question; return the cell, and how many of the checked intervals are narrower."""
    spread = (1 - correlation) / correlation
    above = below = narrower = 0
    widths = []
    # Sizes are drawn again, since a single draw of them may be lucky.
    for _ in range(SIZE_DRAWS):
        sizes = DESIGNS[design](questions, rng)
        chance = rng.beta((1 - rate) * spread, rate * spread, (REPETITIONS // SIZE_DRAWS, questions))
        failures = rng.binomial(sizes.astype(int), chance).astype(float)
        # The lower end is one minus the limit of failures.
        low_above, high_below = excluded(1 - rate, failures, sizes), excluded(rate, sizes - failures, sizes)
        above, below = above + low_above.sum(), below + high_below.sum()
        for row, *outside in list(zip(failures, low_above, high_below, strict=True))[: max(CHECKED // SIZE_DRAWS, 1)]:
            low, high = interval(sizes, row)
            widths.append(high - low)
            narrower += (low > rate and not outside[0]) + (high < rate and not outside[1])
    cell = Cell(
        design,
        questions,
        rate,
        correlation,
        1 - (above + below) / REPETITIONS,
        above / REPETITIONS,
        float(np.mean(widths)),
    )
    return cell, narrower


def excluded(rate: float, kind: Floats, sizes: Floats) -> Flags:
    """Return in which samples the limit of a kind of cases lies below a rate."""
    cases, squares = float(sizes.sum()), float(sizes @ sizes)
    total, spread = kind.sum(axis=1), ((kind - rate * sizes) ** 2).sum(axis=1)
    # At or below the mean, imaginary question included, a rate is never excluded.
    flags: Flags = (total + squares / cases) / (cases + squares / cases) < rate
    if flags.any():
        total, spread = total[flags], spread[flags]
        flags[flags] = rate_survival(np.full(len(total), rate), total, spread, cases, squares) < TAIL
    return flags


def monotone(steps: int, rng: np.random.Generator) -> int:
    """Count how often one more failure, in a random question of a random sample, raises an end of the interval."""
    raised = 0
    while steps > 0:
        questions = int(rng.integers(1, 40))
        sizes = DESIGNS[rng.choice(list(DESIGNS))](questions, rng).clip(1)
        rate, correlation = rng.choice([0.02, 0.2, 0.5, 0.8, 0.98]), rng.choice(CORRELATIONS)
        spread = (1 - correlation) / correlation
        chance = rng.beta(rate * spread, (1 - rate) * spread, questions)
        failures = rng.binomial(sizes.astype(int), chance).astype(np.float64)
        before = interval(sizes, failures)
        for _ in range(min(steps, 50, int((sizes - failures).sum()))):
            failures[rng.choice(np.flatnonzero(failures < sizes))] += 1
            after = interval(sizes, failures)
            raised += after.low > before.low + 1e-11 or after.high > before.high + 1e-11
            before, steps = after, steps - 1
    return raised


def narrowest() -> float:
    """Return the least width of the interval of a single question, over every number of failures in fifty responses."""
    ends = [interval(np.array([50.0]), np.array([float(count)])) for count in range(51)]
    return min(high - low for low, high in ends)


def main() -> int:
    """Print the table and whether every cell holds."""
    rng = np.random.default_rng(SEED)
    print(f"{'design':22} {'questions':>9} {'rate':>6} {'ICC':>4} {'coverage':>8} {'false pass':>10} {'width':>7}")
    cells = [row for questions in QUESTIONS for row in single(questions)]
    print("\n".join(map(str, cells)), flush=True)
    narrower = 0
    for design in DESIGNS:
        for questions in QUESTIONS:
            for rate in RATES:
                for correlation in CORRELATIONS:
                    row, inner = clustered(design, questions, rate, correlation, rng)
                    print(row, flush=True)
                    cells.append(row)
                    narrower += inner
    raised, width = monotone(STEPS, rng), narrowest()
    error = sqrt(COVERAGE * (1 - COVERAGE) / REPETITIONS)
    print(f"{REPETITIONS:,} repetitions a clustered cell: a standard error of {error:.4f} at {COVERAGE}")
    print(f"narrower than decided here: {narrower} of the package's own")
    print(
        f"one failure more: {STEPS:,} steps, {raised} raise an end; a single question: a width of {width:.3f} or more"
    )
    least, most = min(row.coverage for row in cells), max(row.false_pass for row in cells)
    print(f"least coverage {least:.4f}, most false passes {most:.4f}, over {len(cells)} cells")
    return print_result(
        name="interval of a rate",
        value=round(least, 4),
        unit="least coverage",
        goal=f">= {COVERAGE}, false passes <= {FALSE_PASS}, monotone, no single question without width",
        holds=all(row.holds for row in cells) and not raised and not narrower and width > 0.5,
    )


if __name__ == "__main__":
    sys.exit(main())
