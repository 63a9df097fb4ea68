"""Rows judged through Ray Data: processor time a row beyond a bare client's, and memory, which must stay flat.

A scripted server answers at once, in a process of its own. The judge asks one joint question about a row, keeps every
reply in a ledger file, and adds the labels; Ray Data reads the rows in blocks and writes labelled Parquet files, which
``eclose diagnose`` then counts. The bare client posts as many of the same bodies with aiohttp. Time and peak memory are
those of the process that judges.

    python studies/perf/judge_rows.py                        10,000 and 1,000,000 rows (an hour or more)
    python studies/perf/judge_rows.py --sizes 1000 10000     a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

import eclose
from studies.perf.judge_throughput import CONCURRENCY, make_bodies, post_all
from studies.perf.result import print_result

SIZES = (10_000, 1_000_000)
BATCH = 2_000
"""Rows of a block."""
BARE_CALLS = 20_000
MEMORY_GOAL = 1.1
"""Peak memory at the largest size, as a multiple of that at the smallest."""
PASSAGE = "The film was directed by Norman Jewison, who was born in Toronto in 1926. " * 12
SETTINGS = eclose.JudgeSettings(joint=True)
CALLS = eclose.CallSettings(concurrency=CONCURRENCY, unpriced=True, slow_start=False)
REPLY = {
    "sufficiency": {"reason": "The passages say it.", "missing": None, "sufficient": True, "answer": "Toronto"},
    "soundness": {"steps": {"1": {"reason": "A passage says so.", "verdict": "sound", "support": None}}},
    "alignment": {"reason": "It is about the birthplace.", "pursued": "where he was born", "aligned": True},
    "closure": {"reason": "The step names the answer.", "established": "Toronto", "closed": True},
    "completeness": {"reason": "Nothing is missing.", "missing": None, "complete": True},
    "correctness": {"reason": "It is the reference.", "correct": True},
}
"""Reply to every joint question; a row has one step."""
ENVELOPE = json.dumps(
    {
        "id": "reply",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(REPLY)}}
        ],
        "usage": {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1_020},
    }
).encode()


def make_row(number: int) -> dict[str, Any]:
    """Return a row about the size of a short question with its passages."""
    return {
        "ticket": number,
        "question": f"Question {number}: where was the director of the film born?",
        "contexts": [PASSAGE, f"Case {number} is about the film."],
        "reference": "Toronto",
        "response": "1. The director of the film was born in Toronto.\nFinal answer: Toronto",
    }


def make_block(block: dict[str, Any]) -> pa.Table:
    """Return the rows of a block of numbers."""
    return pa.Table.from_pylist([make_row(int(number)) for number in block["id"]])


class MeasuredJudge:
    """A judge in a process of Ray, which notes after every block what it has taken so far."""

    def __init__(self, base_url: str, folder: str) -> None:
        self._note = Path(folder) / "usage.json"
        self._judge = eclose.Judge(
            base_url, calls=CALLS, settings=SETTINGS, ledger=Path(folder) / "replies.sqlite", records=False
        )
        self._judge.__enter__()
        self._rows = 0
        self._began = time.perf_counter(), time.process_time()

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return the block with labels."""
        labelled = self._judge.batch(block, progress=False)
        self._rows += len(block)
        used = {
            "rows": self._rows,
            "seconds": time.perf_counter() - self._began[0],
            "cpu": time.process_time() - self._began[1],
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        self._note.write_text(json.dumps(used))
        return labelled


def judge_rows(base_url: str, count: int, folder: Path) -> dict[str, float]:
    """Judge rows through Ray Data and count the labels; return what the judging process took."""
    labels = folder / "labels"
    numbers = ray.data.range(count, override_num_blocks=max(1, count // BATCH))
    rows = numbers.map_batches(make_block, batch_size=BATCH)
    judged = rows.map_batches(
        MeasuredJudge,
        fn_constructor_args=(base_url, str(folder)),
        batch_format="pyarrow",
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=1,
    )
    judged.write_parquet(str(labels))
    results = eclose.diagnose(labels)
    assert len(results) == count, (len(results), count)
    assert results.rates["TRR"].value == 1.0
    usage: dict[str, float] = json.loads((folder / "usage.json").read_bytes())
    return usage


def serve() -> None:
    """Answer every call at once with the same reply, until the process is ended."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=ENVELOPE, content_type="application/json")

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted"}]})

    async def main() -> None:
        application = web.Application(client_max_size=2**24)
        application.add_routes([web.post("/v1/chat/completions", answer), web.get("/v1/models", models)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    base_url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    ray.init(
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, paths))}},
    )
    used = []
    try:
        bodies = make_bodies(map(make_row, range(BARE_CALLS)), SETTINGS)
        cpu = time.process_time()
        asyncio.run(post_all(base_url, bodies))
        bare = 1e3 * (time.process_time() - cpu) / len(bodies)
        for size in options.sizes:
            with tempfile.TemporaryDirectory() as folder:
                used.append(judge_rows(base_url, size, Path(folder)))
            print(
                f"{size:,} rows: {used[-1]['seconds']:.0f} s, {1e3 * used[-1]['cpu'] / size:.2f} ms of CPU a row, "
                f"{used[-1]['peak']:.0f} MB",
                flush=True,
            )
    finally:
        ray.shutdown()
        server.terminate()
        server.wait()
    small, large = used
    growth = large["peak"] / small["peak"]
    beyond = 1e3 * large["cpu"] / large["rows"] - bare
    return print_result(
        name=f"rows through Ray Data, {options.sizes[1]:,} against {options.sizes[0]:,}",
        value=round(growth, 3),
        unit=f"x its peak memory ({large['peak']:.0f} MB, {small['peak']:.0f} MB); {beyond:.2f} ms of CPU a row beyond "
        f"the bare client's {bare:.2f}, {large['rows'] / large['seconds']:,.0f} rows a second",
        goal=f"<= {MEMORY_GOAL}",
        holds=growth <= MEMORY_GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
