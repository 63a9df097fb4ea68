"""Reliability as a test: ``assert_reliable`` fails where ``eclose gate`` does not pass, and names the responses.

Needs no pytest. Under pytest, ``pytest_plugin`` prints the rates of every run that was compared with limits.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from eclose.api.gate import GateResult, gate
from eclose.diagnosis.gate_rules import GateLimits, GateOutcome, UndecidedPolicy
from eclose.diagnosis.number_format import format_count, format_percent_with_interval
from eclose.diagnosis.response_failure import count_false_labels, describe_response_failure
from eclose.metrics.rates import Metric
from eclose.values.judgment import NEVER_ASKED_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase
    from eclose.values.three_valued import Label

gate_lines: list[str] = []
"""One line for every run that was compared with limits; the pytest plugin prints and clears them."""

_PRINTED = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE, Metric.ACCURACY)
_FAILS: dict[Metric, Callable[[JudgedCase], Label]] = {
    Metric.TRACE_RELIABILITY_RATE: lambda case: case.verdict.reliable is False,
    Metric.GAP_RATE: lambda case: case.verdict.in_gap,
    Metric.LOCAL_SOUNDNESS_RATE: lambda case: case.verdict.locally_sound is False,
    Metric.ACCURACY: lambda case: case.verdict.correct is False,
}
"""Which responses count against a rate."""


def assert_reliable(
    run: Path | str | Iterable[JudgedCase],
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
    origin: str | None = None,
    undecided: UndecidedPolicy = "fail",
    worst: int = 5,
    seed: int = 42,
    allow_stale: bool = False,
) -> Diagnosis:
    """Assert that the responses of a run keep to limits.

    The decision is that of ``eclose gate``: a limit is compared with the 95 % interval of a rate, which is widened by
    all that responses without a label could be, and the rates of a validated judge are corrected.

    Args:
        run: Folder of a judged run, or cases.
        min_trr: Smallest share of reliable traces, between 0 and 1.
        min_accuracy: Smallest share of correct answers.
        min_lsr: Smallest share of locally sound traces.
        max_lgg: Largest share of traces in the local-global gap.
        max_unjudged: Largest share of responses without a label.
        against: Folder of a base run, for the four limits that follow.
        max_trr_drop: Largest drop of TRR below the base run, on the questions both answer: 0.02 is 2 points.
        max_accuracy_drop: Largest drop of accuracy.
        max_lsr_drop: Largest drop of LSR.
        max_lgg_rise: Largest rise of LGG above the base run.
        origin: Traces to check, ``stated``, ``prose`` or ``hidden``; stated ones by default.
        undecided: Whether to pass or to fail where there are too few responses to decide.
        worst: Number of responses that the message names.
        seed: Seed of the intervals of corrected rates and of differences.
        allow_stale: Use judgments that were made from other files than those in the folder; the message says so.

    Returns:
        The diagnosis of the responses.

    Raises:
        AssertionError: A limit is broken, or there are too few responses to decide and ``undecided`` is ``"fail"``.
        SettingError: There is no limit, or one is not a rate.
        UserError: The folder holds no judged run, or judgments of other responses.

    Examples:
        >>> diagnosis = eclose.assert_reliable("demo", min_trr=0.05)
    """
    # pytest then shows the line of the test and not this function.
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
        origin=origin,
        seed=seed,
        allow_stale=allow_stale,
    )
    stale = [f"STALE: {sentence}" for sentence in result.stale]
    # Before the assertion: the summary lists failed runs too.
    gate_lines.append(" ".join([_line(result), *stale]))
    if result.decide(undecided) is not GateOutcome.PASSED:
        message = _message(result, list(_suspects(result.cases, result.limits)), worst)
        raise AssertionError("\n".join([*stale, *message]))
    return result.diagnosis


def _suspects(cases: Sequence[JudgedCase], limits: GateLimits) -> Iterator[JudgedCase]:
    """Yield the responses that count against a limit, those with the most broken labels first."""
    failures = [_FAILS[metric] for metric in (*limits.at_least, *limits.at_most, *limits.max_drop, *limits.max_rise)]
    suspect = [any(fails(case) for fails in failures) for case in cases]
    yield from sorted(compress(cases, suspect), key=lambda case: (-count_false_labels(case.verdict), case.response.id))
    # After the broken ones: a response without a label may be in order.
    if limits.unjudged is not None:
        others = (case for case, listed in zip(cases, suspect, strict=True) if not listed)
        yield from (case for case in others if set(case.judgment.unjudged.values()) - NEVER_ASKED_REASONS)


def _message(result: GateResult, suspects: Sequence[JudgedCase], worst: int) -> Iterator[str]:
    named = "the cases are" if result.folder is None else f"{result.folder} is"
    if result.report.outcome is GateOutcome.UNDECIDED:
        yield f"cannot tell whether {named} reliable enough, {_counted(result.diagnosis)}:"
    else:
        yield f"{named} not reliable enough, {_counted(result.diagnosis)}:"
    yield from (f"  {reason}" for reason in result.report.reasons)
    if suspects and worst:
        yield f"Look at these first, of {len(suspects):,}:"
        for case in suspects[:worst]:
            missing = ", ".join(f"{criterion} {reason}" for criterion, reason in case.judgment.unjudged.items())
            without = f" Without a label: {missing}." if missing else ""
            yield f"  {case.response.id}: {describe_response_failure(case)}{without}"
    if result.folder is not None:
        yield f"`eclose diagnose {result.folder}` shows all of them."


def _line(result: GateResult) -> str:
    """Return ``runs/mine: passed, 600 responses to 300 questions, TRR 92.1 % [90.4, 93.8], …``."""
    rates = []
    for metric in _PRINTED:
        # The rate that decided: corrected by people's labels where the judge was validated.
        rate = result.corrected.get(metric)
        judge_rate = format_percent_with_interval(*result.diagnosis.overall.estimates[metric][:2])
        rates.append(
            f"{metric} {judge_rate}"
            if rate is None
            else f"{metric} {format_percent_with_interval(rate.value, rate.interval)} corrected"
        )
    return f"{result.name}: {result.report.outcome}, {_counted(result.diagnosis)}, {', '.join(rates)}"


def _counted(diagnosis: Diagnosis) -> str:
    overall = diagnosis.overall
    return f"{format_count(overall.responses, 'response')} to {format_count(overall.questions, 'question')}"
