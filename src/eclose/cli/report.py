"""``eclose report``: the files of a diagnosis, without the tables on the screen.

What ``diagnose_cases`` and ``report`` share is here: reading runs, counting, and writing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from eclose.cli.shared.output import AllowStale, plural, say, say_notices
from eclose.diagnosis.report.formats import Written
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eclose.diagnosis.diagnose import Case, Diagnosis
    from eclose.diagnosis.report.context import Notes

Runs = Annotated[list[Path], typer.Argument(help="Folders of judged runs, diagnosed together.", show_default=False)]
Base = Annotated[
    Path | None,
    typer.Option("--against", help="Another judged run to compare with, question by question.", show_default=False),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="[default: report in the first run]", show_default=False)]
ValidationFile = Annotated[
    Path | None,
    typer.Option(help="What eclose judge validate wrote.  [default: that of a single run]", show_default=False),
]
Title = Annotated[str | None, typer.Option(help="The report's title.", show_default=False)]
Seed = Annotated[int, typer.Option(help="For the intervals.")]
Resamples = Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")]


def report(
    runs: Runs,
    *,
    formats: Annotated[
        list[Written] | None,
        typer.Option("--format", "-f", help="May be given several times.  [default: all]", show_default=False),
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
    from eclose.diagnosis.report.plots.figures import figures_missing

    if formats and Written.FIGURES in formats and (missing := figures_missing()) is not None:
        raise SettingError(f"--format figures: {missing}")
    made = collect(
        runs,
        against=against,
        validation=validation,
        title=title,
        seed=seed,
        resamples=resamples,
        allow_stale=allow_stale,
    )
    write(made, out or default_out(runs), formats or tuple(Written))


def default_out(runs: Sequence[Path]) -> Path:
    """Where a report goes unless told otherwise."""
    from eclose.store.runs.folder import REPORT

    return runs[0] / REPORT


class Collected(NamedTuple):
    """All that a report is made of."""

    diagnosis: Diagnosis
    cases: Sequence[Case]
    notes: Notes


def collect(
    runs: Sequence[Path],
    *,
    against: Path | None,
    validation: Path | None,
    title: str | None,
    seed: int,
    resamples: int,
    allow_stale: bool = False,
) -> Collected:
    """Read the runs, count, and hold them against another one."""
    from eclose.cases import read_runs
    from eclose.diagnosis.diagnose import diagnose_cases
    from eclose.diagnosis.report.context import Notes

    read = read_runs(runs, allow_stale=allow_stale)
    cases, left = read.cases, read.left_out
    say_notices(read)
    found = diagnose_cases(cases)
    notes = Notes(left_out=left, stale=read.stale, rejected=read.rejected, checked=read.checked)
    notes = _with_stale_validation(notes, runs, validation)
    if title is not None:
        notes = replace(notes, title=title)
    if against is not None:
        notes = _held(notes, cases, runs, against, seed, resamples, allow_stale=allow_stale)
    return Collected(found, cases, _corrected(notes, runs, cases, validation, seed))


def _held(
    notes: Notes,
    cases: Sequence[Case],
    runs: Sequence[Path],
    against: Path,
    seed: int,
    resamples: int,
    *,
    allow_stale: bool,
) -> Notes:
    """Return the notes with the comparison with another run, and with what is stale or was not used in that run."""
    import numpy as np

    from eclose.cases import read_runs, run_names
    from eclose.diagnosis.report.comparison import hold_against

    base = read_runs([against], allow_stale=allow_stale)
    name = run_names([*runs, against])[-1]
    say_notices(base)
    comparison = hold_against(
        cases, base.cases, name, rng=np.random.default_rng(seed), resamples=resamples, left_out=base.left_out
    )
    stale = (*notes.stale, *(f"{name}: {sentence}" for sentence in base.stale))
    rejected = {**notes.rejected, **{f"{name}/{file}": reasons for file, reasons in base.rejected.items()}}
    return replace(notes, against=comparison, stale=stale, rejected=rejected)


def _corrected(notes: Notes, runs: Sequence[Path], cases: Sequence[Case], validation: Path | None, seed: int) -> Notes:
    """Return the notes with the corrected rates of the runs, or with the reason why there are none."""
    import numpy as np

    from eclose.diagnosis.report.context import with_correction
    from eclose.judging.rate_correction import correct_runs

    judgments = [case.judgment for case in cases]
    responses = [case.response for case in cases]
    return with_correction(notes, correct_runs(runs, judgments, responses, validation, rng=np.random.default_rng(seed)))


def _with_stale_validation(notes: Notes, runs: Sequence[Path], validation: Path | None) -> Notes:
    """Return the notes with what was stale when the validation was made."""
    from eclose.judging.validate import read
    from eclose.store.runs.folder import VALIDATION

    path = validation or runs[0] / VALIDATION
    if validation is None and (len(runs) > 1 or not path.exists()):
        return notes
    stale = tuple(f"{path.name}: {sentence}" for sentence in read(path).stale)
    for sentence in stale:
        say(f"STALE: {sentence}")
    return replace(notes, stale=(*notes.stale, *stale))


def write(made: Collected, folder: Path, formats: Collection[Written] = tuple(Written)) -> None:
    """Write the files and say which; what is not in them is said, too."""
    from eclose.diagnosis.report.plots.figures import figures_missing
    from eclose.diagnosis.report.write import write_all
    from eclose.errors import UserError

    missing = figures_missing() if Written.FIGURES in formats else None
    if missing is not None and set(formats) == {Written.FIGURES}:
        raise UserError(missing)
    if left := made.notes.left_out:
        say(f"{plural(len(left), 'response')} left out, such as {left[0][0]}: {left[0][1]}")
    written = write_all(made.diagnosis, made.cases, folder, made.notes, formats)
    drawn = [path for path in written.values() if path.parent != folder]
    for path in written.values():
        if path.parent == folder:
            say(f"  {path}")
    if drawn:
        say(f"  {drawn[0].parent}: {plural(len(drawn), 'figure file')}")
    if missing is not None:
        say(f"  {missing}")
