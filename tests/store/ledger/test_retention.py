"""Deleting old runs: what is not finished, not old or shared with another run stays."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text
from tests.store.ledger import ledger_child as child
from tests.store.postgres import DATABASES, fresh_database

from eclose.calls.ledger_tools import delete_ledger_runs, parse_age, plan_ledger_retention
from eclose.errors import SettingError
from eclose.store.ledger.database import make_database_engine
from eclose.store.ledger.ledger import Ledger, RecordOutcome

DAY = 86_400


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


async def write(where, run, numbers, *, conclude=True):
    async with Ledger.open(where, run=run) as ledger:
        for number in numbers:
            if await ledger.find_reply(child.call(number).key) is None:
                await ledger.intend(child.call(number))
                await ledger.settle(child.reply(number))
            if conclude:
                call = child.call(number)
                await ledger.conclude(RecordOutcome(call.stage, call.record_id, "accepted", None, b"{}"))


def execute(where, statement, **parameters):
    engine = make_database_engine(where)
    with engine.begin() as connection:
        result = connection.execute(text(statement), parameters)
        rows = result.all() if result.returns_rows else []
    engine.dispose()
    return rows


def grow_old(where, run, days):
    execute(where, "UPDATE ledger_writers SET seen = seen - :s, expires = 0 WHERE run = :run",
            s=days * DAY, run=run.encode())  # fmt: skip


def plan(where, days=90):
    return asyncio.run(plan_ledger_retention(where, days * DAY))


async def look(where, run):
    async with Ledger.open(where, run=run) as ledger:
        replies = [await ledger.find_reply(child.call(number).key) for number in range(8)]
        return [reply is not None for reply in replies], [problem async for problem in ledger.verify()]


def test_old_finished_runs_are_deleted_and_nothing_else(where):
    asyncio.run(write(where, "old", range(4)))
    asyncio.run(write(where, "new", range(4, 6)))
    grow_old(where, "old", 100)
    grow_old(where, "new", 10)
    retention = plan(where)
    assert [run.run for run in retention.delete] == ["old"]
    assert retention.keep == ()
    (run,) = retention.delete
    assert (run.sends, run.outcomes, run.usage.replies) == (4, 4, 4)
    assert run.usage.cost == sum(child.reply(number).cost for number in range(4))
    assert 99.9 < run.age / DAY < 100.1
    # Planning deletes nothing.
    assert asyncio.run(look(where, "new"))[0] == [True] * 6 + [False] * 2
    rows = asyncio.run(delete_ledger_runs(where, ["old"]))
    assert rows >= 4 * 4
    found, problems = asyncio.run(look(where, "new"))
    assert found == [False] * 4 + [True] * 2 + [False] * 2
    assert problems == []
    for table in ("intents", "replies", "outcomes", "writers", "accounts"):
        assert execute(where, f"SELECT * FROM ledger_{table} WHERE run = :run", run=b"old") == []
    assert plan(where).delete == ()


@pytest.mark.parametrize("state", ["without an outcome", "quarantined", "worked on"])
def test_a_run_that_may_go_on_is_kept(where, state):
    asyncio.run(write(where, "old", [0]))
    asyncio.run(write(where, "old", [1], conclude=state != "without an outcome"))
    if state == "quarantined":
        execute(where, "UPDATE ledger_outcomes SET kind = 'quarantined' WHERE record_id = :id",
                id=child.call(1).record_id.encode())  # fmt: skip
    grow_old(where, "old", 100)
    if state == "worked on":
        execute(where, "UPDATE ledger_writers SET expires = seen + 200 * 86400 WHERE run = :run", run=b"old")
    retention = plan(where)
    assert retention.delete == ()
    ((run, reason),) = retention.keep
    assert run.run == "old"
    assert reason.startswith("a process works" if state == "worked on" else "it is not finished: 1 ")


def test_a_call_that_another_run_sent_too_stays(where):
    async def send_without_reply():
        async with Ledger.open(where, run="new") as ledger:
            await ledger.intend(child.call(0))

    asyncio.run(send_without_reply())
    asyncio.run(write(where, "old", [0, 1]))
    grow_old(where, "old", 100)
    asyncio.run(delete_ledger_runs(where, ["old"]))
    found, problems = asyncio.run(look(where, "new"))
    assert found[:2] == [True, False]
    assert problems == []
    # It goes with the last run that sent it.
    asyncio.run(delete_ledger_runs(where, ["new"]))
    assert execute(where, "SELECT * FROM ledger_calls") == execute(where, "SELECT * FROM ledger_intents") == []


def test_the_file_shrinks(tmp_path):
    path = tmp_path / "ledger.db"
    asyncio.run(write(path, "old", range(12)))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE ledger_calls SET request = zeroblob(100000)")
    before = path.stat().st_size
    asyncio.run(delete_ledger_runs(path, ["old"]))
    assert path.stat().st_size < before / 4


def test_ages_are_written_in_hours_days_or_weeks():
    assert [parse_age(age) for age in ("12h", "90d", " 2w")] == [12 * 3_600, 90 * DAY, 14 * DAY]
    for age in ("90", "d", "1.5d", "0d", "-3d", "3 months"):
        with pytest.raises(SettingError, match="--older-than"):
            parse_age(age)
