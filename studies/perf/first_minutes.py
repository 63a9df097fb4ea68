"""Time of a new user's first three commands: install the wheel, `eclose demo`, open the report. Under two minutes.

Starts in an empty folder with a fresh virtual environment, which is timed too; building the wheel is not the user's
work and is not. The demo runs without a network where the system lets us take it away, and without a key in any case.
The report counts as open when its list of responses stands in headless Chromium. The last line is the figure as JSON.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
GOAL = 120.0
READY = "data-ready"
OFFLINE = ("unshare", "--net", "--map-root-user")


def build_wheels(folder: Path) -> Path:
    """Build the wheels of all houses into a folder, where each finds the others; return that of eclose."""
    houses = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *houses], folder)
    (wheel,) = folder.glob("eclose-*.whl")
    return wheel


def run(command: list[str | Path], folder: Path) -> str:
    """Run a command and return its output; exit where it fails."""
    process = subprocess.run(
        list(map(str, command)), cwd=folder, env=new_user_environment(), capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {process.stdout}{process.stderr}")
    return process.stdout


def new_user_environment() -> dict[str, str]:
    """Return the environment of a new user, without keys and settings."""
    left_out = ("ECLOSE_", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: v for name, v in os.environ.items() if not name.startswith(left_out) and not name.endswith("_KEY")}


def find_offline_command() -> list[str | Path]:
    """Return the command prefix that takes the network away, or an empty list where that is not allowed."""
    if shutil.which(OFFLINE[0]) is None:
        return []
    allowed = subprocess.run([*OFFLINE, "true"], capture_output=True, check=False).returncode == 0
    return list(OFFLINE) if allowed else []


def open_report(page: Path, folder: Path, responses: int = 600) -> None:
    """Open the page in headless Chromium and require that every response is in its list."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    profile = f"--user-data-dir={folder / 'browser'}"
    arguments = ["--headless", "--no-sandbox", profile, "--virtual-time-budget=10000", "--dump-dom"]
    page_text = run([browser, *arguments, page.resolve().as_uri()], folder)
    if READY not in page_text or f"{responses} of {responses} responses" not in page_text:
        raise SystemExit(f"the report does not stand: {page_text[:500]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder to copy the report to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wheel_folder, folder = Path(name) / "wheel", Path(name) / "user"
        wheel_folder.mkdir()
        folder.mkdir()
        wheel, offline_prefix = build_wheels(wheel_folder), find_offline_command()
        network = "without a network" if offline_prefix else "with the network there, which it must not need"
        print(f"the demo runs {network}")
        programs = folder / "venv" / "bin"
        page = folder / "demo" / "report" / "report.html"
        steps: dict[str, Callable[[], object]] = {
            "virtual environment": lambda: run([sys.executable, "-m", "venv", "venv"], folder),
            "pip install": lambda: run([programs / "python", "-m", "pip", "install", "--quiet", wheel], folder),
            "eclose demo": lambda: run([*offline_prefix, programs / "eclose", "demo"], folder),
            "open the report": lambda: open_report(page, folder),
        }
        seconds = {}
        for step, action in steps.items():
            start = time.perf_counter()
            action()
            seconds[step] = time.perf_counter() - start
            print(f"{step:>20}: {seconds[step]:5.1f} s")
        if options.keep is not None:
            shutil.copytree(page.parent, options.keep, dirs_exist_ok=True)
    value = sum(seconds.values())
    return print_result(
        name="from an empty folder to an open report",
        value=round(value, 1),
        unit="s",
        goal=f"< {GOAL:g}",
        holds=value < GOAL,
        offline=bool(offline_prefix),
    )


if __name__ == "__main__":
    sys.exit(main())
