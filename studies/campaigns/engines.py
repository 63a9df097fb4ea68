"""Data engines that people run: each section of docs/guides/engines.md runs as it stands, with the real package.

Every engine is installed into an environment of the study. The lines of the guide judge a table with the world's model
server in place of the model, and with a PostgreSQL of the study's own; what they wrote is read by ``eclose.diagnose``.

1. Every engine: each row comes back once with its own columns, and the labels are those of the exact judge.
2. PySpark with its Python workers killed by ``kill -9`` in the middle: the job ends well, only calls that were in
   flight are sent again, and the ledger's account is the server's bill.
3. Ray Data with more rows and a server that answers at once: rows a second, and the memory of a worker.

    python studies/campaigns/engines.py                        # needs Java; installs from PyPI: some minutes, 2 GB
    python studies/campaigns/engines.py --only polars duckdb   # without the second and the third
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from pyarrow import dataset, parquet

import eclose
from eclose.calls.ledger.ledger import Ledger, RunAccount
from eclose.errors import RecordError, UserError
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.faults import ServerBehaviour
from studies.campaigns.real_exports import find_uv
from studies.perf.result import print_result
from tests.calls.ledger.postgres import Server

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "engines"
PAGE = ROOT / "docs" / "guides" / "engines.md"
ENGINES = {
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "daft": "daft",
    "pyspark": "pyspark",
    "ray": "ray[data]",
}
"""What an engine is imported as, and what is installed for it."""
MINUTES = 20
"""How long the lines of an engine may take."""
ROWS = 60
IN_FLIGHT = 8
"""Calls in flight in all workers of the job whose worker is killed."""
RUN = "july"
"""Name of the run on the guide."""
_MODEL = '"openai/gpt-5-mini", budget=50'
_LEDGER = '"postgresql://user@host/name"'


def read_code(engine: str) -> str:
    """Return the lines of the guide that import an engine."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if re.search(rf"^(import|from) {engine}\b", block, re.MULTILINE))
    return str(code)


def point_at(code: str, base_url: str, ledger: str = "", calls: str = "unpriced=True") -> str:
    """Return the lines with a server of the study in place of the model, and its database."""
    assert _MODEL in code
    code = code.replace(_MODEL, f"{base_url!r}, calls=eclose.CallSettings({calls})")
    return code.replace(_LEDGER, repr(ledger))


def write_responses(path: Path, count: int) -> list[dict[str, Any]]:
    """Write responses of the world, all reliable, as the table that the guide reads; return its rows."""
    rows = [
        {
            "ticket": 100 + number,
            "question": item.instance.question,
            "contexts": [passage.text for passage in item.instance.evidence],
            "reference": item.instance.reference_answer,
            "response": item.response.completion,
        }
        for number, item in enumerate(islice(make_world_items("short-easy", 3), count))
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return rows


def install() -> Path:
    """Install the engines and the libraries of eclose into the environment of the study; return its interpreter."""
    uv, python = find_uv(), BUILD / "environment" / "bin" / "python"
    if not python.is_file():
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(BUILD / "environment")], check=True)
    project = tomllib.loads((ROOT / "packages/eclose/pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["uv-dynamic-versioning"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"], *hook["parquet"], *hook["postgres"], *ENGINES.values()]
    subprocess.run([uv, "pip", "install", "-q", "--python", str(python), *needed], check=True)
    return python


def start(python: Path, folder: Path, code: str) -> subprocess.Popen[bytes]:
    """Start the lines of an engine in a folder; what they print is in a file there."""
    (folder / "lines.py").write_text(code, "utf-8")
    path = os.pathsep.join(map(str, sorted(ROOT.glob("packages/*/src"))))
    environment = {**os.environ, "PYTHONPATH": path, "RAY_DEDUP_LOGS": "0", "DO_NOT_TRACK": "1"}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen([python, "lines.py"], cwd=folder, stdout=log, stderr=log, env=environment)


