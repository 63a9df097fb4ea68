"""Kill a run repeatedly: nothing is lost, nothing is done twice, and no answered call is paid again.

A pipeline of three chained jobs asks the world's model server over HTTP, in a process that is killed with SIGKILL at
random moments and at named points. In the end the server's bill, the ledger and the exports must agree with those
of an unbroken run.

    python studies/campaigns/runner_faults.py                       200 kills, 5,000 records, SQLite
    python studies/campaigns/runner_faults.py --ledger postgresql   the same on PostgreSQL, in a temporary folder
    python studies/campaigns/runner_faults.py --short               a minute's worth
    python studies/campaigns/runner_faults.py --short --mutant no-intent     must fail: see MUTANTS
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from eclose.calls.client import CallSettings, open_connection
from eclose.calls.ledger.commits import GroupCommitter
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, Reply, Request
from eclose.calls.record_loop import JobRunner, RecordJob, write_run_results
from eclose.files import atomic, jsonl
from eclose.files.manifest import hash_file
from eclose.files.step import PipelineStep
from eclose.prompts.locked_texts import PromptMessage
from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.instance import Instance
from eclose_world.make.instances import make_world_items
from eclose_world.server.chat_requests import compute_request_key
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose.calls.http.failures import CallFailure

STAGES = ("draft", "check", "final")
CONCURRENCY = 16
FAILPOINTS = ("pre-send", "post-send", "post-receive", "pre-commit", "post-commit", "mid-export", "pre-rename")
"""Where a run is killed on purpose: around a call, around a commit, while the exports are written."""
MUTANTS = ("no-intent", "hasty", "by-position")
"""Ways in which the layer could be wrong. Each must make this script fail."""


@dataclass(frozen=True)
class Draft:
    """Question with the replies so far."""

    id: str
    instance: Instance
    replies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rig:
    """Run under test: its folder, ledger, server and mutant."""

    folder: Path
    ledger: str
    base_url: str
    mutant: str | None = None

    @property
    def stage(self) -> PipelineStep:
        return PipelineStep("faults", {}, (self.folder.parent / "drafts.jsonl",), self.folder / "out.jsonl")


def jobs(model: Any) -> list[RecordJob]:
    """Return three jobs, each of which sends the replies of the jobs before it."""
    prompt = ResponsePrompt(demonstrations=0)

    async def work(draft: Draft) -> Draft:
        messages = prompt.messages(draft.instance.question, draft.instance.evidence)
        history = "".join(f"\nSaid before: {text}" for text in draft.replies)
        chat = [PromptMessage(role="system", content=messages[0]["content"] + history), *messages[1:]]
        reply = await model.complete(Request(tuple(chat), Decoding(max_tokens=1024)))
        return replace(draft, replies=(*draft.replies, reply.text))

    return [RecordJob(name, work, Draft) for name in STAGES]


async def run(rig: Rig) -> None:
    """Run as a command does: resume, then export."""
    async with Ledger.open(locate_ledger(rig.ledger), run=rig.stage.work_id) as ledger:
        settings = CallSettings(concurrency=CONCURRENCY, unpriced=True)
        async with open_connection(f"{rig.base_url}", ledger, settings) as connection:
            runner: JobRunner[Draft] = JobRunner(ledger, jobs(connection.model), lambda draft: draft.id, workers=24)
            await runner.run(jsonl.scan_records(rig.stage.inputs[0], Draft))
        await write_run_results(ledger, rig.stage, STAGES, runner.progress.received)


def locate_ledger(ledger: str) -> Path | str:
    """Return the ledger as a path, unless it is a URL."""
    return ledger if "://" in ledger else Path(ledger)


# --- failpoints ------------------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(point: str, occurrence: int) -> None:
    """Kill this process when the point is reached for the ``occurrence``-th time."""
    remaining = occurrence

    def reached() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            die()

    if point in ("pre-send", "post-send", "post-receive"):
        _around_sends(point, reached)
    elif point in ("pre-commit", "post-commit"):
        wrap(GroupCommitter, "_transact", before=reached if point == "pre-commit" else None, after=reached)
    elif point == "mid-export":
        wrap(atomic.AtomicFile, "write", before=reached)
    else:
        wrap(atomic.AtomicFile, "_put_in_place", before=reached)


def _around_sends(point: str, reached: Callable[[], None]) -> None:
    from eclose.calls.http.endpoint import Endpoint  # noqa: PLC0415 - only in the child

    send = Endpoint._send

    async def watched(self: Endpoint, request: Request) -> Reply | CallFailure:
        if point == "pre-send":
            reached()
        sending = asyncio.ensure_future(send(self, request))
        if point == "post-send":
            await asyncio.sleep(0.02)  # the server has it and works on it, or has answered already
            reached()
        answer = await sending
        if point == "post-receive":
            reached()
        return answer

    Endpoint._send = watched  # type: ignore[method-assign]


def wrap(
    kind: type, name: str, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None
) -> None:
    """Call a function before or after a method."""
    method = getattr(kind, name)

    def wrapped(*arguments: Any) -> Any:
        if before is not None:
            before()
        result = method(*arguments)
        if before is None and after is not None:
            after()
        return result

    setattr(kind, name, wrapped)


def mutate(mutant: str | None) -> None:
    """Break the layer on purpose."""
    intend, conclude = Ledger.intend, Ledger.conclude
    if mutant == "no-intent":
        # Nothing is on disk when a request leaves; the ledger is given its intent with the reply.
        intents: dict[str, Any] = {}

        async def later(_: Ledger, intent: Any, **_settings: Any) -> None:
            intents[intent.key] = intent

        settle = Ledger.settle

        async def both(self: Ledger, settled: Any, outcome: Any = None) -> None:
            await intend(self, intents.pop(settled.key))
            await settle(self, settled, outcome)

        Ledger.intend, Ledger.settle = later, both  # type: ignore[method-assign,assignment]
    elif mutant == "hasty":

        async def hasty(self: GroupCommitter, job: Any) -> None:
            # As without a sync: the caller goes on before anything is safe.
            asyncio.get_running_loop().call_later(1.0, lambda: asyncio.ensure_future(self.run(job)))

        GroupCommitter.run_anyway = hasty  # type: ignore[method-assign,assignment]
    elif mutant == "by-position":
        positions: Counter[str] = Counter()

        async def placed(self: Ledger, outcome: Any) -> None:
            positions[outcome.stage] += 1
            await conclude(self, replace(outcome, record_id=f"world-{positions[outcome.stage]}"))

        Ledger.conclude = placed  # type: ignore[method-assign]


# --- kills ------------------------------------------------------------------------------------------------------------


def start(rig: Rig, failpoint: tuple[str, int] | None = None) -> int:
    """Start the run in a forked process; a fresh interpreter would import for longer than the run takes."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        mutate(rig.mutant)
        if failpoint:
            die_at(*failpoint)
        asyncio.run(run(rig))
        code = 0
    except BaseException as error:  # the parent must never run on in the child
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def kill_until_done(rig: Rig, kills: int, rng: random.Random, seconds: float) -> Counter[str]:
    """Kill at random moments, and in two fifths of the rounds at a named point; return the kills by point."""
    killed: Counter[str] = Counter()
    while killed.total() < kills:
        failpoint = (rng.choice(FAILPOINTS[:5]), rng.randrange(1, 60)) if rng.random() < 0.4 else None
        pid = start(rig, failpoint)
        status = wait(pid, None if failpoint else rng.uniform(0.05, 2 * max(0.5, seconds / kills)))
        killed[failpoint[0] if failpoint and status == -signal.SIGKILL else "random"] += status == -signal.SIGKILL
        if status == 0:
            break  # through, earlier than planned
        if status > 0:
            raise SystemExit(f"the run failed with {status}")
    return killed


