"""The limiter in time that passes only when everybody waits: seconds are exact and cost nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.rate_limit import AdaptiveLimiter, RateLimits
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Coroutine

K = CallFailureKind


class IdleClock(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer as soon as nobody can go on."""

    def __init__(self) -> None:
        super().__init__()
        self._idle_now = 1000.0

    def time(self) -> float:
        return self._idle_now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._idle_now = max(self._idle_now, self._scheduled[0]._when)
        super()._run_once()


def in_no_time(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=IdleClock) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


def failure(kind: CallFailureKind, retry_after: float | None = None) -> CallFailure:
    return CallFailure(kind, "x", retry_after=retry_after)


async def call(
    limiter: AdaptiveLimiter, seconds: float = 1.0, tokens: int = 0, starts: list[float] | None = None
) -> None:
    async with limiter.slot(tokens):
        if starts is not None:
            starts.append(now())
        await asyncio.sleep(seconds)
        limiter.record_success()


async def many(limiter: AdaptiveLimiter, count: int, **how: Any) -> None:
    await asyncio.gather(*(call(limiter, **how) for _ in range(count)))


def test_slow_start_doubles_with_every_round_up_to_the_ceiling():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=2, ceiling=16))
        starts: list[float] = []
        await many(limiter, 62, starts=starts)
        begun = [starts.count(1000.0 + second) for second in range(6)]
        assert begun == [2, 4, 8, 16, 16, 16]
        assert limiter.limit == 16

    in_no_time(main())


def test_nothing_grows_where_nobody_waits():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=4))
        for _ in range(50):
            await many(limiter, 4)
        assert limiter.limit == 4

    in_no_time(main())


def test_a_refusal_cuts_once_in_a_cooldown():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=20, ceiling=100, cooldown=15))
        for _ in range(10):
            limiter.record_failure(failure(K.RATE_LIMIT))
        assert limiter.limit == 16  # 20 x 0.8
        await asyncio.sleep(14)
        limiter.record_success()
        limiter.record_failure(failure(K.RATE_LIMIT))
        assert limiter.limit == 16  # the same trouble still
        await asyncio.sleep(1.5)
        limiter.record_failure(failure(K.RATE_LIMIT))
        assert limiter.limit == 12  # 16 x 0.8 = 12.8
        await many(limiter, 60)
        assert limiter.limit == 12  # nothing grows within a cooldown of the last refusal

    in_no_time(main())


def test_after_a_storm_growth_is_quick_up_to_what_was_borne_and_slow_beyond():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=40, ceiling=100, cooldown=10))
        for _ in range(4):
            limiter.record_success()
            limiter.record_failure(failure(K.RATE_LIMIT))
            await asyncio.sleep(10)
        assert limiter.limit == 16  # 40 x 0.8^4
        limits = []
        running = asyncio.create_task(many(limiter, 400))
        for _ in range(6):
            await asyncio.sleep(1.01)
            limits.append(limiter.limit)
        # Doubled to 32 = 40 x 0.8 in one round, then one more with every round.
        assert limits == [32, 33, 34, 35, 36, 37]
        await running
        await asyncio.sleep(10)
        limiter.record_failure(failure(K.RATE_LIMIT))
        assert limiter._quick_below == limiter._limit  # it had grown, so this refusal is its own fault

    in_no_time(main())


def test_a_cut_that_had_no_chance_to_help_is_not_followed_by_another():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=20, cooldown=1))
        for _ in range(30):
            limiter.record_failure(failure(K.RATE_LIMIT))
            await asyncio.sleep(2)
        assert limiter.limit == 16

    in_no_time(main())


def test_the_floor_holds():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(floor=3, start=5, cooldown=0))
        for _ in range(30):
            limiter.record_success()
            limiter.record_failure(failure(K.RATE_LIMIT))
        assert limiter.limit == 3

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.TRANSIENT, K.TIMEOUT, K.CONNECTION])
def test_trouble_of_the_service_stops_growth_and_cuts_nothing(kind):
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=4, ceiling=64, cooldown=15))
        limiter.record_failure(failure(kind))
        await many(limiter, 40)
        assert limiter.limit == 4
        await asyncio.sleep(15)
        await many(limiter, 40)
        assert limiter.limit > 8  # still in slow start

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.INVALID, K.REFUSAL, K.LENGTH, K.EMPTY])
def test_a_bad_answer_is_an_answer_here(kind):
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=4))
        limiter.waiting = 1
        limiter.record_failure(failure(kind))
        assert limiter.limit == 5

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.RATE_LIMIT, K.TRANSIENT])
def test_when_to_come_again_holds_for_everybody(kind):
    async def main() -> None:
        limiter, starts = AdaptiveLimiter(RateLimits(start=8)), []
        running = asyncio.create_task(many(limiter, 20, starts=starts))
        await asyncio.sleep(0.5)
        limiter.record_failure(failure(kind, retry_after=7.0))
        limiter.record_failure(failure(kind, retry_after=3.0))  # a shorter one takes nothing back
        await running
        assert [start for start in starts if 1000.0 < start < 1007.5] == []
        assert 1007.5 in starts

    in_no_time(main())


