"""The ledger's own commands, on a file and on PostgreSQL: check, release."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.calls.ledger.ledger import CallIntent, Ledger, RecordOutcome
from eclose.calls.ledger_tools import CallState, find_ledger, find_refused_calls, read_ledger_calls
from eclose.calls.model import FinishReason, Reply, Request, TokenUsage, identify_request
from eclose.calls.paid_once import compute_call_key, encode_stored_answer
from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files import jsonl
from eclose.values.judgment import Judgment, missing_reason_kind
from eclose_world.faulty.broken_responses import FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.ledger.postgres import DATABASES, fresh_database


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(params=DATABASES)
def run(request, tmp_path):
    """A run's folder, and where its ledger is as commands are told."""
    pairs = [
        (item.instance, break_response(item, FailurePlan(), "r"))
        for item in islice(make_world_items("short-easy", 3), 6)
    ]
    jsonl.write_records(tmp_path / "instances.jsonl", [instance for instance, _ in pairs])
    jsonl.write_records(tmp_path / "responses.jsonl", [planted.response for _, planted in pairs])
    return tmp_path, (tmp_path if request.param == "sqlite" else fresh_database())


def judge(folder, ledger, server, *more):
    options = () if ledger == folder else ("--ledger", ledger)
    return command("judge", folder, "--judge", server.base_url, "--no-price", *options, *more)


def port(server):
    return int(server.base_url.split(":")[2].split("/")[0])


@pytest.mark.slow
def test_refused_replies_are_deleted_and_asked_again(run):
    folder, ledger = run
    with ModelServerThread(
        build_world_handlers(), ServerBehaviour(faults={ServerFault.WRONG_SHAPE: 0.5}, max_faults_per_key=99)
    ) as server:
        judge(folder, ledger, server)
        calls = server.bill(keys=False)["totals"]["paid"]
        server_port = port(server)
    before = list(jsonl.read_records(folder / "judgments.jsonl", Judgment))
    assert any("invalid" in map(missing_reason_kind, judgment.unjudged.values()) for judgment in before)

    refused = find_refused_calls(find_ledger(ledger))
    assert calls > len(refused.calls) > 0
    words = f"{len(refused.calls)} calls and the outcomes of 1 run"
    assert f"{words} would be deleted" in command("ledger", "release", ledger, "--refused", "--dry-run")
    assert find_refused_calls(find_ledger(ledger)) == refused
    assert f"{words} deleted" in command("ledger", "release", ledger, "--refused")
    assert len(list(read_ledger_calls(find_ledger(ledger)))) == calls - len(refused.calls)
    with ModelServerThread(build_world_handlers(), port=server_port) as server:
        judge(folder, ledger, server, "--force")
        totals = server.bill(keys=False)["totals"]
    # What was answered well is not asked again.
    assert 0 < totals["paid"] <= len(refused.calls)
    after = list(jsonl.read_records(folder / "judgments.jsonl", Judgment))
    assert not [judgment for judgment in after if "invalid" in judgment.unjudged.values()]
    assert "all rows match" in command("ledger", "check", ledger)


REQUEST = Request(({"role": "user", "content": "evil \x1b]0;title\x07 \u202e text\nsecond line"},))


async def _fill(where, *, runs=("a",)):
    for run in runs:
        async with Ledger.open(where, run=run) as ledger:
            for name in ("house/a", "house/b"):
                key = compute_call_key(f"{name}{run}", REQUEST)
                identity = identify_request(f"{name}{run}", REQUEST)
                await ledger.intend(CallIntent(key, identity, "ask", "r\x1b1", reserved=5))
                if name == "house/a":
                    reply = Reply("good \x1b[2Jbye", FinishReason.STOP, TokenUsage(3, 4))
                    await ledger.settle(encode_stored_answer(key, reply, cost=7))
                    await ledger.conclude(RecordOutcome("ask", "r\x1b1", "accepted", None, b"{}"))


@pytest.fixture(params=DATABASES)
def small(request, tmp_path):
    where = tmp_path / "l.db" if request.param == "sqlite" else fresh_database()
    asyncio.run(_fill(where, runs=("a", "b")))
    return where


@pytest.mark.slow
def test_calls_that_broke_off_are_released_once(small):
    async def reserved():
        async with Ledger.open(small, run="a") as ledger:
            return sum((await ledger.compute_account())[1:])

    assert asyncio.run(reserved()) == 5
    assert command("ledger", "release", small, "--dry-run").startswith("2 calls")
    assert asyncio.run(reserved()) == 5
    assert command("ledger", "release", small).startswith("2 calls")
    assert asyncio.run(reserved()) == 0
    assert command("ledger", "release", small).startswith("0 calls")


@pytest.mark.parametrize("table", ["replies", "outcomes"])
def test_damage_is_told_with_the_command_that_mends_it(tmp_path, table):
    where = tmp_path / "ledger.sqlite"
    asyncio.run(_fill(where, runs=("a", "b")))
    with sqlite3.connect(where) as connection:
        connection.execute(f"UPDATE ledger_{table} SET seal = x'00' WHERE run = ?", (b"a",))
    printed = command("ledger", "check", tmp_path, code=3)
    assert "is damaged" in printed
    assert f"eclose ledger check {where} --delete-damaged" in printed
    key = compute_call_key("house/aa", REQUEST)
    (call,) = [call for call in read_ledger_calls(where) if call.key == key]
    assert (call.state is CallState.DAMAGED) == (table == "replies")

    async def use():
        async with Ledger.open(where, run="a") as ledger:
            await ledger.find_reply(compute_call_key("house/aa", REQUEST))
            await ledger.find_last_outcome(["ask"], "r\x1b1")

    with pytest.raises(UserError, match=r"eclose ledger check .*ledger\.sqlite --delete-damaged"):
        asyncio.run(use())
    calls = "1 call" if table == "replies" else "0 calls"
    assert f"{calls} and the outcomes of 1 run deleted" in command("ledger", "check", tmp_path, "--delete-damaged")
    asyncio.run(use())
    assert "all rows match" in command("ledger", "check", tmp_path)
    keys = {call.key for call in read_ledger_calls(where)}
    assert compute_call_key("house/ab", REQUEST) in keys
    assert (key in keys) == (table == "outcomes")


def test_a_ledger_is_read_while_a_run_writes_to_it(tmp_path):
    async def main():
        async with Ledger.open(tmp_path / "ledger.sqlite", run="a"):
            return await asyncio.to_thread(command, "ledger", "release", tmp_path, "--refused", "--dry-run")

    assert "0 calls" in asyncio.run(main())


def test_a_place_without_a_ledger_is_refused_and_left_empty(tmp_path):
    for path in (tmp_path, tmp_path / "none.db"):
        result = CliRunner().invoke(app, ["ledger", "check", str(path)])
        assert "there is no such ledger" in str(result.exception)
    assert not list(tmp_path.iterdir())
    (tmp_path / "other.db").write_bytes(b"something else altogether")
    result = CliRunner().invoke(app, ["ledger", "release", str(tmp_path / "other.db")])
    assert "call ledger" in str(result.exception)
