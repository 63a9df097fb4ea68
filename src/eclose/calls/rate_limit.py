"""How many requests may be under way at a model, and when the next may leave.

The limit follows what the server bears: it grows while requests wait and succeed, and is cut when the server turns some
away. When a server says when to come again, that holds for everybody who asks the same model. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from eclose.errors import SettingError
from eclose.models.openai.failures import FailureKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eclose.models.openai.failures import CallFailure

_REMEMBERED = 1000
"""Changes of the limit that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The bounds between which the limit moves, and how it moves."""

    floor: int = 1
    start: int = 8
    ceiling: int = 64
    cut: float = 0.8
    """What is left of the limit when the server turns a request away."""
    cooldown: float = 15.0
    """Seconds after a cut in which further refusals are taken as part of the same trouble, and nothing grows."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that contradict each other."""
        if not 1 <= self.floor <= self.start <= self.ceiling:
            raise SettingError(
                f"concurrency needs 1 <= floor <= start <= ceiling, not {self.floor}, {self.start}, {self.ceiling}."
            )
        if not (0 < self.cut < 1 and self.cooldown >= 0):
            raise SettingError("cut lies between 0 and 1, and cooldown is not negative.")
        if any(rate is not None and rate < 1 for rate in (self.requests_per_minute, self.tokens_per_minute)):
            raise SettingError("requests_per_minute and tokens_per_minute are at least 1, or left out.")


@dataclass(frozen=True, slots=True)
class LimitChange:
    """The limit from some moment on, and why."""

    at: float
    limit: int
    why: str


class _Meter:
    """Lets so many units a minute pass, evenly: what was let through is waited for before the next."""

    def __init__(self, per_minute: int | None) -> None:
        self._seconds = _seconds_each(per_minute)
        self.free_at = -inf

    def take(self, units: int, now: float) -> None:
        self.free_at = max(self.free_at, now) + units * self._seconds

    def change(self, per_minute: int | None, now: float) -> None:
        """From now on at another pace; what is left to wait for is waited for at that pace."""
        left = max(0.0, self.free_at - now) / self._seconds if self._seconds else 0.0
        self._seconds = _seconds_each(per_minute)
        self.free_at = now + left * self._seconds


def _seconds_each(per_minute: int | None) -> float:
    return 0.0 if per_minute is None else 60 / per_minute


class Limiter:
    """One for each model. All methods belong to one event loop, whose clock they use."""

    def __init__(self, pace: RateLimits | None = None) -> None:
        self.pace = pace or RateLimits()
        self.in_flight = 0
        self.waiting = 0
        self.history: deque[LimitChange] = deque(maxlen=_REMEMBERED)
        self._limit = float(self.pace.start)
        self._ceiling = self.pace.ceiling
        self._quick_below = inf
        """Up to here the limit doubles with every round of replies, beyond it grows by one."""
        self._grown = True
        """Whether the limit grew since the last cut, so that the next refusal may be its fault."""
        self._proven = True
        """Whether anything succeeded since the last cut: one that had no chance to help is not followed by another."""
        self._steady_from = -inf
        """Until then the server is in trouble, and nothing grows."""
        self._cut_from = -inf
        self._not_before = -inf
        self._over = False
        self._requests = _Meter(self.pace.requests_per_minute)
        self._tokens = _Meter(self.pace.tokens_per_minute)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def limit(self) -> int:
        """How many requests may be under way now."""
        return min(int(self._limit), self._ceiling)

    def __str__(self) -> str:
        """For a progress line."""
        return f"{self.in_flight} of {self.limit} in flight, {self.waiting} waiting"

    @asynccontextmanager
    async def slot(self, tokens: int = 0) -> AsyncIterator[None]:
        """A place among those under way, in order of arrival; waits until the server and the limits allow it."""
        self.waiting += 1
        try:
            async with self._turn:  # fair: the first to wait is the first to go, and only one looks at a time
                await self._clear()
                self.in_flight += 1
                self._take(tokens)
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._freed.set()

    async def _clear(self) -> None:
        """Wait until one more may go. Whatever was waited for, everything is looked at again."""
        while True:
            self._freed.clear()
            wait = max(self._not_before, self._requests.free_at, self._tokens.free_at) - _now()
            if self._over or (self.in_flight < self.limit and wait <= 0):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if wait > 0 else None):
                    await self._freed.wait()

    def _take(self, tokens: int) -> None:
        self._requests.take(1, _now())
        self._tokens.take(tokens, _now())

    def succeeded(self) -> None:
        """The server answered. More may go, if more want to and nothing is amiss."""
        self._proven = True
        if not self.waiting or _now() < self._steady_from or self._limit >= self._ceiling:
            return
        step = 1.0 if self._limit < self._quick_below else 1 / self._limit
        self._grown = True
        self._set(min(self._ceiling, self._limit + step), "answered")

    def failed(self, failure: CallFailure) -> None:
        """The server did not answer. What a model answered badly is an answer here."""
        if failure.retry_after is not None:
            self._not_before = max(self._not_before, _now() + failure.retry_after)
        if failure.kind is FailureKind.RATE_LIMIT:
            self._cut()
        elif failure.kind in (FailureKind.TRANSIENT, FailureKind.TIMEOUT, FailureKind.CONNECTION):
            # Trouble of its own is no sign of our asking too much: no cut, but no growth either.
            self._steady_from = max(self._steady_from, _now() + self.pace.cooldown)
        elif failure.kind.semantic:
            self.succeeded()

    def bound(
        self, *, ceiling: int, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
    ) -> None:
        """Move the bounds while requests are under way, for a share of limits that others use too.

        A ceiling of 0 lets nobody go. What is under way stays under way, even where it is more than may be from now on.
        """
        paused = self._ceiling == 0
        self._ceiling = ceiling
        if ceiling:
            for meter, rate in ((self._requests, requests_per_minute), (self._tokens, tokens_per_minute)):
                meter.change(rate, _now())
                if paused and rate is not None:
                    meter.take(1, _now())  # nothing was saved up while others had the share
            self._limit = min(self._limit, float(ceiling))
        self.history.append(LimitChange(_now(), self.limit, "bound"))
        self._freed.set()

    def let_go(self) -> None:
        """Nobody has to wait any more: for the end of a run, when whoever waits should learn of it."""
        self._over = True
        self._freed.set()

    def _cut(self) -> None:
        self._steady_from = max(self._steady_from, _now() + self.pace.cooldown)
        if _now() < self._cut_from or not self._proven:
            return
        self._cut_from, self._proven = _now() + self.pace.cooldown, False
        if self._grown:
            # In a storm the limit is cut again and again without having grown: after it, what was borne before is
            # soon reached again.
            self._quick_below, self._grown = self._limit * self.pace.cut, False
        self._set(max(self.pace.floor, self._limit * self.pace.cut), "turned away")

    def _set(self, limit: float, why: str) -> None:
        before, self._limit = self.limit, limit
        if self.limit != before:
            self.history.append(LimitChange(_now(), self.limit, why))
            self._freed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
