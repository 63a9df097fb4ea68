"""Progress of a model run: a live line on a terminal, a plain line every 30 s elsewhere. Signals stop the run.

Built on a runner's progress and its connections, so every command that calls a model shows the same line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from eclose.calls.progress_line import ProgressLine
from eclose.cli.shared.output import escape_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.calls.client import ModelConnection
    from eclose.calls.record_loop import JobRunner

LIVE_SECONDS = 0.5
# For log files: a run over night writes about a thousand lines.
PLAIN_SECONDS = 30.0


@contextmanager
def show_run_progress(
    runner: JobRunner[Any], connections: Sequence[ModelConnection], total: int, *, accepted: str = "accepted"
) -> Iterator[None]:
    """Show progress and stop on signals while the block lasts; ``accepted`` is the word for records with a result."""
    meter = ProgressLine(runner.progress, connections, total, accepted=accepted)
    with _stop_on_signals(runner), _refresh(meter.line):
        yield


@contextmanager
def _refresh(line: Callable[[], str]) -> Iterator[None]:
    """Write the line again and again in the running event loop, and once more at the end."""
    try:
        if not sys.stderr.isatty():
            with _repeat(lambda: _write(line()), PLAIN_SECONDS):
                yield
            return
        from rich.console import Console
        from rich.text import Text

        with (
            Console(stderr=True).status(Text(escape_invisible(line()))) as status,
            _repeat(lambda: status.update(Text(escape_invisible(line()))), LIVE_SECONDS),
        ):
            yield
    finally:
        _write(line())


@contextmanager
def _repeat(write: Callable[[], None], seconds: float) -> Iterator[None]:
    async def write_regularly() -> None:
        while True:
            await asyncio.sleep(seconds)
            write()

    task = asyncio.get_running_loop().create_task(write_regularly())
    try:
        yield
    finally:
        task.cancel()


def _write(line: str) -> None:
    with suppress(OSError):  # a terminal that was closed must not end the run
        sys.stderr.write(f"eclose: {escape_invisible(line)}\n")
        sys.stderr.flush()


_HANGUP = getattr(signal, "SIGHUP", None)


@contextmanager
def _stop_on_signals(runner: JobRunner[Any]) -> Iterator[None]:
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
        # From now on signals act as usual: a second Ctrl+C ends a run whose calls do not come back.
        for other in signals:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_IGN if other is _HANGUP else signal.SIG_DFL)
        _write("stopping: calls in flight are finished first. Interrupt once more to end at once.")

    # Restored at the end: a caller in Python has signal handlers of its own.
    before = {number: signal.getsignal(number) for number in signals}
    # Only the main thread receives signals; a notebook or a thread has another way to stop.
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
    """Send standard output and error to the null device where they went to a terminal, which a hang-up closes."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
        # fstat still works on a closed terminal; isatty does not.
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(null, stream)
    os.close(null)
