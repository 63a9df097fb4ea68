"""Many writers, one commit: fast together, each with its own answer, and nothing lost or done twice on the way."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from eclose.calls.ledger import commits as commits_module
from eclose.calls.ledger.commits import GroupCommitter
from eclose.calls.ledger.database import make_database_engine
from eclose.calls.ledger.ledger import Ledger
from eclose.errors import UserError
from tests.calls.ledger import ledger_child as child
from tests.calls.ledger.spending import compute_spending


class Place:
    """A table with a column of numbers, in a file, and how often it was committed to."""

    def __init__(self, path):
        self.engine = make_database_engine(path)
        self.counted = 0
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE numbers (n INTEGER UNIQUE CHECK (n >= 0))"))
        event.listen(self.engine, "commit", self.count)

    def count(self, _connection):
        self.counted += 1

    def run(self, main):
        async def whole():
            commits = GroupCommitter(self.engine, "here")
            try:
                return await main(commits)
            finally:
                commits.close()

        return asyncio.run(asyncio.wait_for(whole(), 60))

    def numbers(self):
        with self.engine.connect() as connection:
            values = list(connection.execute(text("SELECT n FROM numbers ORDER BY n")).scalars())
        self.engine.dispose()
        return values


@pytest.fixture
def place(tmp_path):
    database = Place(tmp_path / "x.db")
    yield database
    database.engine.dispose()


def add(number):
    return lambda connection: connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number}).rowcount


def refuse(_connection):
    raise UserError("not this one")


class Gate:
    """A job that holds up the thread until it is let go, so that what comes after queues up."""

    def __init__(self):
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, _connection):
        self.begun.set()
        self.open.wait(10)

    async def shut(self, commits):
        task = asyncio.create_task(commits.run(self))
        while not self.begun.is_set():
            await asyncio.sleep(0.001)
        return task


def test_what_is_queued_is_committed_together(place):
    async def main(commits):
        return await asyncio.gather(*(commits.run(add(number)) for number in range(1000)))

    assert place.run(main) == [1] * 1000
    assert place.counted <= 10
    assert place.numbers() == list(range(1000))


def test_a_commit_takes_a_bounded_number_of_jobs(place, monkeypatch):
    monkeypatch.setattr(commits_module, "_MAX_BATCH", 10)

    async def main(commits):
        await asyncio.gather(*(commits.run(add(number)) for number in range(100)))

    place.run(main)
    assert place.counted >= 10


def test_a_waiter_is_told_after_the_commit_and_not_before(place, tmp_path):
    other = create_engine(f"sqlite:///{tmp_path / 'x.db'}")

    async def main(commits):
        for number in range(20):
            await commits.run(add(number))
            with other.connect() as connection:
                assert connection.execute(text("SELECT max(n) FROM numbers")).scalar_one() == number

    place.run(main)
    other.dispose()


def test_a_refusal_is_for_its_own_waiter(place):
    async def main(commits):
        jobs = [add(1), refuse, add(2), add(1), add(-1), add(3), lambda _: 1 // 0]
        return await asyncio.gather(*(commits.run(job) for job in jobs), return_exceptions=True)

    results = place.run(main)
    assert [type(result) for result in results] == [
        int,
        UserError,
        int,
        IntegrityError,
        IntegrityError,
        int,
        ZeroDivisionError,
    ]
    assert place.numbers() == [1, 2, 3]


def test_a_commit_that_fails_fails_everybody_and_writes_nothing(place):
    def break_down(_connection):
        raise commits_module.DBAPIError.instance("COMMIT", None, OSError("no space left"), Exception)

    async def main(commits):
        gate = Gate()
        blocker = await gate.shut(commits)
        event.listen(place.engine, "commit", break_down)
        waiting = [asyncio.create_task(commits.run(add(number))) for number in range(5)]
        await asyncio.sleep(0)
        gate.open.set()
        results = await asyncio.gather(blocker, *waiting, return_exceptions=True)
        event.remove(place.engine, "commit", break_down)
        return results, await commits.run(add(9))

    results, after = place.run(main)
    # What was held up went into a commit of its own, which failed as well.
    assert [str(result) for result in results] == [
        "here: cannot be read or written now (no space left). Put that right and start again: what was finished "
        "before is kept."
    ] * 6
    assert all(isinstance(result, UserError) for result in results)
    assert after == 1
    assert place.numbers() == [9]


def test_a_cancelled_waiter_withdraws_what_has_not_begun(place):
    async def main(commits):
        gate = Gate()
        blocker = await gate.shut(commits)
        waiting = asyncio.create_task(commits.run(add(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.open.set()
        await blocker
        return waiting.cancelled(), await commits.run(add(2))

    assert place.run(main) == (True, 1)
    assert place.numbers() == [2]


def test_what_must_not_be_lost_is_written_though_its_waiter_is_gone(place):
    async def main(commits):
        gate = Gate()
        await gate.shut(commits)
        waiting = asyncio.create_task(commits.run_anyway(add(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        gate.open.set()
        await asyncio.gather(waiting, return_exceptions=True)
        return waiting.cancelled()

    assert place.run(main)
    assert place.numbers() == [1]


def test_cancelled_at_any_moment_a_job_is_done_once_or_not_at_all(place):
    async def one(commits, number):
        task = asyncio.create_task((commits.run, commits.run_anyway)[number % 2](add(number)))
        await asyncio.sleep(number % 7 * 0.001)
        task.cancel()
        return await asyncio.gather(task, return_exceptions=True)

    async def main(commits):
        return await asyncio.gather(*(one(commits, number) for number in range(300)))

    confirmed = {number for number, [result] in enumerate(place.run(main)) if result == 1}
    numbers = place.numbers()
    assert confirmed | set(range(1, 300, 2)) <= set(numbers)
    assert len(numbers) == len(set(numbers))


def test_a_scope_that_is_cancelled_still_leaves_in_order(tmp_path):
    anyio = pytest.importorskip("anyio")
    path = tmp_path / "ledger.db"

    async def main():
        async with anyio.create_task_group() as group, Ledger.open(path, run="a") as ledger:
            await ledger.intend(child.call(1))
            group.start_soon(ledger.settle, child.reply(1), child.outcome(1))
            await anyio.sleep(0)
            group.cancel_scope.cancel()
            await anyio.sleep(0)

    anyio.run(main)

    async def look():
        async with Ledger.open(path, run="a") as ledger:
            return await ledger.find_reply(child.call(1).key), await compute_spending(ledger)

    reply, spent = anyio.run(look)
    assert (reply, spent) in [(child.reply(1), (1, 0)), (None, (0, 7))]


def commits(path, concurrency, count):
    """How often something is brought to the disk for so many calls to be settled."""
    todo, tally = iter(range(count)), Counter()

    async def main():
        async with Ledger.open(path, run="a") as ledger:
            await asyncio.gather(*(ledger.intend(child.call(number)) for number in range(count)))

            async def work():
                for number in todo:
                    await ledger.settle(child.reply(number))

            tally.clear()
            await asyncio.gather(*(work() for _ in range(concurrency)))
            return tally["commits"]

    def see(_connection):
        tally["commits"] += 1

    event.listen(Engine, "commit", see)
    try:
        return asyncio.run(main())
    finally:
        event.remove(Engine, "commit", see)


@pytest.mark.slow
def test_many_writers_share_their_commits(tmp_path):
    """The slow part of a settlement is the disk: one at a time each has its own, many at once go together."""
    assert commits(tmp_path / "1.db", 1, 100) == 100
    assert commits(tmp_path / "256.db", 256, 2_560) <= 2_560 / 50


def test_a_job_that_conflicts_alone_is_repeated(place):
    class DeadlockDetectedError(Exception):
        sqlstate = "40P01"

    attempts = []

    def conflict_twice(connection):
        attempts.append(1)
        if len(attempts) <= 2:
            raise OperationalError("UPDATE", {}, DeadlockDetectedError())
        return add(1)(connection)

    assert place.run(lambda commits: commits.run(conflict_twice)) == 1
    assert (place.numbers(), len(attempts)) == ([1], 3)
