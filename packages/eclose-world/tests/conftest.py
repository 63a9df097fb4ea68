"""A few items of every profile, made once."""

from __future__ import annotations

import pytest

from eclose_world.make.instances import WorldItem, make_world_item
from eclose_world.make.shapes import BENCHMARK_PROFILES

EACH = 40


@pytest.fixture(scope="session")
def items() -> list[WorldItem]:
    return [make_world_item(profile, 11, index) for profile in BENCHMARK_PROFILES for index in range(EACH)]
