"""A database that goes away in the middle of a run: it is waited for, and no reply that came back is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from sqlalchemy.exc import OperationalError

from eclose.calls.client import CallSettings, connect_model
from eclose.calls.ledger import commits as group_commit
from eclose.calls.ledger import ledger as ledger_module
from eclose.calls.ledger.commits import GroupCommitter
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, FinishReason, Reply, Request, TokenUsage
from eclose.calls.prices import ModelPrice
from eclose.calls.record_loop import JobRunner, RecordJob, RunStoppedError
from eclose.errors import Resumable
from eclose.files.jsonl import ReadRecord
from tests.calls.ledger import ledger_child as child
from tests.calls.ledger.postgres import Server, fresh_database

pytestmark = pytest.mark.database
RECORDS = 300


@pytest.fixture
def server():
    with Server() as server:
        yield server


@dataclass(frozen=True)
class Question:
    id: str


class Model:
    """Counts what it was asked: everything here is paid."""

    name = "house/model"

    def __init__(self):
        self.paid = Counter()

    async def complete(self, request):
        await asyncio.sleep(0.05)
        self.paid[request.messages[0]["content"]] += 1
        return Reply("x", FinishReason.STOP, TokenUsage(10, 1))


async def go(url, model, trouble, *, records=RECORDS):
    """One run, with trouble in the middle of it; the ledger's sums and orphans after it."""
    async with Ledger.open(url, run="a") as ledger:
        connection = await connect_model(model, ledger, CallSettings(concurrency=16), price=ModelPrice.of(1, 2))

        async def ask(question):
            await connection.model.complete(Request(({"role": "user", "content": question.id},), Decoding()))
            return question

        runner = JobRunner(ledger, [RecordJob("ask", ask, Question)], lambda question: question.id, workers=32)
        running = asyncio.create_task(runner.run([ReadRecord(f"line {n}", Question(f"q{n}")) for n in range(records)]))
        while sum(model.paid.values()) < 60:
            await asyncio.sleep(0.01)
        await trouble(runner)
        await running
        return runner.progress.finished, await ledger.compute_account(), await ledger.list_orphans()


def check(model, done, account, orphans):
    assert done == {"accepted": RECORDS}
    assert sum(model.paid.values()) == RECORDS
    assert account == (RECORDS * 12, 0, 0)
    assert orphans == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_is_started_again_is_waited_for_and_nothing_is_paid_twice(server, number, caplog):
    async def restart(_):
        await asyncio.to_thread(server.stop, number)
        await asyncio.sleep(3)
        await asyncio.to_thread(server.start)

    model = Model()
    check(model, *asyncio.run(go(server.fresh_database(), model, restart)))
    messages = [record.getMessage() for record in caplog.records]
    assert any("cannot be used now" in message and "Waiting up to" in message for message in messages)
    assert messages[-1].endswith("answers again.")


