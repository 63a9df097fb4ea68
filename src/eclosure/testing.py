"""Reliability as a test: ``assert_reliable`` fails where ``eclosure gate`` does not pass, and names the responses.

Needs no pytest. Under pytest, ``pytest_plugin`` prints the rates of every run that was held against limits.
"""

from __future__ import annotations

from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eclosure.cases import CaseSet, read_cases, refuse_other_questions
from eclosure.core.judgment import NEVER_ASKED
from eclosure.diagnose import Case, Diagnosis, broken_link, diagnose
from eclosure.gate import Baseline, GateReport, Limits, Outcome, PairedRate, Undecided, figure, gate
from eclosure.metrics.rates import Metric
from eclosure.stats.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eclosure.core.labels import Label
    from eclosure.stats.corrected import CorrectedRate

heard: list[str] = []
"""A line for every run that was held against limits; the pytest plugin takes them out and prints them."""

_PRINTED = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE, Metric.ACCURACY)
_FAILS: dict[Metric, Callable[[Case], Label]] = {
    Metric.TRACE_RELIABILITY_RATE: lambda case: case.verdict.reliable is False,
    Metric.GAP_RATE: lambda case: case.verdict.in_gap,
    Metric.LOCAL_SOUNDNESS_RATE: lambda case: case.verdict.locally_sound is False,
    Metric.ACCURACY: lambda case: case.verdict.correct is False,
}
"""Which responses speak against a rate."""


class JudgedCases(NamedTuple):
    """The cases of a run with what a reader must be told of them, and the folder they come from."""

    read: CaseSet
    folder: Path | None = None

    @classmethod
    def of(cls, run: Path | str | Iterable[Case], *, allow_stale: bool = False) -> JudgedCases:
        """Read the folder of a judged run, or take cases as they are."""
        if isinstance(run, str | Path):
            return cls(read_cases(Path(run), allow_stale=allow_stale), Path(run))
        return cls(CaseSet(tuple(run)))

    @property
    def name(self) -> str:
        """The folder, or ``cases``."""
        return "cases" if self.folder is None else str(self.folder)


class HeldRun(NamedTuple):
    """A run that was held against limits."""

    diagnosis: Diagnosis
    report: GateReport
    corrected: Mapping[Metric, CorrectedRate]
    """The rates that labels of people correct; limits are held against these."""
    stale: tuple[str, ...] = ()
    """Files of the run and of its base that are not those that were judged, a sentence each."""


def hold(
    run: JudgedCases, limits: Limits, *, base: JudgedCases | None = None, validation: Path | None = None, seed: int = 42
) -> HeldRun:
    """Hold a run against limits: what ``eclosure gate`` and ``assert_reliable`` share.

    Args:
        run: The run. Where its folder has a validation of the judge, limits are held against corrected rates.
        limits: What to keep to.
        base: The run that limits on differences are relative to.
        validation: A file that ``eclosure judge validate`` wrote, instead of the one in the folder.
        seed: Draws the intervals of corrected rates and of differences.
    """
    diagnosis = diagnose(run.read.cases)
    corrected = _corrected(run, validation, seed)
    compared = None if base is None else _baseline(run, base, seed)
    left_out = run.read.left_out
    report = gate(diagnosis.overall, diagnosis.unjudged, limits, left_out, corrected=corrected, base=compared)
    stale = (*run.read.stale, *(() if base is None else base.read.stale))
    return HeldRun(diagnosis, report, corrected, stale)


def _corrected(run: JudgedCases, validation: Path | None, seed: int) -> Mapping[Metric, CorrectedRate]:
    if run.folder is None:
        return {}
    import numpy as np  # noqa: PLC0415 - not before there is something to draw

    from eclosure.judge.correction import correct_runs  # noqa: PLC0415 - the judge's modules are slow to import

    judgments, responses = [case.judgment for case in run.read.cases], [case.response for case in run.read.cases]
    rng = np.random.default_rng(seed)
    return correct_runs([run.folder], judgments, responses, validation, rng=rng).rates


