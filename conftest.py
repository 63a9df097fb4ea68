"""Shared by all tests: where the data lies, and a word on what was skipped without it."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.calls.ledger.postgres import NO_POSTGRES

pytest_plugins = ["tests.lanes"]
ROOT = Path(__file__).parent
# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

# Helpers of tests are importable in processes that tests start, as they are here by `pythonpath` of pyproject.toml.
FOLDERS = [str(ROOT), *map(str, sorted(ROOT.glob("packages/*")))]
os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])

# Servers of tests take any free port, and what they answered is compared with what another one answered: they share a
# name. Tests of the name itself take this away.
os.environ.setdefault("ECLOSE_SERVER_NAME", "127.0.0.1")
# Tests run in several processes at once, and threads of models that wait for each other would slow all of them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NO_SHARED_DATA = "larger data slices are absent (set ECLOSE_DATA)"


@pytest.fixture
def qa() -> Path:
    """The small slices of real benchmarks that come with the tests."""
    return ROOT / "packages" / "eclose" / "tests" / "fixtures" / "qa"


@pytest.fixture
def shared_data() -> Path:
    """The folder of larger slices, which do not come with the repository."""
    folder = Path(os.environ.get("ECLOSE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "qa").is_dir():
        pytest.skip(NO_SHARED_DATA)
    return folder


def pytest_collection_finish() -> None:
    """Leave what is imported by now out of every garbage collection: training alone asks for one a run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the figures of reports only for tests that look at them: drawing takes as long as the rest of a report."""
    from tests.lanes import is_fast  # a plugin, which pytest imports first

    # Not imported for this in the fast lane: most of its tests write no report.
    if "eclose.report.write" in sys.modules or not is_fast(item.config):
        module, figures = map(importlib.import_module, ("eclose.report.write", "eclose.report.figures"))
        module.draw_report_figures = (
            figures.draw_report_figures if item.get_closest_marker("figures") else lambda *_: {}
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in (NO_SHARED_DATA, NO_POSTGRES):
        skipped = [report for report in terminalreporter.getreports("skipped") if reason in str(report.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests skipped: {reason}")
