"""Servers without authentication are reachable from this machine alone."""

from __future__ import annotations

import pytest

from eclose.errors import SettingError
from eclose.loopback import require_loopback


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("127.8.8.8", "127.8.8.8"), ("::1", "::1"), ("localhost", "127.0.0.1")],
)
def test_loopback_addresses_are_taken(host, address):
    assert require_loopback(host, "server") == address


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "example.org", ""])
def test_other_addresses_are_refused(host):
    with pytest.raises(SettingError, match="the server has no authentication"):
        require_loopback(host, "server")
