"""What many tests need and none changes is built once, by the first worker that needs it."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """Return a folder that ``build`` has filled; all workers of a test run share it, so no test may change it."""
    base = factory.getbasetemp()
    # Each worker has a folder of its own within that of the run.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"built-{name}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = folder.with_suffix(".finished")
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half of it, where another worker failed
            # Files name their folder, so it is filled where it stays.
            folder.mkdir()
            build(folder)
            finished.touch()
    return folder
