"""Check the rates of a judged run against limits, for ``eclose gate`` and ``assert_reliable``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.api.results import list_run_caveats
from eclose.diagnosis.diagnose import Diagnosis, TraceStratum, diagnose_labels
from eclose.diagnosis.gate_rules import (
    GateBaseRun,
    GateLimitCheck,
    GateLimits,
    GateOutcome,
    GateReport,
    PairedRunRate,
    UndecidedPolicy,
    check_gate_limits,
)
from eclose.diagnosis.run_counts import RunCounts, count_runs, refuse_reused_questions
from eclose.diagnosis.trend import check_trend_limits
from eclose.errors import SettingError, UserError
from eclose.files.run_folder import VALIDATION_FILE
from eclose.metrics.rates import Metric
from eclose.readers.judged_run import JudgedCase, is_settled_by_people
from eclose.stats.rate_correction import CorrectedRate

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class GateResult:
    """Outcome of a gate, with the rates and responses it rests on.

    Attributes:
        limits: The limits.
        report: One check for each limit.
        diagnosis: Rates of the judged responses.
        counts: Labels of the judged responses.
        left_out: Responses without a judgment, with the reason.
        corrected: Rates corrected by labels of people; limits apply to these where there are any.
        notices: Sentences to read before the rates, on stale files and unused records.
        stale: A sentence for each file of the run and of its base that changed after it was judged.
        folder: Folder of the run; None for cases.
        base: Rates of the base run on the questions that both answer; None without a base run.
        settled_by_people: Whether people settled every label, so that there is no judge.
    """

    limits: GateLimits
    report: GateReport
    diagnosis: Diagnosis
    counts: RunCounts = field(repr=False, compare=False)
    left_out: tuple[tuple[str, str], ...]
    corrected: Mapping[Metric, CorrectedRate]
    notices: tuple[str, ...]
    stale: tuple[str, ...]
    folder: Path | None = None
    base: GateBaseRun | None = None
    settled_by_people: bool = False

    def __repr__(self) -> str:
        """Return one line a limit. The fields hold every response, too much to print."""
        return "\n".join(map(str, self.checks))

    @property
    def cases(self) -> tuple[JudgedCase, ...]:
        """The judged responses; of a run with more than 100,000 responses a sample, with all failures first.

        A gate needs labels alone, so the texts are read from the run when they are first asked for.
        """
        return self.counts.case_set.cases

    @property
    def outcome(self) -> GateOutcome:
        """``passed``, ``failed`` or ``cannot tell``."""
        return self.report.outcome

    @property
    def passed(self) -> bool:
        """Whether every limit is kept."""
        return self.report.outcome is GateOutcome.PASSED

    @property
    def checks(self) -> tuple[GateLimitCheck, ...]:
        """One check for each limit, with the figures it rests on."""
        return self.report.checks

    @property
    def name(self) -> str:
        """The path of the folder, or ``cases`` for cases without a folder."""
        return "cases" if self.folder is None else str(self.folder)

    def decide(self, undecided: UndecidedPolicy | None) -> GateOutcome:
        """Return the outcome, with ``cannot tell`` replaced by a pass or a fail where a policy is given."""
        return self.report.decide(undecided)

    def comment(self, *, report_url: str | None = None) -> str:
        """Return a comment for a pull request, in Markdown of fewer than 60 lines.

        Args:
            report_url: Address of the full report, linked at the end.
        """
        from eclose.report.gate_comment import CommentFacts, render_gate_comment  # noqa: PLC0415 - rarely needed

        facts = CommentFacts(
            report=self.report,
            diagnosis=self.diagnosis,
            cases=self.cases,
            left_out=self.left_out,
            corrected=self.corrected,
            stale=self.stale,
            base=self.base,
            settled_by_people=self.settled_by_people,
        )
        return render_gate_comment(facts, report_url=report_url)


def gate(
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
    validation: Path | str | None = None,
    origin: TraceStratum | str | None = None,
    trend: bool = False,
    by: str = "1d",
    seed: int = 42,
    allow_stale: bool = False,
    notify: Callable[[str], None] | None = None,
) -> GateResult:
    """Check a judged run against limits, which apply to the 95 % intervals of its rates over questions.

    Args:
        run: Folder of a judged run, a table of its labels (``write_labels``), or cases.
        min_trr: Smallest share of reliable traces, between 0 and 1.
        min_accuracy: Smallest share of correct answers.
        min_lsr: Smallest share of locally sound traces.
        max_lgg: Largest share of traces in the local-global gap.
        max_unjudged: Largest share of responses without a label. Such responses count against every other limit.
        against: Folder of a base run, for the four limits that follow.
        max_trr_drop: Largest drop of TRR below the base run, on the questions both answer: 0.02 is 2 points.
        max_accuracy_drop: Largest drop of accuracy.
        max_lsr_drop: Largest drop of LSR.
        max_lgg_rise: Largest rise of LGG above the base run.
        validation: Validation file; the one in the folder by default. With 30 or more labels of people, limits apply to
            the corrected rates.
        origin: Traces to check, ``stated``, ``prose`` or ``hidden``; stated ones by default.
        trend: Whether limits apply to a run that grows: each fails where its rate has left it at any time, with a false
            alarm in at most 5 % of runs however often they are checked.
        by: Length of the windows of a trend: a number with ``m``, ``h``, ``d`` or ``w``.
        seed: Seed of the intervals of corrected rates and of differences.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        notify: Function that is called with each notice at once; ``GateResult.notices`` has all of them.

    Returns:
        The outcome, and one check for each limit.

    Raises:
        SettingError: No limit is given, a limit is not between 0 and 1, or a limit on a difference has no base run.
        UserError: The folder holds no judged run, or judgments of other responses.

    Examples:
        >>> eclose.gate("demo", min_trr=0.3).passed
        True
    """
    limits = GateLimits.of(
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
    stratum = None if origin is None else TraceStratum(origin)
    if trend and (against is not None or validation is not None):
        raise SettingError("--trend is of the run's own labels. Leave --against and --validation out.")
    return _check_run(
        run,
        limits,
        against,
        validation,
        stratum,
        by if trend else None,
        seed=seed,
        allow_stale=allow_stale,
        notify=notify,
    )


def _check_run(
    run: Path | str | Iterable[JudgedCase],
    limits: GateLimits,
    against: Path | str | None,
    validation: Path | str | None,
    stratum: TraceStratum | None,
    by: str | None,
    *,
    seed: int,
    allow_stale: bool,
    notify: Callable[[str], None] | None,
) -> GateResult:
    """Read the run and its base run, and check every limit; ``by`` is the length of the windows of a trend."""
    folder = Path(run) if isinstance(run, str | Path) else None
    base_folder = None if against is None else Path(against)
    counted = (
        count_runs([run], allow_stale=allow_stale, stratum=stratum)
        if isinstance(run, str | Path)
        else RunCounts.of(tuple(run), stratum)
    )
    diagnosis = diagnose_labels(counted.labels, counted.whole)
    if stratum is None and (traces := diagnosis.stratum) is not TraceStratum.STATED:
        raise UserError(
            f"{run if folder else 'cases'}: no response states its trace, and {traces} traces are checked only on "
            f"request: with --origin {traces}, or origin={traces.value!r} in Python."
        )
    base = None
    if base_folder is not None:
        base = count_runs([base_folder], allow_stale=allow_stale, stratum=diagnosis.stratum)
    caveats = counted.caveats
    notices = (*list_run_caveats(caveats), *(() if base is None else list_run_caveats(base.caveats)))
    if notify is not None:
        for notice in notices:
            notify(notice)
    # Cases without a folder have no validation.json; limits apply to the judge's own rates.
    corrected = {} if folder is None or by is not None else _corrected_rates(folder, counted, validation, seed)
    baseline = None if base is None else _baseline(counted, base, str(against), seed)
    by_people = not corrected and is_settled_by_people([] if folder is None else [folder], diagnosis.judges)
    if by is not None:
        report = check_trend_limits(counted.labels, limits, by, len(caveats.left_out))
    else:
        report = check_gate_limits(
            diagnosis.overall,
            diagnosis.unjudged,
            limits,
            caveats.left_out,
            corrected=corrected,
            base=baseline,
            settled_by_people=by_people,
        )
    return GateResult(
        limits=limits,
        report=report,
        diagnosis=diagnosis,
        counts=counted,
        left_out=tuple(caveats.left_out),
        corrected=corrected,
        notices=notices,
        stale=(*caveats.stale, *(() if base is None else base.caveats.stale)),
        folder=folder,
        base=baseline,
        settled_by_people=by_people,
    )


def _corrected_rates(
    folder: Path, run: RunCounts, validation: Path | str | None, seed: int
) -> Mapping[Metric, CorrectedRate]:
    if validation is None and not (folder / VALIDATION_FILE).exists():
        return {}
    import numpy as np  # noqa: PLC0415 - not before there is something to draw

    from eclose.judging.correct_rates import correct_run_rates  # noqa: PLC0415 - the judge's modules are slow to import

    # Correcting rates by a validation needs the labels of all responses.
    path = None if validation is None else Path(validation)
    return correct_run_rates([folder], run.list_verdicts(), run.judges, path, rng=np.random.default_rng(seed)).rates


def _baseline(run: RunCounts, base: RunCounts, name: str, seed: int) -> GateBaseRun:
    import numpy as np  # noqa: PLC0415

    from eclose.diagnosis.compare import compare_counted_runs  # noqa: PLC0415

    refuse_reused_questions(run, base)
    sides = (side.labels.counted_run() for side in (run, base))
    overall = compare_counted_runs(*sides, rng=np.random.default_rng(seed)).overall
    rates = {
        metric: PairedRunRate(difference.run, difference.base, difference.estimate, overall.questions)
        for metric, difference in overall.differences.items()
    }
    return GateBaseRun(name, rates, len(base.caveats.left_out))
