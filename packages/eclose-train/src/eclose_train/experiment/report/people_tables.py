"""Tables that rest on people's labels: the evaluator against people, and the audit of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import (
    DASH,
    format_percent,
    format_percent_interval,
    format_score,
    format_score_interval,
)
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.metrics.rates import MAIN_METRICS, Metric
from eclose.report.document import ReportTable, ReportTableCell
from eclose_train.experiment.report.audit import ALL_METHODS, LabelSource
from eclose_train.experiment.report.evaluator import EVALUATOR_LABELS
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.main_results import LOWER_IS_BETTER
from eclose_train.experiment.report.tables import make_gain_cell, make_row, rank_displayed_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.metrics.judge_against_people import GroupValidation, JudgeAgreementReport
    from eclose.stats.intervals import Estimate
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.audit import AuditResults
    from eclose_train.experiment.report.evaluator import EvaluatorResults

_AUDIT_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
_PEOPLE = "Labels of people are the reference."


def build_evaluator_tables(evaluator: EvaluatorResults, draws: BootstrapDraws) -> Iterator[ReportTable]:
    """Yield the evaluator against people: by label, by dataset, and beside other judges."""
    intervals = f"Brackets: 95 % intervals over questions within datasets ({draws})."
    note = (
        f"{_PEOPLE} n0: failures by people's labels; F1_0, BAcc and kappa take a failure as the event; Δp0: failure "
        f"rate of the evaluator minus people's, in points. {intervals} {evaluator.sentence}"
    )
    if evaluator.not_in_runs:
        note += f" {evaluator.not_in_runs:,} further labels are on responses outside the experiment."
    yield build_agreement_table("evaluator", "Evaluator against people", evaluator.agreement, note)
    yield _build_bias_table(evaluator, intervals)
    if len(evaluator.judges) > 1:
        yield _build_judges_table(evaluator, intervals)
        yield _build_judge_gains_table(evaluator, intervals)


def build_agreement_table(key: str, title: str, agreement: JudgeAgreementReport, note: str) -> ReportTable:
    """Return the agreement of a judge with people, label by label."""
    rows = []
    for label, name in EVALUATOR_LABELS.items():
        row = agreement.overall.rows[label]
        unjudged = (f"+{row.unjudged:,} unjudged",) if row.unjudged else ()
        rows.append(
            make_row(
                name,
                ReportTableCell(f"{row.n:,}", unjudged),
                f"{row.failures:,}",
                make_percent_cell(row.scores.agreement),
                make_score_cell(row.scores.failure_f1),
                make_percent_cell(row.scores.balanced_accuracy),
                make_score_cell(row.scores.kappa),
                make_gain_cell(row.scores.failure_difference),
                f"{row.misses:,} / {row.false_alarms:,}",
            )
        )
    heads = ("Label", "n", "n0", "Agreement", "F1_0", "BAcc", "Kappa", "Δp0", "Misses / false alarms")
    return ReportTable(key, title, heads, tuple(rows), note)


def _build_bias_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    groups = {**evaluator.agreement.datasets, "All (pooled)": evaluator.agreement.overall}
    rows = tuple(make_row(name, f"{group.responses:,}", *_make_bias_cells(group)) for name, group in groups.items())
    note = f"Rate by the evaluator minus rate by people, in points. {_PEOPLE} {intervals}"
    return ReportTable("evaluator-bias", "Evaluator bias by dataset", ("Dataset", "n", "ΔTRR", "ΔLGG"), rows, note)


def _make_bias_cells(group: GroupValidation) -> tuple[ReportTableCell, ReportTableCell]:
    """Return the differences in TRR and LGG between judge and people."""
    reliability, gap = (group.rows[label].rate_difference for label in (JudgedLabel.RELIABILITY, JudgedLabel.GAP))
    return make_gain_cell(reliability), make_gain_cell(gap)


def _build_judges_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    rows = []
    for name, group in evaluator.judges.items():
        gap, largest = group.rows[JudgedLabel.GAP].scores, group.largest_failure_difference
        rows.append(
            make_row(
                name,
                f"{group.responses:,}",
                make_percent_cell(group.mean_agreement),
                make_score_cell(group.mean_failure_f1),
                format_percent(largest, decimals=2),
                *_make_bias_cells(group),
                make_percent_cell(gap.failure_precision),
                make_percent_cell(gap.failure_recall),
                make_score_cell(gap.failure_f1),
                f"{evaluator.inconsistent[name]:,}",
            )
        )
    gap_heads = tuple(f"LGG {name}" for name in ("precision", "recall", "F1"))
    bias_heads = ("max |Δp0|", "ΔTRR", "ΔLGG")
    heads = ("Judge", "n", "Mean agreement", "Mean F1_0", *bias_heads, *gap_heads, "Inconsistent")
    note = (
        "Means and maximum over correctness, L, A, C and K. Inconsistent: responses called reliable with a wrong "
        f"answer. {_PEOPLE} {intervals} All judges share the draws."
    )
    return ReportTable("evaluator-judges", "Judges and efforts against people", heads, tuple(rows), note)


def _build_judge_gains_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    rows = tuple(
        make_row(name, make_gain_cell(gain.mean_agreement), make_score_gain_cell(gain.mean_failure_f1))
        for name, gain in evaluator.gains.items()
    )
    note = (
        f"{evaluator.name} minus each judge, on the responses that both labelled; agreement in points. {_PEOPLE} "
        f"{intervals}"
    )
    heads = ("Judge", "Mean agreement", "Mean F1_0")
    return ReportTable("evaluator-gains", f"Gains of {evaluator.name} over other judges", heads, rows, note)


def build_audit_tables(audit: AuditResults, draws: BootstrapDraws) -> Iterator[ReportTable]:
    """Yield the audit of results: agreement, rates under both kinds of labels, their differences, and methods."""
    intervals = f"Brackets: 95 % intervals over questions within settings ({draws})."
    size = f"n: {audit.responses:,} responses to {audit.questions:,} questions of {audit.settings:,} settings."
    if audit.not_in_runs:
        size += f" {audit.not_in_runs:,} further labels are on responses outside the experiment."
    note = (
        f"{_PEOPLE} n0: failures by people's labels; F1_0, BAcc and kappa take a failure as the event; Δp0: failure "
        f"rate of the evaluator minus people's, in points. {intervals} {size}"
    )
    yield build_agreement_table("audit-agreement", "Audit: evaluator against people", audit.agreement, note)
    yield _build_audit_rates(audit, size)
    rows = tuple(
        make_row(
            method,
            f"{audit.compared[method][Metric.TRACE_RELIABILITY_RATE]:,}",
            *(make_gain_cell(differences[metric]) for metric in _AUDIT_METRICS),
        )
        for method, differences in audit.differences.items()
    )
    note = (
        "Rate by the evaluator minus rate by people, in points, on the responses that both labelled. "
        f"{intervals} Methods and both kinds of labels share the draws. {size}"
    )
    heads = ("Method", "n", "ΔTRR", "ΔLGG")
    yield ReportTable("audit-differences", "Audit: automated minus human rates", heads, rows, note)
    if audit.gains:
        rows = tuple(
            make_row(method, *(make_gain_cell(gains[metric]) for metric in _AUDIT_METRICS))
            for method, gains in audit.gains.items()
        )
        note = f"{REFERENCE_METHOD} minus each method under people's labels, in points. {intervals} {size}"
        title = "Audit: methods under people's labels"
        yield ReportTable("audit-methods", title, ("Method", "TRR gain", "LGG difference"), rows, note)


def _build_audit_rates(audit: AuditResults, size: str) -> ReportTable:
    """Return the rates of every method under both kinds of labels; the best under people's labels is bold."""
    methods = [method for method in audit.rates if method != ALL_METHODS]
    best = {}
    for metric in MAIN_METRICS:
        values = [
            format_percent(audit.rates[method][LabelSource.HUMAN][metric].value, decimals=2) for method in methods
        ]
        for method, rank in zip(methods, rank_displayed_values(values, lower=metric in LOWER_IS_BETTER), strict=True):
            best[method, metric] = int(rank == 1)
    rows = []
    for method, sources in audit.rates.items():
        for source, rates in sources.items():
            cells = []
            for metric in MAIN_METRICS:
                rank = best.get((method, metric), 0) if source is LabelSource.HUMAN else 0
                details = [f"n {rates[metric].n:,} +{rates[metric].unjudged:,}"] if rates[metric].unjudged else []
                # The gap is rare, so its count is printed beside the rate.
                if metric is Metric.GAP_RATE:
                    details.insert(0, f"({rates[metric].hits:,})")
                text = format_percent(rates[metric].value, decimals=2)
                cells.append(ReportTableCell(text, tuple(details), rank=rank))
            rows.append(make_row(method, source.value, *cells))
    note = f"Percent; LGG with its count. Best under people's labels bold. {size} A cell with + has unjudged responses."
    heads = ("Method", "Labels", *map(str, MAIN_METRICS))
    return ReportTable("audit-results", "Audit: rates under both kinds of labels", heads, tuple(rows), note)


def make_percent_cell(estimate: Estimate) -> ReportTableCell:
    """Return an estimate in percent with two decimals, its interval beneath."""
    interval = format_percent_interval(estimate.interval, decimals=2)
    return ReportTableCell(format_percent(estimate.value, decimals=2), (interval,) if interval else ())


def make_score_cell(estimate: Estimate) -> ReportTableCell:
    """Return a coefficient with three decimals, its interval beneath."""
    interval = format_score_interval(estimate.interval)
    return ReportTableCell(format_score(estimate.value), (interval,) if interval else ())


def make_score_gain_cell(estimate: Estimate) -> ReportTableCell:
    """Return a difference of coefficients with three decimals and its sign, its interval beneath."""
    texts = [_sign(value) for value in (estimate.value, *(estimate.interval or ()))]
    return ReportTableCell(texts[0], (f"[{texts[1]}, {texts[2]}]",) if estimate.interval else ())


def _sign(value: float | None) -> str:
    return DASH if value is None else f"{value:+.3f}".replace("-", "−")
