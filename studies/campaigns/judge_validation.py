"""Coverage of corrected rates in simulation: 2,000 responses judged, 100 of them labelled by people, the truth known.

The judge errs on a response with chance p. For every true rate, p and way of sampling, 400 repetitions show how often
each 95 % interval holds the true rate and how wide it is: the judge's own (Wilson on 2,000), people's alone (Wilson
on 100), the textbook one (normal, around the judge's rate plus the mean difference) and ours. The same repetitions
show how often the interval for the judge's rate of disagreement holds p.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.stats.clustered_rates import clustered_rate
from eclose.stats.coefficients import MISSING_CODE
from eclose.stats.intervals import Z_95, Interval, wilson_interval
from eclose.stats.rate_correction import JudgeErrors, corrected_rate, rate_from_judge_errors, sampling_weights
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose.stats.arrays import Flags, Floats, Indices

RESPONSES, LABELLED, REPETITIONS = 2_000, 100, 400
NOISE = (0.02, 0.05, 0.10)
RATES = (0.03, 0.10, 0.50, 0.90)
SEED = 20_261
GOAL = 0.92
"""Least coverage of ours, which the judge's own must miss wherever its errors move the rate."""
SHARED = 0.5
"""Share of responses that have their question's label, or error, instead of their own."""
DRAWS = 1_000


class Run(NamedTuple):
    """Simulated run with its truth."""

    question: Indices
    truth: Indices
    judge: Indices
    labelled: Flags
    stratum: Indices

    @property
    def human(self) -> Indices:
        return np.where(self.labelled, self.truth, MISSING_CODE)


