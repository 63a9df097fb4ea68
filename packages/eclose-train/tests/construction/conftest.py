"""A browser where there is one."""

from tests.chromium import browser

__all__ = ["browser"]
