"""Throughput of the scripted model server without latency, over HTTP from a client in another process.

Every request of the load differs, so each is read, hashed, answered and billed on its own; the bill must be exact.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

REQUESTS, WARM_UP, IN_FLIGHT = 5_000, 500, 48
GOAL = 500
"""Requests a second."""

SERVER = """
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from eclose_world.server.app import run_model_server


def answer(request):
    return ScriptedReply({"aligned": True, "reason": request.messages[-1]["content"].rsplit("\\n", 1)[-1]})


registry = HandlerRegistry()
registry.register("verdict", answer)
run_model_server(registry)
"""

SCHEMA = {
    "type": "object",
    "properties": {"aligned": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["aligned", "reason"],
    "additionalProperties": False,
}
EVIDENCE = "The film was directed by Norman Jewison, who was born in Toronto in 1926. " * 25


def make_body(number: int) -> bytes:
    """Make a structured request about the size of a judge's: two thousand characters of evidence."""
    body = {
        "model": "world",
        "messages": [
            {"role": "system", "content": "Judge whether the trace pursues the question."},
            {"role": "user", "content": f"{EVIDENCE}\n\nQuestion {number}: where was the director born?"},
        ],
        "temperature": 0,
        "max_tokens": 256,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA},
        },
    }
    return json.dumps(body).encode()


async def send_all(session: aiohttp.ClientSession, url: str, numbers: range) -> tuple[float, int]:
    """Send all requests with a fixed number in flight; return the seconds, and how many got the right answer."""
    bodies = iter([(number, make_body(number)) for number in numbers])
    right = 0

    async def worker() -> None:
        nonlocal right
        for number, body in bodies:
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                reply = json.loads(await response.read())
                right += f"Question {number}:" in reply["choices"][0]["message"]["content"]

    start = perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return perf_counter() - start, right


async def measure(base_url: str) -> tuple[float, bool]:
    """Return requests a second after a warm-up, and whether every reply and the bill are right."""
    root, url = base_url.removesuffix("/v1"), f"{base_url}/chat/completions"
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        await send_all(session, url, range(WARM_UP))
        async with session.post(f"{root}/bill/reset") as response:
            response.raise_for_status()
        seconds, right = await send_all(session, url, range(WARM_UP, WARM_UP + REQUESTS))
        async with session.get(f"{root}/bill") as response:
            bill = json.loads(await response.read())
    lines = bill["requests"].values()
    once = len(lines) == REQUESTS and all((line["received"], line["paid"]) == (1, 1) for line in lines)
    print(f"{right:,} of {REQUESTS:,} replies right, {len(lines):,} billed, peak {bill['totals']['peak_in_flight']}")
    return REQUESTS / seconds, once and right == REQUESTS


def main() -> int:
    """Measure and print whether the goal holds."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base_url = server.stdout.readline().removeprefix("serving ").strip()
            rate, exact = asyncio.run(measure(base_url))
        finally:
            server.terminate()
            server.wait(10)
    holds = exact and rate >= GOAL
    print(f"{IN_FLIGHT} in flight: {rate:,.0f} requests/s, bill {'exact' if exact else 'WRONG'}")
    return print_result(
        name="world server",
        value=round(rate),
        unit="requests/s",
        goal=f">= {GOAL}",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
