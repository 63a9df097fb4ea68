"""Break one line of the package at a time, and fail where the test named for it does not notice.

    python scripts/breakings.py                  # every row of tests/breakings.toml
    python scripts/breakings.py --only c1 g4     # these rows

Each row runs its test twice on a copy of the package: unchanged, where it must pass, and broken, where it must fail by
an assertion or an exception of the tested code. A broken import, a missing test and an error of a fixture do not count.
The copy is in a temporary folder that comes first in ``PYTHONPATH``; the working tree is never changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "breakings.toml"
# Exit codes of pytest.
FAILED, NOT_FOUND, NOTHING_SELECTED = 1, 4, 5
# A test that fails with one of these says that the broken line is no program, not that its result is wrong.
NO_PROGRAM = re.compile(r"(ImportError|ModuleNotFoundError|NameError|UnboundLocalError|SyntaxError|IndentationError)\b")


@dataclass(frozen=True)
class Breaking:
    """A change of one line, and the test that must catch it."""

    id: str
    meaning: str
    file: str
    now: str
    broken: str
    test: str


@dataclass(frozen=True)
class Outcome:
    """What became of a row: the lane of its test, and why it is not caught; no reason where it is."""

    row: Breaking
    lane: str
    reason: str | None
    seconds: float
    output: str = ""


@dataclass(frozen=True)
class PytestRun:
    """The exit code, the counted cases and the printed text of one run of pytest."""

    code: int
    passed: int
    failures: tuple[str, ...]
    errors: int
    output: str


def read_rows(path: Path = TABLE) -> list[Breaking]:
    """Return the rows of the table; a repeated id or another set of fields is an error."""
    rows = [Breaking(**row) for row in tomllib.loads(path.read_text("utf-8"))["breaking"]]
    repeated = {row.id for row in rows if sum(other.id == row.id for other in rows) > 1}
    if repeated:
        sys.exit(f"{path}: more than one row has the id {', '.join(sorted(repeated))}")
    return rows


def run_test(test: str, lane: str, folder: Path, seconds: float) -> PytestRun:
    """Run a test on the package in a folder; in the fast lane, or in all of them."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        # Failing examples of a broken line are no examples of the working tree.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", test]
    command += [] if lane == "fast" else ["-m", ""]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return PytestRun(-1, 0, (), 0, f"{test} did not end within {seconds:.0f} s")
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failures = tuple(failure.get("message", "") for case in cases for failure in case.iter("failure"))
    errors = sum(1 for case in cases for _ in case.iter("error"))
    passed = sum(1 for case in cases if len(case) == 0)
    return PytestRun(done.returncode, passed, failures, errors, done.stdout + done.stderr)


def try_row(row: Breaking, seconds: float) -> Outcome:
    """Run the test of a row on an unchanged and on a broken copy."""
    begun = time.monotonic()
    lane = "fast"

    def end(reason: str | None, output: str = "") -> Outcome:
        return Outcome(row, lane, reason, time.monotonic() - begun, output)

    path = ROOT / "packages" / row.file
    text = path.read_text("utf-8") if path.exists() else ""
    if text.count(row.now) != 1:
        return end(f"packages/{row.file} holds the text {text.count(row.now)} times: {row.now}")
    broken = text.replace(row.now, row.broken)
    try:
        compile(broken, row.file, "exec")
    except SyntaxError as error:
        return end(f"the broken file is no Python: {error}")
    with tempfile.TemporaryDirectory(prefix="breaking-") as name:
        folder = Path(name)
        source = next(parent for parent in path.parents if parent.parent.name == "src")
        shutil.copytree(source, folder / source.name)
        unbroken = run_test(row.test, lane, folder, seconds)
        if unbroken.code in (NOT_FOUND, NOTHING_SELECTED):
            lane = "full"
            unbroken = run_test(row.test, lane, folder, seconds)
        if unbroken.code in (NOT_FOUND, NOTHING_SELECTED):
            return end(f"{row.test} does not exist", unbroken.output)
        if unbroken.code != 0 or not unbroken.passed:
            return end(f"{row.test} does not pass on the unchanged package", unbroken.output)
        (folder / path.relative_to(source.parent)).write_text(broken, "utf-8")
        after = run_test(row.test, lane, folder, seconds)
        if after.code == 0:
            return end(f"{row.test} passes on the broken package", after.output)
        # A case with an ordinary failure is needed; errors of fixtures beside it do not matter.
        if after.code != FAILED or not any(not NO_PROGRAM.match(failure) for failure in after.failures):
            return end(f"{row.test} fails for another reason than its assertions", after.output)
        return end(None)


def main() -> int:
    """Try the chosen rows; print a line for each and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="rows to try; all by default")
    parser.add_argument("--at-once", type=int, default=1, help="rows tried at the same time")
    parser.add_argument("--seconds", type=float, default=300, help="limit for one run of a test")
    options = parser.parse_args()
    rows = read_rows()
    if unknown := set(options.only or ()) - {row.id for row in rows}:
        parser.error(f"no row has the id {', '.join(sorted(unknown))}")
    chosen = [row for row in rows if options.only is None or row.id in options.only]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(options.at_once) as pool:
        for outcome in pool.map(lambda row: try_row(row, options.seconds), chosen):
            outcomes.append(outcome)
            result = "caught" if outcome.reason is None else "NOT CAUGHT"
            print(
                f"{outcome.row.id:4} {result:10} {outcome.lane:4} {outcome.seconds:5.1f} s  {outcome.row.meaning}",
                flush=True,
            )
            if outcome.reason is not None:
                print(f"     {outcome.reason}\n{outcome.output[-3000:]}", flush=True)
    caught = [outcome for outcome in outcomes if outcome.reason is None]
    fast = sum(outcome.lane == "fast" for outcome in caught)
    print(f"{len(caught)} of {len(outcomes)} breakings caught, {fast} of them by plain pytest")
    return 0 if len(caught) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
