"""Peak memory of a run from 10,000 to 200,000 records; it must stay flat, since records are streamed.

Every size runs in a process of its own: records out of a file, one recorded call each to a model in the same process,
outcomes to the ledger, exports in the order of ids. What counts is the peak of the resident set.

    python studies/perf/runner_memory.py                      the claim (some minutes)
    python studies/perf/runner_memory.py --sizes 1000 10000   a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings, connect_model
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import FinishReason, Reply, Request, TokenUsage
from eclose.calls.record_loop import JobRunner, RecordJob, write_run_results
from eclose.files import jsonl
from eclose.files.step import PipelineStep
from eclose.prompts.locked_texts import PromptMessage
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (10_000, 50_000, 200_000)
TEXT = "The film was directed by Norman Jewison, who was born in Toronto in 1926. " * 20
GOAL = 1.1
"""The peak at the largest size, as a multiple of that at the smallest."""


@dataclass(frozen=True)
class EchoRecord:
    """Record of about the size of a short question with its passages."""

    id: str
    text: str


class Echo:
    """Model in this process that repeats the beginning of its prompt."""

    name = "local/echo"

    async def complete(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        return Reply(request.messages[-1]["content"][:200], FinishReason.STOP, TokenUsage(400, 50))


async def run(folder: Path) -> int:
    """Run over the records of the folder and return how many were accepted."""
    stage = PipelineStep("memory", {}, (folder / "in.jsonl",), folder / "out.jsonl")
    async with Ledger.open(folder / "ledger.db", run=stage.work_id) as ledger:
        settings = CallSettings(unpriced=True, slow_start=False)
        model = (await connect_model(Echo(), ledger, settings)).model

        async def ask(record: EchoRecord) -> EchoRecord:
            reply = await model.complete(Request((PromptMessage(role="user", content=f"{record.text} {record.id}"),)))
            return EchoRecord(record.id, reply.text)

        job = RecordJob("ask", ask, EchoRecord)
        runner: JobRunner[EchoRecord] = JobRunner(ledger, [job], lambda record: record.id, workers=settings.workers)
        await runner.run(jsonl.scan_records(stage.inputs[0], EchoRecord))
        return (await write_run_results(ledger, stage, ["ask"], runner.progress.received)).counts.accepted


def child(folder: Path, size: int) -> None:
    """Run, and print peak memory, seconds and ledger size as JSON."""
    began = time.perf_counter()
    assert asyncio.run(run(folder)) == size
    ledger = (folder / "ledger.db").stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "seconds": time.perf_counter() - began, "ledger": ledger}))


def measure(size: int) -> int:
    """Measure the peak memory of a run of this size, in bytes, in a process of its own."""

    def make_records() -> Iterator[EchoRecord]:
        for number in range(size):
            yield EchoRecord(f"r{number:07}", TEXT)

    with tempfile.TemporaryDirectory() as folder:
        jsonl.write_records(Path(folder) / "in.jsonl", make_records())
        output = subprocess.run(
            [sys.executable, __file__, "--child", folder, str(size)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    figures = json.loads(output)
    print(
        f"{size:>8,} records: peak {figures['peak'] / 2**20:.1f} MiB, {size / figures['seconds']:,.0f} records/s, "
        f"ledger {figures['ledger'] / size:,.0f} bytes a record",
        flush=True,
    )
    return int(figures["peak"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(Path(options.child[0]), int(options.child[1]))
        return 0
    peaks = [measure(size) for size in options.sizes]
    growth = peaks[-1] / peaks[0]
    return print_result(
        name=f"peak memory of a run of {options.sizes[-1]:,} records",
        value=round(growth, 3),
        unit=f"x that of {options.sizes[0]:,}",
        goal=f"<= {GOAL}",
        holds=growth <= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
