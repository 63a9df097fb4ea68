"""Servers without authentication are reachable from this machine alone."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from eclose.errors import SettingError
from eclose.local_server import list_own_hosts, require_loopback
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import MAX_REQUEST_BYTES, open_model_server


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


def test_own_hosts_have_the_port_unless_it_is_80():
    assert list_own_hosts("127.0.0.1", 80) == {"127.0.0.1", "localhost"}
    assert list_own_hosts("::1", 8300) == {"127.0.0.1:8300", "localhost:8300", "[::1]:8300"}


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("127.0.0.1", 421), ("localhost:{port}", 200), ("127.0.0.1:{port}", 200)],
)
def test_the_model_server_answers_only_to_its_own_host_names(host, status):
    async def main() -> int:
        async with open_model_server(build_world_handlers()) as server, aiohttp.ClientSession() as session:
            name = host.format(port=server.base_url.rpartition(":")[2].removesuffix("/v1"))
            async with session.get(f"{server.base_url}/models", headers={"host": name}) as response:
                return response.status

    assert asyncio.run(main()) == status


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("part", [b"[", b'{"a":', b'"', b"\\"])
def test_the_model_server_refuses_the_largest_hostile_body_in_bounded_time(part):
    async def main() -> int:
        async with open_model_server(build_world_handlers()) as server, aiohttp.ClientSession() as session:
            body = part * (MAX_REQUEST_BYTES // len(part) - 1)

            async def pieces():
                for start in range(0, len(body), 2**20):
                    yield body[start : start + 2**20]

            async with session.post(f"{server.base_url}/chat/completions", data=pieces()) as response:
                return response.status

    started = time.process_time()
    assert asyncio.run(main()) == 400
    assert time.process_time() - started < 4