def wait(process: subprocess.Popen[bytes], folder: Path) -> list[str]:
    """Return the problem of a program that did not end well."""
    try:
        code = process.wait(60 * MINUTES)
    except subprocess.TimeoutExpired:
        process.kill()
        return [f"took more than {MINUTES} minutes"]
    lines = (folder / "log.txt").read_text("utf-8", "replace").strip().splitlines() or [""]
    return [f"exit code {code}: {lines[-1][:300]}"] if code else []


def make_folder(name: str, count: int) -> tuple[Path, list[dict[str, Any]]]:
    """Return a new folder with responses, and their rows."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder, write_responses(folder / "responses.parquet", count)


def find_labels(folder: Path) -> Path:
    """Return what an engine wrote."""
    return folder / "labels" if (folder / "labels").is_dir() else folder / "labels.parquet"


def check_labels(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the labels of rows that are all reliable."""
    labels = find_labels(folder)
    table = dataset.dataset(labels, format="parquet").to_table(["ticket", "question", "reliable"])
    written = sorted(table.select(["ticket", "question"]).to_pylist(), key=lambda row: int(row["ticket"]))
    problems = [] if written == [{name: row[name] for name in written[0]} for row in rows] else ["other rows came back"]
    if not all(table["reliable"].to_pylist()):
        problems.append("a label is not that of the exact judge")
    try:
        results = eclose.diagnose(labels)
    except (RecordError, UserError) as error:
        return [*problems, f"diagnose: {error}"]
    if (len(results), results.rates["TRR"].value) != (len(rows), 1):
        problems.append(f"diagnosed as {len(results)} responses with TRR {results.rates['TRR']}")
    return problems


def run_engine(python: Path, engine: str, server: Server) -> list[str]:
    """Run the lines of an engine; print how they ended, and return the problems."""
    folder, rows = make_folder(engine, ROWS)
    began = time.monotonic()
    with ModelServerThread(build_world_handlers()) as model:
        code = point_at(read_code(engine), model.base_url, server.fresh_database())
        problems = wait(start(python, folder, code), folder) or check_labels(folder, rows)
        again = count_repeated(model.bill())
    problems += [f"{again} calls were sent twice"] if again else []
    version = f"import importlib.metadata as m; print(m.version({engine!r}))"
    shown = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True).stdout.strip()
    seconds = time.monotonic() - began
    print(f"{engine} {shown}: {ROWS} rows in {seconds:.0f} s, {'; '.join(problems) or 'all labelled once'}", flush=True)
    return problems


def count_repeated(bill: dict[str, Any]) -> int:
    """Return how many requests were sent more than once."""
    return sum(line["received"] > 1 for line in bill["requests"].values())


