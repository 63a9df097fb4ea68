"""The fast lane of plain ``pytest``: what keeps tests out of it that need more than this process and a moment.

Marks say to which lane a test belongs; no list does. They stand on modules, functions and single cases:

    pytestmark = pytest.mark.torch
    pytest.param("postgresql", marks=pytest.mark.database)

A test without the mark that it needs fails in the fast lane: where it starts a process (which a browser, PostgreSQL and
Ray are), imports torch or computes for too long.
"""

from __future__ import annotations

import re
import sys
import time
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path
    from types import ModuleType

CPU_SECONDS = 2.0
"""Limit of the call of a test, in CPU time of this process: ten times what is meant, for a machine that is busy."""
CPU_SECONDS_A_MODULE = 0.01
"""What a module that the test imports first adds to the limit: pandas alone has hundreds."""

_TORCH_MODULE = re.compile(
    r"^pytestmark = .*pytest\.mark\.torch\b|^(?:\w+ = )?pytest\.importorskip\(['\"]torch['\"]", re.MULTILINE
)
"""A module of tests, or the conftest of a folder, for which torch is imported."""
_PROCESSES = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_started: list[str] = []
"""Processes started since the last look, but for the one in which ``platform`` asks for the processor."""


def _note_process(event: str, arguments: tuple[object, ...]) -> None:
    if event in _PROCESSES and arguments[:1] != ("uname",):
        _started.append(f"{event} {arguments}"[:200])


# An audit hook cannot be removed, so it stands here, once a process.
sys.addaudithook(_note_process)


class _NoTorch:
    """Finds torch as others do, so code may ask whether it is there, and fails who imports it."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "torch" else None
        return ModuleSpec(name, cls(), origin=spec.origin) if spec is not None else None

    @staticmethod
    def create_module(_spec: ModuleSpec) -> None:
        pytest.fail("imports torch, so mark it as torch")

    @staticmethod
    def exec_module(_module: ModuleType) -> None: ...


def is_fast(config: pytest.Config) -> bool:
    """Whether the filter of the fast lane, which stands in ``pyproject.toml``, selects the tests of this run."""
    return config.option.markexpr in config.getini("addopts")


def pytest_configure(config: pytest.Config) -> None:
    if is_fast(config):
        sys.meta_path.insert(0, _NoTorch)


def pytest_unconfigure() -> None:
    if _NoTorch in sys.meta_path:
        sys.meta_path.remove(_NoTorch)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules and folders for which torch is imported out of the fast lane: that takes as long as running it."""
    module = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if not is_fast(config) or not module.name.startswith(("test_", "conftest")) or module.suffix != ".py":
        return None
    return True if module.is_file() and _TORCH_MODULE.search(module.read_text("utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """In the fast lane, fail a test whose fixtures start a process."""
    _started.clear()
    result = yield
    _refuse_processes(item.config)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """In the fast lane, fail a test that starts a process or computes for too long."""
    limit, more, modules = CPU_SECONDS, CPU_SECONDS_A_MODULE, len(sys.modules)
    _started.clear()
    begun = time.process_time()
    result = yield
    # Time of this process alone: others on the machine hardly count.
    seconds = time.process_time() - begun
    _refuse_processes(item.config)
    limit += more * (len(sys.modules) - modules)
    if is_fast(item.config) and seconds > limit:
        pytest.fail(f"takes {seconds:.1f} s of CPU time, more than {limit:.1f} s, so mark it as slow", pytrace=False)
    return result


def _refuse_processes(config: pytest.Config) -> None:
    started = _started[:]
    _started.clear()
    if started and is_fast(config):
        pytest.fail(f"starts a process, so mark it as slow, database, browser or ray: {started[0]}", pytrace=False)
