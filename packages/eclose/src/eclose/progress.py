"""Progress of long work in a terminal, in a notebook, or to a function of the caller."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UPDATE_SECONDS = 0.5
"""Seconds between two updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a piece of work is."""

    done: int
    """Number of records that are finished."""
    total: int
    text: str
    """Both numbers, pace, remaining time and costs in one line."""

    def __str__(self) -> str:
        return self.text


ProgressOption: TypeAlias = "bool | Callable[[Progress], None]"
"""True to show progress in a terminal or a notebook, False for none, or a function that is called with it."""


@contextmanager
def show_progress(option: ProgressOption, read: Callable[[], Progress]) -> Iterator[None]:
    """Show progress while the block lasts, and once more at its end.

    Off a terminal and a notebook nothing is shown, unless the option is a function, which is called from another
    thread.
    """
    if option is False or (option is True and not is_shown()):
        yield
        return
    with _open_display() if option is True else _call(option) as show:
        ended = Event()

        def update() -> None:
            while not ended.wait(UPDATE_SECONDS):
                show(read())

        # A thread: the work may run in an event loop, in another thread, or in none of its own.
        thread = Thread(target=update, name="eclose progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            show(read())


def is_shown() -> bool:
    """Return whether there is a terminal or a notebook to show progress in."""
    return sys.stderr.isatty() or _is_notebook()


def write_progress_line(progress: Progress) -> None:
    """Write a line to standard error, for commands whose output goes to a file."""
    sys.stderr.write(f"{progress.text}\n")
    sys.stderr.flush()


@contextmanager
def _call(function: Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    yield function


@contextmanager
def _open_display() -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress in place of what it showed before."""
    if _is_notebook():
        handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)
        yield lambda progress: handle.update({"text/plain": progress.text}, raw=True)
        return
    from rich.console import Console  # noqa: PLC0415 - takes a moment to load
    from rich.text import Text  # noqa: PLC0415

    last = ""
    console = Console(stderr=True)
    with console.status("") as status:

        def show(progress: Progress) -> None:
            nonlocal last
            last = progress.text
            status.update(Text(last))

        yield show
    with suppress(OSError):  # a terminal that was closed must not end the work
        console.print(Text(last))


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which has no terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