def find_workers(process: subprocess.Popen[bytes], name: str) -> list[psutil.Process]:
    """Return the processes below a program whose command line has a name."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if name in " ".join(each.cmdline()):
                    found.append(each)
    return found


def kill_spark_worker(python: Path, server: Server, count: int) -> list[str]:
    """Run the lines of PySpark, kill its workers with a quarter of the work done, and return the problems."""
    folder, rows = make_folder("pyspark-kill", count)
    prices = folder / "prices.json"
    # A token costs a millionth, so no cost is rounded.
    prices.write_text(json.dumps({"world": {"input": 1.0, "output": 1.0}}))
    ledger = server.fresh_database()
    with ModelServerThread(build_world_handlers(), ServerBehaviour(latency=0.3)) as model:
        calls = f"concurrency={IN_FLIGHT}, prices={str(prices)!r}"
        process = start(python, folder, point_at(read_code("pyspark"), model.base_url, ledger, calls))
        while process.poll() is None and model.bill(keys=False)["totals"]["paid"] < 1.5 * count:
            time.sleep(0.05)
        # The first of these forks the others, one for each task at once.
        workers = find_workers(process, "pyspark.daemon")[1:]
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        problems = wait(process, folder) or check_labels(folder, rows)
        bill = model.bill()
    account, orphans = asyncio.run(read_account(ledger))
    again = count_repeated(bill)
    billed = bill["totals"]["prompt_tokens"] + bill["totals"]["completion_tokens"]
    print(
        f"PySpark, {len(workers)} workers killed with up to {IN_FLIGHT} calls in flight: {count} rows, "
        f"{len(bill['requests']):,} requests, {again} sent again, {orphans} of them broken off in the ledger; "
        f"account {account.spent:,} + {account.assumed:,}, bill {billed:,}",
        flush=True,
    )
    problems += [] if workers else ["no worker was there to be killed"]
    problems += [f"{again} calls were sent again, more than were in flight"] if again > IN_FLIGHT else []
    problems += [f"{orphans} calls broke off, {again} were sent again"] if orphans != again else []
    if (account.spent + account.assumed, account.reserved) != (billed, 0):
        problems.append(f"the account is {account}, the bill {billed}")
    return problems


async def read_account(ledger: str) -> tuple[RunAccount, int]:
    """Return the account of the run, and how many sends ended without an answer."""
    async with Ledger.open(ledger, run=RUN) as books:
        return await books.compute_account(), len(await books.list_orphans())


def measure_ray(python: Path, server: Server, count: int) -> list[str]:
    """Run the lines of Ray Data with many rows; print rows a second, and the memory of its workers on the way."""
    folder, rows = make_folder("ray-many", count)
    memory: list[tuple[float, float]] = []
    cpu = 0.0
    with ModelServerThread(build_world_handlers()) as model:
        process = start(python, folder, point_at(read_code("ray"), model.base_url, server.fresh_database()))
        began = None
        while process.poll() is None:
            calls = model.bill(keys=False)["totals"]["received"]
            if calls:
                began = began or time.monotonic()
                memory.append((calls, max(map(read_megabytes, find_workers(process, "ray::")), default=0)))
                cpu = max(cpu, sum(map(read_cpu_seconds, find_workers(process, "ray::Map"))))
            time.sleep(2)
        seconds = time.monotonic() - (began or time.monotonic())
        problems = wait(process, folder) or check_labels(folder, rows)
    total = max((calls for calls, _ in memory), default=0)
    quarters = [max((size for calls, size in memory if calls <= total * part / 4), default=0) for part in range(1, 5)]
    shown = ", ".join(f"{size:.0f}" for size in quarters)
    print(
        f"Ray Data: {count:,} rows in {seconds:.0f} s, {count / max(seconds, 1):.0f} a second, 6 calls each;", end=" "
    )
    print(
        f"{1000 * cpu / count:.1f} ms of processor a row in workers; largest worker by quarters: {shown} MB", flush=True
    )
    return problems


def read_megabytes(process: psutil.Process) -> float:
    """Return the memory of a process; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return float(process.memory_info().rss / 2**20)
    return 0.0


def read_cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:2]))
    return 0.0


def main() -> int:
    """Print a line for each engine and each check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(ENGINES))
    parser.add_argument("--killed", type=int, default=200, help="rows of the job whose worker is killed; 0 for none")
    parser.add_argument("--many", type=int, default=10_000, help="rows of the last measurement; 0 for none")
    options = parser.parse_args()
    python, problems, checks = install(), list[str](), 0
    with Server() as server:
        for engine in options.only:
            checks += 1
            problems += [f"{engine}: {problem}" for problem in run_engine(python, engine, server)]
        if "pyspark" in options.only and options.killed:
            checks += 1
            problems += [f"killed: {problem}" for problem in kill_spark_worker(python, server, options.killed)]
        if "ray" in options.only and options.many:
            checks += 1
            problems += [f"many rows: {problem}" for problem in measure_ray(python, server, options.many)]
    for problem in problems:
        print(problem)
    return print_result(
        name="data engines label every row once, with a worker killed too",
        value=len(problems),
        unit=f"problems in {checks} runs of real packages",
        goal="0",
        holds=not problems,
    )


if __name__ == "__main__":
    sys.exit(main())
