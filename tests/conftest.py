"""Shared by all tests: where the data lies, and a word on what was skipped without it."""

from __future__ import annotations

import inspect
import os
import re
from functools import cache
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


LANES = {
    "browser": re.compile(r"playwright|tests\.chromium|web\.harness|test_browser import"),
    "database": re.compile(r"fresh_database|postgres", re.IGNORECASE),
    "ray": re.compile(r"\bimport ray\b|calls\.ray|engine ray|\"ray\""),
    "torch": re.compile(
        r"^\s*(?:import|from) (?:torch|transformers|peft|eclose\.likelihood)\b|tiny_models|training\.small",
        re.MULTILINE,
    ),
}
"""What the source of a test, of its fixtures or of its module says where it needs more than Python."""
_WHOLE_MODULE = ("browser", "torch")
SLOW = frozenset((ROOT / "tests" / "slow_tests.txt").read_text("utf-8").split())
"""Tests that take more than 0.2 seconds, as ``scripts/slow_tests.py`` measured them."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules that import torch out of the fast lane: collecting them takes as long as running it."""
    fast = "not (slow or" in config.option.markexpr
    module = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if fast and module and LANES["torch"].search(_header(collection_path.read_text("utf-8"))):
        return True
    return None


@cache
def _module_header(path: Path) -> str:
    return _header(path.read_text("utf-8"))


def _header(text: str) -> str:
    """Return the imports at the top of a module."""
    return text.partition("\ndef ")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the lanes that its source, its fixtures and its module need."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        fixtures = [
            definition.func for definitions in item._fixtureinfo.name2fixturedefs.values() for definition in definitions
        ]
        sources = [_source(function) for function in (item.function, *fixtures)]
        text = "\n".join([*sources, item.nodeid])
        header = _module_header(Path(item.path))
        if f"{item.path.relative_to(ROOT)}::{item.originalname}" in SLOW:
            item.add_marker("slow")
        for lane, pattern in LANES.items():
            if pattern.search(text) or (lane in _WHOLE_MODULE and pattern.search(header)):
                item.add_marker(lane)


@cache
def _source(function: object) -> str:
    """Return the source of a test or fixture; empty for what has none. Cached: thousands of tests share fixtures."""
    try:
        return inspect.getsource(function)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in (NO_SHARED_DATA, NO_POSTGRES):
        skipped = [report for report in terminalreporter.getreports("skipped") if reason in str(report.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests skipped: {reason}")
