"""The call ledger at size: calls per second, bytes per call, time of a usage query; projected to 60 million calls.

Writes calls as a judge makes them (instructions, passages and a reply of a few hundred words) to a SQLite ledger of
N and to one of 10 N, and asks for the usage of one of two runs. A usage query must not read bodies, so its
time per row must not grow. Figures of 60 million rows are projected from the larger ledger, and marked so. The last
line is the figure as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result

from eclose.core.identity import content_hash
from eclose.store.ledger.ledger import CallIntent, Ledger, LedgerReply
from eclose.world.make.instances import make_world_items

PROJECTED = 60_000_000
GOAL = 5.0
"""Microseconds per row of a usage query."""
RUNS = ("first", "second")
IN_FLIGHT = 256


def make_calls(count: int, texts: list[str]) -> list[tuple[CallIntent, LedgerReply]]:
    """Return calls with the size and the repetition of those of a judge."""
    rng = Random(count)
    instructions = " ".join(texts[0].split()[:350])
    calls = []
    for number in range(count):
        content = f"{instructions}\n{texts[number % len(texts)]}\nresponse {number} {rng.random()}"
        request = {"model": "judge", "messages": [{"role": "user", "content": content}]}
        key = content_hash(request)
        words = " ".join(rng.sample(texts[number % len(texts)].split(), 40))
        body = json.dumps({"reply": {"text": f"{number}: {words}", "finish": "stop"}}).encode()
        intent = CallIntent(key, request, "judge", f"r{number}", reserved=100)
        calls.append((intent, LedgerReply(key, body, (900, 60), 40, 1)))
    return calls


async def write(path: Path, count: int, texts: list[str]) -> tuple[float, float]:
    """Write calls in two runs; return the seconds, and the bytes of their requests and replies before compression."""
    seconds, raw = 0.0, 0
    for run in RUNS:
        async with Ledger.open(path, run=run) as ledger:
            for start in range(0, count // 2, 5_000):
                size = min(5_000, count // 2 - start)
                calls = make_calls(size, [f"{run} {start} {text}" for text in texts])
                raw += sum(len(json.dumps(intent.request)) + len(reply.body) for intent, reply in calls)
                remaining = iter(calls)
                begin = time.perf_counter()
                while batch := list(islice(remaining, IN_FLIGHT)):
                    await asyncio.gather(*(ledger.intend(intent) for intent, _ in batch))
                    await asyncio.gather(*(ledger.settle(reply) for _, reply in batch))
                seconds += time.perf_counter() - begin
    return seconds, raw


async def query(path: Path, times: int = 5) -> float:
    """Return the median seconds of the usage of a run."""
    seconds = []
    async with Ledger.open(path, run=RUNS[0]) as ledger:
        for _ in range(times):
            begin = time.perf_counter()
            await ledger.compute_usage()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def query_totals(path: Path, times: int = 5) -> tuple[float, float]:
    """Return the processor seconds of the sums of tokens and costs of a run: by the index of usage, and without it."""
    from eclose.store.ledger import queries as sql  # noqa: PLC0415

    medians = []
    with sqlite3.connect(path) as connection:
        for statement in (str(sql.USAGE), str(sql.USAGE).replace("WHERE run", "NOT INDEXED WHERE run")):
            seconds = []
            for _ in range(times):
                begin = time.process_time()
                connection.execute(statement, {"run": RUNS[0].encode()}).fetchall()
                seconds.append(time.process_time() - begin)
            medians.append(min(seconds))
    return medians[0], medians[1]


def measure(folder: Path, count: int, texts: list[str]) -> dict[str, float]:
    """Write a ledger and measure it."""
    path = folder / f"{count}.sqlite"
    written, raw = asyncio.run(write(path, count, texts))
    usage, (totals, scanned) = asyncio.run(query(path)), query_totals(path)
    figures = {
        "rows_per_second": count / written,
        "raw_bytes": raw / count,
        "stored_bytes": path.stat().st_size / count,
        "usage_seconds": usage,
        "totals_seconds": totals,
    }
    print(
        f"{count:,} calls: {count / written:,.0f} calls/s; {raw / count:,.0f} bytes each as text, "
        f"{path.stat().st_size / count:,.0f} in the file with indexes; usage of one of two runs {usage:.3f} s "
        f"(its sums {totals:.4f} s by the index, {scanned:.4f} s reading the rows)",
        flush=True,
    )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50_000, help="calls of the smaller ledger")
    parser.add_argument("--factor", type=int, default=10, help="how much larger the second ledger is; 1 = none")
    options = parser.parse_args()
    passages = [
        " ".join(passage.text for passage in item.instance.evidence)
        for item in islice(make_world_items("hotpot", 1), 40)
    ]
    with tempfile.TemporaryDirectory() as name:
        sizes = sorted({options.calls, options.calls * options.factor})
        figures = {size: measure(Path(name), size, passages) for size in sizes}
    largest = sizes[-1]
    last = figures[largest]
    per_row = 1e6 * last["totals_seconds"] / (largest / 2)
    growth = per_row / (1e6 * figures[sizes[0]]["totals_seconds"] / (sizes[0] / 2))
    projected = {
        "gigabytes": round(last["stored_bytes"] * PROJECTED / 1e9),
        "hours_to_write": round(PROJECTED / last["rows_per_second"] / 3_600, 1),
        "seconds_of_totals": round(per_row * PROJECTED / 1e6, 1),
    }
    print(f"projected to {PROJECTED:,} calls of one run: {projected}")
    return print_result(
        name=f"sums of usage in a ledger of {largest:,} calls",
        value=round(per_row, 3),
        unit="microseconds a row",
        goal=f"< {GOAL:g}, growing less than twofold",
        holds=per_row < GOAL and growth < 2,
        growth=round(growth, 2),
        calls_per_second=round(last["rows_per_second"]),
        raw_bytes=round(last["raw_bytes"]),
        stored_bytes=round(last["stored_bytes"]),
        usage_seconds={str(size): round(value["usage_seconds"], 4) for size, value in figures.items()},
        projected_to_60_million=projected,
    )


if __name__ == "__main__":
    sys.exit(main())