def test_a_server_that_stays_away_ends_the_run_with_75(server, monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_OUTAGE_SECONDS", 3.0)

    async def stop(_):
        await asyncio.to_thread(server.stop)

    began = time.monotonic()
    with pytest.raises(Resumable, match=r"did not answer for .* run the same command again") as raised:
        asyncio.run(go(server.fresh_database(), Model(), stop))
    assert raised.value.exit_code == 75
    assert time.monotonic() - began < 60


def test_a_frozen_server_is_named_and_the_run_goes_on_with_it(server, monkeypatch, caplog):
    monkeypatch.setattr(group_commit, "_SILENCE", 1.0)

    async def freeze(_):
        server.signal_all(signal.SIGSTOP)
        await asyncio.sleep(5)
        server.signal_all(signal.SIGCONT)

    model = Model()
    check(model, *asyncio.run(go(server.fresh_database(), model, freeze)))
    assert any("has not answered for" in record.getMessage() for record in caplog.records)


@pytest.mark.study  # in short: a server that stays away
def test_a_server_that_stays_frozen_ends_the_run_with_75(server, monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_OUTAGE_SECONDS", 4.0)

    async def freeze(_):
        server.signal_all(signal.SIGSTOP)

    began = time.monotonic()
    with pytest.raises(Resumable, match="did not answer for"):
        asyncio.run(go(server.fresh_database(), Model(), freeze))
    assert time.monotonic() - began < 60


@pytest.mark.study  # in short: a frozen server that is named
def test_a_run_that_is_asked_to_stop_does_not_wait_long_for_a_frozen_server(server, monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_OUTAGE_SECONDS_AFTER_STOP", 2.0)
    stopped = []

    async def freeze(runner):
        server.signal_all(signal.SIGSTOP)
        await asyncio.sleep(1)
        runner.stop()
        stopped.append(time.monotonic())

    with pytest.raises(Resumable) as raised:
        asyncio.run(go(server.fresh_database(), Model(), freeze))
    assert raised.value.exit_code == 75
    assert isinstance(raised.value, RunStoppedError) or "did not answer" in str(raised.value)
    assert time.monotonic() - stopped[0] < 60


def take_over(url, *, at=None):
    """Replace the database at a URL, as a failover does: by a new one, or by one from before ``at`` was recorded."""
    psycopg = pytest.importorskip("psycopg")
    name, base = url.rpartition("dbname=")[2], url.rpartition("dbname=")[0]
    with psycopg.connect(f"{base}dbname=postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        connection.execute(f"ALTER DATABASE {name} RENAME TO {name}_lost")
        copy = f"ALTER DATABASE {at} RENAME TO {name}" if at else f"CREATE DATABASE {name}"
        connection.execute(copy)


def copy_database(url):
    """Return the name of a copy of the database as it is now; the run goes on meanwhile."""
    psycopg = pytest.importorskip("psycopg")
    name, base = url.rpartition("dbname=")[2], url.rpartition("dbname=")[0]
    with psycopg.connect(f"{base}dbname=postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        connection.execute(f"CREATE DATABASE {name}_old TEMPLATE {name}")
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    return f"{name}_old"


def test_commits_that_a_replica_lacks_are_repeated_when_it_takes_over(server, caplog):
    url, model = server.fresh_database(), Model()

    async def fail_over(_):
        copy = await asyncio.to_thread(copy_database, url)
        paid = sum(model.paid.values())
        while sum(model.paid.values()) < paid + 60:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(take_over, url, at=copy)

    check(model, *asyncio.run(go(url, model, fail_over)))
    assert any("lacked the last" in record.getMessage() for record in caplog.records)


def test_run_ends_with_75_when_an_empty_database_takes_over(server):
    url = server.fresh_database()

    async def fail_over(_):
        await asyncio.to_thread(take_over, url)

    with pytest.raises(Resumable, match=r"lost rows.*Bring it back"):
        asyncio.run(go(url, Model(), fail_over))


def test_run_ends_with_75_when_a_replica_lacks_more_than_can_be_repeated(server, monkeypatch):
    monkeypatch.setattr(group_commit, "_MAX_JOURNAL", 16)
    url, model = server.fresh_database(), Model()

    async def fail_over(_):
        copy = await asyncio.to_thread(copy_database, url)
        paid = sum(model.paid.values())
        while sum(model.paid.values()) < paid + 60:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(take_over, url, at=copy)

    with pytest.raises(Resumable, match=r"lost rows.*Bring it back"):
        asyncio.run(go(url, model, fail_over))


def test_calls_get_through_while_connections_are_cut_every_three_seconds(server):
    psycopg = pytest.importorskip("psycopg")
    url, model = server.fresh_database(), Model()
    name = url.rpartition("dbname=")[2]

    async def cut(_):
        async def keep_cutting():
            while True:
                with psycopg.connect(f"{server.url}&dbname=postgres", autocommit=True) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
                    )
                await asyncio.sleep(3)

        cutting.append(asyncio.create_task(keep_cutting()))

    cutting = []
    check(model, *asyncio.run(go(url, model, cut)))


def test_a_place_that_never_answered_is_refused_at_once():
    pytest.importorskip("psycopg")
    began = time.monotonic()
    with pytest.raises(Exception, match="cannot be read or written now") as raised:
        asyncio.run(go("postgresql://me@127.0.0.1:1/none", Model(), None))
    assert raised.value.exit_code == 2
    assert time.monotonic() - began < 20


def test_a_server_that_is_just_being_restarted_is_waited_for_from_the_first_connection_on(server):
    psycopg = pytest.importorskip("psycopg")
    url = server.fresh_database()

    async def open_during_restart():
        # Asked to stop, the server waits for this connection, and refuses all others.
        with psycopg.connect(url):
            server.request_stop()
            opening = asyncio.create_task(Ledger.open(url, run="a").__aenter__())
            await asyncio.sleep(1)
            assert not opening.done()
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)
        ledger = await asyncio.wait_for(opening, 30)
        await ledger.__aexit__(None, None, None)

    asyncio.run(open_during_restart())


def test_a_commit_in_doubt_is_made_once(monkeypatch):
    """The connection is lost at the commit, which was made: the same jobs are run again, and change nothing."""
    url = fresh_database()
    transact = GroupCommitter._transact

    def lose(self, batch):
        results = transact(self, batch)
        if any(queued.future is not None for queued in batch) and next(losses, False):
            raise OperationalError("COMMIT", None, Exception("the connection was lost"))
        return results

    losses = iter([])

    async def main():
        nonlocal losses
        async with Ledger.open(url, run="a") as ledger:
            monkeypatch.setattr(GroupCommitter, "_transact", lose)

            async def twice(work):
                nonlocal losses
                losses = iter([True])
                await work

            await twice(ledger.intend(child.call(1)))
            assert await ledger.compute_account() == (0, 7, 0)
            await twice(ledger.settle(child.reply(1), child.outcome(1)))
            await twice(ledger.conclude(child.outcome(2)))
            await twice(ledger.intend(child.call(3)))
            await twice(ledger.release(child.call(3).key))
            await twice(ledger.intend(child.call(4)))
            await twice(ledger.break_off(child.call(4).key))
            return (
                await ledger.compute_account(),
                await ledger.list_orphans(),
                [problem async for problem in ledger.verify()],
            )

    account, orphans, problems = asyncio.run(main())
    assert account == (1, 0, 7)
    assert orphans == [child.call(4)]
    assert problems == []
