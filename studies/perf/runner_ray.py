"""Cost of Ray: the same records run by one process and by two workers of a Ray cluster, on one PostgreSQL ledger.

Wall time is taken from the first worker's start to the last one's end, start-up apart; processor time is that of the
whole tree of processes, Ray's own included, without the database and the model server. Then the workers share a limit
of requests a minute for more than a minute, and the server says how many came in the fullest one.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.cluster.shared_limit import RateLimitShare, share_rate_limit
from eclose.calls.cluster.workers import RaySettings, RecordShard, ShardStopSignal, run_shards_on_ray
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Request
from eclose.calls.record_loop import JobRunner, RecordJob
from eclose.files.jsonl import scan_records
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS, LATENCY, CONCURRENCY, WORKERS = 2_000, 0.2, 64, 2
PER_MINUTE, PACED_RECORDS = 600, 720
ROUNDS = 2
GOAL = 2.0
"""Times the wall of one process, start-up apart."""

SERVER = f"""
import os, sys, time
from eclose_world.server.faults import ServerBehaviour
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from eclose_world.server.app import run_model_server

log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def answer(request):
    os.write(log, b"%f\\n" % time.monotonic())
    return ScriptedReply(request.messages[-1]["content"])

registry = HandlerRegistry()
registry.register(None, answer)
run_model_server(registry, ServerBehaviour(latency={LATENCY}))
"""


@dataclass(frozen=True)
class Item:
    id: str
    text: str


@dataclass(frozen=True)
class Answer:
    text: str


@dataclass(frozen=True)
class Work:
    """Settings of a worker."""

    ledger: str
    run: str
    base_url: str
    items: str
    requests_per_minute: int | None = None
    alone: bool = False


async def work_on(work: Work, shard: RecordShard, _stop: ShardStopSignal) -> tuple[float, float]:
    """Run a worker's share; return when it began and when it ended."""
    began = time.time()
    settings = CallSettings(concurrency=CONCURRENCY, requests_per_minute=work.requests_per_minute, unpriced=True)
    async with (
        Ledger.open(work.ledger, run=work.run) as ledger,
        open_connection(work.base_url, ledger, settings, environ={}) as connection,
    ):

        async def ask(item: Item) -> Answer:
            return Answer((await connection.model.complete(Request(({"role": "user", "content": item.text},)))).text)

        jobs = [RecordJob("ask", ask, Answer)]
        runner = JobRunner[Item](ledger, jobs, lambda item: item.id, workers=settings.workers, in_shard=shard.contains)
        if work.alone:
            await runner.run(scan_records(work.items, Item))
        else:
            total = RateLimitShare(CONCURRENCY, work.requests_per_minute)
            async with share_rate_limit(connection.limiter, total, work.ledger, run=work.run, model="world"):
                await runner.run(scan_records(work.items, Item))
    return began, time.time()


