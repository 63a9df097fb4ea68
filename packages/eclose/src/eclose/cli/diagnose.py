"""``eclose diagnose``, ``report`` and ``metrics``: rates of judged runs, and which responses are unreliable and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.options import takes_options
from eclose.cli.shared.output import (
    AllowStale,
    OriginOption,
    format_count,
    format_percent,
    format_percent_interval,
    format_percent_span,
    format_percent_with_interval,
    print_line,
    print_table,
)
from eclose.cli.shared.recipe import recipe_key
from eclose.errors import SettingError
from eclose.report.formats.file_formats import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eclose.api.results import Results
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import ReportContext
    from eclose.report.document import ReportTable
    from eclose.stats.rates import Rate


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Runs to diagnose and how, and where the report is written."""

    runs: Annotated[
        list[Path], typer.Argument(help="Folders of judged runs, or tables of their labels, diagnosed together.")
    ]
    against: Annotated[Path | None, typer.Option(help="Folder of a judged base run to compare with, by question.")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the report.  [default: report in the first run]")
    ] = None
    validation: Annotated[
        Path | None, typer.Option(help="Validation file of the judge.  [default: validation.json of a single run]")
    ] = None
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None
    origin: OriginOption = None
    seed: Annotated[int, recipe_key()] = 42
    resamples: Annotated[int, recipe_key(min=100)] = 2_000
    allow_stale: AllowStale = False

    @property
    def folder(self) -> Path:
        """Folder of the report."""
        from eclose.api.results import default_report_folder

        return self.out or default_report_folder(self.runs[0])

    def diagnose(self) -> Results:
        """Return the results of the runs, and print each notice at once."""
        from eclose.api.results import diagnose

        return diagnose(
            self.runs,
            against=self.against,
            validation=self.validation,
            title=self.title,
            origin=self.origin,
            seed=self.seed,
            resamples=self.resamples,
            allow_stale=self.allow_stale,
            notify=print_line,
        )


takes_report_options = takes_options(ReportOptions, "request")


@takes_report_options
def report(
    *,
    formats: Annotated[
        list[ReportFormat] | None,
        typer.Option("--format", "-f", help="File format to write; repeatable.  [default: all]"),
    ] = None,
    request: ReportOptions,
) -> None:
    """Write the report of judged runs: the same files as diagnose, or some of them, without its tables."""
    from eclose.report.figures import explain_missing_figures

    # Refused before the runs are read, where figures were asked for by name. By default they are left out with a note.
    if formats and ReportFormat.FIGURES in formats and (missing := explain_missing_figures()) is not None:
        raise SettingError(f"--format figures: {missing}")
    write_and_print_report(request.diagnose(), request.folder, formats or tuple(ReportFormat))


def write_and_print_report(
    results: Results, folder: Path, formats: Collection[ReportFormat] = tuple(ReportFormat)
) -> None:
    """Write the files of a report and print their paths, and what is missing in them."""
    from eclose.errors import UserError
    from eclose.report.figures import explain_missing_figures

    missing = explain_missing_figures() if ReportFormat.FIGURES in formats else None
    if missing is not None and set(formats) == {ReportFormat.FIGURES}:
        raise UserError(missing)
    if left_out := results.context.left_out:
        print_line(f"{format_count(len(left_out), 'response')} left out, such as {left_out[0][0]}: {left_out[0][1]}")
    files = results.report(folder, formats)
    # Figures lie in a folder of their own, each as PDF and SVG: one line counts them.
    figures = [path for path in files.values() if path.parent != folder]
    for path in files.values():
        if path.parent == folder:
            print_line(f"  {path}")
    if figures:
        print_line(f"  {figures[0].parent}: {format_count(len(figures), 'figure file')}")
    if missing is not None:
        print_line(f"  {missing}")


@takes_report_options
def diagnose(*, request: ReportOptions) -> None:
    """Say which responses of judged runs are unreliable and why: rates with intervals, and every response to look at.

    Writes report.html (one file, works from disk), report.md, diagnosis.json, junit.xml, tables.tex, and figures as PDF
    and SVG. With --against, every rate's difference from another run over the questions that both answer.
    """
    from eclose.report.comparison import describe_run_comparison, tabulate_run_comparison
    from eclose.report.document import build_failures_table, build_judge_flips_table, build_violations_table

    # Found first: a run in object storage needs --out, and reading it takes long.
    folder = request.folder
    results = request.diagnose()
    _print_rates(results.diagnosis, results.context)
    for table in (build_failures_table(results.diagnosis), build_violations_table(results.diagnosis)):
        if table.rows:
            _print_cells(table)
    if (consistency := build_judge_flips_table(results.diagnosis)).rows:
        _print_cells(consistency)
    if (against := results.context.base) is not None:
        print_line("")
        print_line(f"Against {against.name}")
        for sentence in (*against.cautions, *describe_run_comparison(against)):
            print_line(f"  {sentence}")
        for table in tabulate_run_comparison(against):
            _print_cells(table)
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


def _print_cells(table: ReportTable) -> None:
    print_line("")
    rows = [[" ".join((cell.text, *cell.details)) for cell in row] for row in table.rows]
    print_table(table.title, table.heads, rows)


