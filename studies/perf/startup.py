"""Time until `eclose --help` and `eclose gate --help` answer, as a multiple of importing Typer: at most twice.

Each program is run several times in turn and its best run counts, by the wall and by the processor's clock, since a
busy machine only ever adds. The last line is the figure as JSON.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

GOAL = 2.0
TYPER = ("-c", "import typer")
HELPS = {
    "eclose --help": ("-m", "eclose.cli.main", "--help"),
    "eclose gate --help": ("-m", "eclose.cli.main", "gate", "--help"),
}


def measure_run(arguments: tuple[str, ...], folder: str) -> tuple[float, float]:
    """Return the seconds of one run of Python by the wall and by the processor's clock."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=folder, env=_environment(), check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment() -> dict[str, str]:
    # As an installed program: its modules are compiled once, and not anew in each run.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs of each program")
    options = parser.parse_args()
    programs = {"import typer": TYPER, **HELPS}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.runs):
            for name, arguments in programs.items():
                runs[name].append(measure_run(arguments, folder))
    best = {name: tuple(map(min, zip(*times, strict=True))) for name, times in runs.items()}
    bare = best["import typer"]
    ratios = {name: [seconds / base for seconds, base in zip(best[name], bare, strict=True)] for name in HELPS}
    for name, (wall, processor) in best.items():
        print(f"{name:>20}: {wall:.3f} s, {processor:.3f} s of CPU")
    worst = max(ratio for row in ratios.values() for ratio in row)
    return print_result(
        name="start-up of the command: eclose --help and eclose gate --help",
        value=round(worst, 2),
        unit="x the time to import Typer, wall or CPU, whichever is worse",
        goal=f"<= {GOAL:g}",
        holds=worst <= GOAL,
        ratios={name: [round(ratio, 2) for ratio in row] for name, row in ratios.items()},
    )


if __name__ == "__main__":
    sys.exit(main())
