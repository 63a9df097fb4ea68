"""One Ray for the tests of a module: starting it takes longer than most of what they do with it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from eclose.calls.cluster.workers import RaySettings, _connection, _set_environment

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Connect this process to a Ray of its own, which runs in it use, and give the address for other processes."""
    _set_environment(RaySettings())
    ray = pytest.importorskip("ray", reason="needs the ray extra")
    before = signal.getsignal(signal.SIGTERM)
    # Room for the workers of a run that was killed beside those of the next.
    ray.init(**_connection(RaySettings(workers=4)))
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)
