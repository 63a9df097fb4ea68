"""A database that goes away in the middle of a run: it is waited for, and no reply that came back is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from sqlalchemy.exc import OperationalError
from tests.store.ledger import ledger_child as child
from tests.store.postgres import Server, fresh_database

from eclose.calls.client import CallSettings, connect_model
from eclose.calls.prices import ModelPrice
from eclose.errors import Resumable
from eclose.models.interface import Decoding, FinishReason, Reply, Request, TokenUsage
from eclose.store.ledger import group_commit
from eclose.store.ledger import ledger as ledger_module
from eclose.store.ledger.group_commit import GroupCommitter
from eclose.store.ledger.ledger import Ledger
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.runner import JobRunner, RecordJob, RunStoppedError

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
    assert any("cannot be reached" in message and "Waiting up to" in message for message in messages)
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


def test_a_server_that_stays_frozen_ends_the_run_with_75(server, monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_OUTAGE_SECONDS", 4.0)

    async def freeze(_):
        server.signal_all(signal.SIGSTOP)

    began = time.monotonic()
    with pytest.raises(Resumable, match="did not answer for"):
        asyncio.run(go(server.fresh_database(), Model(), freeze))
    assert time.monotonic() - began < 60


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
