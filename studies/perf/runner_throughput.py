"""Throughput of the runner against bare aiohttp: the same calls, at the same concurrency, to the same server.

The server takes 200 ms for every reply. A record is asked about three times, each time with what was said before. The
bare loop posts JSON, reads JSON and keeps its results in memory; ours has every intent and reply on disk, and its
exports written. Rounds alternate, and the best of each counts: whatever else the machine does only ever adds time.

At 512 in flight one core binds ours, so the limit is what its own processor time allows: 1 / (CPU a call).

    python studies/perf/runner_throughput.py
    python studies/perf/runner_throughput.py --concurrency 512
    python studies/perf/runner_throughput.py --records 200 --rounds 1     a quick look
    python studies/perf/runner_throughput.py --profile                    where the processor time of one round goes
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.record_loop import JobRunner, write_run_results
from eclose.files import jsonl
from eclose.files.step import PipelineStep
from eclose.prompts.locked_texts import PromptMessage
from eclose.prompts.response_prompt import ResponsePrompt
from eclose_world.make.instances import make_world_items
from studies.campaigns.runner_faults import STAGES, Draft, jobs, serve
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Awaitable

LATENCY = 0.2
GOAL = 0.9
CPU_GOAL = 1.5
"""Milliseconds a call, for everything."""


@dataclass(frozen=True)
class Timing:
    """Wall time and CPU time of a round, in seconds."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        """Return both times for the printed lines."""
        return f"{self.seconds:.2f} s, {self.cpu:.2f} s of CPU"


async def run_bare_loop(base_url: str, drafts: list[Draft], concurrency: int) -> int:
    """Ask about all drafts with bare aiohttp: each worker takes a record and asks three times."""
    prompt = ResponsePrompt(demonstrations=0)
    waiting, finished = iter(drafts), 0
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work() -> None:
            nonlocal finished
            for draft in waiting:
                replies: list[str] = []
                for _ in STAGES:
                    messages = prompt.messages(draft.instance.question, draft.instance.evidence)
                    history = "".join(f"\nSaid before: {text}" for text in replies)
                    request = [PromptMessage(role="system", content=messages[0]["content"] + history), *messages[1:]]
                    body = {"model": "world", "messages": request, "max_tokens": 1024, "temperature": 0.0}
                    async with session.post(f"{base_url}/chat/completions", json=body) as response:
                        reply = json.loads(await response.read())
                    replies.append(reply["choices"][0]["message"]["content"])
                finished += 1

        await asyncio.gather(*(work() for _ in range(concurrency)))
    return finished


async def run_recorded(base_url: str, source: Path, folder: Path, concurrency: int) -> int:
    """Run the same drafts through ledger, limits, runner and exports."""
    stage = PipelineStep("throughput", {}, (source,), folder / "out.jsonl")
    async with Ledger.open(folder / "ledger.db", run=stage.work_id) as ledger:
        settings = CallSettings(concurrency=concurrency, unpriced=True, slow_start=False)
        async with open_connection(base_url, ledger, settings) as connection:
            work = jobs(connection.model)
            runner: JobRunner[Draft] = JobRunner(ledger, work, lambda draft: draft.id, workers=settings.workers)
            await runner.run(jsonl.scan_records(source, Draft))
        manifest = await write_run_results(ledger, stage, STAGES, runner.progress.received)
    return manifest.counts.accepted


def time_run(work: Awaitable[int], expected: int) -> Timing:
    """Measure wall time and CPU time of this process."""

    async def main() -> int:
        return await work

    start, cpu = time.perf_counter(), time.process_time()
    finished = asyncio.run(main())
    timing = Timing(time.perf_counter() - start, time.process_time() - cpu)
    assert finished == expected, (finished, expected)
    return timing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    drafts = [
        Draft(item.instance.id, item.instance) for item in islice(make_world_items("short-easy", 0), options.records)
    ]
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "drafts.jsonl"
        jsonl.write_records(source, drafts)
        server, base_url = serve(LATENCY, jitter=0.0)
        try:
            if options.profile:
                with cProfile.Profile() as profile:
                    time_run(run_recorded(base_url, source, Path(folder), options.concurrency), len(drafts))
                pstats.Stats(profile).sort_stats("tottime").print_stats(40)
                return 0
            time_run(
                run_bare_loop(base_url, drafts[: options.concurrency], options.concurrency),
                min(options.concurrency, options.records),
            )
            for number in range(options.rounds):
                round_folder = Path(folder) / str(number)
                round_folder.mkdir()
                plain.append(time_run(run_bare_loop(base_url, drafts, options.concurrency), len(drafts)))
                recorded.append(
                    time_run(run_recorded(base_url, source, round_folder, options.concurrency), len(drafts))
                )
                print(f"round {number + 1}: bare loop {plain[-1]}; ours {recorded[-1]}", flush=True)
        finally:
            server.terminate()
            server.wait()
    calls = len(drafts) * len(STAGES)
    bare, ours = (min(timing.seconds for timing in timings) for timings in (plain, recorded))
    bare_cpu, our_cpu = (1e3 * min(timing.cpu for timing in timings) / calls for timings in (plain, recorded))
    # Above the calls a second that one core can pay for, bare aiohttp is out of reach.
    limit = max(bare, our_cpu * calls / 1e3)
    share = limit / ours
    return print_result(
        name=f"runner against bare aiohttp, {calls:,} calls at {options.concurrency} in flight",
        value=round(share, 3),
        unit=f"x {'its throughput' if limit == bare else '1 / (CPU a call)'} ({calls / ours:,.0f} calls/s, bare "
        f"{calls / bare:,.0f}); {our_cpu:.2f} ms of CPU a call for everything, bare {bare_cpu:.2f}",
        goal=f">= {GOAL} and <= {CPU_GOAL:g} ms",
        holds=share >= GOAL and our_cpu <= CPU_GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
