"""A browser where there is one, and a project whose every hidden thing is a token of its own."""

from __future__ import annotations

import pytest
from tests.annotation.web.canaries import study
from tests.annotation.web.crowd import crowd
from tests.chromium import browser

__all__ = ["browser"]


@pytest.fixture
def one(tmp_path):
    """A project with something to hide."""
    with study(tmp_path / "study") as found:
        yield found


@pytest.fixture
def everybody(one):
    """All its people, logged in."""
    with crowd(one) as found:
        yield found
