"""Reliability as a test: ``assert_reliable`` fails where ``eclosure gate`` would, and names the responses to look at.

Needs no pytest. Under pytest, ``pytest_plugin`` tells the rates of every run that was held against limits.
"""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from eclosure.cases import CaseSet, read_cases
from eclosure.core.judgment import NEVER_ASKED
from eclosure.diagnose import Case, Diagnosis, broken_link, diagnose
from eclosure.gate import Limits, gate
from eclosure.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eclosure.core.labels import Label

heard: list[str] = []
"""A line for every run that was held against limits, for whoever tells of them; the plugin takes them out."""

_TOLD = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE, Metric.ACCURACY)
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
    worst: int = 5,
    seed: int = 42,
    allow_stale: bool = False,
) -> Diagnosis:
    """Raise ``AssertionError`` unless the responses keep to the limits; else return their diagnosis.

    ``run`` is the folder of a judged run, or cases. As for ``eclosure gate``, a limit is held against the bound of the
    95 % interval, and what was not judged counts against passing. The message names the ``worst`` responses. Judgments
    that were made from other responses are refused (``UserError``) unless ``allow_stale``: then the message says so.
    """
    __tracebackhide__ = True
    import numpy as np  # noqa: PLC0415 - not before there is something to count

    limits = Limits.of(
        min_trr=min_trr, min_accuracy=min_accuracy, min_lsr=min_lsr, max_lgg=max_lgg, max_unjudged=max_unjudged
    )
    folder = run if isinstance(run, (str, Path)) else None
    read = read_cases(Path(run), allow_stale=allow_stale) if isinstance(run, (str, Path)) else CaseSet(tuple(run))
    cases, left = read.cases, read.left_out
    found = diagnose(cases, rng=np.random.default_rng(seed))
    reasons = gate(found.overall, found.unjudged, limits, left)
    stale = [f"STALE: {sentence}" for sentence in read.stale]
    heard.append(" ".join([_rates(found, folder, passed=not reasons), *stale]))
    if reasons:
        message = _message(found, folder, reasons, list(_suspects(cases, limits)), worst)
        raise AssertionError("\n".join([*stale, *message]))
    return found


def _suspects(cases: Sequence[Case], limits: Limits) -> Iterator[Case]:
    """Responses that speak against a limit, those with the most against them first."""
    asked = [_FAILS[metric] for metric in (*limits.at_least, *limits.at_most)]
    speaking = [any(fails(case) for fails in asked) for case in cases]
    yield from sorted(compress(cases, speaking), key=lambda case: (-_against(case), case.response.id))
    if limits.unjudged is not None:
        silent = (case for case, speaks in zip(cases, speaking, strict=True) if not speaks)
        yield from (case for case in silent if set(case.judgment.unjudged.values()) - NEVER_ASKED)


def _against(case: Case) -> int:
    verdict = case.verdict
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    return sum(label is False for label in labels)


def _message(
    found: Diagnosis, folder: Path | str | None, reasons: Sequence[str], suspects: Sequence[Case], worst: int
) -> Iterator[str]:
    yield f"{_named(folder)} not reliable enough, {_counted(found)}:"
    yield from (f"  {reason}" for reason in reasons)
    if suspects and worst:
        yield f"Look at these first, of {len(suspects):,}:"
        yield from (f"  {case.response.id}: {_told(case)}" for case in suspects[:worst])
    if folder is not None:
        yield f"`eclosure diagnose {folder}` shows all of them."


def _told(case: Case) -> str:
    missing = ", ".join(f"{one} {reason}" for one, reason in case.judgment.unjudged.items())
    return broken_link(case) + (f" Without a label: {missing}." if missing else "")


def _rates(found: Diagnosis, folder: Path | str | None, *, passed: bool) -> str:
    """``runs/mine: passed, 600 responses to 300 questions, TRR 92.1 % [90.4, 93.8], …``."""
    told = []
    for metric in _TOLD:
        rate, interval = found.overall.rates[metric].value, found.overall.estimates[metric].interval
        bounds = f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]" if interval is not None else ""
        told.append(f"{metric} " + ("undefined" if rate is None else f"{100 * rate:.1f} %{bounds}"))
    outcome = "passed" if passed else "failed"
    return f"{folder or 'cases'}: {outcome}, {_counted(found)}, {', '.join(told)}"


def _named(folder: Path | str | None) -> str:
    return "the cases are" if folder is None else f"{folder} is"


def _counted(found: Diagnosis) -> str:
    return f"{found.overall.responses:,} responses to {found.overall.questions:,} questions"
