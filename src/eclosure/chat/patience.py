"""Trying again: the one place that does. Everybody else sends once and says what happened.

A record is not made to pay for the service: being turned away or not reaching the server costs it nothing but time.
The service's own failures are tried a few times. What a model answered badly is asked again only on request.
When nothing works any more the run stops, and the same command takes it up again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclosure.chat.budget import tokens_about, worst_usage
from eclosure.chat.failures import CallFailure, FailureKind
from eclosure.chat.limits import Limiter
from eclosure.chat.model import Around
from eclosure.errors import Resumable, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclosure.chat.model import ChatModel, Reply, Request

MOST_SEMANTIC_ATTEMPTS = 3
MOST_BREAKER = 20
_OF_THE_SERVICE = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.TRANSIENT})
_OF_THE_REQUEST = frozenset({FailureKind.PERMANENT, FailureKind.TOO_LONG})
_FREE = frozenset({FailureKind.RATE_LIMIT, FailureKind.CONNECTION})


class ServiceDown(Resumable):
    """The model server cannot be worked with at the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on."""

    attempts: int = 5
    """Times a record may meet a failing service (5xx, time-out) before it is given up."""
    semantic_attempts: int = 1
    """Times a record is asked where the model refuses, is cut off or answers in the wrong shape. More than one shifts
    the distribution of what is accepted, so it is counted."""
    first_wait: float = 1.0
    longest_wait: float = 60.0
    """Before an attempt one waits a random time, up to the first wait doubled with each failure, up to this."""
    longest_pause: float = 900.0
    """A server that wants us back later than this many seconds stops the run."""
    endurance: float = 3600.0
    """Seconds one record may be turned away or fail to reach the server."""
    breaker: int = 20
    """Failures of the service, one after the other without a success between them, that stop the run."""

    def __post_init__(self) -> None:
        """Name every mistake at once."""
        problems = []
        if self.attempts < 1:
            problems.append("attempts is at least 1.")
        if not 1 <= self.semantic_attempts <= MOST_SEMANTIC_ATTEMPTS:
            problems.append(f"semantic_attempts lies between 1 and {MOST_SEMANTIC_ATTEMPTS}.")
        if not 1 <= self.breaker <= MOST_BREAKER:
            problems.append(f"breaker lies between 1 and {MOST_BREAKER}.")
        if min(self.first_wait, self.longest_wait, self.longest_pause, self.endurance) < 0:
            problems.append("waiting times are not negative.")
        if problems:
            raise SettingError(" ".join(problems))


class _Breaker:
    """Counts failures of the service in a row, over all records; once open it stays open."""

    def __init__(self, most: int, tell: Callable[[], None]) -> None:
        self._most = most
        self._tell = tell
        self._in_a_row = 0
        self._problem: str | None = None
        self.opened = asyncio.Event()
        self.last_success: float | None = None

    def check(self) -> None:
        """Raise if open."""
        if self._problem is not None:
            raise ServiceDown(f"{self._problem} What is done is kept: run the same command again to go on.")

    def succeeded(self) -> None:
        self._in_a_row = 0
        self.last_success = _now()

    def failed(self, failure: CallFailure) -> None:
        if failure.kind.semantic:
            self.succeeded()  # somebody read the request and answered
        elif failure.kind is FailureKind.DENIED:
            self.open(f"the model server turns all requests away ({failure}).")
        elif failure.kind in _OF_THE_SERVICE | _OF_THE_REQUEST:
            self._count(failure)

    def _count(self, failure: CallFailure) -> None:
        """A request that is refused is its record's own, unless none was ever taken: then a setting is wrong."""
        if failure.kind in _OF_THE_REQUEST and self.last_success is not None:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row >= self._most:
            self.open(f"the model server failed {self._in_a_row} times in a row, last with {failure}.")

    def open(self, problem: str) -> None:
        if self._problem is None:
            self._problem = problem
            self.opened.set()
            self._tell()

    async def sleep(self, seconds: float) -> None:
        """Wait, but not for a service that is given up meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.opened.wait()


@dataclass(slots=True)
class _Tries:
    """What one record has met so far."""

    service: int = 0
    semantic: int = 0
    free: int = 0
    since: float | None = None
    """When it was first turned away or did not get through."""


class _Limited(Around):
    """A ``ChatModel`` that sends when it is its turn, unless the service is given up by then."""

    def __init__(self, model: ChatModel, limiter: Limiter, breaker: _Breaker, tokens: Callable[[Request], int]) -> None:
        super().__init__(model)
        self._limiter = limiter
        self._breaker = breaker
        self._tokens = tokens

    async def complete(self, request: Request) -> Reply:
        metered = self._limiter.pace.tokens_per_minute is not None
        async with self._limiter.slot(self._tokens(request) if metered else 0):
            self._breaker.check()  # behind the queue: nobody leaves after the breaker has opened
            try:
                reply = await self._model.complete(request)
            except CallFailure as failure:
                self._limiter.failed(failure)
                self._breaker.failed(failure)
                raise
            self._limiter.succeeded()
            self._breaker.succeeded()
            return reply


class Patient(Around):
    """A ``ChatModel`` that tries again. One for each model: limit and breaker are shared by all of its calls."""

    def __init__(
        self,
        model: ChatModel,
        patience: Patience | None = None,
        limiter: Limiter | None = None,
        *,
        between: Callable[[ChatModel], ChatModel] = lambda model: model,
        tokens: Callable[[Request], int] | None = None,
        note: Callable[[Request, CallFailure, float | None], None] = lambda _request, _failure, _wait: None,
        rng: Random | None = None,
    ) -> None:
        self.limiter = limiter or Limiter()
        self.met: Counter[FailureKind] = Counter()
        """Failures of all attempts."""
        self.answered_after: Counter[int] = Counter()
        """How many requests were accepted at which semantic attempt."""
        self._patience = patience or Patience()
        self._breaker = _Breaker(self._patience.breaker, self.limiter.let_go)
        # Books that are kept of every send are kept between trying again and the queue: nobody queues for them.
        super().__init__(between(_Limited(model, self.limiter, self._breaker, tokens or _tokens)))
        self._note = note
        """Told of every failure, with the seconds until the next attempt or None for the last."""
        self._rng = rng or Random()

    async def complete(self, request: Request) -> Reply:
        """The reply; the last failure where there is none, or ``ServiceDown`` where the run should stop."""
        tries = _Tries()
        while True:
            try:
                reply = await self._model.complete(request)
            except CallFailure as failure:
                self.met[failure.kind] += 1
                wait = self._wait_after(failure, tries)
                self._note(request, failure, wait)
                self._breaker.check()
                if wait is None:
                    raise
                # What was answered badly stays as it was: the next answer is another one's.
                request = replace(request, attempt=tries.semantic)
                await self._breaker.sleep(wait)
            else:
                self.answered_after[tries.semantic + 1] += 1
                return reply

    def _wait_after(self, failure: CallFailure, tries: _Tries) -> float | None:
        """Seconds until the next attempt; None where there is none."""
        if failure.kind in _FREE:
            tries.free += 1
            failures, again = tries.free, self._endures(failure, tries)
        elif failure.kind in _OF_THE_SERVICE:
            tries.service += 1
            failures, again = tries.service, tries.service < self._patience.attempts
        elif failure.kind.semantic:
            tries.semantic += 1
            failures, again = 0, tries.semantic < self._patience.semantic_attempts
        else:
            again = False
        if not again:
            return None
        if failure.retry_after is not None:
            return self._obey(failure.retry_after, failure)
        return self._backoff(failures)

    def _obey(self, seconds: float, failure: CallFailure) -> float:
        """Exactly what the server asks for: not earlier, and no jitter, since the limiter spaces those who return."""
        if seconds > self._patience.longest_pause:
            self._breaker.open(f"the model server wants to be left alone for {seconds:,.0f} s ({failure}).")
        return seconds

    def _backoff(self, failures: int) -> float:
        """Full jitter: those who failed together do not come back together."""
        if failures == 0:
            return 0.0
        most = min(self._patience.longest_wait, self._patience.first_wait * 2 ** min(failures - 1, 30))
        return self._rng.uniform(0, most)

    def _endures(self, failure: CallFailure, tries: _Tries) -> bool:
        """Whether the record may wait on. If nobody got through all the while it is the service, not the record."""
        tries.since = _now() if tries.since is None else tries.since
        if _now() - tries.since < self._patience.endurance:
            return True
        if self._breaker.last_success is None or self._breaker.last_success < tries.since:
            self._breaker.open(f"nothing got through for {self._patience.endurance:,.0f} s, last with {failure}.")
        return False


def _tokens(request: Request) -> int:
    """As providers count towards a limit: the prompt and the longest reply it allows."""
    usage = worst_usage(request, tokens_about)
    return usage.prompt_tokens + usage.completion_tokens


def _now() -> float:
    return asyncio.get_running_loop().time()
