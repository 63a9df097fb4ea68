"""Progress of an experiment: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from eclose.cli.shared.output import escape_invisible
from eclose_train.experiment.cells import Stage, StageTask
from eclose_train.experiment.folder import STAGE_LOG_FILE, Experiment, StageState, load_experiment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.table import Table


REFRESHES_PER_SECOND = 1.0


def list_grid_rows(experiment: Experiment) -> list[list[str]]:
    """Return one row for every backbone and method: its cells, and the finished ones of each stage."""
    groups: dict[tuple[str, str], list[StageTask]] = {}
    for task in experiment.tasks:
        groups.setdefault((task.cell.backbone, task.cell.method), []).append(task)
    rows = []
    for (backbone, method), tasks in groups.items():
        row = [backbone, method, str(len({task.cell for task in tasks}))]
        for stage in Stage:
            finished = [task.is_finished(experiment.folder) for task in tasks if task.stage is stage]
            row.append(f"{sum(finished)}/{len(finished)}" if finished else "-")
        rows.append(row)
    return rows


class PlainProgress:
    """A line on standard error for every stage that begins and ends."""

    def begin(self, task: StageTask, number: int, total: int) -> None:
        """Print that a stage begins."""
        self._write(f"{number}/{total} {task.cell}: {task.stage}")

    def end(self, task: StageTask, problem: str | None) -> None:
        """Print what became of a stage."""
        self._write(f"{task.cell}: {task.stage} {problem or 'finished'}")

    def _write(self, line: str) -> None:
        typer.echo(escape_invisible(f"eclose: {line}"), err=True)


@dataclass
class LiveProgress:
    """A table of the grid that is drawn again and again, with the stages that run below it."""

    experiment: Experiment
    running: list[StageTask] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _output: ExitStack = field(default_factory=ExitStack)

    def begin(self, task: StageTask, _number: int, _total: int) -> None:
        """Add a stage to those that run."""
        # The stage before has ended, also where another process has it.
        self._output.close()
        self.running.clear()
        folder = task.folder(self.experiment.folder)
        folder.mkdir(parents=True, exist_ok=True)
        # The output of the stage goes to its log and not over the table.
        log = self._output.enter_context((folder / STAGE_LOG_FILE).open("a", encoding="utf-8"))
        self._output.enter_context(redirect_stdout(log))
        self._output.enter_context(redirect_stderr(log))
        self.running.append(task)

    def end(self, task: StageTask, problem: str | None) -> None:
        """Remove a stage that ended."""
        self._output.close()
        self.running.remove(task)
        if problem is not None:
            self.problems.append(f"{task.cell}: {task.stage} {problem}")

    def close(self) -> None:
        """Restore standard output and error."""
        self._output.close()

    def draw(self) -> Table:
        """Return the table as it is now."""
        from rich.table import Table
        from rich.text import Text

        states = [self.experiment.state(task) for task in self.experiment.tasks]
        finished = sum(state is StageState.FINISHED for state in states)
        lines = [f"running: {task.cell}: {task.stage}" for task in self.running]
        lines += [f"failed: {problem}" for problem in self.problems]
        table = Table(
            title=Text(f"{escape_invisible(self.experiment.folder)}: {finished:,} of {len(states):,} stages finished"),
            caption=Text("\n".join(map(escape_invisible, lines))),
            title_justify="left",
            caption_justify="left",
        )
        for name in ("backbone", "method", "cells", *Stage):
            table.add_column(str(name))
        for row in list_grid_rows(self.experiment):
            table.add_row(*(Text(escape_invisible(cell)) for cell in row))
        return table


@contextmanager
def show_experiment_progress(folder: Path, *, live: bool) -> Iterator[PlainProgress | LiveProgress]:
    """Show the progress of a run while the block lasts: a table if ``live``, lines where there is no terminal."""
    if not live or not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.live import Live

    progress = LiveProgress(load_experiment(folder))
    # The console keeps the stream of the terminal while the output of a stage goes to its log.
    console = Console(file=sys.stderr)
    table = Live(
        get_renderable=progress.draw,
        console=console,
        refresh_per_second=REFRESHES_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    try:
        with table:
            yield progress
    finally:
        progress.close()
