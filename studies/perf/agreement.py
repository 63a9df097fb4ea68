"""Time of the agreement table of appendix A.3.3 at the paper's size: 12,733 steps of 2,598 responses, judged twice."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.metrics.agreement import AnnotatedResponse, AnnotatorAgreementRow, measure_annotator_agreement
from eclose.values.judgment import Judgment, LocalFailure, StepJudgment
from studies.perf.result import print_result

QUESTIONS, RESPONSES, STEPS = 866, 2_598, 12_733
RESAMPLES = 2_000
GOAL = 5.0
"""Seconds."""

FAILURES = tuple(LocalFailure)


def make_step(rng: np.random.Generator) -> StepJudgment:
    """Draw a judgment of a step: nearly always substantive, mostly sound."""
    if rng.random() < 0.05:
        return StepJudgment(substantive=False)
    if rng.random() < 0.9:
        return StepJudgment(substantive=True, sound=True)
    return StepJudgment(substantive=True, sound=False, failure=FAILURES[rng.integers(len(FAILURES))])


def make_second_judgment(step: StepJudgment, rng: np.random.Generator) -> StepJudgment:
    """Return a second judgment of the step, which differs in a tenth of the cases at most."""
    return make_step(rng) if rng.random() < 0.1 else step


def make_pair(number: int, steps: int, rng: np.random.Generator) -> AnnotatedResponse:
    """Make a response with two judgments; every question has three responses."""
    first = [make_step(rng) for _ in range(steps)]
    second = [make_second_judgment(step, rng) for step in first]
    labels = rng.random(4) < 0.9
    noisy = labels ^ (rng.random(4) < 0.03)
    return AnnotatedResponse(
        f"q{number % QUESTIONS}",
        (
            build_judgment(f"r{number}", "A1", first, labels.tolist()),
            build_judgment(f"r{number}", "A2", second, noisy.tolist()),
        ),
    )


def build_judgment(response_id: str, judge: str, steps: list[StepJudgment], labels: list[bool]) -> Judgment:
    """Build a judgment from its steps and the four labels of the whole response."""
    aligned, closed, complete, correct = labels
    return Judgment(response_id, judge, tuple(steps), aligned, closed, complete, correct)


def make_pairs(rng: np.random.Generator) -> list[AnnotatedResponse]:
    """Make all responses, of four or five steps each, so that the steps add up to ``STEPS``."""
    shortest, longer = divmod(STEPS, RESPONSES)
    return [make_pair(number, shortest + (number < longer), rng) for number in range(RESPONSES)]


def format_row(row: AnnotatorAgreementRow) -> str:
    """Format a row of the table, with a dash where a value is undefined."""
    interval = "[{:.3f}, {:.3f}]".format(*row.alpha.interval) if row.alpha.interval else "—"
    specific = " / ".join(format_value(value) for value in row.specific) if row.specific else "—"
    return (
        f"{row.judgment:22} {row.n:6,}  {format_value(row.majority)}  {format_value(row.raw.value)}  "
        f"{format_value(row.alpha.value)} {interval}  {specific}"
    )


def format_value(value: float | None) -> str:
    """Format a value with three decimals, or a dash for None."""
    return "—" if value is None else f"{value:.3f}"


def main() -> int:
    """Time the report and print whether the goal holds."""
    pairs = make_pairs(np.random.default_rng(0))
    start = perf_counter()
    rows = measure_annotator_agreement(pairs, rng=np.random.default_rng(42), resamples=RESAMPLES)
    seconds = perf_counter() - start
    print(f"{'judgment':22} {'n':>6}  maj.   raw    alpha [95 % CI]         specific")
    for row in rows:
        print(format_row(row))
    steps = next(row.n for row in rows if row.judgment == "Substantive status")
    print(f"{len(pairs):,} responses, {steps:,} steps, {RESAMPLES:,} resamples: {seconds:.2f} s")
    holds = seconds < GOAL and (len(pairs), steps) == (RESPONSES, STEPS)
    return print_result(
        name="agreement report",
        value=round(seconds, 2),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
