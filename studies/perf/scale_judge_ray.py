"""Judging on Ray: a worker and the driver are killed three times each, and the run ends as one of bare processes does.

Two bare processes judge the first responses, each a half, on a PostgreSQL ledger: their rate is the goal. Two Ray
workers judge the same, undisturbed. Then, on a third ledger, ``eclose judge`` on Ray judges all responses: it
stops at a budget of about a quarter, goes on with the whole one, and is killed again and again. Its judgments of the
first responses must be the bytes of the bare processes, and all its labels the planted ones. The server's bill says
what was paid. A call in flight at a kill may be sent again, and the ledger lists it as possibly billed; any other
request that is paid twice counts as such.

    python studies/perf/scale_judge_ray.py                                        100 responses, a quick look
    python studies/perf/scale_judge_ray.py --responses 20000 --timed 2000
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
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.calls.client import CallSettings
from eclose.calls.cluster.run import work_on_shard
from eclose.calls.cluster.workers import RaySettings, RecordShard, ShardStopSignal, run_shards_on_ray
from eclose.calls.http.providers import RequestDialect
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.paid_once import compute_call_key
from eclose.calls.resolve import find_model_ref
from eclose.calls.run import RunOptions
from eclose.errors import Resumable
from eclose.files import jsonl
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.run import build_judge_run, judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.values.judgment import Judgment
from eclose_world.server.chat_requests import ChatRequest
from studies.campaigns.judge_http import Planted, count_differences, plant, serving, write_run
from studies.perf.result import print_result
from tests.calls.ledger.postgres import fresh_database

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20_274
PROFILE = "short-easy"
WORKERS = 2
KILLS = 3
LATENCY = 0.2
GOAL = 0.9
DEADLINE = 120.0
RESUMABLE = 75
"""Exit code of a command that stopped and continues when it is run again."""


@dataclass(frozen=True)
class Job:
    """Settings of a process that judges."""

    run: str
    base_url: str
    ledger: str
    prices: str
    concurrency: int

    @property
    def calls(self) -> CallSettings:
        return CallSettings(
            concurrency=self.concurrency, prices=Path(self.prices), budget=1_000.0, deadline=DEADLINE, slow_start=False
        )

    @property
    def make_run(self) -> Any:
        folder = Path(self.run)
        where = (find_judge_inputs(folder, folder), "world", self.base_url, folder, JudgeSettings(), DEADLINE)
        return partial(build_judge_run, *where)


async def work(job: Job, shard: RecordShard, stop: ShardStopSignal) -> tuple[float, float]:
    """Judge a shard; return when it began and when it ended."""
    begun = time.time()
    await work_on_shard(job.make_run, job.calls, job.ledger, shard, stop)
    return begun, time.time()


def drive(job: Job, part: str) -> list[tuple[float, float]]:
    """Judge a part of the records in this process, or all of them on Ray."""
    if part == "ray":
        settings = RaySettings(workers=WORKERS, shards_per_worker=1)
        while True:
            try:
                return run_shards_on_ray(partial(work, job), job.ledger, settings)
            except Resumable as stop:  # Ray did not start in time
                print(stop, file=sys.stderr)
    return [asyncio.run(work(job, RecordShard(int(part), WORKERS), ShardStopSignal()))]


def time_processes(job: Job, parts: list[str]) -> tuple[float, float]:
    """Run a process for each part; return the seconds from first call to last end, and those before."""
    arguments = Path(job.run).with_suffix(".json")
    arguments.write_text(json.dumps(job.__dict__))
    started = time.time()
    command = [sys.executable, __file__, "--job", str(arguments)]
    processes = [subprocess.Popen([*command, part], stdout=subprocess.PIPE, text=True) for part in parts]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a process failed")
    begins, ends = zip(*(span for output in outputs for span in json.loads(output.splitlines()[-1])), strict=True)
    return max(ends) - min(begins), min(begins) - started


def write_judgments(job: Job) -> tuple[bytes, int]:
    """Return the judgments and the cost of a judged run, without a call: everything is in the ledger."""
    folder, options = Path(job.run), RunOptions(ledger=job.ledger)
    model = find_model_ref("world", base_url=job.base_url)
    inputs = find_judge_inputs(folder, folder)
    result = asyncio.run(judge_responses(inputs, model, folder, JudgeSettings(), job.calls, options))
    return result.stage.out.read_bytes(), result.manifest.calls["cost"]


def read_bill(base_url: str, *, keys: bool = False, reset: bool = False) -> dict[str, Any]:
    """Return the server's bill, the totals alone without ``keys``; start a new one with ``reset``."""
    url = f"{base_url.removesuffix('/v1')}/bill{'/reset' if reset else ''}?keys={int(keys)}"
    with urllib.request.urlopen(url, data=b"" if reset else None) as answer:
        bill: dict[str, Any] = json.load(answer)
    return bill["requests" if keys else "totals"]  # type: ignore[no-any-return]


