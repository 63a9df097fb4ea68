"""Shared by all tests: where the data lies, and a word on what was skipped without it."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.store.postgres import NO_POSTGRES

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parent.parent
# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

# Servers of tests take any free port, and what they answered is compared with what another one answered: they share a
# name. Tests of the name itself take this away.
os.environ.setdefault("ECLOSE_SERVER_NAME", "127.0.0.1")
# Tests run in several processes at once, and threads of models that wait for each other would slow all of them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NO_SHARED_DATA = "larger data slices are absent (set ECLOSE_DATA)"


@pytest.fixture
def qa() -> Path:
    """The small slices of real benchmarks that come with the tests."""
    return ROOT / "tests" / "fixtures" / "qa"


@pytest.fixture
def shared_data() -> Path:
    """The folder of larger slices, which do not come with the repository."""
    folder = Path(os.environ.get("ECLOSE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "qa").is_dir():
        pytest.skip(NO_SHARED_DATA)
    return folder


_TORCH_MODULE = re.compile(r"^pytestmark = .*pytest\.mark\.torch\b", re.MULTILINE)
SLOW = frozenset((ROOT / "tests" / "slow_tests.txt").read_text("utf-8").split())
"""Tests that take more than 0.2 seconds, as ``scripts/slow_tests.py`` measured them."""


def _is_fast(config: pytest.Config) -> bool:
    return "not (slow or" in config.option.markexpr


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules that import torch out of the fast lane: collecting them takes as long as running it."""
    module = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if _is_fast(config) and module and _TORCH_MODULE.search(collection_path.read_text("utf-8")):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list as slow."""
    for item in items:
        if isinstance(item, pytest.Function) and f"{item.path.relative_to(ROOT)}::{item.originalname}" in SLOW:
            item.add_marker("slow")


FAST_CPU_SECONDS = 5.0
"""Limit of a test in the fast lane, where most take less than 0.2 s: the rest is for imports and a busy machine."""
_PROCESSES = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_started: list[str] = []
"""Processes that the running test has started, but for the one in which ``platform`` asks for the processor."""


def _note_process(event: str, arguments: tuple[object, ...]) -> None:
    if event in _PROCESSES and arguments[:1] != ("uname",):
        _started.append(f"{event} {arguments}"[:200])


sys.addaudithook(_note_process)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """In the fast lane, fail a test that starts a process, imports torch or takes far too long."""
    if not _is_fast(item.config):
        return (yield)
    _started.clear()
    had_torch, begun = "torch" in sys.modules, time.process_time()
    result = yield
    if _started:
        pytest.fail(f"starts a process, so mark it as slow: {_started[0]}")
    if "torch" in sys.modules and not had_torch:
        pytest.fail("imports torch, so mark it as torch")
    # Time of this process alone: others on the machine hardly count.
    if (seconds := time.process_time() - begun) > FAST_CPU_SECONDS:
        pytest.fail(f"takes {seconds:.1f} s of CPU time, so mark it as slow")
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the figures of reports only for tests that look at them: drawing takes as long as the rest of a report."""
    # Not imported for this: most tests write no report.
    if (module := sys.modules.get("eclose.diagnosis.report.write")) is not None:
        drawn = sys.modules["eclose.diagnosis.report.plots.figures"].draw_report_figures
        module.draw_report_figures = drawn if item.get_closest_marker("figures") else lambda *_: {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in (NO_SHARED_DATA, NO_POSTGRES):
        skipped = [report for report in terminalreporter.getreports("skipped") if reason in str(report.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests skipped: {reason}")
