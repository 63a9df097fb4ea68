"""What pytest loads in every run where this package is installed: it says how reliable the responses were.

Imports nothing of ours by itself; only where a test has imported ``eclose.testing`` is there anything to tell. The
lines travel with the reports of tests, so they are whole with many workers too, and are in JUnit XML as properties.
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
    """Keep with a test what was told while it was set up, run and cleared away."""
    try:
        return (yield)
    finally:
        item.user_properties.extend((KEY, line) for line in _take())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the rates of every run that was held against limits."""
    told = [
        (report.nodeid, line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for key, line in report.user_properties
        if key == KEY
    ]
    if told:
        terminalreporter.section("reliability")
        for test, line in told:
            terminalreporter.write_line(f"{test}: {line}")


def _take() -> list[str]:
    """What was told since the last time."""
    testing = sys.modules.get("eclose.testing")
    if testing is None:
        return []
    lines, testing.gate_lines[:] = list(testing.gate_lines), []
    return lines
