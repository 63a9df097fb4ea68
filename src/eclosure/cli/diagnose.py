"""``eclosure diagnose``: which responses are unreliable, and why, as a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.cli.output import percent, percent_range, plural, print_table, say

if TYPE_CHECKING:
    from eclosure.diagnose import Diagnosis
    from eclosure.report.notes import Notes


def diagnose(
    run: Annotated[Path, typer.Argument(help="A judged run's folder.", show_default=False)],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="[default: report in the run]", show_default=False)
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(help="What eclosure judge validate wrote.  [default: that of the run]", show_default=False),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The report's title.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="For the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2_000,
) -> None:
    """Say which responses of a judged run are unreliable and why: rates with intervals, and every response to look at.

    Writes report.html (one file, works from disk), report.md, diagnosis.json, junit.xml and tables.tex.
    """
    import numpy as np

    from eclosure.diagnose import diagnose as count
    from eclosure.diagnose import read_cases
    from eclosure.report.render import write_all
    from eclosure.store.folder import REPORT

    cases, left = read_cases(run)
    found = count(cases, rng=np.random.default_rng(seed), resamples=resamples)
    written = write_all(found, cases, out or run / REPORT, _notes(run, validation, left, title, seed))
    _say(found)
    if left:
        say(f"{plural(len(left), 'response')} left out, such as {left[0][0]}: {left[0][1]}")
    for path in written.values():
        say(f"  {path}")


def _notes(run: Path, validation: Path | None, left: list[tuple[str, str]], title: str | None, seed: int) -> Notes:
    from eclosure.report.notes import Notes
    from eclosure.store.folder import VALIDATION

    place = validation or run / VALIDATION
    named = {} if title is None else {"title": title}
    notes = Notes(left_out=tuple(left), **named)  # type: ignore[arg-type]
    return _trusted(run, place, notes, seed) if validation or place.exists() else notes


def _trusted(run: Path, place: Path, notes: Notes, seed: int) -> Notes:
    """The notes with what is known of the judge, and the rates corrected by it."""
    from dataclasses import replace

    import numpy as np

    from eclosure.core.response import Response
    from eclosure.judge.validate import correct, read, read_judgments
    from eclosure.metrics.rates import Metric
    from eclosure.stats.intervals import Estimate
    from eclosure.store.folder import JUDGMENTS, RESPONSES
    from eclosure.store.manifest import read_manifest
    from eclosure.store.records import read as read_records
    from eclosure.store.stage import beside

    known = read(place)
    settings = read_manifest(beside(run / JUDGMENTS, "manifest.json")).settings
    rates = correct(
        known,
        read_judgments(run / JUDGMENTS),
        read_records(run / RESPONSES, Response),
        settings=settings,
        rng=np.random.default_rng(seed),
    )
    heads = {"L": "LSR", "G": "GSR"}
    corrected = {
        Metric(heads.get(label.value, label.value)): Estimate(rate.value, rate.interval)
        for label, rate in rates.rates.items()
        if rate.value is not None
    }
    told = f"Validated against people on {known.labelled:,} of {known.judged:,} responses" + (
        " of another run; the correction is carried over, as if it erred alike here." if rates.carried_over else "."
    )
    return replace(notes, corrected=corrected, validation=told)


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