def test_first_come_first_served():
    async def main() -> None:
        limiter, order = AdaptiveLimiter(RateLimits(start=2, ceiling=2)), []

        async def numbered(number: int) -> None:
            async with limiter.slot():
                order.append(number)
                await asyncio.sleep(1)

        await asyncio.gather(*(numbered(number) for number in range(20)))
        assert order == list(range(20))

    in_no_time(main())


def test_who_is_cancelled_leaves_no_gap():
    async def main() -> None:
        limiter = AdaptiveLimiter(RateLimits(start=2, ceiling=2))
        tasks = [asyncio.create_task(call(limiter, 10)) for _ in range(10)]
        await asyncio.sleep(1)
        assert (limiter.in_flight, limiter.limit, limiter.waiting) == (2, 2, 8)
        for task in tasks[:6]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)
        assert now() == 1021.0  # four of ten were left, two at a time

    in_no_time(main())


def test_requests_a_minute():
    async def main() -> None:
        limiter, starts = AdaptiveLimiter(RateLimits(start=50, requests_per_minute=30)), []
        await many(limiter, 61, starts=starts)
        assert starts[:3] == [1000.0, 1002.0, 1004.0]
        for start in starts:
            assert sum(start <= other < start + 60 for other in starts) <= 30

    in_no_time(main())


def test_tokens_a_minute():
    async def main() -> None:
        limiter, starts = AdaptiveLimiter(RateLimits(start=50, tokens_per_minute=6000)), []
        await many(limiter, 10, tokens=500, starts=starts)
        assert starts == pytest.approx([1000.0 + 5 * number for number in range(10)])

    in_no_time(main())


def test_bounds_that_move():
    async def main() -> None:
        limiter, starts = AdaptiveLimiter(RateLimits(start=8, ceiling=8)), []
        running = asyncio.create_task(many(limiter, 44, starts=starts))
        await asyncio.sleep(0.5)
        limiter.bound(ceiling=4)
        assert (limiter.in_flight, limiter.limit, limiter.waiting) == (
            8,
            4,
            36,
        )  # what is under way cannot be called back
        await asyncio.sleep(2)
        limiter.bound(ceiling=0)
        await asyncio.sleep(10)
        limiter.bound(ceiling=8)
        await running
        begun = [starts.count(second) for second in (1000.0, 1001.0, 1002.0, 1012.5)]
        assert begun == [8, 4, 4, 4]  # and from 4 it grows again, up to 8
        assert not [start for start in starts if 1002.0 < start < 1012.5]
        assert max(starts.count(start) for start in starts) == 8

    in_no_time(main())


def test_rates_that_move():
    async def main() -> None:
        limiter, starts = AdaptiveLimiter(RateLimits(start=50, requests_per_minute=60)), []
        running = asyncio.create_task(many(limiter, 9, starts=starts))
        await asyncio.sleep(1.5)
        limiter.bound(ceiling=50, requests_per_minute=6)  # half of the second is waited for, ten times as slowly
        await asyncio.sleep(14)
        limiter.bound(ceiling=0)
        await asyncio.sleep(101)
        limiter.bound(ceiling=50, requests_per_minute=60)  # a second to wait, and nothing saved up
        await running
        assert starts == pytest.approx([1000, 1001, 1006.5, 1117.5, 1118.5, 1119.5, 1120.5, 1121.5, 1122.5])

    in_no_time(main())


@pytest.mark.parametrize(
    "bounds",
    [
        {"floor": 0},
        {"start": 100},
        {"floor": 9},
        {"cut": 1.0},
        {"cut": 0.0},
        {"cooldown": -1},
        {"requests_per_minute": 0},
        {"tokens_per_minute": 0},
    ],
)
def test_bounds_that_contradict_each_other(bounds):
    with pytest.raises(SettingError):
        RateLimits(**bounds)
