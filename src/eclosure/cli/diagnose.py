"""``eclosure diagnose``: which responses are unreliable, and why, as tables and as a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclosure.cli.output import AllowStale, percent, percent_range, plural, print_table, say
from eclosure.cli.report import Base, Out, Resamples, Runs, Seed, Title, ValidationFile, collect, default_out, write

if TYPE_CHECKING:
    from eclosure.diagnose import Diagnosis
    from eclosure.report.against import Against
    from eclosure.report.tables import Table


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
    from eclosure.report.tables import flips_table

    made = collect(
        runs,
        against=against,
        validation=validation,
        title=title,
        seed=seed,
        resamples=resamples,
        allow_stale=allow_stale,
    )
    _say(made.diagnosis)
    if (steadiness := flips_table(made.diagnosis)).rows:
        _say_table(steadiness)
    if made.notes.against is not None:
        _say_against(made.notes.against)
    write(made, out or default_out(runs))


def _say(found: Diagnosis) -> None:
    rows = []
    for metric, rate in found.overall.rates.items():
        estimate = found.overall.estimates[metric]
        unjudged = f"{rate.unjudged:,}" if rate.unjudged else ""
        rows.append((str(metric), percent(rate.value), percent_range(estimate.interval), f"{rate.n:,}", unjudged))
    title = (
        f"{plural(found.overall.responses, 'response')} to {plural(found.overall.questions, 'question')}, in percent"
    )
    print_table(title, ("rate", "value", "95 %", "n", "not judged"), rows)


def _say_against(against: Against) -> None:
    from eclosure.report.against import against_sentences, against_tables

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