def finish(rig: Rig, killed: Counter[str]) -> None:
    """Finish the run, with kills at every point of the export on the way."""
    for failpoint in [(point, nth) for point in FAILPOINTS[5:] for nth in (1, 2)]:
        status = wait(start(rig, failpoint), None)
        killed[failpoint[0]] += status == -signal.SIGKILL
    if (status := wait(start(rig), None)) != 0:
        raise SystemExit(f"the run failed with {status}")


def wait(pid: int, seconds: float | None) -> int:
    """Return the exit code of the process, or minus its signal; kill it after ``seconds`` where given."""
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# --- what must hold --------------------------------------------------------------------------------------------------


async def count_orphans(rig: Rig) -> Counter[str]:
    """Count the sends without a recorded reply, by their key on the server's bill."""
    async with Ledger.open(locate_ledger(rig.ledger), run=rig.stage.work_id) as ledger:
        problems = [problem async for problem in ledger.verify()]
        assert not problems, problems
        return Counter(bill_key(intent.request) for intent in await ledger.list_orphans())


def bill_key(request: dict[str, Any]) -> str:
    """Compute the server's key of a request."""
    decoding = request["decoding"]
    return compute_request_key(
        {
            "model": request["model"].partition("/")[2],
            "messages": request["messages"],
            "max_tokens": decoding["max_tokens"],
            "temperature": decoding["temperature"],
        }
    )


def hash_results(rig: Rig) -> str:
    return hash_file(rig.stage.out)


