"""Inspect takes over the log of its process; the tests after these get it back."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _own_log():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
