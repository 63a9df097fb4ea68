"""Programs in processes forked from one that has imported what they need: importing torch takes longer than they do.

``python -m tests.forking torch peft`` imports the modules, then starts what each line of its input describes.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[3]


class ForkServer:
    """A process that has imported modules and forks others. Use it in a ``with``; it runs one program at a time."""

    def __init__(self, *modules: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )

    def start(
        self, program: str, arguments: Sequence[str], output: Path, ranks: Sequence[Mapping[str, str]] = ({},)
    ) -> list[int]:
        """Start a module or script in as many processes as there are ranks, and return their ids.

        Each adds the variables of its rank to the environment. All write to one file.
        """
        request = {"program": program, "arguments": [*arguments], "output": str(output), "ranks": [*map(dict, ranks)]}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return [int(process) for process in self._answer()]

    def wait(self) -> int:
        """Return the exit code, or minus the signal, of what was started; where one fails the others are killed."""
        return int(self._answer())

    def run(
        self, program: str, arguments: Sequence[str], output: Path, ranks: Sequence[Mapping[str, str]] = ({},)
    ) -> tuple[int, str]:
        """Run a program to its end, and return its exit code and what it wrote."""
        self.start(program, arguments, output, ranks)
        return self.wait(), output.read_text("utf-8")

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        # What still runs ends with the server, see below.
        self._process.terminate()
        self._process.communicate()


def _serve() -> None:
    # The channel to the tests; children have an output of their own.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    running: set[int] = set()

    def end(*_: object) -> None:
        for process in running:
            os.kill(process, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for line in sys.stdin:
        request = json.loads(line)
        running.update(_fork(request, rank) for rank in request["ranks"])
        channel.write(json.dumps(sorted(running)) + "\n")
        codes = []
        while running:
            process, status = os.wait()
            running.remove(process)
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1] != 0:
                for other in running:
                    os.kill(other, signal.SIGKILL)
        channel.write(f"{next((code for code in codes if code != 0), 0)}\n")


def _fork(request: dict[str, Any], rank: dict[str, str]) -> int:
    process = os.fork()
    if process:
        return process
    code: Any = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(os.devnull) as nothing, open(request["output"], "a") as output:
            os.dup2(nothing.fileno(), 0)
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
        os.environ.update(rank)
        code = _run(request["program"], request["arguments"])
    except BaseException:  # the child must not go on as a server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(program: str, arguments: list[str]) -> int:
    sys.argv = [program, *arguments]
    run = runpy.run_path if program.endswith(".py") else runpy.run_module
    try:
        run(program, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    _serve()
