"""Shared by all tests: where the data lies, and a word on what was skipped without it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings
from tests.store.postgres import NO_POSTGRES

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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules that import torch out of the fast lane: collecting them takes as long as running it."""
    fast = "not (slow or" in config.option.markexpr
    module = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if fast and module and _TORCH_MODULE.search(collection_path.read_text("utf-8")):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list as slow."""
    for item in items:
        if isinstance(item, pytest.Function) and f"{item.path.relative_to(ROOT)}::{item.originalname}" in SLOW:
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in (NO_SHARED_DATA, NO_POSTGRES):
        skipped = [report for report in terminalreporter.getreports("skipped") if reason in str(report.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests skipped: {reason}")
