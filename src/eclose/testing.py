"""Reliability as a test: ``assert_reliable`` fails where ``eclose gate`` does not pass, and names the responses.

Needs no pytest. Under pytest, ``pytest_plugin`` prints the rates of every run that was held against limits.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from eclose.core.judgment import NEVER_ASKED
from eclose.diagnosis.diagnose import Case, Diagnosis, describe_failure
from eclose.diagnosis.gate import GateLimits, GateOutcome, UndecidedPolicy
from eclose.diagnosis.report.format import format_figure
from eclose.diagnosis.results import broken_labels
from eclose.diagnosis.run_gate import GateResult, gate
from eclose.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from eclose.core.three_valued import Label

gate_lines: list[str] = []
"""A line for every run that was held against limits; the pytest plugin takes them out and prints them."""

_PRINTED = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE, Metric.ACCURACY)
_FAILS: dict[Metric, Callable[[Case], Label]] = {
    Metric.TRACE_RELIABILITY_RATE: lambda case: case.verdict.reliable is False,
    Metric.GAP_RATE: lambda case: case.verdict.in_gap,
    Metric.LOCAL_SOUNDNESS_RATE: lambda case: case.verdict.locally_sound is False,
    Metric.ACCURACY: lambda case: case.verdict.correct is False,
}
"""Which responses speak against a rate."""


def assert_reliable(
    run: Path | str | Iterable[Case],
    *,
    min_trr: float | None = None,
    min_accuracy: float | None = None,
    min_lsr: float | None = None,
    max_lgg: float | None = None,
    max_unjudged: float | None = None,
    against: Path | str | None = None,
    max_trr_drop: float | None = None,
    max_accuracy_drop: float | None = None,
    max_lsr_drop: float | None = None,
    max_lgg_rise: float | None = None,
    undecided: UndecidedPolicy = "fail",
    worst: int = 5,
    seed: int = 42,
    allow_stale: bool = False,
) -> Diagnosis:
    """Raise ``AssertionError`` unless the responses keep to the limits; else return their diagnosis.

    The verdicts are those of ``eclose gate``: a limit is held against the 95 % interval, what was not judged counts
    against passing, and a judge that was validated has its rates corrected.

    Args:
        run: The folder of a judged run, or cases.
        min_trr: Share of reliable traces, at least.
        min_accuracy: Share of right answers, at least.
        min_lsr: Share of locally sound traces, at least.
        max_lgg: Share of traces in the local-global gap, at most.
        max_unjudged: Share of responses without a label, at most.
        against: The folder of a base run, for the four limits that follow.
        max_trr_drop: How far TRR may lie below that of the base run, on the questions both answer: 0.02 is 2 points.
        max_accuracy_drop: The same for accuracy.
        max_lsr_drop: The same for LSR.
        max_lgg_rise: How far LGG may lie above that of the base run.
        undecided: What it means when there are too few responses to tell.
        worst: How many responses the message names.
        seed: Draws the intervals of corrected rates and of differences.
        allow_stale: Go on with judgments that were made from other responses; the message says so.

    Raises:
        AssertionError: A limit is broken or, unless ``undecided`` is ``"pass"``, cannot be told to be kept.
        SettingError: No limit, or one that is no rate.
        UserError: Judgments that were made from other responses, unless ``allow_stale``.
    """
    __tracebackhide__ = True
    result = gate(
        run,
        min_trr=min_trr,
        min_accuracy=min_accuracy,
        min_lsr=min_lsr,
        max_lgg=max_lgg,
        max_unjudged=max_unjudged,
        against=against,
        max_trr_drop=max_trr_drop,
        max_accuracy_drop=max_accuracy_drop,
        max_lsr_drop=max_lsr_drop,
        max_lgg_rise=max_lgg_rise,
        seed=seed,
        allow_stale=allow_stale,
    )
    stale = [f"STALE: {sentence}" for sentence in result.stale]
    gate_lines.append(" ".join([_line(result), *stale]))
    if result.decide(undecided) is not GateOutcome.PASSED:
        message = _message(result, list(_suspects(result.cases, result.limits)), worst)
        raise AssertionError("\n".join([*stale, *message]))
    return result.diagnosis


def _suspects(cases: Sequence[Case], limits: GateLimits) -> Iterator[Case]:
    """Responses that speak against a limit, those with the most against them first."""
    asked = [_FAILS[metric] for metric in (*limits.at_least, *limits.at_most, *limits.max_drop, *limits.max_rise)]
    speaking = [any(fails(case) for fails in asked) for case in cases]
    yield from sorted(compress(cases, speaking), key=lambda case: (-broken_labels(case), case.response.id))
    if limits.unjudged is not None:
        silent = (case for case, speaks in zip(cases, speaking, strict=True) if not speaks)
        yield from (case for case in silent if set(case.judgment.unjudged.values()) - NEVER_ASKED)


def _message(result: GateResult, suspects: Sequence[Case], worst: int) -> Iterator[str]:
    named = "the cases are" if result.folder is None else f"{result.folder} is"
    if result.report.outcome is GateOutcome.UNDECIDED:
        yield f"cannot tell whether {named} reliable enough, {_counted(result.diagnosis)}:"
    else:
        yield f"{named} not reliable enough, {_counted(result.diagnosis)}:"
    yield from (f"  {reason}" for reason in result.report.reasons)
    if suspects and worst:
        yield f"Look at these first, of {len(suspects):,}:"
        yield from (f"  {case.response.id}: {_broken(case)}" for case in suspects[:worst])
    if result.folder is not None:
        yield f"`eclose diagnose {result.folder}` shows all of them."


def _broken(case: Case) -> str:
    missing = ", ".join(f"{criterion} {reason}" for criterion, reason in case.judgment.unjudged.items())
    return describe_failure(case) + (f" Without a label: {missing}." if missing else "")


def _line(result: GateResult) -> str:
    """Return ``runs/mine: passed, 600 responses to 300 questions, TRR 92.1 % [90.4, 93.8], …``."""
    rates = []
    for metric in _PRINTED:
        rate = result.corrected.get(metric)
        own = format_figure(*result.diagnosis.overall.estimates[metric][:2])
        rates.append(
            f"{metric} {own}" if rate is None else f"{metric} {format_figure(rate.value, rate.interval)} corrected"
        )
    return f"{result.name}: {result.report.outcome}, {_counted(result.diagnosis)}, {', '.join(rates)}"


def _counted(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.overall.responses:,} responses to {diagnosis.overall.questions:,} questions"