def start_command(job: Job, budget: float) -> subprocess.Popen[bytes]:
    """Start ``eclose judge`` on Ray as a user does."""
    command = [sys.executable, "-m", "eclose.cli.main", "judge", job.run, "--judge", job.base_url]
    command += ["--ledger", job.ledger, "--budget", str(budget), "--concurrency", str(job.concurrency)]
    settings = {"ECLOSE_ENGINE": "ray", "ECLOSE_WORKERS": str(WORKERS), "ECLOSE_PRICES": str(job.prices)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **settings})


def kill_worker(driver: psutil.Process) -> None:
    """Kill one worker of Ray."""
    workers = [child for child in driver.children(recursive=True) if "_Worker" in child.name()]
    workers[0].kill()


def kill_driver(driver: psutil.Process) -> None:
    """Kill the driver; its workers end by themselves, and helpers of Ray that take longer are ended here."""
    children = driver.children(recursive=True)
    driver.kill()
    _, alive = psutil.wait_procs([child for child in children if "_Worker" in child.name()], timeout=180)
    if alive:
        raise SystemExit("workers go on without a driver")
    for child in children:
        if child.is_running():
            child.kill()


def judge_with_kills(job: Job, calls: int) -> int:
    """Judge with a worker and then the driver killed, three times; return the number of kills."""
    # Kills are spread over the calls that remain after the budget of a quarter.
    marks = [calls * (0.3 + 0.6 * step / (2 * KILLS)) for step in range(2 * KILLS)]
    kills = 0
    process = start_command(job, 1_000.0)
    for step, mark in enumerate(marks):
        while read_bill(job.base_url)["paid"] < mark:
            if process.poll() is not None:
                process = start_again(job, process)
            time.sleep(min(1.0, calls / 20_000))  # the server sums its whole bill at each look
        driver = psutil.Process(process.pid)
        if step % 2 == 0:
            kill_worker(driver)
        else:
            kill_driver(driver)
            process.wait()
            process = start_command(job, 1_000.0)
        kills += 1
        what = "the driver" if step % 2 else "a worker"
        print(f"killed {what} after {read_bill(job.base_url)['paid']:,} of {calls:,} calls", flush=True)
    while process.wait():
        process = start_again(job, process)
    return kills


