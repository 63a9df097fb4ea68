"""Run a module as a program that ends with its parent: ``python -m eclose.experiments.supervised MODULE ARGUMENT...``.

The parent keeps the other end of standard input open and never writes to it. When the parent ends, also by SIGKILL,
standard input ends, and the whole process group is asked to terminate. Otherwise a stage would go on without the run
that started it, and the next run would find it locked.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def start_supervised(words: Sequence[str], *, env: Mapping[str, str], output: Any = None) -> subprocess.Popen[bytes]:
    """Start a module as a program, in a process group of its own that ends with this process.

    Args:
        words: Name of the module and its arguments.
        env: Environment of the process.
        output: File for standard output and standard error; those of this process by default.
    """
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *words],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env=env,
        # Ctrl+C on a terminal reaches the parent alone, which then ends its children in order.
        start_new_session=True,
    )


def stop_supervised(processes: Sequence[subprocess.Popen[bytes]], grace: float) -> None:
    """Ask process groups to terminate, and kill those that are still there after ``grace`` seconds or Ctrl+C."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _signal_group(process.pid, signal.SIGTERM)
    try:
        for process in running:
            process.wait(grace)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for process in running:
            _signal_group(process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            process.wait()
    finally:
        for process in processes:
            close_supervised(process)


def close_supervised(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a process that has ended."""
    if process.stdin is not None:
        process.stdin.close()


@contextmanager
def interrupt_on_termination() -> Iterator[None]:
    """Let SIGTERM act as Ctrl+C, so that processes are ended before this one."""
    if threading.current_thread() is not threading.main_thread():  # signals can be set only there
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        # Windows has no process groups of this kind.
        os.killpg(group, number) if hasattr(os, "killpg") else os.kill(group, number)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    _signal_group(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the module that the arguments name."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    # A module sets sys.argv[0] to its own file, which is what a program started by -m sees.
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
