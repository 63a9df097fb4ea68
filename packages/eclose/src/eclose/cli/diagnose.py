"""``eclose diagnose``: which responses are unreliable, and why, as tables and as a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.cli.report import Base, Out, Resamples, Runs, Seed, Title, ValidationFile, write_and_print_report
from eclose.cli.shared.output import (
    AllowStale,
    format_count,
    format_percent_span,
    format_percent_with_interval,
    print_line,
    print_table,
)

if TYPE_CHECKING:
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.report.context import BaseComparison, ReportContext
    from eclose.report.document import ReportTable


def diagnose(
    runs: Runs,
    *,
    against: Base = None,
    out: Out = None,
    validation: ValidationFile = None,
    title: Title = None,
    seed: Seed = 42,
    resamples: Resamples = 2_000,
    allow_stale: AllowStale = False,
) -> None:
    """Say which responses of judged runs are unreliable and why: rates with intervals, and every response to look at.

    Writes report.html (one file, works from disk), report.md, diagnosis.json, junit.xml, tables.tex, and figures as PDF
    and SVG. With --against, every rate's difference from another run over the questions that both answer.
    """
    from eclose.api.results import default_report_folder
    from eclose.api.results import diagnose as diagnose_runs
    from eclose.report.document import build_failures_table, build_judge_flips_table, build_violations_table

    # Found first: a run in object storage needs --out, and reading it takes long.
    folder = out or default_report_folder(runs[0])
    results = diagnose_runs(
        runs,
        against=against,
        validation=validation,
        title=title,
        seed=seed,
        resamples=resamples,
        allow_stale=allow_stale,
        notify=print_line,
    )
    _print_rates(results.diagnosis, results.context)
    for table in (build_failures_table(results.diagnosis), build_violations_table(results.diagnosis)):
        if table.rows:
            _print_cells(table)
    if (consistency := build_judge_flips_table(results.diagnosis)).rows:
        _print_cells(consistency)
    if results.context.base is not None:
        _print_comparison(results.context.base)
    write_and_print_report(results, folder)


def _print_rates(diagnosis: Diagnosis, notes: ReportContext) -> None:
    """Print every rate: the judge's own, its bounds where labels are missing, and the corrected one where there is."""
    from eclose.diagnosis.shown_rate import ShownRate
    from eclose.readers.judged_run import EvidenceSufficiency
    from eclose.report.context import describe_uncorrected_rates
    from eclose.report.headline import PEOPLE_FIGURE
    from eclose.report.sections import describe_evidence_sufficiency, list_report_cautions
    from eclose.values.judgment import MAX_UNJUDGED_SHARE

    overall = diagnosis.overall
    missing = any(rate.unjudged for rate in overall.rates.values())
    rows = []
    for metric, rate in overall.rates.items():
        shown_rate = ShownRate.of_group(overall, metric)
        # With too few judged responses a rate depends on which ones happened to be judged, so words replace it.
        value = format_percent_with_interval(*shown_rate.estimate[:2]) if shown_rate.printed else str(shown_rate.figure)
        value = "not asked" if metric in diagnosis.unasked else value
        corrected = ShownRate.of_people(rate, (notes.corrected or {}).get(metric)) if shown_rate.printed else None
        row = [str(metric), value, f"{rate.n:,}"]
        # The columns of missing labels and of corrections appear only where some rate needs them.
        row += [f"{rate.unjudged:,}", format_percent_span(rate.bounds) if rate.unjudged else ""] if missing else []
        if notes.corrected:
            row.append(
                "not corrected" if metric not in notes.corrected else "" if corrected is None else str(corrected.figure)
            )
        rows.append(row)
    title = f"{format_count(overall.responses, 'response')} to {format_count(overall.questions, 'question')}"
    origin = PEOPLE_FIGURE if notes.settled_by_people else "to the judge"
    heads = ["rate", origin, "n", *(["not judged", "bounds, %"] if missing else [])]
    print_table(title, [*heads, *(["corrected"] if notes.corrected else [])], rows)
    if uncorrected := describe_uncorrected_rates(notes, overall.rates):
        print_line(" ".join(uncorrected))
    if missing:
        limit = f"With more than {100 * MAX_UNJUDGED_SHARE:.0f} % of them, too little is judged to give a rate."
        print_line(f"Bounds: where a rate lies, whatever the responses without a label turn out to be. {limit}")
    if set(diagnosis.by_evidence) != {EvidenceSufficiency.SUFFICIENT}:
        print_line(" ".join(describe_evidence_sufficiency(diagnosis)))
    print_line(notes.trust)
    for caution in list_report_cautions(diagnosis, notes):
        print_line(f"  {caution}")


def _print_comparison(against: BaseComparison) -> None:
    from eclose.report.comparison import describe_run_comparison, tabulate_run_comparison

    print_line("")
    print_line(f"Against {against.name}")
    for sentence in (*against.cautions, *describe_run_comparison(against)):
        print_line(f"  {sentence}")
    for table in tabulate_run_comparison(against):
        _print_cells(table)


def _print_cells(table: ReportTable) -> None:
    """Print a table of a report, the details of a cell behind its text."""
    print_line("")
    rows = [[" ".join((cell.text, *cell.details)) for cell in row] for row in table.rows]
    print_table(table.title, table.heads, rows)