@dataclass(frozen=True)
class Design:
    """Design of a run: how responses depend on questions, and which of them people label."""

    a_question: int = 1
    """Responses to each question."""
    shared_errors: bool = False
    whole_questions: bool = False
    """Whether people label all responses of the questions they get."""
    by_stratum: bool = False
    """Whether half of the labels go to the tenth that is hardest: half as many hits, three times as many errors."""

    def run(self, rng: np.random.Generator, rate: float, noise: float) -> Run:
        question = np.arange(RESPONSES) // self.a_question
        stratum = (np.arange(RESPONSES) % 10 == 0).astype(np.intp) if self.by_stratum else np.zeros(RESPONSES, np.intp)
        truth = _events(rng, question, _by_stratum(stratum, rate, 0.5), shared=self.a_question > 1)
        wrong = _events(rng, question, _by_stratum(stratum, noise, 3), shared=self.shared_errors)
        return Run(question, truth, truth ^ wrong, self._labelled(rng, question, stratum), stratum)

    def _labelled(self, rng: np.random.Generator, question: Indices, stratum: Indices) -> Flags:
        if self.whole_questions:
            chosen = rng.permutation(question.max())[: LABELLED // self.a_question]
            return np.isin(question, chosen)
        labelled = np.zeros(RESPONSES, bool)
        parts = np.unique(stratum)
        for part in parts:
            members = np.flatnonzero(stratum == part)
            labelled[rng.permutation(members)[: LABELLED // len(parts)]] = True
        return labelled


def _by_stratum(stratum: Indices, chance: float, factor: float) -> Floats:
    """Return the chance of each response: ``factor`` times the mean in the second stratum, the mean over both."""
    share = stratum.mean()
    return np.where(stratum == 1, factor * chance, chance * (1 - share * factor) / (1 - share))


def _events(rng: np.random.Generator, question: Indices, chance: Floats, *, shared: bool) -> Indices:
    """Draw an event for each response."""
    own = rng.random(len(question)) < chance
    if not shared:
        return own.astype(np.intp)
    of_question = rng.random(question.max() + 1)[question] < chance
    return np.where(rng.random(len(question)) < SHARED, of_question, own).astype(np.intp)


DESIGNS = {
    "one response a question": Design(),
    "three a question": Design(a_question=3),
    "three a question, whole questions labelled, errors shared": Design(3, shared_errors=True, whole_questions=True),
    "half of the labels for a tenth of the responses": Design(by_stratum=True),
}
Intervals: TypeAlias = dict[str, tuple[float, Interval | None]]
OURS, PEOPLE, JUDGE, TEXTBOOK, DISPUTED = "ours", "people", "judge", "textbook", "p"
CARRIED = "carried over"


def textbook(run: Run) -> Interval:
    """Compute the normal interval of the prediction-powered estimate."""
    differences = (run.truth - run.judge)[run.labelled]
    value = run.judge.mean() + differences.mean()
    spread = Z_95 * sqrt(differences.var() / len(differences) + run.judge.var() / RESPONSES)
    return Interval(value - spread, value + spread)


def repetition(rng: np.random.Generator, design: Design, rate: float, noise: float) -> Intervals:
    """Draw a run; return for each method the value to cover, and its interval."""
    run = design.run(rng, rate, noise)
    weight = sampling_weights(run.stratum, run.labelled) if design.by_stratum else None
    human_labels = run.truth[run.labelled]
    disputed = np.where(run.labelled, run.truth ^ run.judge, MISSING_CODE)
    ours = corrected_rate(run.judge, run.human, run.question, rng=rng, weight=weight, draws=DRAWS)
    intervals: Intervals = {
        OURS: (rate, ours.interval),
        PEOPLE: (rate, wilson_interval(int(human_labels.sum()), len(human_labels))),
        TEXTBOOK: (rate, textbook(run)),
        JUDGE: (rate, wilson_interval(int(run.judge.sum()), RESPONSES)),
        DISPUTED: (noise, clustered_rate(disputed, run.question).interval),
    }
    if design.by_stratum:
        # The others take the labelled responses as they come, which says nothing of the run.
        intervals = {name: intervals[name] for name in (OURS, JUDGE)}
    return intervals


def carried_over(rng: np.random.Generator, rate: float, noise: float) -> Intervals:
    """Correct an unlabelled run by a validation on other responses, half of which are hits."""
    validated, other = Design().run(rng, 0.5, noise), Design().run(rng, rate, noise)
    errors = JudgeErrors.of(validated.judge, validated.human, validated.question)
    corrected = rate_from_judge_errors(other.judge, other.question, errors, rng=rng, draws=DRAWS)
    return {
        OURS: (rate, corrected.interval),
        JUDGE: (rate, wilson_interval(int(other.judge.sum()), RESPONSES)),
    }


class Cell(NamedTuple):
    """Coverage and width in a cell of the table."""

    design: str
    rate: float
    noise: float
    coverage: dict[str, float]
    width: dict[str, float]

    @property
    def holds(self) -> bool:
        """Whether ours cover the truth, and the judge's own do not where symmetric errors move the rate."""
        covered = all(self.coverage[name] >= GOAL for name in (OURS, DISPUTED) if name in self.coverage)
        return covered and (self.rate == 0.5 or self.coverage[JUDGE] < GOAL)

    def __str__(self) -> str:
        columns = [
            f"{100 * self.coverage[name]:6.1f} {self.width[name]:.3f}" if name in self.coverage else f"{'-':>12}"
            for name in (OURS, PEOPLE, TEXTBOOK, JUDGE, DISPUTED)
        ]
        return f"{self.rate:5.2f} {self.noise:5.2f} " + " ".join(columns) + ("" if self.holds else "  FAILS")


def measure(design: str, rate: float, noise: float, once: Callable[[np.random.Generator], Intervals]) -> Cell:
    # One stream of numbers a cell, whatever cells there are.
    rng = np.random.default_rng([SEED, *design.encode(), round(100 * rate), round(100 * noise)])
    covered: defaultdict[str, list[bool]] = defaultdict(list)
    width: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(REPETITIONS):
        for name, (truth, interval) in once(rng).items():
            assert interval is not None
            covered[name].append(interval.low <= truth <= interval.high)
            width[name].append(interval.high - interval.low)
    means = [{name: float(np.mean(values)) for name, values in table.items()} for table in (covered, width)]
    return Cell(design, rate, noise, *means)


def all_cells() -> list[Cell]:
    cells = []
    table: dict[str, Callable[..., Intervals]] = {
        name: partial(repetition, design=design) for name, design in DESIGNS.items()
    }
    for name, once in (table | {CARRIED: carried_over}).items():
        print(f"{name}\n rate noise " + " ".join(f"{column:>12}" for column in (OURS, PEOPLE, TEXTBOOK, JUDGE, "p")))
        for rate in RATES:
            for noise in NOISE:
                cells.append(measure(name, rate, noise, partial(once, rate=rate, noise=noise)))
                print(cells[-1], flush=True)
    return cells


def main() -> int:
    started = perf_counter()
    print("coverage in % and mean width of 95 % intervals\n")
    cells = all_cells()
    worst = min(cell.coverage[OURS] for cell in cells)
    holds = all(cell.holds for cell in cells)
    shares = [cell.width[OURS] / cell.width[PEOPLE] for cell in cells if cell.design == next(iter(DESIGNS))]
    print(f"\n{len(cells)} cells of {REPETITIONS} repetitions in {perf_counter() - started:.0f} s")
    print(f"textbook interval: {100 * min(c.coverage.get(TEXTBOOK, 1) for c in cells):.1f} % at worst")
    moved = [cell.coverage[JUDGE] for cell in cells if cell.rate != 0.5]
    print(f"the judge's own, where errors move the rate: {100 * min(moved):.1f} to {100 * max(moved):.1f} %")
    print(f"width beside people's alone, {next(iter(DESIGNS))}: {min(shares):.2f} to {max(shares):.2f}")
    return print_result(
        name="least coverage of corrected 95 % intervals",
        value=round(worst, 4),
        unit="share",
        goal=f">= {GOAL} in every cell, and for p; the judge's own below that where its errors move the rate",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
