"""Validation of a judge on real labels: real responses, and a real model behind a real server.

Three sets: traces that people wrote, the same broken by hand in every way a response can fail, and model traces that
people labelled for ROSCOE. A small model judges them over HTTP, every criterion in a call of its own, and validation
says how far it can be trusted. No goal is set for the judge. What must hold is that every response is accounted for,
and that a judge whose verdicts are dealt out at random is not called better than chance.

Two responses of each set by default, which shows that it works; the figures are those of ``--per-set 60``. Stopped at
any moment, the same command goes on, as long as ``--out`` names a folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings
from eclose.calls.run import RunOptions
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.judging.inputs import JudgeInputFiles
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.judging.validation_file import read_judgments
from studies.campaigns.real_labels import labelled_response as sets
from studies.campaigns.real_labels.edits import broken_set
from studies.campaigns.real_labels.ircot import human_set
from studies.campaigns.real_labels.report import BROKEN, HUMAN, ROSCOE, JudgedSet, report
from studies.campaigns.real_labels.roscoe import roscoe_set
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.calls.client import ModelConnection
    from eclose.calls.record_loop import JobRunner
    from studies.campaigns.real_labels.labelled_response import LabelledResponse

SETS = {HUMAN: human_set, BROKEN: broken_set, ROSCOE: roscoe_set}
LEDGER = "ledger.sqlite"
SERVER = Path(__file__).with_name("servers") / "llama_cpp.py"
DEADLINE = 3_600.0
"""Timeout of a call in seconds; a small machine is slow."""
SAY_EVERY = 60.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model-file", type=Path, help="a GGUF file to serve (default: SmolLM2-135M of its package)")
    parser.add_argument("--base-url", help="base URL of a running server (default: start one)")
    parser.add_argument("--per-set", type=int, default=2, help="responses of each set (default: 2; there are 60)")
    parser.add_argument("--max-tokens", type=int, default=768, help="longest reply (default: 768)")
    parser.add_argument(
        "--attempts", type=int, default=1, help="how often to ask when a reply does not match the schema (default: 1)"
    )
    parser.add_argument("--joint", action="store_true", help="ask about all criteria of a response in one call")
    parser.add_argument("--out", type=Path, help="folder of all results (default: a temporary folder)")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of the server, at most the idle cores (default: 1)"
    )
    parser.add_argument("--parallel", type=int, default=1, help="calls in flight (default: 1)")
    parser.add_argument("--context", type=int, default=8_192, help="context length of a call in tokens (default: 8192)")
    return parser.parse_args()


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[str]:
    """Start a server unless one is given, and yield its base URL."""
    if options.base_url:
        yield options.base_url
        return
    sizes = {"--port": 0, "--threads": options.threads, "--parallel": options.parallel, "--context": options.context}
    words = [str(word) for pair in sizes.items() for word in pair]
    weights = [] if options.model_file is None else [str(options.model_file)]
    command = [sys.executable, str(SERVER), *weights, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            greeting = server.stdout.readline().split()
            if greeting[:1] != ["serving"]:
                sys.exit("the server did not start; see above.")
            yield greeting[1]
        finally:
            server.terminate()
            server.wait()
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            # On a busy machine the clock says little; this is what the calls would take alone, over the threads.
            print(f"the server used {used.ru_utime + used.ru_stime:.0f} s of processor time", flush=True)


@contextmanager
def print_progress(runner: JobRunner[object], connections: Sequence[ModelConnection], total: int) -> Iterator[None]:
    """Print the progress once a minute within the context: a run takes hours."""

    async def say() -> None:
        while True:
            await asyncio.sleep(SAY_EVERY)
            print(f"  {runner.progress.received} of {total} taken up; {connections[0]}", flush=True)

    task = asyncio.get_running_loop().create_task(say())
    try:
        yield
    finally:
        task.cancel()


@dataclass(frozen=True)
class Judging:
    """Judge of all sets on one ledger; a request that two sets share is sent once."""

    url: str
    out: Path
    settings: JudgeSettings
    calls: CallSettings

    async def judge(self, name: str, chosen: list[LabelledResponse]) -> JudgedSet:
        folder = self.out / f"{name}-{len(chosen)}"
        sets.write(folder, chosen)
        began = time.perf_counter()
        sources = JudgeInputFiles(folder / INSTANCES_FILE, folder / RESPONSES_FILE)
        result = await judge_responses(
            sources,
            self.url,
            folder,
            self.settings,
            self.calls,
            RunOptions(ledger=self.out / LEDGER, watch=print_progress),
        )
        seconds = time.perf_counter() - began
        print(f"{name}: {result.manifest.counts}")
        print(f"{name}: {json.dumps(result.manifest.calls)}; {seconds:.0f} s", flush=True)
        return JudgedSet(name, folder, chosen, read_judgments(folder / JUDGMENTS_FILE), result.manifest)


def measure(options: argparse.Namespace, data: Path, out: Path) -> int:
    settings = JudgeSettings(attempts=options.attempts, max_tokens=options.max_tokens, joint=options.joint)
    calls = CallSettings(concurrency=options.parallel, slow_start=False, deadline=DEADLINE, unpriced=True)

    async def all_sets(url: str) -> list[JudgedSet]:
        judging = Judging(url, out, settings, calls)
        return [await judging.judge(name, sets.choose(make(data), options.per_set)) for name, make in SETS.items()]

    with serving(options) as url:
        judged = asyncio.run(all_sets(url))
    return print_result(**report(judged))


def stop(*_: object) -> None:
    """Exit with 75 and stop the server; the same command resumes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(75)


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, stop)
    data = Path(os.environ.get("ECLOSE_DATA", "../shared/data"))
    if not (data / "traces").is_dir():
        print(f"{data}: the traces are not there (set ECLOSE_DATA), so nothing is measured.")
        print_result(name="judge on real responses", value=None, unit="", goal="", holds=None)
        return 0
    if options.out is not None:
        return measure(options, data, options.out)
    with tempfile.TemporaryDirectory() as folder:
        return measure(options, data, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
