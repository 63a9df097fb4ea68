"""Servers in processes of their own: the same draws everywhere, and an end when told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = """
from eclose_world.server.faults import ServerBehaviour, ServerFault
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from eclose_world.server.app import run_model_server

registry = HandlerRegistry()

def reply(request):
    return ScriptedReply({"flags": [True] * 8, "seen": request.messages[-1]["content"]})

registry.register("verdict", reply)
slow = {ServerFault.SLOW, ServerFault.HANG}
faults = {fault: 0.05 for fault in ServerFault if fault not in slow}
run_model_server(registry, ServerBehaviour(seed=7, flip_rate=0.3, faults=faults))
"""


@contextmanager
def running(hash_seed: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("serving http://127.0.0.1:")
            assert line.endswith("/v1\n")
            yield server, line.removeprefix("serving ").strip()
        finally:
            if server.poll() is None:
                server.kill()


async def outcomes(base_url: str, numbers: range) -> list[tuple[object, ...]]:
    """What became of two attempts of every request, sent in the given order."""
    attempts: dict[int, list[object]] = {number: [] for number in numbers}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        for number in [*numbers, *numbers]:
            body = {
                "model": "world",
                "messages": [{"role": "user", "content": f"question {number}"}],
                "response_format": {"type": "json_schema", "json_schema": {"name": "verdict"}},
            }
            try:
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    attempts[number].append((response.status, await response.text()))
            except aiohttp.ClientError as error:
                attempts[number].append(type(error).__name__)
    return [tuple(attempts[number]) for number in sorted(attempts)]


@pytest.mark.slow
def test_two_processes_decide_alike() -> None:
    with running("1") as (_, first), running("2") as (_, second):
        forwards = asyncio.run(outcomes(first, range(150)))
        backwards = asyncio.run(outcomes(second, range(149, -1, -1)))
    assert forwards == backwards
    # Attempts of one request differ, and every kind of fate was met.
    assert sum(earlier != later for earlier, later in forwards) > 30
    kinds = {fate if isinstance(fate, str) else fate[0] for attempts in forwards for fate in attempts}
    assert {200, 429, 500, 502, 503, "ServerDisconnectedError", "ClientPayloadError"} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process(number: signal.Signals) -> None:
    with running() as (server, base_url):
        with urllib.request.urlopen(base_url.removesuffix("v1") + "healthz", timeout=5) as response:
            assert response.status == 200
        server.send_signal(number)
        out, err = server.communicate(timeout=10)
    assert (server.returncode, out, err) == (0, "", "")