_EXAMPLES = 5
"""Number of inconsistent responses whose ids are printed."""


def metrics(
    verdicts: Annotated[Path, typer.Argument(help="File of settled verdicts, JSON Lines.")],
    by: Annotated[
        list[str] | None, typer.Option(help="Also group by benchmark, model, method or seed; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    allow_stale: AllowStale = False,
) -> None:
    """Compute accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.

    Cases without a label are left out of a rate and counted beside it; bounds show how far they could move the rate.

    \b
    Acc       the answer is correct
    LSR       every step is sound
    A, C, K   aligned with the question; establishes the answer given;
              establishes the reference answer
    GSR       globally sufficient: aligned and closed (A and C)
    TRR       reliable: locally sound and globally sufficient
    LGG       the gap: locally sound, yet globally insufficient
    LggShare  the gap's share of globally insufficient responses
    LggRisk   the gap's share of wrong answers
    LggSound  the gap's share of locally sound responses

    \b
    %         hits in a hundred judged cases
    Wilson    the paper's interval of the gap's shares: takes responses
              to one question as independent, so it may be too narrow
    n         judged cases in the denominator
    unjudged  cases without a label
    bounds    the least and greatest the rate can be, whatever those are
    """
    from eclose.report.verdict_metrics import compute_rates_of_verdicts

    result = compute_rates_of_verdicts(verdicts, by or (), allow_stale=allow_stale)
    if as_json:
        # The JSON object holds the notes about stale files too.
        typer.echo(json.dumps(result.to_json()))
        return
    for sentence in result.stale:
        print_line(f"STALE: {sentence}")
    _print_overall(result.overall)
    _print_composition(result.overall)
    if by:
        typer.echo()
        _print_groups(by, result.groups)
    _print_inconsistent(result.inconsistent)


def _print_overall(summary: GroupRates) -> None:
    from eclose.metrics.rates import CONDITIONAL_METRICS
    from eclose.report.sections import describe_few_questions

    unjudged = any(rate.unjudged for rate in summary.rates.values())
    heads = ["metric", "%", "95 % interval", "n", "Wilson", *(["unjudged", "bounds"] if unjudged else [])]
    lines = []
    for metric, rate in summary.rates.items():
        line = [
            metric.value,
            format_percent(rate.value),
            format_percent_interval(summary.estimates[metric].interval),
            str(rate.n),
        ]
        # The paper gives Wilson intervals for the gap's shares; ours stands beside them for every rate (decision 0027).
        line += [format_percent_interval(rate.wilson) if metric in CONDITIONAL_METRICS else ""]
        line += [str(rate.unjudged), format_percent_span(rate.bounds)] if unjudged else []
        lines.append(line)
    print_table(
        f"{format_count(summary.responses, 'response')} to {format_count(summary.questions, 'question')}", heads, lines
    )
    for caution in describe_few_questions(summary.questions):
        print_line(caution)


def _print_composition(summary: GroupRates) -> None:
    parts = summary.composition
    groups = [[group.value if group else "not decided", str(count)] for group, count in parts.groups.items()]
    typer.echo()
    print_table("Trace groups", ["group", "n"], groups)
    failures = [
        [failure.value, str(count), str(parts.gap_failures.get(failure, 0))]
        for failure, count in parts.failures.items()
    ]
    if failures:
        typer.echo()
        print_table("Globally insufficient, by the first broken link", ["failure", "n", "in the gap"], failures)


def _print_groups(by: Sequence[str], summaries: Sequence[GroupRates]) -> None:
    from eclose.metrics.rates import MAIN_METRICS, Metric

    # The metrics of the paper's Figure 2; the table of all responses has every metric.
    columns = (*MAIN_METRICS, Metric.GAP_SHARE, Metric.GAP_RISK)
    lines = [
        [*group.group, str(group.responses), *(_fraction(group.rates[metric]) for metric in columns)]
        for group in summaries
    ]
    # The head of the table explains the plus sign only where a cell has one.
    open_cases = any(group.rates[metric].unjudged for group in summaries for metric in columns)
    title = f"By {', '.join(by)}: % (hits/judged{', +unjudged' if open_cases else ''})"
    print_table(title, [*by, "responses", *(metric.value for metric in columns)], lines)


def _fraction(rate: Rate) -> str:
    """Return ``50.0 (1/2)``, or ``50.0 (1/2, +3)`` with three unjudged cases: groups are small, so n is printed."""
    return f"{format_percent(rate.value)} ({rate.hits}/{rate.n}{f', +{rate.unjudged}' if rate.unjudged else ''})"


def _print_inconsistent(inconsistent: Sequence[str]) -> None:
    """Print the ids of the first few responses that are reliable by every label and yet wrong."""
    if not inconsistent:
        return
    ids = ", ".join(inconsistent[:_EXAMPLES]) + (", ..." if len(inconsistent) > _EXAMPLES else "")
    verb, them = ("is", "it") if len(inconsistent) == 1 else ("are", "them")
    typer.echo()
    print_line(
        f"{format_count(len(inconsistent), 'response')} {verb} reliable by every label and yet wrong: "
        f"check {them} again ({ids})."
    )