def drive(work: Work) -> dict[str, float]:
    """Do the work in this process, or in a cluster that this process starts."""
    process = psutil.Process()
    started, spent = process.create_time(), 0.0

    def look(_: str) -> None:
        nonlocal spent
        spent = processor_seconds(process)

    if work.alone:
        spans = [asyncio.run(work_on(work, RecordShard(), ShardStopSignal()))]
        look("")
    else:
        spans = run_shards_on_ray(partial(work_on, work), work.ledger, RaySettings(workers=WORKERS), tell=look)
    begins, ends = zip(*spans, strict=True)
    return {"wall": max(ends) - min(begins), "start_up": min(begins) - started, "cpu": spent}


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process and all processes it started, ended ones included."""
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += sum(member.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


@contextmanager
def serve_model(log: Path) -> Iterator[str]:
    """Start a model server in a process of its own and yield its base URL."""
    with subprocess.Popen([sys.executable, "-c", SERVER, str(log)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("serving ").strip()
        finally:
            server.terminate()
            server.wait(10)


def run_driver(work: Work, folder: Path) -> dict[str, Any]:
    """Run a driver in a process of its own; return its figures with the server's bill."""
    settings = folder / "work.json"
    settings.write_text(json.dumps(work.__dict__))
    root = work.base_url.removesuffix("/v1")
    command = [sys.executable, __file__, "--work", str(settings)]
    begun = time.perf_counter()
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    total = time.perf_counter() - begun
    with urllib.request.urlopen(f"{root}/bill/reset?keys=0", data=b"") as answer:
        bill = json.load(answer)["totals"]
    figures: dict[str, Any] = json.loads(out.splitlines()[-1]) | {"total": total} | bill
    print(
        f"{work.run:>7}: {figures['wall']:.1f} s of work, {figures['start_up']:.1f} s before it, {total:.1f} s in all, "
        f"{figures['cpu']:.1f} s of processor, {bill['paid']:,} paid, peak {bill['peak_in_flight']}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return figures


def write_items(path: Path, count: int, kind: str) -> str:
    lines = [json.dumps({"id": f"{kind}{number:06}", "text": f"{kind} {number}"}) for number in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def fullest_minute(log: Path, since: int) -> int:
    """Return the largest number of requests in any sixty seconds."""
    moments = sorted(map(float, log.read_text().split()[since:]))
    return max((bisect_left(moments, start + 60) - index for index, start in enumerate(moments)), default=0)


def measure(ledger: str, folder: Path) -> tuple[float, bool]:
    """Return how many times longer Ray took, and whether bill, limits and goal hold."""
    log = folder / "moments"
    with serve_model(log) as base_url:
        alone: list[dict[str, Any]] = []
        ray: list[dict[str, Any]] = []
        for turn in range(ROUNDS):  # by turns, since the load of a machine changes
            for name, rows in (("alone", alone), ("ray", ray)):
                # Each asks questions of its own, so that none finds another's answers.
                run = f"{name}-{turn + 1}"
                items = write_items(folder / f"{run}.jsonl", RECORDS, run)
                rows.append(run_driver(Work(ledger, run, base_url, items, alone=name == "alone"), folder))
        items = write_items(folder / "paced.jsonl", PACED_RECORDS, "paced")
        paced = run_driver(Work(ledger, "paced", base_url, items, PER_MINUTE), folder)
    exact = all(figures["paid"] == RECORDS for figures in alone + ray) and paced["paid"] == PACED_RECORDS
    fullest = fullest_minute(log, since=2 * ROUNDS * RECORDS)
    print(f"{fullest} requests in the fullest minute, of {PER_MINUTE} allowed")
    within = fullest <= PER_MINUTE and all(
        figures["peak_in_flight"] <= CONCURRENCY for figures in [*alone, *ray, paced]
    )
    times, processor = (
        min(figures[what] for figures in ray) / min(figures[what] for figures in alone) for what in ("wall", "cpu")
    )
    print(
        f"Ray: {times:.2f} x the wall and {processor:.1f} x the processor time of one process (the best of {ROUNDS}); "
        f"bill {'exact' if exact else 'WRONG'}, limits {'kept' if within else 'EXCEEDED'}"
    )
    return times, exact and within and times <= GOAL


def main() -> int:
    """Measure and print whether the goal holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", help="a PostgreSQL database, empty; by default a server of its own is started")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        # By its name, under which the workers find what is theirs.
        here: Any = importlib.import_module("runner_ray")
        print(json.dumps(here.drive(here.Work(**json.loads(options.work.read_text())))))
        return 0
    sys.path.insert(0, str(Path(__file__).parents[2]))
    ledger = options.ledger or importlib.import_module("tests.calls.ledger.postgres").fresh_database()
    with tempfile.TemporaryDirectory() as folder:
        times, holds = measure(ledger, Path(folder))
    return print_result(
        name="two Ray workers against one process",
        value=round(times, 2),
        unit="x the wall time, start-up apart",
        goal=f"<= {GOAL}; bill exact; never above {CONCURRENCY} in flight or {PER_MINUTE} requests a minute",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