def _baseline(run: JudgedCases, base: JudgedCases, seed: int) -> Baseline:
    import numpy as np  # noqa: PLC0415

    from eclosure.compare import compare  # noqa: PLC0415

    refuse_other_questions(run.read.cases, base.read.cases)
    rows = ([case.row for case in side.read.cases] for side in (run, base))
    overall = compare(*rows, rng=np.random.default_rng(seed)).overall
    rates = {
        metric: PairedRate(difference.run, difference.base, difference.estimate, overall.questions)
        for metric, difference in overall.differences.items()
    }
    return Baseline(base.name, rates, len(base.read.left_out))


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
    undecided: Undecided = "fail",
    worst: int = 5,
    seed: int = 42,
    allow_stale: bool = False,
) -> Diagnosis:
    """Raise ``AssertionError`` unless the responses keep to the limits; else return their diagnosis.

    The verdicts are those of ``eclosure gate``: a limit is held against the 95 % interval, what was not judged counts
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
    limits = Limits.of(
        min_trr=min_trr,
        min_accuracy=min_accuracy,
        min_lsr=min_lsr,
        max_lgg=max_lgg,
        max_unjudged=max_unjudged,
        max_trr_drop=max_trr_drop,
        max_accuracy_drop=max_accuracy_drop,
        max_lsr_drop=max_lsr_drop,
        max_lgg_rise=max_lgg_rise,
    )
    judged = JudgedCases.of(run, allow_stale=allow_stale)
    base = None if against is None else JudgedCases.of(against, allow_stale=allow_stale)
    held = hold(judged, limits, base=base, seed=seed)
    stale = [f"STALE: {sentence}" for sentence in held.stale]
    heard.append(" ".join([_line(held, judged), *stale]))
    if held.report.decide(undecided) is not Outcome.PASSED:
        message = _message(held, judged, list(_suspects(judged.read.cases, limits)), worst)
        raise AssertionError("\n".join([*stale, *message]))
    return held.diagnosis


def _suspects(cases: Sequence[Case], limits: Limits) -> Iterator[Case]:
    """Responses that speak against a limit, those with the most against them first."""
    asked = [_FAILS[metric] for metric in (*limits.at_least, *limits.at_most, *limits.max_drop, *limits.max_rise)]
    speaking = [any(fails(case) for fails in asked) for case in cases]
    yield from sorted(compress(cases, speaking), key=lambda case: (-_against(case), case.response.id))
    if limits.unjudged is not None:
        silent = (case for case, speaks in zip(cases, speaking, strict=True) if not speaks)
        yield from (case for case in silent if set(case.judgment.unjudged.values()) - NEVER_ASKED)


def _against(case: Case) -> int:
    verdict = case.verdict
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    return sum(label is False for label in labels)


def _message(held: HeldRun, run: JudgedCases, suspects: Sequence[Case], worst: int) -> Iterator[str]:
    named = "the cases are" if run.folder is None else f"{run.folder} is"
    if held.report.outcome is Outcome.UNDECIDED:
        yield f"cannot tell whether {named} reliable enough, {_counted(held.diagnosis)}:"
    else:
        yield f"{named} not reliable enough, {_counted(held.diagnosis)}:"
    yield from (f"  {reason}" for reason in held.report.reasons)
    if suspects and worst:
        yield f"Look at these first, of {len(suspects):,}:"
        yield from (f"  {case.response.id}: {_broken(case)}" for case in suspects[:worst])
    if run.folder is not None:
        yield f"`eclosure diagnose {run.folder}` shows all of them."


def _broken(case: Case) -> str:
    missing = ", ".join(f"{criterion} {reason}" for criterion, reason in case.judgment.unjudged.items())
    return broken_link(case) + (f" Without a label: {missing}." if missing else "")


def _line(held: HeldRun, run: JudgedCases) -> str:
    """Return ``runs/mine: passed, 600 responses to 300 questions, TRR 92.1 % [90.4, 93.8], …``."""
    rates = []
    for metric in _PRINTED:
        rate = held.corrected.get(metric)
        own = figure(held.diagnosis.overall.estimates[metric])
        rates.append(
            f"{metric} {own}" if rate is None else f"{metric} {figure(Estimate(rate.value, rate.interval))} corrected"
        )
    return f"{run.name}: {held.report.outcome}, {_counted(held.diagnosis)}, {', '.join(rates)}"


def _counted(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.overall.responses:,} responses to {diagnosis.overall.questions:,} questions"
