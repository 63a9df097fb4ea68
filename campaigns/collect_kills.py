"""Kill the collector repeatedly while programs send spans: every acknowledged span is in the file.

Senders post batches over HTTP at a fixed rate and repeat a batch that was not acknowledged, as exporters do. The
collector is killed with SIGKILL at random moments and started again on the same port and file. In the end every
acknowledged span must be in the file, and every line must be readable.

    python campaigns/collect_kills.py                             60 seconds, 1,000 spans a second, 12 kills
    python campaigns/collect_kills.py --seconds 6 --kills 3       a short run
    python campaigns/collect_kills.py --mutant hasty              must fail: acknowledges before it writes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result

from eclose.errors import RecordError
from eclose.store.records.json_reader import read_json_objects
from eclose.traces import collector
from eclose.traces.otlp import read_otlp_record

BATCH = 10
SENDERS = 8


def serve(out: Path, port: int, mutant: str | None) -> None:
    """Run the collector in this process; the mutant answers at once and writes half a second later."""
    if mutant == "hasty":
        durable = collector.DurableLines.append

        async def append(lines: collector.DurableLines, line: bytes) -> None:
            async def later() -> None:
                await asyncio.sleep(0.5)
                await durable(lines, line)

            pending.add(asyncio.ensure_future(later()))

        pending: set[asyncio.Future[None]] = set()
        collector.DurableLines.append = append  # type: ignore[method-assign, assignment]
    collector.run_collector(out, port=port)


class Senders:
    """Programs that send spans at a rate, and remember which were acknowledged."""

    def __init__(self, port: int, rate: float, seconds: float) -> None:
        self.acknowledged: set[str] = set()
        self.repeated = 0
        self._url = f"http://127.0.0.1:{port}/v1/traces"
        self._pause = SENDERS * BATCH / rate
        self._end = time.monotonic() + seconds

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            await asyncio.gather(*(self._send(session, number) for number in range(SENDERS)))

    async def _send(self, session: aiohttp.ClientSession, sender: int) -> None:
        rng, due, sent = random.Random(sender), time.monotonic(), 0
        while time.monotonic() < self._end:
            sent += 1
            trace = f"{sender + 1:08x}{sent:024x}"
            ids = [f"{rng.getrandbits(64) | 1:016x}" for _ in range(BATCH)]
            spans = [{"traceId": trace, "spanId": span, "name": "work", "attributes": []} for span in ids]
            body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
            while not await self._post(session, body):
                self.repeated += 1
                await asyncio.sleep(0.05)
            self.acknowledged.update(trace + span for span in ids)
            due += self._pause
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _post(self, session: aiohttp.ClientSession, body: str) -> bool:
        try:
            async with session.post(self._url, data=body, headers={"Content-Type": "application/json"}) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


def start(out: Path, port: int, mutant: str | None) -> subprocess.Popen[str]:
    """Start a collector and wait until it listens."""
    command = [sys.executable, __file__, "--serve", str(port), "--out", str(out)]
    command += ["--mutant", mutant] if mutant else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit("the collector did not start")
    return process


async def campaign(out: Path, options: argparse.Namespace) -> Senders:
    """Send spans while the collector is killed again and again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.to_thread(start, out, port, options.mutant)
    senders = Senders(port, options.rate, options.seconds)
    sending = asyncio.create_task(senders.run())
    rng = random.Random(options.seed)
    for _ in range(options.kills):
        await asyncio.sleep(options.seconds / (options.kills + 1) * rng.uniform(0.5, 1.0))
        process.kill()
        await asyncio.to_thread(process.wait)
        process = await asyncio.to_thread(start, out, port, options.mutant)
    await sending
    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(process.wait, 30)
    return senders


def read_spans(out: Path) -> tuple[set[str], int]:
    """Return the ids of the spans in the file, and the number of lines that cannot be read."""
    stored: set[str] = set()
    unreadable = 0
    for record in read_json_objects(out):
        if record.value is None:
            unreadable += 1
            continue
        for span in read_otlp_record(record.value):
            if isinstance(span, RecordError):
                unreadable += 1
            else:
                stored.add(span.trace_id + span.span_id)
    return stored, unreadable


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1_000, help="spans a second")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutant", choices=["hasty"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.out, options.serve, options.mutant)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        out = (options.out or Path(folder)) / "traces.jsonl"
        started = time.monotonic()
        senders = asyncio.run(campaign(out, options))
        seconds = time.monotonic() - started
        stored, unreadable = read_spans(out)
    lost = len(senders.acknowledged - stored)
    return print_result(
        name="acknowledged spans lost by kills of the collector",
        value=lost,
        unit="spans",
        goal="0, and every line readable",
        holds=lost == 0 and unreadable == 0 and bool(senders.acknowledged),
        acknowledged=len(senders.acknowledged),
        rate=round(len(senders.acknowledged) / seconds),
        kills=options.kills,
        repeated=senders.repeated,
        unreadable=unreadable,
    )


if __name__ == "__main__":
    sys.exit(main())