def check(rig: Rig, plain: Rig, bills: tuple[dict[str, Any], dict[str, Any]], killed: Counter[str]) -> list[str]:
    """Compare the killed run with the unbroken one; return the problems."""
    problems = []
    if hash_results(rig) != hash_results(plain):
        problems.append("the exports differ from those of the unbroken run")
    unbroken, bill = ({key: line["paid"] for key, line in bill["requests"].items()} for bill in bills)
    if set(bill) != set(unbroken):
        problems.append(f"{len(set(bill) ^ set(unbroken))} requests differ from those of the unbroken run")
    listed = asyncio.run(count_orphans(rig))
    again = Counter({key: paid - 1 for key, paid in bill.items() if paid > 1})
    unlisted = again - listed
    if unlisted:
        problems.append(f"{unlisted.total()} calls were billed again without being listed as possibly billed")
    if again.total() > killed.total() * CONCURRENCY:
        problems.append(f"{again.total()} calls billed again, more than kills x {CONCURRENCY}")
    print(
        f"{killed.total()} kills ({', '.join(f'{point} {count}' for point, count in sorted(killed.items()))}); "
        f"{len(bill):,} calls, {again.total()} of them in flight at a kill and billed again, all listed among "
        f"{listed.total()} that may have been"
        if not problems
        else f"PROBLEMS: {problems}"
    )
    return problems


# --- set up ----------------------------------------------------------------------------------------------------------


def serve(latency: float, jitter: float) -> tuple[subprocess.Popen[str], str]:
    """Start ``eclose world serve`` on a free port; return the process and its base URL."""
    command = [sys.executable, "-m", "eclose.cli.main", "world", "serve", "--latency", str(latency)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as recipe:
        recipe.write(f"jitter: {jitter}\n")
        recipe.flush()
        server = subprocess.Popen([*command, "--recipe", recipe.name], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        line = server.stdout.readline()
    return server, next(word for word in line.split() if word.startswith("http"))


def bill(base_url: str, *, reset: bool = False) -> dict[str, Any]:
    """Read the server's bill, or reset it."""
    url = f"{base_url.removesuffix('/v1')}/bill"
    with urllib.request.urlopen(f"{url}/reset" if reset else url, data=b"" if reset else None) as answer:
        body = answer.read()
    return dict(json.loads(body)) if body else {}


def write_drafts(path: Path, count: int) -> None:
    """Write short questions of the world."""
    items = islice(make_world_items("short-easy", 0), count)
    jsonl.write_records(path, (Draft(item.instance.id, item.instance) for item in items))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--short", action="store_true", help="300 records and 20 kills")
    parser.add_argument("--kills", type=int, help="this many kills, over 15 times as many records")
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count, kills = (300, 20) if options.short else (5_000, 200)
    if options.kills is not None:
        count, kills = 15 * options.kills, options.kills
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), options, count, kills)


def _run(folder: Path, options: argparse.Namespace, count: int, kills: int) -> int:
    write_drafts(folder / "drafts.jsonl", count)
    server, base_url = serve(0.01, jitter=0.01)
    try:
        plain, rig = (_rig(folder / name, options.ledger, base_url) for name in ("plain", "broken"))
        begin = time.monotonic()
        if (status := wait(start(plain), None)) != 0:
            raise SystemExit(f"the unbroken run failed with {status}")
        seconds = time.monotonic() - begin
        unbroken = bill(base_url)
        bill(base_url, reset=True)
        rig = replace(rig, mutant=options.mutant)
        killed = kill_until_done(rig, kills, random.Random(options.seed), seconds)
        finish(rig, killed)
        problems = check(rig, plain, (unbroken, bill(base_url)), killed)
        print(
            f"unbroken {seconds:.0f} s, killed and resumed {time.monotonic() - begin - seconds:.0f} s, {options.ledger}"
        )
    finally:
        server.terminate()
        server.wait()
    enough = killed.total() >= kills
    return print_result(
        name=f"runs killed and resumed on {options.ledger}",
        value=killed.total(),
        unit=f"kills over {count:,} records x {len(STAGES)} jobs; {len(problems)} problems",
        goal=f">= {kills} kills, no problem",
        holds=enough and not problems,
    )


def _rig(folder: Path, ledger: str, base_url: str) -> Rig:
    folder.mkdir()
    if ledger == "sqlite":
        return Rig(folder, str(folder / "ledger.db"), base_url)
    from tests.calls.ledger.postgres import fresh_database  # noqa: PLC0415 - needs a PostgreSQL

    return Rig(folder, fresh_database(), base_url)


if __name__ == "__main__":
    sys.exit(main())
