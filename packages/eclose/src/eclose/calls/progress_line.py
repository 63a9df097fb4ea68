"""Progress of a run of models in one line: records, pace, calls and costs."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.calls.run import RunOptions
from eclose.progress import Progress, show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.calls.client import ModelConnection
    from eclose.calls.record_loop import RunProgress
    from eclose.progress import ProgressOption

WIDTH = 100
"""Longest line in columns. A terminal that wraps a line shows every update on a new line."""
_KINDS = ("accepted", "rejected", "quarantined")


@contextmanager
def show_run_progress(
    option: ProgressOption, progress: RunProgress, connections: Sequence[ModelConnection], total: int, *, accepted: str
) -> Iterator[None]:
    """Show the progress of a run while the block lasts; ``accepted`` is the word for records with a result."""
    line = ProgressLine(progress, connections, total, accepted=accepted)
    with show_progress(option, lambda: Progress(done=progress.finished.total(), total=total, text=line.line())):
        yield


def watch_run(options: RunOptions | None, option: ProgressOption, *, accepted: str = "accepted") -> RunOptions:
    """Return the options of a run whose progress is shown, unless they name an observer already."""
    options = options or RunOptions()
    if options.watch is not RunOptions.watch:
        return options
    return replace(
        options,
        watch=lambda runner, connections, total: show_run_progress(
            option, runner.progress, connections, total, accepted=accepted
        ),
    )


class ProgressLine:
    """The progress line of a run."""

    def __init__(
        self,
        progress: RunProgress,
        connections: Sequence[ModelConnection],
        total: int,
        clock: Callable[[], float] = time.monotonic,
        accepted: str = "accepted",
    ) -> None:
        self._progress = progress
        self._connections = connections
        self._total = total
        self._clock = clock
        self._words = {"accepted": accepted}
        self._start = clock()

    def line(self) -> str:
        """Return ``412/1,300 (32 %), 3.1/s, 4:46 left, 398 accepted, 14 rejected, 0 quarantined, …``.

        Parts that matter least are left out until the line has at most ``WIDTH`` columns.
        """
        # Each part has a rank: the part with the largest is left out first, and parts of rank 0 always stay.
        parts = [*self._pace(), *self._records(), *self._calls()]
        while len(line := ", ".join(text for _, text in parts)) > WIDTH and any(rank for rank, _ in parts):
            parts.remove(max(reversed(parts), key=lambda part: part[0]))
        return line

    def _pace(self) -> Iterator[tuple[int, str]]:
        progress = self._progress
        # Includes the records of earlier processes of this run, so that a resumed run does not begin at 0 %.
        finished = sum(progress.finished.values())
        yield 0, f"{finished:,}/{self._total:,} ({100 * finished // max(1, self._total)} %)"
        # The rate rests on the records of this process: those of an earlier one say nothing about its speed.
        if (new := finished - progress.finished_before) > 0 and (seconds := self._clock() - self._start) > 0:
            rate = new / seconds
            yield 7, f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"
            yield 4, f"{_format_time((self._total - finished) / rate)} left"

    def _records(self) -> Iterator[tuple[int, str]]:
        for kind in _KINDS:
            count = self._progress.finished[kind]  # type: ignore[index]
            yield 3 if count else 6, f"{count:,} {self._words.get(kind, kind)}"

    def _calls(self) -> Iterator[tuple[int, str]]:
        if not self._connections:
            return
        limiters = [connection.limiter for connection in self._connections]
        in_flight, limit = (sum(getattr(limiter, name) for limiter in limiters) for name in ("in_flight", "limit"))
        yield 8, f"{in_flight} of {limit} in flight"
        failed = sum(sum(connection.model.failures.values()) for connection in self._connections)
        yield 2 if failed else 5, f"{failed:,} failed calls"
        # A set: several models behind one provider report the same trouble.
        for trouble in {connection.model.trouble for connection in self._connections} - {None}:
            yield 1, str(trouble)
        budget = self._connections[0].budget  # the models of a run share it
        if budget.cap is not None or budget.spent or budget.reserved or budget.assumed:
            # What was spent is never left out of the line.
            yield 0, budget.bill
            if budget.risk:
                yield 1, budget.risk


def _format_time(seconds: float) -> str:
    """Return ``4:46``, or ``1:04:46`` from an hour on."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
