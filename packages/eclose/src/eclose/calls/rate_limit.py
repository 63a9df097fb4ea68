"""Rate limit of a model: how many requests are in flight, and when the next may be sent.

The concurrency adapts to the server: it grows while requests wait and succeed, and is cut when the server answers with
a rate limit. A ``Retry-After`` applies to all requests of the model. Requests per minute and tokens per minute are
spaced evenly.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from eclose.calls.http.failures import CallFailureKind
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eclose.calls.http.failures import CallFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Bounds of the adaptive concurrency limit, and its reaction to refusals."""

    floor: int = 1
    start: int = 8
    ceiling: int = 64
    cut: float = 0.8
    """Factor of the limit after a rate-limit response."""
    cooldown: float = 15.0
    """Seconds after a cut in which further refusals cause no second cut and the limit does not grow."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.start <= self.ceiling:
            raise SettingError(
                f"concurrency needs 1 <= floor <= start <= ceiling, not {self.floor}, {self.start}, {self.ceiling}."
            )
        if not (0 < self.cut < 1 and self.cooldown >= 0):
            raise SettingError("cut must lie between 0 and 1, and cooldown must not be negative.")
        if any(rate is not None and rate < 1 for rate in (self.requests_per_minute, self.tokens_per_minute)):
            raise SettingError("--requests-per-minute and --tokens-per-minute must be at least 1, or left out.")


class _Meter:
    """Spaces units evenly over a minute: after a request the next waits until its units are paid off."""

    def __init__(self, per_minute: int | None) -> None:
        self._seconds = _seconds_each(per_minute)
        self.free_at = -inf

    def take(self, units: int, now: float) -> None:
        self.free_at = max(self.free_at, now) + units * self._seconds

    def change(self, per_minute: int | None, now: float) -> None:
        """Change the rate; units that were sent and are not yet paid off are paid off at the new rate."""
        # In units and not in seconds: what is owed was sent already and has to be paid off whatever the rate is.
        pending = max(0.0, self.free_at - now) / self._seconds if self._seconds else 0.0
        self._seconds = _seconds_each(per_minute)
        self.free_at = now + pending * self._seconds


def _seconds_each(per_minute: int | None) -> float:
    return 0.0 if per_minute is None else 60 / per_minute


class AdaptiveLimiter:
    """Adaptive limit of one model. All methods run in one event loop and use its clock."""

    def __init__(self, limits: RateLimits | None = None) -> None:
        self.limits = limits or RateLimits()
        self.in_flight = 0
        self.waiting = 0
        self._limit = float(self.limits.start)
        self._ceiling = self.limits.ceiling
        self._quick_below = inf
        """Below this value the limit doubles with every round of replies; above it grows by one per round."""
        self._grown = True
        """Whether the limit grew since the last cut, so that the growth may have caused the next refusal."""
        self._proven = True
        """Whether any call succeeded since the last cut; without a success no second cut is made."""
        self._steady_from = -inf
        """Time until which the limit does not grow, because the server has failed."""
        self._cut_from = -inf
        self._not_before = -inf
        self._released = False
        self._requests = _Meter(self.limits.requests_per_minute)
        self._tokens = _Meter(self.limits.tokens_per_minute)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def limit(self) -> int:
        """Number of requests that may be in flight now."""
        return min(int(self._limit), self._ceiling)

    @asynccontextmanager
    async def slot(self, tokens: int = 0) -> AsyncIterator[None]:
        """Hold one of the slots in flight; slots are given in order of arrival, when server and limits allow it."""
        self.waiting += 1
        try:
            async with self._turn:  # first come, first served; only the head of the queue checks the limits
                await self._clear()
                self.in_flight += 1
                self._requests.take(1, _now())
                self._tokens.take(tokens, _now())
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._freed.set()

    async def _clear(self) -> None:
        """Wait until one more request may be sent; every condition is checked again after each wait."""
        while True:
            self._freed.clear()
            wait = max(self._not_before, self._requests.free_at, self._tokens.free_at) - _now()
            if self._released or (self.in_flight < self.limit and wait <= 0):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if wait > 0 else None):
                    await self._freed.wait()

    def record_success(self) -> None:
        """Record a reply: raise the limit if requests wait and the server has not failed lately."""
        self._proven = True
        if not self.waiting or _now() < self._steady_from or self._limit >= self._ceiling:
            return
        # One per reply doubles the limit with every round of replies (slow start); 1/limit per reply adds one per
        # round.
        step = 1.0 if self._limit < self._quick_below else 1 / self._limit
        self._grown = True
        self._set(min(self._ceiling, self._limit + step))

    def record_failure(self, failure: CallFailure) -> None:
        """Record a failure; an unusable answer of the model counts as a reply."""
        if failure.retry_after is not None:
            self._not_before = max(self._not_before, _now() + failure.retry_after)
        if failure.kind is CallFailureKind.RATE_LIMIT:
            self._cut()
        elif failure.kind in (CallFailureKind.TRANSIENT, CallFailureKind.TIMEOUT, CallFailureKind.CONNECTION):
            # A failing server does not show that the limit is too high: no cut, but no growth either.
            self._steady_from = max(self._steady_from, _now() + self.limits.cooldown)
        elif failure.kind.semantic:
            self.record_success()

    def bound(
        self, *, ceiling: int, requests_per_minute: int | None = None, tokens_per_minute: int | None = None
    ) -> None:
        """Change the bounds while requests are in flight, for this worker's share of a common limit.

        A ceiling of 0 stops all sending. Requests in flight continue, even where they exceed the new ceiling.
        """
        paused = self._ceiling == 0
        self._ceiling = ceiling
        if ceiling:
            for meter, rate in ((self._requests, requests_per_minute), (self._tokens, tokens_per_minute)):
                meter.change(rate, _now())
                if paused and rate is not None:
                    meter.take(1, _now())  # a pause saves up no units
            self._limit = min(self._limit, float(ceiling))
        self._freed.set()

    def release_waiting(self) -> None:
        """Let all waiting requests pass, so that they meet the error that stops the run."""
        self._released = True
        self._freed.set()

    def _cut(self) -> None:
        self._steady_from = max(self._steady_from, _now() + self.limits.cooldown)
        # One overload refuses many requests in flight at once: these are one signal and cause one cut.
        if _now() < self._cut_from or not self._proven:
            return
        self._cut_from, self._proven = _now() + self.limits.cooldown, False
        if self._grown:
            # Only the first of several cuts in a row sets the threshold, so that the limit soon returns to the level
            # before them.
            self._quick_below, self._grown = self._limit * self.limits.cut, False
        self._set(max(self.limits.floor, self._limit * self.limits.cut))

    def _set(self, limit: float) -> None:
        self._limit = limit
        self._freed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
