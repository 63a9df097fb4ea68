"""``eclose annotate audit``: draw families for people to check, and report the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    format_count,
    format_percent,
    format_percent_span,
    format_percent_with_interval,
    print_line,
    print_table,
)
from eclose_annotate.choices import AuditFormFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose_annotate.family_audit.report import AuditPassRate, AuditReport, AuditReportFiles, CorpusPassRate
    from eclose_annotate.family_audit.sample import AuditKey

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Let people check a sample of families (appendix B.6)."
)


@app.command()
def sample(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a construct run, with train.jsonl and development.jsonl, or a file of families."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the forms and their key.")],
    n: Annotated[
        int, typer.Option("--n", "-n", min=1, help="Number of families to draw, equally many of every dataset.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 42,
    annotators: Annotated[int, typer.Option(min=1, help="Number of people who check every family independently.")] = 2,
    layout: Annotated[AuditFormFormat, typer.Option("--format", help="Format of the forms.")] = AuditFormFormat.JSONL,
) -> None:
    """Draw families for people to check, and write a file of forms for each person.

    \b
    forms-1.jsonl    one file for each annotator, each in another order
    audit_family.md  the guideline with examples; give it to the annotators
    audit.json       the key: which form is which family; keep it private

    \b
    csv    for people who fill in the forms in a spreadsheet: one row a
           family, yes or no in the empty cells
    jsonl  for a tool of your own: texts are exact, and null is to be
           replaced by true or false

    The same number is drawn from every dataset, nine tenths from training and one tenth from development, with one
    evidence edit of each family. A form names neither the family nor the dataset, and hides the findings of models.
    The same seed gives the same files; existing forms are not overwritten.
    """
    from eclose_annotate.family_audit.sample import draw_audit_sample, read_families_by_split, write_audit_folder

    key = draw_audit_sample(read_families_by_split(run), n=n, seed=seed, annotators=annotators)
    # Forms that people may have begun to fill in are never replaced; the key is the same for the same seed.
    written = write_audit_folder(out, key, layout)
    _print_sample(key, n)
    for path, new in written.items():
        print_line(f"{path}: {'written' if new else 'exists, left as it is'}")


def _print_sample(key: AuditKey, n: int) -> None:
    rows = [(row.dataset, row.split, f"{row.families:,}", f"{row.asked:,}", f"{row.drawn:,}") for row in key.strata]
    print_table("Families to check", ("dataset", "split", "families", "requested", "drawn"), rows)
    for row in key.strata:
        if row.drawn < row.asked:
            print_line(f"{row.dataset}, {row.split}: {row.asked:,} were requested, and there are only {row.families:,}")
    if len(key.items) < n:
        print_line(f"drawn in total: {len(key.items):,} of {n:,}")
    for reason, count in key.set_aside.items():
        print_line(f"left out of the sample: {count:,} ({reason})")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder with the key, audit.json.")],
    forms: Annotated[list[Path], typer.Argument(help="Files of filled forms, one for each annotator.")],
    adjudicated: Annotated[
        Path | None, typer.Option(help="File of a third person's forms on the families on which the others disagree.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples.")] = 2_000,
) -> None:
    """Report the agreement of annotators and the share of families that pass.

    A view passes where all its questions are answered with yes, a family where its three views pass. Families on which
    annotators disagree are written as blank forms, disagreements.jsonl or .csv, for a third person. Until those are
    given with --adjudicated, and while answers are missing, rates stay open and bounds are shown.

    By dataset: rate and Wilson interval. For the corpus: rates weighted by the sizes of the datasets, with percentiles
    of a bootstrap within datasets. The report is written to audit-report.json.
    """
    from eclose_annotate.family_audit.report import write_audit_report

    files = write_audit_report(folder, forms, adjudicated, seed=seed, resamples=resamples)
    _print_returned_forms(files.report)
    _print_agreement(files.report)
    _print_rates(files.report)
    # Labels under another guideline are not comparable; the report says so instead of refusing them.
    if not files.same_guideline:
        print_line("the guideline that was handed out is not the one of this version")
    _print_open(files)
    print_line(f"{files.path}: written")


def _print_returned_forms(report: AuditReport) -> None:
    head = ("annotator", "expected", "complete", "half-filled", "blank", "missing")
    rows = []
    for sheet in report.handed:
        counts = (sheet.expected, sheet.complete, len(sheet.half_filled), len(sheet.blank), len(sheet.missing))
        rows.append((str(sheet.annotator), *(f"{count:,}" for count in counts)))
    print_table("Forms", head, rows)
    for sheet in report.handed:
        for name in ("half_filled", "blank", "missing"):
            if ids := getattr(sheet, name):
                print_line(f"annotator {sheet.annotator}, {name.replace('_', '-')}: {_join_ids(ids)}")
        if sheet.surplus:
            print_line(f"annotator {sheet.annotator}, not disputed and not used: {_join_ids(sheet.surplus)}")


def _join_ids(ids: Sequence[str], most: int = 10) -> str:
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _print_agreement(report: AuditReport) -> None:
    if not report.agreement:
        print_line("agreement is undefined: there is one annotator")
        return
    head = ("annotators", "view", "n", "agreed", "percent", "AC1")
    rows = [
        (
            " and ".join(map(str, pair.annotators)),
            pair.what,
            f"{pair.n:,}",
            f"{pair.agreed:,}",
            format_percent(pair.raw),
            "-" if pair.ac1 is None else f"{pair.ac1:.3f}",
        )
        for pair in report.agreement
    ]
    print_table("Agreement before disagreements are settled", head, rows)


def _print_rates(report: AuditReport) -> None:
    from eclose_annotate.family_audit.report import COLUMNS

    rows = [
        (name, f"{report.audited[name]:,}", *(_format_rate(row[what]) for what in COLUMNS))
        for name, row in report.datasets.items()
    ]
    total = f"{sum(report.audited.values()):,}"
    rows.append(("unweighted", total, *(_format_rate(report.unweighted[what]) for what in COLUMNS)))
    rows.append(("corpus-weighted", total, *(_format_rate(report.weighted[what]) for what in COLUMNS)))
    print_table("Passing, in percent", ("dataset", "audited", *COLUMNS), rows)
    # Every resample of identical labels is identical: its interval has width zero and would promise certainty.
    if constant := [what for what in COLUMNS if report.weighted[what].constant]:
        print_line(
            f"{', '.join(constant)}: all audited families of a dataset have the same label, so resampling shows no "
            "spread; use the intervals of the datasets instead"
        )
    if None in (report.weighted[what].bounds for what in COLUMNS):
        missing = [name for name, count in report.audited.items() if not count]
        print_line(f"corpus-weighted is undefined: no family was audited of {', '.join(missing)}")


def _format_rate(rate: AuditPassRate | CorpusPassRate) -> str:
    """Return ``97.3 % [95.3, 98.9]``; bounds where the rate is open, a hyphen where it is undefined."""
    if rate.value is not None:
        return format_percent_with_interval(rate.value, rate.interval)
    return "-" if rate.bounds is None else f"open: {format_percent_span(rate.bounds)}"


def _print_open(files: AuditReportFiles) -> None:
    """Print how many families are disputed or lack answers, and the file of forms for the third person."""
    report, disagreements = files.report, files.disagreements
    if disagreements is not None:
        settled = len(report.disputed) - len(report.unresolved)
        families = format_count(len(files.key.items), "family", "families")
        print_line(f"people disagree on {len(report.disputed):,} of {families}; {settled:,} settled")
        lacking = f"; it lacks {disagreements.lacking:,} of them" if disagreements.lacking else ""
        state = "blank forms for a third person" if disagreements.written else f"has answers, left as it is{lacking}"
        print_line(f"{disagreements.path}: {state}")
    # Open families are disputed ones without a third answer, which are counted above, and those with missing answers.
    if unanswered := len(set(report.open) - set(report.unresolved)):
        print_line(f"answers are missing for {format_count(unanswered, 'family', 'families')}; the rates stay open")
