"""Progress of a run: a live line on a terminal, every 30 s a plain line off it; and how a signal stops the run.

Takes a runner's progress and connections, so every command that asks a model for many records shows the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from eclose.cli.shared.output import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.calls.client import ModelConnection
    from eclose.store.runs.runner import Runner, RunProgress

LIVE_SECONDS = 0.5
PLAIN_SECONDS = 30.0
WIDTH = 100
"""Columns a line may take; a terminal that wraps it would show every update on a line of its own."""
_KINDS = ("accepted", "rejected", "quarantined")


@contextmanager
def watched(runner: Runner[Any], connections: Sequence[ModelConnection], total: int) -> Iterator[None]:
    """Show progress and heed signals while the block lasts."""
    meter = Meter(runner.progress, connections, total)
    with _stopping(runner), _shown(meter.line):
        yield


class Meter:
    """The progress line of a run."""

    def __init__(
        self,
        progress: RunProgress,
        connections: Sequence[ModelConnection],
        total: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._connections = connections
        self._total = total
        self._clock = clock
        self._start = clock()

    def line(self) -> str:
        """Return ``412/1,300 (32 %), 3.1/s, 4:46 left, 398 accepted, 14 rejected, 0 quarantined, …``.

        Parts that matter least are left out until the line has at most ``WIDTH`` columns.
        """
        # The larger the number, the sooner a part is left out; 0 stays.
        parts = [*self._pace(), *self._records(), *self._calls()]
        while len(line := ", ".join(text for _, text in parts)) > WIDTH and any(weight for weight, _ in parts):
            parts.remove(max(reversed(parts), key=lambda part: part[0]))
        return line

    def _pace(self) -> Iterator[tuple[int, str]]:
        progress = self._progress
        done = sum(progress.done.values())
        yield 0, f"{done:,}/{self._total:,} ({100 * done // max(1, self._total)} %)"
        # What an earlier run did says nothing about how fast this one is.
        if (new := done - progress.before) > 0 and (seconds := self._clock() - self._start) > 0:
            rate = new / seconds
            yield 7, f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"
            yield 4, f"{_time((self._total - done) / rate)} left"

    def _records(self) -> Iterator[tuple[int, str]]:
        for kind in _KINDS:
            count = self._progress.done[kind]  # type: ignore[index]
            yield 3 if count else 6, f"{count:,} {kind}"

    def _calls(self) -> Iterator[tuple[int, str]]:
        if not self._connections:
            return
        limiters = [connection.model.limiter for connection in self._connections]
        in_flight, limit = (sum(getattr(limiter, name) for limiter in limiters) for name in ("in_flight", "limit"))
        yield 8, f"{in_flight} of {limit} in flight"
        failed = sum(sum(connection.model.met.values()) for connection in self._connections)
        yield 2 if failed else 5, f"{failed:,} failed calls"
        for trouble in {connection.model.trouble for connection in self._connections} - {None}:
            yield 1, str(trouble)
        budget = self._connections[0].budget  # the models of a run share it
        if budget.cap is not None or budget.spent or budget.reserved or budget.assumed:
            yield 0, budget.bill
            if budget.risk:
                yield 1, budget.risk


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _shown(line: Callable[[], str]) -> Iterator[None]:
    """The line, again and again, in the event loop that is running."""
    try:
        if not sys.stderr.isatty():
            with _repeating(lambda: _write(line()), PLAIN_SECONDS):
                yield
            return
        from rich.console import Console
        from rich.text import Text

        with (
            Console(stderr=True).status(Text(printable(line()))) as status,
            _repeating(lambda: status.update(Text(printable(line()))), LIVE_SECONDS),
        ):
            yield
    finally:
        _write(line())


@contextmanager
def _repeating(tell: Callable[[], None], seconds: float) -> Iterator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            tell()

    task = asyncio.get_running_loop().create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


def _write(line: str) -> None:
    with suppress(OSError):  # a terminal that has gone away must not end the run
        sys.stderr.write(f"eclose: {printable(line)}\n")
        sys.stderr.flush()


_HANGUP = getattr(signal, "SIGHUP", None)


@contextmanager
def _stopping(runner: Runner[Any]) -> Iterator[None]:
    """Stop at the first signal, finishing the calls in flight; end at once at the second.

    A hang-up, as at the end of an ssh session, may come more than once and never ends at once. Under ``nohup``, which
    ignores hang-ups, they stay ignored.
    """
    loop = asyncio.get_running_loop()
    hangup = [] if _HANGUP is None or signal.getsignal(_HANGUP) is signal.SIG_IGN else [_HANGUP]
    signals = [signal.SIGINT, signal.SIGTERM, *hangup]

    def stop(number: signal.Signals) -> None:
        runner.stop()
        if number is _HANGUP:
            with suppress(OSError, ValueError):
                _leave_terminal()
        for other in signals:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_IGN if other is _HANGUP else signal.SIG_DFL)
        _write("stopping: what is under way is finished. Once more to end at once.")

    before = {number: signal.getsignal(number) for number in signals}
    # Only the main thread hears signals; in a notebook or a thread, its owner has another way to stop.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in signals:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])


def _leave_terminal() -> None:
    """Print to nowhere from now on, where output went to a terminal: after a hang-up there is none."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
        # A terminal that is gone answers no question but this one.
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
