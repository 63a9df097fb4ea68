"""Throughput of ``Judge.batch`` against bare aiohttp: the same calls, at the same concurrency, to the same server.

The server takes 200 ms for every reply, and a row is asked about six times. The bare loop posts the bodies of these
calls, made beforehand, and reads the JSON of the replies. Ours reads the rows, builds the prompts, writes every intent
and reply to its ledger, checks the replies and adds the labels. Rounds alternate, and the best of each counts: whatever
else the machine does only ever adds time.

A cold judgment is one by a fresh ``Judge``, after another one has imported its modules; the calls themselves are taken
off at the price of a call in the batch.

    python studies/perf/judge_throughput.py
    python studies/perf/judge_throughput.py --rows 50 --rounds 1     a quick look
    python studies/perf/judge_throughput.py --profile                where the processor time of one batch goes
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

import eclose
from eclose.api.labelled_rows import read_row
from eclose.judging.judge_response import build_judge_requests
from eclose_world.make.instances import make_world_items
from studies.campaigns.runner_faults import serve
from studies.perf.result import print_result
from studies.perf.runner_throughput import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LATENCY = 0.2
CONCURRENCY = 64
GOAL = 0.9
CPU_GOAL = 1.5
"""Milliseconds a call, for everything."""
COLD_GOAL = 30.0
"""Milliseconds of a cold judgment beyond its calls."""
CALLS = eclose.CallSettings(concurrency=CONCURRENCY, unpriced=True, slow_start=False)


def make_rows(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows as an engineer has them."""
    return [
        {
            "question": item.instance.question,
            "contexts": [passage.text for passage in item.instance.evidence],
            "reference": item.instance.reference_answer,
            "response": item.response.completion,
        }
        for item in islice(make_world_items("short-easy", seed), count)
    ]


def make_bodies(rows: Iterable[dict[str, Any]], settings: eclose.JudgeSettings) -> list[dict[str, Any]]:
    """Return the bodies of all calls about rows."""
    bodies = []
    for row in rows:
        instance, response = read_row(row, eclose.ImportSettings())
        for request in build_judge_requests(instance, response, settings):
            assert request.schema is not None
            schema = {"name": request.schema.name, "strict": True, "schema": request.schema.schema}
            bodies.append(
                {
                    "model": "world",
                    "messages": [dict(message) for message in request.messages],
                    "temperature": 0.0,
                    "max_tokens": request.decoding.max_tokens,
                    "response_format": {"type": "json_schema", "json_schema": schema},
                }
            )
    return bodies


async def post_all(base_url: str, bodies: Sequence[dict[str, Any]]) -> int:
    """Post all bodies with bare aiohttp; return the number of replies."""
    waiting, replies = iter(bodies), 0
    connector = aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work() -> None:
            nonlocal replies
            for body in waiting:
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    json.loads(json.loads(await response.read())["choices"][0]["message"]["content"])
                replies += 1

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return replies


def time_work(work: Callable[[], int], expected: int) -> Timing:
    """Measure wall time and CPU time of this process."""
    start, cpu = time.perf_counter(), time.process_time()
    finished = work()
    timing = Timing(time.perf_counter() - start, time.process_time() - cpu)
    assert finished == expected, (finished, expected)
    return timing


def label(base_url: str, rows: Sequence[dict[str, Any]]) -> int:
    """Label rows by a fresh judge; return the number of those with all labels."""
    with eclose.Judge(base_url, calls=CALLS) as judge:
        return sum(row["reliable"] is not None for row in judge.batch(rows, progress=False))


def time_cold_judgments(base_url: str, rows: Sequence[dict[str, Any]]) -> float:
    """Return the median CPU time of a judgment by a fresh judge, in milliseconds."""
    times = []
    for row in rows:
        cpu = time.process_time()
        with eclose.Judge(base_url, calls=CALLS) as judge:
            judge(row)
        times.append(1e3 * (time.process_time() - cpu))
    return median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    rows = make_rows(options.rows)
    bodies = make_bodies(rows, eclose.JudgeSettings())
    plain, ours = [], []
    server, base_url = serve(LATENCY, jitter=0.0)
    try:
        if options.profile:
            profile_batch(base_url, rows)
            return 0
        time_work(lambda: label(base_url, rows[:CONCURRENCY]), min(CONCURRENCY, options.rows))
        for number in range(options.rounds):
            plain.append(time_work(lambda: asyncio.run(post_all(base_url, bodies)), len(bodies)))
            ours.append(time_work(lambda: label(base_url, rows), len(rows)))
            print(f"round {number + 1}: bare loop {plain[-1]}; ours {ours[-1]}", flush=True)
        cold = time_cold_judgments(base_url, rows[:20])
    finally:
        server.terminate()
        server.wait()
    bare, batch = (min(timing.seconds for timing in timings) for timings in (plain, ours))
    bare_cpu, our_cpu = (1e3 * min(timing.cpu for timing in timings) / len(bodies) for timings in (plain, ours))
    beyond = cold - our_cpu * len(bodies) / len(rows)
    share = bare / batch
    return print_result(
        name=f"Judge.batch against bare aiohttp, {len(bodies):,} calls at {CONCURRENCY} in flight of 200 ms",
        value=round(share, 3),
        unit=f"x its throughput ({len(bodies) / batch:,.0f} calls/s, bare {len(bodies) / bare:,.0f}); {our_cpu:.2f} ms "
        f"of CPU a call for everything, bare {bare_cpu:.2f}; cold judgment {beyond:.0f} ms of CPU beyond its calls",
        goal=f">= {GOAL}, <= {CPU_GOAL:g} ms, <= {COLD_GOAL:g} ms",
        holds=share >= GOAL and our_cpu <= CPU_GOAL and beyond <= COLD_GOAL,
    )


def profile_batch(base_url: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print where the time of a batch goes; the judge's own thread does the work."""
    judge = eclose.Judge(base_url, calls=CALLS)
    with judge:
        profile = cProfile.Profile()

        async def run(_connection: object) -> None:
            profile.enable()
            await judge.abatch(rows, progress=False)
            profile.disable()

        judge._open().run(run)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    sys.exit(main())
