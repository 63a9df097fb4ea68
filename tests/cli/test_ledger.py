"""The ledger's own commands, on a file and on PostgreSQL: check, read, prune, release."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from itertools import islice

import pytest
from tests.store.postgres import DATABASES, fresh_database
from typer.testing import CliRunner

from eclose.calls.cache import compute_call_key, encode_stored_answer
from eclose.cli.main import app
from eclose.core.judgment import Judgment, missing_reason_kind
from eclose.errors import SettingError, UserError
from eclose.models.interface import FinishReason, Reply, Request, TokenUsage, identify_request
from eclose.store.ledger.ledger import CallIntent, Ledger, RecordOutcome
from eclose.store.records import jsonl
from eclose.world.faulty.broken_responses import FailurePlan, break_response
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread
from eclose.world.server.faults import ServerBehaviour, ServerFault


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(params=DATABASES)
def run(request, tmp_path):
    """A run's folder, and where its ledger is as commands are told."""
    made = [
        (item.instance, break_response(item, FailurePlan(), "r"))
        for item in islice(make_world_items("short-easy", 3), 6)
    ]
    jsonl.write_records(tmp_path / "instances.jsonl", [instance for instance, _ in made])
    jsonl.write_records(tmp_path / "responses.jsonl", [planted.response for _, planted in made])
    return tmp_path, (tmp_path if request.param == "sqlite" else fresh_database())


def judge(folder, ledger, server, *more):
    place = () if ledger == folder else ("--ledger", ledger)
    return command("judge", folder, "--judge", server.base_url, "--no-price", *place, *more)


def port(server):
    return int(server.base_url.split(":")[2].split("/")[0])


def test_refused_replies_are_read_pruned_and_asked_again(run):
    folder, ledger = run
    with ModelServerThread(
        build_world_handlers(), ServerBehaviour(faults={ServerFault.WRONG_SHAPE: 0.5}, max_faults_per_key=99)
    ) as server:
        judge(folder, ledger, server)
        calls = server.bill(keys=False)["totals"]["paid"]
        taken = port(server)
    before = list(jsonl.read_records(folder / "judgments.jsonl", Judgment))
    assert any("invalid" in map(missing_reason_kind, judgment.unjudged.values()) for judgment in before)

    refused = [
        json.loads(line)
        for line in command("ledger", "show", ledger, "--kind", "invalid", "--json", "--limit", 0).splitlines()
    ]
    every = command("ledger", "show", ledger, "--json", "--limit", 0).splitlines()
    assert len(every) == calls > len(refused) > 0
    assert all("does not match the schema" in call["problem"] and "unexpected" in call["reply"] for call in refused)
    assert {call["records"][0]["record"] for call in refused} <= {judgment.response_id for judgment in before}
    assert command(
        "ledger", "show", ledger, "--kind", "refused", "--reason", "MATCH THE SCHEMA", "--json", "--limit", 1
    )
    open_labels = {judgment.response_id for judgment in before if judgment.unjudged}
    shown = next(call for call in refused if call["records"][0]["record"] in open_labels)
    record = shown["records"][0]["record"]
    told = command("ledger", "show", ledger, "--kind", "invalid", "--record", record, "--stage", "judge", "--limit", 1)
    for part in (shown["key"], "does not match the schema", f"judge of {record}", "labels missing", "unexpected"):
        assert part in told
    assert shown["request"]["messages"][0]["content"].splitlines()[0][:40] in told

    planned = command("ledger", "prune", ledger, "--kind", "invalid", "--dry-run")
    assert f"{len(refused)} call" in planned
    assert "1 run would be deleted" in planned
    assert len(command("ledger", "show", ledger, "--json", "--limit", 0).splitlines()) == calls
    assert "--force" in command("ledger", "prune", ledger, "--kind", "invalid")
    left = {json.loads(line)["key"] for line in command("ledger", "show", ledger, "--json", "--limit", 0).splitlines()}
    assert len(left) == calls - len(refused)
    with ModelServerThread(build_world_handlers(), port=taken) as server:
        judge(folder, ledger, server, "--force")
        totals = server.bill(keys=False)["totals"]
    assert 0 < totals["paid"] <= len(refused)  # what was answered well is not asked again
    after = list(jsonl.read_records(folder / "judgments.jsonl", Judgment))
    assert not [judgment for judgment in after if "invalid" in judgment.unjudged.values()]
    assert "all rows match" in command("ledger", "verify", ledger)


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


def test_nothing_that_is_printed_moves_the_cursor(small):
    told = command("ledger", "show", small)
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "\\x1b]0;title\\x07" in told
    assert "good \\x1b[2Jbye" in told
    assert "4 calls printed" in told
    assert "there are more" in command("ledger", "show", small, "--limit", 1)
    assert "0 calls printed" in command("ledger", "show", small, "--kind", "refusal")