def start_again(job: Job, ended: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Start the command again as its message asks: Ray gives up where a busy machine does not start it in time."""
    if ended.returncode != RESUMABLE:
        raise SystemExit(f"the command ended with {ended.returncode}")
    print(f"exit code {RESUMABLE}: started again", flush=True)
    return start_command(job, 1_000.0)


def find_request_keys(job: Job, cases: list[Planted]) -> dict[str, str]:
    """Return the server's key of every request that judging the responses takes, by the key of the ledger."""
    run = asyncio.run(_build(job))
    keys: dict[str, str] = {}
    for case in cases:
        for request in build_judge_requests(case.instance, case.broken.response, JudgeSettings()):
            body = RequestDialect().body("world", request)
            keys[compute_call_key(run.judge.name, request)] = ChatRequest.of(body).key
    return keys


def count_paid_twice(job: Job, keys: dict[str, str], bill: dict[str, Any]) -> tuple[int, int]:
    """Return the replies that were paid again, and those among them that no call in flight at a kill explains."""
    run = asyncio.run(_build(job))

    async def list_orphans() -> Counter[str]:
        async with Ledger.open(job.ledger, run=run.stage.work_id) as ledger:
            return Counter(keys[intent.key] for intent in await ledger.list_orphans())

    orphans = asyncio.run(list_orphans())
    again = {key: line["paid"] - 1 for key, line in bill.items() if line["paid"] > 1}
    return sum(again.values()), sum(max(0, count - orphans[key]) for key, count in again.items())


async def _build(job: Job) -> Any:
    return await job.make_run()


def stop_at_budget(job: Job, cost: float) -> bool:
    """Judge with a quarter of the expected cost as budget; return whether the command stopped below it."""
    budget = cost / 1e6 / 4
    while True:
        code = start_command(job, budget).wait()
        totals = read_bill(job.base_url)
        # Without a paid call Ray did not start, and the command asks to be run again.
        if code != RESUMABLE or totals["paid"]:
            break
    spent = (totals["prompt_tokens"] + 2 * totals["completion_tokens"]) / 1e6
    print(f"budget {budget:.4f}: exit code {code}, {spent:.4f} paid for {totals['paid']:,} calls", flush=True)
    return code == RESUMABLE and 0 < spent <= budget


def compare_throughput(prepare: Callable[[str], Job], rounds: int) -> tuple[list[float], Job]:
    """Judge by bare processes and by Ray workers; return the share of the bare throughput by round, and a bare run."""
    shares = []
    for number in range(rounds):  # by turns, since the load of a machine changes
        bare, ray = prepare(f"bare-{number}"), prepare(f"ray-{number}")
        bare_wall, _ = time_processes(bare, [str(part) for part in range(WORKERS)])
        calls = len(read_bill(bare.base_url, keys=True, reset=True))
        wall, start_up = time_processes(ray, ["ray"])
        shares.append(bare_wall / wall)
        read_bill(bare.base_url, reset=True)
        print(
            f"round {number + 1}: {calls:,} calls, {bare_wall:.1f} s by {WORKERS} processes, "
            f"{wall:.1f} s by {WORKERS} Ray workers after {start_up:.1f} s of start-up; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    return shares, bare


def measure(responses: int, timed: int, rounds: int, folder: Path) -> int:
    """Judge by bare processes, on Ray, and on Ray with kills; compare, and print the result."""
    cases = list(islice(plant([PROFILE], SEED), responses))
    prices = folder / "prices.yaml"
    prices.write_text("world: {input: 1, output: 2}\n")
    with serving("--latency", str(LATENCY)) as base_url:

        def prepare(name: str, count: int = timed) -> Job:
            write_run(folder / name, cases[:count])
            concurrency = min(64, max(8, count // 10))
            return Job(str(folder / name), base_url, fresh_database(), str(prices), concurrency)

        shares, bare = compare_throughput(prepare, rounds)
        expected, cost = write_judgments(bare)
        read_bill(base_url, reset=True)
        killed = prepare("killed", responses)
        keys = find_request_keys(killed, cases)
        within = stop_at_budget(killed, cost * responses / timed)
        kills = judge_with_kills(killed, len(set(keys.values())))
        bill = read_bill(base_url, keys=True)
        again, twice = count_paid_twice(killed, keys, bill)
    lost = len(set(keys.values()) - {key for key, line in bill.items() if line["paid"]})
    judged = folder / "killed" / "judgments.jsonl"
    differing = count_differences(cases, list(jsonl.read_records(judged, Judgment)))
    # A run is in the order of ids, so the first responses are not the first lines of the larger run.
    same = set(expected.splitlines()) <= set(judged.read_bytes().splitlines()) and not any(differing)
    print(
        f"{responses:,} responses, {len(bill):,} calls, {kills} kills: {lost} calls lost, {twice} paid twice, {again} "
        f"in flight at a kill and sent again; {differing}; the first {timed:,} judgments and all labels "
        f"{'the same' if same else 'DIFFERENT'}; budget {'kept' if within else 'EXCEEDED'}"
    )
    return print_result(
        name=f"judging {responses:,} responses on {WORKERS} Ray workers, {kills} kills",
        value=round(min(shares), 2),
        unit=f"x the throughput of {WORKERS} bare processes on {timed:,} responses, start-up apart, in the worst of "
        f"{rounds} rounds; {lost} lost, {twice} paid twice",
        goal=f">= {GOAL}; 0 lost, 0 paid twice, one budget kept, judgments the same bytes, labels as planted",
        holds=min(shares) >= GOAL and not lost and not twice and same and within and kills == 2 * KILLS,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=100)
    parser.add_argument("--timed", type=int, help="responses that throughput is compared on; all by default")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        path, part = options.job
        # By its name, under which the workers find what is theirs.
        here: Any = importlib.import_module("studies.perf.scale_judge_ray")
        print(json.dumps(here.drive(here.Job(**json.loads(Path(path).read_text())), part)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return measure(options.responses, options.timed or options.responses, options.rounds, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
