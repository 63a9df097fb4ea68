"""Three processes on one ledger: one budget for all, no record sent twice, and a database that is restarted.

Every process is the same `eclose generate` command with another folder, on one PostgreSQL that is started here and
against the world's model server over HTTP. The server's own bill says what was paid.

1. With a budget of half of what the work costs: all stop with 75, the bill stays within the budget, the ledger's sum is
   the bill, and no call is paid twice. Without the budget they finish.
2. With PostgreSQL restarted three times under load, once as by a crash: all finish, every call is paid once, and the
   results are byte for byte those of one process that was left alone.

    python studies/campaigns/shared_budget.py
    python studies/campaigns/shared_budget.py --records 60 --restarts 1     a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.calls.ledger.ledger import Ledger, RunAccount
from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose_world.make.instances import make_world_items
from studies.campaigns.runner_faults import bill, serve
from studies.perf.result import print_result
from tests.calls.ledger.postgres import Server

PROCESSES = 3
CONCURRENCY = 8
STOPPED = 75
PER_TOKEN = {"input": 1.0, "output": 1.0}
"""A million tokens cost one unit, so a token costs a millionth and no cost is rounded."""


class Rig:
    """Work, model server and database of the campaign."""

    def __init__(self, folder: Path, count: int, base_url: str, server: Server) -> None:
        self.folder = folder
        self.count = count
        self.base_url = base_url
        self.server = server
        self.source = folder / "instances.jsonl"
        jsonl.write_records(self.source, (item.instance for item in islice(make_world_items("short-easy", 0), count)))
        self.prices = folder / "prices.json"
        self.prices.write_text(json.dumps({"127.0.0.1/world": PER_TOKEN, "world": PER_TOKEN}))

    def start(self, ledger: str, out: str, budget: float | None) -> subprocess.Popen[str]:
        """Start a process."""
        command = [sys.executable, "-m", "eclose.cli.main", "generate", str(self.source), "--model", self.base_url]
        command += ["--out", str(self.folder / out), "--ledger", ledger]
        command += ["--concurrency", str(CONCURRENCY), "--max-new-tokens", "256"]
        if budget is not None:
            command += ["--budget", f"{budget:.6f}"]
        environment = {**os.environ, "ECLOSE_PRICES": str(self.prices)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def together(self, ledger: str, name: str, budget: float | None = None, restarts: int = 0) -> list[int]:
        """Run all processes; return how each ended."""
        processes = [self.start(ledger, f"{name}-{number}", budget) for number in range(PROCESSES)]
        for number in range(restarts):
            self.wait_for_share((number + 1) / (restarts + 1), processes)
            # The second time without any notice, as when the machine goes down.
            self.server.stop(signal.SIGQUIT if number % 2 else signal.SIGINT)
            time.sleep(2)
            self.server.start()
        ends = [(process.communicate(timeout=600)[1], process.returncode) for process in processes]
        for text, code in ends:
            if code not in (0, STOPPED):
                print(text, file=sys.stderr)
        return [code for _, code in ends]

    def wait_for_share(self, share: float, processes: list[subprocess.Popen[str]]) -> None:
        """Wait until so much of the work is paid; return early where nothing is left to do."""
        while self.totals()["paid"] < share * self.count and any(process.poll() is None for process in processes):
            time.sleep(0.05)

    def totals(self) -> dict[str, Any]:
        return dict(bill(self.base_url)["totals"])

    def billed(self) -> tuple[int, int, int]:
        """Return the tokens on the bill, the calls that were paid, and those of them paid more than once."""
        paid = bill(self.base_url)
        again = sum(line["paid"] - 1 for line in paid["requests"].values() if line["paid"] > 1)
        totals = paid["totals"]
        return totals["prompt_tokens"] + totals["completion_tokens"], totals["paid"], again

    def account(self, ledger: str, out: str) -> tuple[RunAccount, int]:
        """Return what the ledger says it cost, and how many sends may have been billed without an answer."""
        work = self.work(out)

        async def look() -> tuple[RunAccount, int]:
            async with Ledger.open(ledger, run=work) as books:
                return await books.compute_account(), len(await books.list_orphans())

        return asyncio.run(look())

    def work(self, out: str) -> str:
        return read_manifest(self.folder / out / "responses.jsonl.manifest.json").work_id

    def result(self, out: str) -> bytes:
        return (self.folder / out / "responses.jsonl").read_bytes()


def run_alone(rig: Rig) -> tuple[int, bytes]:
    """Run the work in one process; return its cost and its result."""
    ledger = rig.server.fresh_database()
    process = rig.start(ledger, "alone", None)
    _, text = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(f"the process that was left alone ended with {process.returncode}: {text}")
    tokens, *_ = rig.billed()
    bill(rig.base_url, reset=True)
    return tokens, rig.result("alone")


def run_with_budget(rig: Rig, cost: int, expected: bytes) -> list[str]:
    """Run with half of the budget that the work costs, then without a limit; return the problems."""
    ledger, cap = rig.server.fresh_database(), cost // 2
    ends = rig.together(ledger, "budget", cap / 1e6)
    tokens, paid, again = rig.billed()
    problems = [] if ends == [STOPPED] * PROCESSES else [f"ended with {ends}, not {STOPPED}"]
    problems += [f"billed {tokens - cap} beyond the budget"] if tokens > cap else []
    problems += [f"{again} calls paid twice"] if again else []
    print(
        f"budget {cap:,}: billed {tokens:,} for {paid} calls by {PROCESSES} processes, {again} paid twice", flush=True
    )
    ends = rig.together(ledger, "budget")
    final, _, again = rig.billed()
    account, orphans = rig.account(ledger, "budget-0")
    problems += [] if ends == [0] * PROCESSES else [f"ended with {ends} without a budget"]
    problems += check(rig, "budget", expected, final, again, account, orphans)
    bill(rig.base_url, reset=True)
    return problems


def run_with_restarts(rig: Rig, expected: bytes, restarts: int) -> list[str]:
    """Run while the database is restarted; return the problems."""
    ledger = rig.server.fresh_database()
    began = time.monotonic()
    ends = rig.together(ledger, "restarts", restarts=restarts)
    tokens, paid, again = rig.billed()
    problems = [] if ends == [0] * PROCESSES else [f"ended with {ends} after restarts"]
    if problems:
        return problems
    account, orphans = rig.account(ledger, "restarts-0")
    print(
        f"{restarts} restarts: {paid} calls for {rig.count} records, {again} paid twice, {orphans} perhaps billed, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return check(rig, "restarts", expected, tokens, again, account, orphans)


def check(
    rig: Rig, name: str, expected: bytes, tokens: int, again: int, account: RunAccount, orphans: int
) -> list[str]:
    """Check finished work against bill and ledger; return the problems."""
    problems = [f"{again} calls paid twice in {name}"] if again else []
    if account != (tokens, 0, 0):
        problems.append(f"the ledger says {tuple(account)} in {name}, the bill {tokens}")
    if orphans:
        problems.append(f"{orphans} sends of {name} are without an end")
    lost = sum(rig.result(f"{name}-{number}") != expected for number in range(PROCESSES))
    return problems + ([f"{lost} results of {name} differ"] if lost else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--restarts", type=int, default=3)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        world, base_url = serve(0.1, jitter=0.1)
        try:
            rig = Rig(Path(folder), settings.records, base_url, server)
            cost, expected = run_alone(rig)
            print(f"alone: {cost:,} millionths for {rig.count} records", flush=True)
            problems = run_with_budget(rig, cost, expected)
            problems += run_with_restarts(rig, expected, settings.restarts)
        finally:
            world.terminate()
            world.wait()
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return print_result(
        name=f"{PROCESSES} processes on one PostgreSQL ledger, {settings.records} records",
        value=len(problems),
        unit=f"problems: overrun, paid twice, lost or unfinished; {settings.restarts} restarts of the database",
        goal="0",
        holds=not problems,
    )


if __name__ == "__main__":
    sys.exit(main())
