"""Judging in batches: the process is killed between submit and collect, and the run ends as one of single calls does.

The same responses are judged twice by the world's server, with single calls and in batches. In batches every process is
killed with SIGKILL as soon as it has submitted a round, so each round is collected by another process than the one that
sent it. The server's bill says what was paid: each request once, at half the price of single calls. The judgments of
both runs must be the same bytes.

    python studies/perf/scale_batch.py                    600 calls, a quick look
    python studies/perf/scale_batch.py --calls 20000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.batches.run import BatchSettings
from eclose.calls.client import CallSettings
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.paid_once import compute_call_key
from eclose.calls.resolve import find_model_ref
from eclose.calls.run import RunOptions
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from studies.campaigns.judge_http import plant, serving, write_run
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from studies.campaigns.judge_http import Planted

SEED = 20_273
PROFILE = "short-easy"
PER_BATCH = 5_000
"""Requests in a batch, so that a round of 20,000 has several."""
SLOW_POLL = 3_600.0
"""Seconds: a process that finds its batches unfinished waits until it is killed."""
BUDGET = 1_000.0


def take_responses(calls: int) -> Iterator[Planted]:
    """Yield responses until judging them takes this many calls; equal requests are one call."""
    keys: set[str] = set()
    for planted in plant([PROFILE], SEED):
        if len(keys) >= calls:
            return
        yield planted
        requests = build_judge_requests(planted.instance, planted.broken.response, JudgeSettings())
        keys.update(compute_call_key("world", request) for request in requests)


def judge(run: Path, base_url: str, prices: Path, batch: BatchSettings | None) -> dict[str, Any]:
    """Judge a run in this process; return its cost (millionths), peak memory (MB) and name in the ledger."""
    calls = CallSettings(prices=prices, budget=BUDGET)
    options = RunOptions(batch=batch, notify=lambda line: print(line, flush=True))
    model = find_model_ref("world", base_url=base_url)
    result = asyncio.run(judge_responses(find_judge_inputs(run, run), model, run, JudgeSettings(), calls, options))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cost": result.manifest.calls["cost"], "peak": peak, "work": result.stage.work_id}


def start_process(run: Path, base_url: str, prices: Path, poll: float | None) -> subprocess.Popen[str]:
    """Start a process that judges a run; without ``poll`` it sends single calls."""
    arguments = [str(run), base_url, str(prices), "" if poll is None else str(poll)]
    return subprocess.Popen([sys.executable, __file__, "--judge", *arguments], stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a process and return its figures."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a process ended with {process.returncode}")
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def judge_with_kills(run: Path, base_url: str, prices: Path) -> tuple[int, dict[str, Any]]:
    """Judge in batches, killing each process once it has submitted a round; return the kills and the figures."""
    kills = 0
    while True:
        process = start_process(run, base_url, prices, SLOW_POLL)
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line
            if "waiting for the replies" in line and ": 0 requests sent" not in line:
                process.send_signal(signal.SIGKILL)
                break
        if process.wait() == 0:
            return kills, json.loads(last)
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"a process ended with {process.returncode}")
        kills += 1
        # The server shows a batch as finished at the second look: the next process waits a moment and not an hour.
        finish_round(base_url)


def finish_round(base_url: str) -> None:
    """Look at all batches once, after which the server shows them as finished."""
    with urllib.request.urlopen(f"{base_url}/batches?limit=100") as answer:
        batches = json.load(answer)["data"]
    for batch in batches:
        urllib.request.urlopen(f"{base_url}/batches/{batch['id']}").close()


def reset_bill(base_url: str) -> dict[str, Any]:
    """Return the server's bill and start a new one."""
    with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/bill/reset", data=b"") as answer:
        bill: dict[str, Any] = json.load(answer)
    return bill


async def count_open(ledger: Path, work: str) -> int:
    """Return the number of intents without a reply and of problems that a check of the ledger finds."""
    async with Ledger.open(ledger, run=work) as opened:
        return len(await opened.list_orphans()) + len([problem async for problem in opened.verify()])


def measure(calls: int, folder: Path) -> int:
    """Judge with single calls and in batches, compare, and print the result."""
    cases = list(take_responses(calls))
    single, batch = folder / "single", folder / "batch"
    for run in (single, batch):
        write_run(run, cases)
    prices = folder / "prices.yaml"
    prices.write_text("127.0.0.1/world: {input: 1, output: 2}\n")
    with serving() as base_url:
        begun = time.perf_counter()
        live = finish(start_process(single, base_url, prices, None))
        live_seconds = time.perf_counter() - begun
        live_bill = reset_bill(base_url)["requests"]
        begun = time.perf_counter()
        kills, batched = judge_with_kills(batch, base_url, prices)
        batch_seconds = time.perf_counter() - begun
        bill = reset_bill(base_url)["requests"]
    paid = Counter(line["paid"] for line in bill.values())
    lost = len(live_bill.keys() - bill.keys()) + paid[0]
    doubled = sum(count for times, count in paid.items() if times > 1)
    same = (single / "judgments.jsonl").read_bytes() == (batch / "judgments.jsonl").read_bytes()
    rest = asyncio.run(count_open(batch / "ledger.sqlite", batched["work"]))
    print(
        f"{len(cases):,} responses, {len(bill):,} requests in batches: {kills} processes killed, {lost} lost, "
        f"{doubled} doubled, {rest} left open; judgments {'the same' if same else 'DIFFERENT'}; {batch_seconds:.0f} s "
        f"and {batched['peak']:.0f} MB in batches, {live_seconds:.0f} s and {live['peak']:.0f} MB as single calls"
    )
    share = batched["cost"] / live["cost"]
    holds = not lost and not doubled and not rest and same and kills > 0 and 0.49 <= share <= 0.51
    return print_result(
        name=f"{len(bill):,} calls in batches, {kills} processes killed between submit and collect",
        value=lost + doubled,
        unit=f"requests lost or paid twice; {share:.3f} x the cost of single calls",
        goal="0; judgments the same bytes as of single calls; half the cost; nothing left open in the ledger",
        holds=holds,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=600, help="calls that the judge makes, at least")
    parser.add_argument("--judge", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        run, base_url, prices, poll = options.judge
        batch = BatchSettings(poll=float(poll), requests=PER_BATCH) if poll else None
        print(json.dumps(judge(Path(run), base_url, Path(prices), batch)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return measure(options.calls, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
