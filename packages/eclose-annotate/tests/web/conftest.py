"""A browser where there is one, and a project whose every hidden thing is a token of its own."""

from __future__ import annotations

import pytest

from tests.chromium import browser
from tests.web.canaries import study
from tests.web.crowd import crowd

__all__ = ["browser"]


@pytest.fixture
def one(tmp_path):
    """A project with something to hide."""
    with study(tmp_path / "study") as project:
        yield project


@pytest.fixture
def everybody(one):
    """All its people, logged in."""
    with crowd(one) as people:
        yield people
