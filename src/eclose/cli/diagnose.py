"""``eclose diagnose``: which responses are unreliable, and why, as tables and as a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.cli.report import Base, Out, Resamples, Runs, Seed, Title, ValidationFile, collect, default_out, write
from eclose.cli.shared.output import AllowStale, figure, percent_span, plural, print_table, say
from eclose.core.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import Against, Notes
    from eclose.diagnosis.report.table import Table


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
    from eclose.diagnosis.report.table import flips_table, violations_table

    made = collect(
        runs,
        against=against,
        validation=validation,
        title=title,
        seed=seed,
        resamples=resamples,
        allow_stale=allow_stale,
    )
    _say(made.diagnosis, made.notes)
    _say_table(violations_table(made.diagnosis))
    if (steadiness := flips_table(made.diagnosis)).rows:
        _say_table(steadiness)
    if made.notes.against is not None:
        _say_against(made.notes.against)
    write(made, out or default_out(runs))


def _say(diagnosis: Diagnosis, notes: Notes) -> None:
    """Print every rate: the judge's own, its bounds where labels are missing, and the corrected one where there is."""
    from eclose.diagnosis.report.format import TOO_LITTLE, UNDEFINED, Reading, reading
    from eclose.diagnosis.report.headline import corrected_figure
    from eclose.diagnosis.report.summary import cautions

    overall = diagnosis.overall
    missing = any(rate.unjudged for rate in overall.rates.values())
    rows = []
    for metric, rate in overall.rates.items():
        value = figure(rate.value, overall.estimates[metric].interval)
        value = {Reading.TOO_LITTLE: TOO_LITTLE, Reading.UNDEFINED: UNDEFINED}.get(reading(rate), value)
        corrected = corrected_figure(rate, (notes.corrected or {}).get(metric))
        row = [str(metric), value, f"{rate.n:,}"]
        row += [f"{rate.unjudged:,}", percent_span(rate.bounds) if rate.unjudged else ""] if missing else []
        row += ["" if corrected is None else str(corrected)] if notes.corrected else []
        rows.append(row)
    title = f"{plural(overall.responses, 'response')} to {plural(overall.questions, 'question')}"
    heads = ["rate", "to the judge", "n", *(["not judged", "bounds, %"] if missing else [])]
    print_table(title, [*heads, *(["corrected"] if notes.corrected else [])], rows)
    if missing:
        say(f"Bounds: where a rate lies, whatever the responses without a label turn out to be. {_LIMIT}")
    say(notes.trust)
    for caution in cautions(diagnosis, notes):
        say(f"  {caution}")


_LIMIT = f"With more than {100 * MAX_UNJUDGED_SHARE:.0f} % of them, too little is judged to give a rate."


def _say_against(against: Against) -> None:
    from eclose.diagnosis.report.comparison import against_sentences, against_tables

    say("")
    say(f"Against {against.name}")
    for told in (*against.cautions, *against_sentences(against)):
        say(f"  {told}")
    for table in against_tables(against):
        _say_table(table)


def _say_table(table: Table) -> None:
    """Cells with what stands beneath them beside it."""
    say("")
    rows = [[" ".join((cell.text, *cell.details)) for cell in row] for row in table.rows]
    print_table(table.title, table.heads, rows)
