"""List the tests that the fast lane leaves out because of their time: writes ``tests/slow_tests.txt``.

    python -m pytest -n 2 --junitxml=durations.xml    # the fast lane, on an idle machine
    python scripts/slow_tests.py durations.xml        # adds what takes longer than 0.2 seconds

``tests/conftest.py`` marks the listed tests as slow, beside those that are marked by hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).parents[1] / "tests" / "slow_tests.txt"


def read_slow_tests(report: Path, seconds: float) -> set[str]:
    """Return ``path::function`` of every test in a JUnit report with a case over the limit."""
    slow = set()
    for case in ElementTree.parse(report).iter("testcase"):
        if float(case.get("time", 0)) > seconds:
            path = f"{str(case.get('classname')).replace('.', '/')}.py"
            slow.add(f"{path}::{str(case.get('name')).partition('[')[0]}")
    return slow


def main() -> None:
    """Add the slow tests of a report to the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JUnit report of a test run")
    parser.add_argument("--seconds", type=float, default=0.2, help="longest time of a test in the fast lane")
    options = parser.parse_args()
    listed = set(LIST.read_text("utf-8").split()) if LIST.exists() else set()
    # Tests that were renamed or deleted leave the list with the next run.
    present = {name for name in listed if (LIST.parents[1] / name.partition("::")[0]).is_file()}
    LIST.write_text("\n".join(sorted(present | read_slow_tests(options.report, options.seconds))) + "\n", "utf-8")


if __name__ == "__main__":
    main()
