"""Plugin of pytest that prints the rates of every run checked by ``assert_reliable``.

pytest loads it wherever the package is installed, so it imports no other module of the package. The lines are stored
in the reports of tests: they arrive from parallel workers too, and are written to JUnit XML as properties.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

KEY = "eclose"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Store the lines of a test's setup, call and teardown in its report."""
    try:
        return (yield)
    finally:
        item.user_properties.extend((KEY, line) for line in _take())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the rates of every run that was compared with limits."""
    lines = [
        (report.nodeid, line)
        for reports in terminalreporter.stats.values()
        for report in reports
        # The properties of a test are complete at its teardown; the reports of setup and call hold a part of them.
        if getattr(report, "when", None) == "teardown"
        for key, line in report.user_properties
        if key == KEY
    ]
    if lines:
        terminalreporter.section("reliability")
        for test, line in lines:
            terminalreporter.write_line(f"{test}: {line}")


def _take() -> list[str]:
    # Looked up and not imported: a test run that never uses the package must not load it.
    testing = sys.modules.get("eclose.testing")
    if testing is None:
        return []
    lines, testing.gate_lines[:] = list(testing.gate_lines), []
    return lines