def test_calls_that_broke_off_are_released_once(small):
    async def reserved():
        async with Ledger.open(small, run="a") as ledger:
            return (await ledger.compute_spending())[1]

    assert asyncio.run(reserved()) == 5
    assert command("ledger", "prune", small, "--orphans", "--dry-run").startswith("2 calls")
    assert asyncio.run(reserved()) == 5
    assert command("ledger", "prune", small, "--orphans").startswith("2 calls")
    assert asyncio.run(reserved()) == 0
    assert command("ledger", "prune", small, "--orphans").startswith("0 calls")


def test_a_call_is_pruned_by_the_beginning_of_its_key(small):
    key = compute_call_key("house/aa", REQUEST)
    assert "1 call and the outcomes of 1 run deleted" in command("ledger", "prune", small, "--key", key[:20])
    assert key not in command("ledger", "show", small)


@pytest.mark.parametrize("table", ["replies", "outcomes"])
def test_damage_is_told_with_the_command_that_mends_it(tmp_path, table):
    where = tmp_path / "ledger.sqlite"
    asyncio.run(_fill(where, runs=("a", "b")))
    with sqlite3.connect(where) as connection:
        connection.execute(f"UPDATE ledger_{table} SET seal = x'00' WHERE run = ?", (b"a",))
    told = command("ledger", "verify", tmp_path, code=3)
    assert "is damaged" in told
    assert f"eclose ledger prune {where} --damaged" in told
    state = "damaged" if table == "replies" else "answered"
    assert f"{compute_call_key('house/aa', REQUEST)} {state}" in command("ledger", "show", tmp_path)

    async def use():
        async with Ledger.open(where, run="a") as ledger:
            await ledger.find_reply(compute_call_key("house/aa", REQUEST))
            await ledger.find_last_outcome(["ask"], "r\x1b1")

    with pytest.raises(UserError, match=r"eclose ledger prune .*ledger\.sqlite --damaged"):
        asyncio.run(use())
    calls = 1 if table == "replies" else 0
    assert f"{calls} call" in command("ledger", "prune", tmp_path, "--damaged")
    asyncio.run(use())
    assert "all rows match" in command("ledger", "verify", tmp_path)
    assert "1 call printed" in command("ledger", "show", tmp_path, "--key", compute_call_key("house/ab", REQUEST))


def test_a_ledger_is_read_while_a_run_writes_to_it(tmp_path):
    async def main():
        async with Ledger.open(tmp_path / "ledger.sqlite", run="a"):
            return await asyncio.to_thread(command, "ledger", "show", tmp_path)

    assert "0 calls printed" in asyncio.run(main())


def test_what_cannot_be_meant_is_refused(tmp_path):
    for words, problem in [
        (("show", tmp_path), "there is no such ledger"),
        (("show", tmp_path / "none.db"), "there is no such ledger"),
    ]:
        assert problem in str(CliRunner().invoke(app, ["ledger", *map(str, words)]).exception)
    assert not list(tmp_path.iterdir())
    asyncio.run(_fill(tmp_path / "ledger.sqlite"))
    for words in (["prune"], ["prune", "--kind", "blue"], ["prune", "--orphans", "--kind", "invalid"]):
        result = CliRunner().invoke(app, ["ledger", words[0], str(tmp_path), *words[1:]])
        assert isinstance(result.exception, SettingError), words
    (tmp_path / "other.db").write_bytes(b"something else altogether")
    assert "call ledger" in str(CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "other.db")]).exception)


def test_old_runs_are_deleted_only_when_confirmed(tmp_path):
    path = tmp_path / "ledger.sqlite"

    async def conclude():
        async with Ledger.open(path, run="a") as ledger:
            await ledger.conclude(RecordOutcome("judge", "r1", "accepted", None, b"{}"))

    asyncio.run(conclude())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE ledger_writers SET seen = seen - 100 * 86400")
    assert "0 runs would be deleted" in command("ledger", "prune", path, "--older-than", "101d")
    for more in ((), ("--yes", "--dry-run")):
        printed = command("ledger", "prune", path, "--older-than", "90d", *more)
        assert "a: last worked on 100 days ago, 0 replies, 1 outcome, 0.000000 charged" in printed
        assert "1 run would be deleted; to delete, add --yes" in printed
    assert "1 run deleted" in command("ledger", "prune", path, "--older-than", "90d", "--yes")
    assert "0 runs would be deleted" in command("ledger", "prune", path, "--older-than", "90d")
    result = CliRunner().invoke(app, ["ledger", "prune", str(path), "--older-than", "90d", "--damaged"])
    assert isinstance(result.exception, SettingError)
