"""Many workers, one limit: what they hold never adds up to more than the whole, whoever joins, stalls or dies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from random import Random

import pytest
from sqlalchemy import text

from eclose.calls.cluster import shared_limit
from eclose.calls.cluster.shared_limit import RateLimitDivision, RateLimitShare, divide_rate_limit, share_rate_limit
from eclose.calls.ledger.database import make_database_engine
from eclose.errors import Resumable, SettingError, UserError
from tests.calls.ledger.postgres import fresh_database

LEASE = 1.5
WHOLE = RateLimitShare(8)

# A worker in a process of its own, to be killed: it holds what it gets, and says how much that is.
CHILD = f"""
import asyncio, sys
from eclose.calls.cluster.shared_limit import RateLimitShare, share_rate_limit

class Told:
    in_flight = 0

    def bound(self, *, ceiling, requests_per_minute, tokens_per_minute):
        print(ceiling, flush=True)

async def main():
    async with share_rate_limit(Told(), RateLimitShare(8), sys.argv[1], run="a", model="m", lease_seconds={LEASE}):
        await asyncio.sleep(60)

asyncio.run(main())
"""


# --- dividing ---------------------------------------------------------------------------------------------------------


def test_the_first_takes_all_of_it():
    total = RateLimitShare(8, 600, 90_000)
    assert divide_rate_limit(total, {}, b"a", RateLimitShare(0, 0, 0)) == RateLimitDivision(total, total, settled=True)


def test_a_newcomer_gets_what_is_left_and_nothing_else():
    total = RateLimitShare(8, 600)
    assert divide_rate_limit(total, {b"a": total}, b"b", RateLimitShare(0, 0)) == RateLimitDivision(
        RateLimitShare(0, 0), RateLimitShare(0, 0), settled=False
    )
    # The other has to give up half of it, which stays noted as his until he has.
    assert divide_rate_limit(total, {b"b": RateLimitShare(0, 0)}, b"a", total) == RateLimitDivision(
        RateLimitShare(4, 300), total, settled=False
    )
    assert divide_rate_limit(total, {b"b": RateLimitShare(0, 0)}, b"a", RateLimitShare(6, 300)) == RateLimitDivision(
        RateLimitShare(4, 300), RateLimitShare(6, 300), settled=False
    )
    assert divide_rate_limit(total, {b"a": RateLimitShare(6, 300)}, b"b", RateLimitShare(0, 0)) == RateLimitDivision(
        RateLimitShare(2, 300), RateLimitShare(2, 300), settled=False
    )
    assert divide_rate_limit(total, {b"a": RateLimitShare(4, 300)}, b"b", RateLimitShare(2, 300)).settled


def test_what_does_not_divide_evenly_goes_to_the_first():
    others = {b"b": RateLimitShare(0), b"c": RateLimitShare(0)}
    assert [
        divide_rate_limit(
            RateLimitShare(8), others | {b"a": RateLimitShare(0)}, name, RateLimitShare(0)
        ).granted.ceiling
        for name in (b"a", b"b", b"c")
    ] == [
        3,
        3,
        2,
    ]


def test_who_has_no_part_of_one_thing_leaves_the_others_alone():
    divided = divide_rate_limit(RateLimitShare(8, 1), {b"a": RateLimitShare(0, 0)}, b"b", RateLimitShare(0, 0))
    assert divided == RateLimitDivision(RateLimitShare(0, 0), RateLimitShare(0, 0), settled=True)


@dataclass
class Simulated:
    """A worker as it is, while the book may say something else of it."""

    granted: RateLimitShare
    in_flight: int = 0
    expires: float = 0.0
    division: RateLimitDivision | None = None
    """What the book has answered and this worker has not done yet."""

    @property
    def using(self) -> RateLimitShare:
        return RateLimitShare(max(self.granted.ceiling, self.in_flight), self.granted.requests_per_minute)


@pytest.mark.slow
def test_no_order_of_events_exceeds_the_whole():
    """Joining, renewing, obeying, sending, ending, stalling and dying in any order, each worker at its own pace."""
    assert sum(most_granted(Random(seed)) > 0 for seed in range(80)) > 75


def most_granted(rng: Random) -> int:
    total, lease, now = RateLimitShare(rng.randint(1, 20), rng.randint(1, 100)), 10.0, 0.0
    workers: dict[bytes, Simulated] = {}
    book: dict[bytes, tuple[RateLimitShare, float]] = {}
    reached = 0
    for step in range(400):
        now += rng.random()
        book = {name: (share, until) for name, (share, until) in book.items() if until > now}
        for worker in workers.values():
            if worker.expires <= now:  # the timer of a worker that did not renew; its requests are over by then
                worker.granted, worker.in_flight, worker.division = RateLimitShare(0, 0), 0, None
        if rng.random() < 0.02 and len(workers) < 6:
            workers[b"w%d" % step] = Simulated(RateLimitShare(0, 0))
        for name, worker in list(workers.items()):
            event = rng.choice(["renew", "obey", "send", "end", "stall", "stall"])
            if event == "renew" and worker.division is None:
                others = {other: share for other, (share, _) in book.items() if other != name}
                worker.division = divide_rate_limit(total, others, name, worker.using)
                book[name] = worker.division.recorded, now + lease
                worker.expires = now + lease
            elif event == "obey" and worker.division is not None:
                worker.granted, worker.division = worker.division.granted, None
            elif event == "send":
                worker.in_flight += worker.in_flight < worker.granted.ceiling
            elif event == "end":
                worker.in_flight -= worker.in_flight > 0
            elif rng.random() < 0.005:
                del workers[name]
        assert sum(worker.using.ceiling for worker in workers.values()) <= total.ceiling
        assert sum(worker.using.requests_per_minute for worker in workers.values()) <= total.requests_per_minute
        reached = max(reached, sum(worker.granted.ceiling for worker in workers.values()))
    return reached


# --- in a database ----------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """A limiter that remembers what it was told."""

    in_flight: int = 0
    bounds: list[RateLimitShare] = field(default_factory=list)

    def bound(self, *, ceiling: int, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self.bounds.append(RateLimitShare(ceiling, requests_per_minute, tokens_per_minute))

    @property
    def ceiling(self) -> int:
        return self.bounds[-1].ceiling


def sharing(limiter, where, total=WHOLE, model="m"):
    return share_rate_limit(limiter, total, where, run="a", model=model, lease_seconds=LEASE)


async def until(condition, within=10.0):
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.database
def test_shares_follow_who_is_there():
    where = fresh_database()

    async def main():
        first, second, third = Told(), Told(), Told()
        everyone = (first, second, third)
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, sum(limiter.ceiling for limiter in everyone if limiter.bounds))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async with sharing(first, where):
            # Nothing goes before the database has answered.
            assert [share.ceiling for share in first.bounds] == [0, 8]
            async with sharing(second, where):
                await until(lambda: (first.ceiling, second.ceiling) == (4, 4))
                async with sharing(third, where):
                    await until(lambda: sorted(limiter.ceiling for limiter in everyone) == [2, 3, 3])
                assert third.ceiling == 0
                await until(lambda: (first.ceiling, second.ceiling) == (4, 4))
            await until(lambda: first.ceiling == 8)
        watching.cancel()
        assert most == 8

    asyncio.run(main())


@pytest.mark.database
def test_those_who_join_at_the_same_moment_take_no_more_than_there_is(monkeypatch):
    where = fresh_database()

    def slowly(*given):
        time.sleep(0.1)  # while one divides, others have come
        return divide_rate_limit(*given)

    monkeypatch.setattr(shared_limit, "divide_rate_limit", slowly)

    async def main():
        limiters = [Told() for _ in range(4)]
        everyone_there = asyncio.Event()
        most = 0

        async def join(limiter):
            async with sharing(limiter, where, RateLimitShare(20)):
                nonlocal most
                most = max(most, sum(limiter.ceiling for limiter in limiters if limiter.bounds))
                await everyone_there.wait()

        joined = [asyncio.create_task(join(limiter)) for limiter in limiters]
        await until(lambda: sorted(limiter.ceiling for limiter in limiters if limiter.bounds) == [5, 5, 5, 5])
        everyone_there.set()
        await asyncio.gather(*joined)
        assert most == 20

    asyncio.run(main())


@pytest.mark.database
def test_rates_are_shared_with_one_request_a_minute_in_hand():
    where = fresh_database()

    async def main():
        first, second, total = Told(), Told(), RateLimitShare(8, 600, 90_001)
        async with sharing(first, where, total), sharing(second, where, total):
            await until(lambda: {first.bounds[-1].ceiling, second.bounds[-1].ceiling} == {4})
            bounds = sorted((first.bounds[-1], second.bounds[-1]), key=str)
            assert bounds == [RateLimitShare(4, 299, 45_000), RateLimitShare(4, 299, 45_001)]

    asyncio.run(main())


@pytest.mark.database
def test_other_models_and_runs_have_limits_of_their_own():
    where = fresh_database()

    async def main():
        first, second, third = Told(), Told(), Told()
        other_run = share_rate_limit(third, RateLimitShare(8), where, run="b", model="m", lease_seconds=LEASE)
        async with sharing(first, where), sharing(second, where, model="n"), other_run:
            await until(lambda: [limiter.ceiling for limiter in (first, second, third)] == [8, 8, 8])

    asyncio.run(main())


@pytest.mark.database
def test_requests_under_way_count_until_they_are_over():
    where = fresh_database()

    async def main():
        busy, newcomer = Told(), Told()
        async with sharing(busy, where):
            await until(lambda: busy.ceiling == 8)
            busy.in_flight = 7
            async with sharing(newcomer, where):
                await until(lambda: (busy.ceiling, newcomer.ceiling) == (4, 1))
                await asyncio.sleep(LEASE)
                assert newcomer.ceiling == 1
                busy.in_flight = 4
                await until(lambda: newcomer.ceiling == 4)
            busy.in_flight = 0

    asyncio.run(main())


@pytest.mark.database
@pytest.mark.timing
def test_who_leaves_with_requests_under_way_keeps_his_share_until_his_lease_is_over():
    where = fresh_database()

    async def main():
        cut_short, next_one = Told(), Told()
        async with sharing(cut_short, where):
            await until(lambda: cut_short.ceiling == 8)
            cut_short.in_flight = 3
        begun = time.monotonic()
        async with sharing(next_one, where):
            await until(lambda: next_one.ceiling == 8)
        assert LEASE / 2 < time.monotonic() - begun < LEASE * 2

    asyncio.run(main())


@pytest.mark.database
@pytest.mark.timing
def test_what_a_killed_process_held_comes_back_when_its_lease_is_over():
    where = fresh_database()

    async def main():
        survivor = Told()
        with subprocess.Popen([sys.executable, "-c", CHILD, where], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert [child.stdout.readline() for _ in range(2)] == ["0\n", "8\n"]
            async with sharing(survivor, where):
                assert await asyncio.to_thread(child.stdout.readline) == "4\n"
                await until(lambda: survivor.ceiling == 4)
                child.send_signal(signal.SIGKILL)
                child.wait()
                killed = time.monotonic()
                await until(lambda: survivor.ceiling == 8)
                assert LEASE / 2 < time.monotonic() - killed < LEASE * 2

    asyncio.run(main())


@pytest.mark.database
@pytest.mark.timing
def test_a_worker_that_cannot_renew_stops_before_its_lease_is_over(monkeypatch):
    where = fresh_database()

    async def main():
        limiter = Told()
        async with sharing(limiter, where):
            await until(lambda: limiter.ceiling == 8)
            monkeypatch.setattr(shared_limit._Worker, "_divide", unreachable)
            lost = time.monotonic()
            await until(lambda: limiter.ceiling == 0)
            assert time.monotonic() - lost < LEASE
            monkeypatch.undo()
            await until(lambda: limiter.ceiling == 8)

    asyncio.run(main())


def unreachable(*_):
    raise UserError("the database is away.")


@pytest.mark.database
def test_a_worker_that_cannot_renew_for_long_gives_up(monkeypatch):
    where = fresh_database()
    monkeypatch.setattr(shared_limit, "_PATIENCE", 0)

    async def main():
        limiter = Told()
        async with sharing(limiter, where):
            await until(lambda: limiter.ceiling == 8)
            monkeypatch.setattr(shared_limit._Worker, "_divide", unreachable)
            await asyncio.sleep(15)
            pytest.fail("it goes on without a share")

    with pytest.raises(Resumable, match=r"could not be renewed: the database is away\..*run the same command again"):
        asyncio.run(main())


@pytest.mark.database
def test_an_error_of_the_block_stays_what_it_is():
    where = fresh_database()

    async def main():
        async with sharing(Told(), where):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    engine = make_database_engine(where)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM ledger_shares")).scalar_one() == 0
    engine.dispose()


def test_a_file_is_refused(tmp_path):
    async def main():
        async with sharing(Told(), tmp_path / "ledger.db"):
            pass

    with pytest.raises(SettingError, match="only in a PostgreSQL database"):
        asyncio.run(main())
