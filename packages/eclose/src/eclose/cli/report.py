"""``eclose report``: write the report of judged runs, without tables on the screen.

Also holds the options that ``diagnose`` and ``report`` share.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import AllowStale, format_count, print_line
from eclose.cli.shared.recipe import recipe_key
from eclose.errors import SettingError
from eclose.report.formats.file_formats import ReportFormat

if TYPE_CHECKING:
    from collections.abc import Collection

    from eclose.api.results import Results


Runs = Annotated[
    list[Path],
    typer.Argument(help="Folders of judged runs, or tables of their labels, diagnosed together.", show_default=False),
]
Base = Annotated[
    Path | None,
    typer.Option("--against", help="Folder of a judged base run to compare with, by question.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder of the report.  [default: report in the first run]", show_default=False),
]
ValidationFile = Annotated[
    Path | None,
    typer.Option(help="Validation file of the judge.  [default: validation.json of a single run]", show_default=False),
]
Title = Annotated[str | None, typer.Option(help="Title of the report.", show_default=False)]
Seed = Annotated[int, recipe_key()]
Resamples = Annotated[int, recipe_key(min=100)]


def report(
    runs: Runs,
    *,
    formats: Annotated[
        list[ReportFormat] | None,
        typer.Option("--format", "-f", help="File format to write; repeatable.  [default: all]", show_default=False),
    ] = None,
    against: Base = None,
    out: Out = None,
    validation: ValidationFile = None,
    title: Title = None,
    seed: Seed = 42,
    resamples: Resamples = 2_000,
    allow_stale: AllowStale = False,
) -> None:
    """Write the report of judged runs: the same files as diagnose, or some of them, without its tables."""
    from eclose.api.results import default_report_folder, diagnose
    from eclose.report.figures import explain_missing_figures

    # Refused before the runs are read, where figures were asked for by name. By default they are left out with a note.
    if formats and ReportFormat.FIGURES in formats and (missing := explain_missing_figures()) is not None:
        raise SettingError(f"--format figures: {missing}")
    results = diagnose(
        runs,
        against=against,
        validation=validation,
        title=title,
        seed=seed,
        resamples=resamples,
        allow_stale=allow_stale,
        notify=print_line,
    )
    write_and_print_report(results, out or default_report_folder(runs[0]), formats or tuple(ReportFormat))


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
