"""The call ledger at size: calls per second, bytes per call, time of a usage query; projected to 60 million calls.

Writes calls as a judge makes them (instructions, passages and a reply of a few hundred words) through the ledger, and
copies them within the database to further runs until it holds ``--rows`` calls: copies have the sizes of the originals
and keys of their own. The usage of one run is asked for before and after. It must not read bodies nor other runs, so
its time must not grow with the ledger. Figures of 60 million calls are projected, and marked so. The last line
is the figure as JSON.

    python studies/perf/scale_ledger.py                                              SQLite, 200,000 calls, a quick look
    python studies/perf/scale_ledger.py --rows 6000000
    python studies/perf/scale_ledger.py --rows 6000000 --database postgresql
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from sqlalchemy import text

from eclose.calls.ledger import queries as sql
from eclose.calls.ledger.database import make_database_engine
from eclose.calls.ledger.ledger import CallIntent, Ledger, LedgerReply
from eclose.values.identity import content_hash
from eclose_world.make.instances import make_world_items
from studies.perf.result import print_result
from tests.calls.ledger.postgres import fresh_database

PROJECTED = 60_000_000
GOAL = 2.0
"""Times that the usage of a run may take in the large ledger, of the time in the small one."""
FIRST_RUN = "run 0"
IN_FLIGHT = 256
_COPY = (
    "INSERT INTO ledger_calls (key, request) SELECT {key}, request FROM ledger_calls WHERE seq <= :count ORDER BY seq",
    "INSERT INTO ledger_intents (call, writer, run, stage, record_id, reserved, seal) SELECT call + :offset, writer, "
    ":run, stage, record_id, reserved, seal FROM ledger_intents WHERE call <= :count ORDER BY seq",
    "INSERT INTO ledger_replies (call, writer, run, body, prompt_tokens, completion_tokens, cached_tokens, cost, "
    "attempts, seal) SELECT call + :offset, writer, :run, body, prompt_tokens, completion_tokens, cached_tokens, cost, "
    "attempts, seal FROM ledger_replies WHERE call <= :count ORDER BY call",
    "INSERT INTO ledger_writers (writer, run, seen, expires, buried) VALUES (:run, :run, 1, 0, 1)",
)
"""Copies of the first calls in another run. Their seals are those of the originals: nothing here verifies them."""
_RANDOM_KEY = {
    "sqlite": "randomblob(32)",
    "postgresql": "decode(md5(random()::text) || md5(random()::text), 'hex')",
}


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


async def write(location: Path | str, count: int, texts: list[str]) -> tuple[float, float]:
    """Write calls of one run; return the seconds, and the bytes of requests and replies before compression."""
    seconds, raw = 0.0, 0
    async with Ledger.open(location, run=FIRST_RUN) as ledger:
        for start in range(0, count, 5_000):
            calls = make_calls(min(5_000, count - start), [f"{start} {text}" for text in texts])
            raw += sum(len(json.dumps(intent.request)) + len(reply.body) for intent, reply in calls)
            remaining = iter(calls)
            begin = time.perf_counter()
            while batch := list(islice(remaining, IN_FLIGHT)):
                await asyncio.gather(*(ledger.intend(intent) for intent, _ in batch))
                await asyncio.gather(*(ledger.settle(reply) for _, reply in batch))
            seconds += time.perf_counter() - begin
    return seconds, raw


def copy_calls(location: Path | str, count: int, rows: int) -> int:
    """Copy the first calls to further runs until the ledger holds this many; return the number of runs."""
    engine = make_database_engine(location)
    key = _RANDOM_KEY[engine.dialect.name]
    runs = max(1, rows // count)
    for number in range(1, runs):
        parameters = {"run": f"run {number}".encode(), "count": count, "offset": number * count}
        with engine.begin() as connection:
            for statement in _COPY:
                clause = text(statement.format(key=key))
                connection.execute(
                    clause, {name: value for name, value in parameters.items() if f":{name}" in statement}
                )
        if number % 10 == 0:
            print(f"{(number + 1) * count:,} calls", flush=True)
    if engine.dialect.name == "postgresql":
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))  # as autovacuum does in time; index-only scans need it
    engine.dispose()
    return runs


async def time_usage(location: Path | str, times: int = 5) -> float:
    """Return the fewest seconds that the usage of the first run took."""
    seconds = []
    async with Ledger.open(location, run=FIRST_RUN) as ledger:
        for _ in range(times):
            begin = time.perf_counter()
            await ledger.compute_usage()
            seconds.append(time.perf_counter() - begin)
    return min(seconds)


def read_size(location: Path | str) -> int:
    """Return the bytes of a ledger with its indexes."""
    if isinstance(location, Path):
        return location.stat().st_size
    engine = make_database_engine(location)
    with engine.connect() as connection:
        size = int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    engine.dispose()
    return size


def explain_usage(location: Path | str) -> str:
    """Return the plan of the sums of a run in one line."""
    engine = make_database_engine(location)
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        rows = connection.execute(text(f"{explain} {sql.USAGE}"), {"run": FIRST_RUN.encode()}).all()
    engine.dispose()
    return "; ".join(" ".join(str(row[-1]).split()) for row in rows)


def measure(location: Path | str, calls: int, rows: int) -> int:
    """Write, copy and ask; print the result."""
    passages = [
        " ".join(passage.text for passage in item.instance.evidence)
        for item in islice(make_world_items("hotpot", 1), 40)
    ]
    written, raw = asyncio.run(write(location, calls, passages))
    small = asyncio.run(time_usage(location))
    print(f"{calls:,} calls in one run: {calls / written:,.0f} calls/s; usage {small:.3f} s", flush=True)
    runs = copy_calls(location, calls, rows)
    total, size = runs * calls, read_size(location)
    large = asyncio.run(time_usage(location))
    print(f"plan of the sums: {explain_usage(location)}")
    print(
        f"{total:,} calls in {runs} runs: {raw / calls:,.0f} bytes each as text, {size / total:,.0f} stored with "
        f"indexes, {size / 1e9:.1f} GB; usage of one run {large:.3f} s",
        flush=True,
    )
    projected = {
        "gigabytes": round(size / total * PROJECTED / 1e9),
        "hours_to_write_by_one_process": round(PROJECTED / (calls / written) / 3_600, 1),
        "seconds_of_usage_of_all_as_one_run": round(large * PROJECTED / calls, 1),
    }
    print(f"projected to {PROJECTED:,} calls: {projected}")
    return print_result(
        name=f"usage of a run of {calls:,} calls in a ledger of {total:,}",
        value=round(large / small, 2),
        unit=f"x the time in a ledger of {calls:,}: {large:.3f} s",
        goal=f"< {GOAL:g}",
        holds=large / small < GOAL,
        calls_per_second=round(calls / written),
        stored_bytes=round(size / total),
        projected_to_60_million=projected,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="calls that are written through the ledger")
    parser.add_argument("--rows", type=int, default=200_000, help="calls that the ledger holds in the end")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args()
    if options.database == "postgresql":
        return measure(fresh_database(), options.calls, options.rows)
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder) / "ledger.sqlite", options.calls, options.rows)


if __name__ == "__main__":
    sys.exit(main())
