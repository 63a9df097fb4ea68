"""Retry policy for model calls. The only layer that retries: every other layer sends once and raises.

Rate limits and connection failures do not use up a record's attempts. Time-outs and 5xx do, but a record is not given
up while no call at all gets through. A bad answer of the model is asked again only on request. When calls have failed
often enough and for long enough without a success, the run stops, and the same command resumes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.calls.rate_limit import Limiter
from eclose.errors import Resumable, SettingError
from eclose.models.interface import ModelWrapper
from eclose.models.openai.failures import CallFailure, FailureKind
from eclose.models.token_counts import bound_usage, estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose.models.interface import ChatModel, Reply, Request

MOST_SEMANTIC_ATTEMPTS = 3
_OF_THE_SERVICE = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.TRANSIENT})
_OF_THE_REQUEST = frozenset({FailureKind.PERMANENT, FailureKind.TOO_LONG})
_FREE = frozenset({FailureKind.RATE_LIMIT, FailureKind.CONNECTION})


class ServiceDown(Resumable):
    """The model server cannot be worked with at the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to go on."""

    attempts: int = 5
    """Failures of the service (5xx, time-out) after which a record is given up, if other calls got through since its
    first failure or ``breaker_seconds`` have passed."""
    semantic_attempts: int = 1
    """How often to ask when the model refuses, is cut off or answers in the wrong shape. More than one shifts the
    distribution of what is accepted, so it is counted."""
    first_wait: float = 1.0
    longest_wait: float = 60.0
    """Seconds: an attempt waits a random time up to ``first_wait``, doubled with each failure, at most this."""
    longest_pause: float = 900.0
    """Seconds: a server that asks for a longer pause stops the run."""
    endurance: float = 3600.0
    """Seconds for which one record may be turned away or fail to reach the server."""
    breaker_failures: int = 20
    """Failures of the service in a row, over all records, that stop the run once ``breaker_seconds`` have passed."""
    breaker_seconds: float = 60.0
    """Seconds without a success, from the first failure in the row, that stop the run once there were
    ``breaker_failures``."""

    def __post_init__(self) -> None:
        """Name every mistake at once."""
        problems = []
        if self.attempts < 1:
            problems.append("attempts is at least 1.")
        if not 1 <= self.semantic_attempts <= MOST_SEMANTIC_ATTEMPTS:
            problems.append(f"semantic_attempts lies between 1 and {MOST_SEMANTIC_ATTEMPTS}.")
        if self.breaker_failures < 1:
            problems.append("breaker_failures is at least 1.")
        seconds = (self.first_wait, self.longest_wait, self.longest_pause, self.endurance, self.breaker_seconds)
        if min(seconds) < 0:
            problems.append("waiting times are not negative.")
        if problems:
            raise SettingError(" ".join(problems))


class _Breaker:
    """Stops the run when calls fail, over all records, often enough and for long enough. Once open it stays open."""

    def __init__(self, failures: int, seconds: float, tell: Callable[[], None]) -> None:
        self._failures = failures
        self._seconds = seconds
        self._tell = tell
        self._in_a_row = 0
        self._refused = 0
        """Requests that were refused for what they are."""
        self._row_began = 0.0
        self._row_seconds = 0.0
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
            self.succeeded()  # the model read the request and answered
        elif failure.kind is FailureKind.DENIED:
            self.open(f"the model server turns all requests away ({failure}).")
        elif failure.kind in _OF_THE_REQUEST:
            self._count_refusal(failure)
        elif failure.kind in _OF_THE_SERVICE:
            self._count(failure)

    def _count_refusal(self, failure: CallFailure) -> None:
        """A refused request is its record's own, unless none was ever accepted: then a setting is wrong."""
        self._in_a_row, self._refused = 0, self._refused + 1
        if self.last_success is None and self._refused >= self._failures:
            self.open(f"the model server refused all of {self._refused} requests, last with {_sentence(failure)}")

    def _count(self, failure: CallFailure) -> None:
        if self._in_a_row == 0:
            self._row_began = _now()
        self._in_a_row += 1
        self._row_seconds = _now() - self._row_began
        if self._in_a_row >= self._failures and self._row_seconds >= self._seconds:
            self.open(
                f"the model server failed {self._in_a_row} times in a row for {self._row_seconds:,.0f} s, last with "
                f"{_sentence(failure)} (--breaker-seconds waits longer.)"
            )

    @property
    def trouble(self) -> str | None:
        """How long nothing has got through; None while calls succeed."""
        if self._in_a_row < self._failures:
            return None
        return f"no success for {self._row_seconds:,.0f} s (stops at {self._seconds:,.0f} s)"

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
    service_since: float | None = None
    """When the service first failed it."""


class RateLimitedModel(ModelWrapper):
    """A ``ChatModel`` that sends when the limiter allows it, unless the breaker has opened by then."""

    def __init__(self, model: ChatModel, limiter: Limiter, breaker: _Breaker, tokens: Callable[[Request], int]) -> None:
        super().__init__(model)
        self._limiter = limiter
        self._breaker = breaker
        self._tokens = tokens

    async def complete(self, request: Request) -> Reply:
        metered = self._limiter.pace.tokens_per_minute is not None
        async with self._limiter.slot(self._tokens(request) if metered else 0):
            self._breaker.check()  # behind the queue: nothing is sent after the breaker has opened
            try:
                reply = await self._model.complete(request)
            except CallFailure as failure:
                self._limiter.failed(failure)
                self._breaker.failed(failure)
                raise
            self._limiter.succeeded()
            self._breaker.succeeded()
            return reply


class RetryingModel(ModelWrapper):
    """A ``ChatModel`` that tries again. One for each model: limit and breaker are shared by all of its calls."""

    def __init__(
        self,
        model: ChatModel,
        patience: RetryPolicy | None = None,
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
        self._patience = patience or RetryPolicy()
        self._breaker = _Breaker(self._patience.breaker_failures, self._patience.breaker_seconds, self.limiter.let_go)
        # Ledger and budget sit between retrying and the queue, so that a call waits in the queue only once.
        super().__init__(between(RateLimitedModel(model, self.limiter, self._breaker, tokens or _tokens)))
        self._note = note
        """Called with every failure and the seconds until the next attempt, None for the last."""
        self._rng = rng or Random()

    @property
    def trouble(self) -> str | None:
        """How long nothing has got through, for a progress line; None while calls succeed."""
        return self._breaker.trouble

    async def complete(self, request: Request) -> Reply:
        """Return the reply; raise the last failure where there is none, or ``ServiceDown`` to stop the run."""
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
                # A bad answer is kept under its own key: the next attempt is another request.
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
            failures, again = tries.service, self._bears(tries)
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

    def _bears(self, tries: _Tries) -> bool:
        """Whether the service may fail a record once more. While nothing gets through, the record is not at fault."""
        tries.service_since = _now() if tries.service_since is None else tries.service_since
        if tries.service < self._patience.attempts:
            return True
        success = self._breaker.last_success
        others_pass = success is not None and success > tries.service_since
        return not others_pass and _now() - tries.service_since < self._patience.breaker_seconds

    def _endures(self, failure: CallFailure, tries: _Tries) -> bool:
        """Whether the record may wait on. If nobody got through all the while it is the service, not the record."""
        tries.since = _now() if tries.since is None else tries.since
        if _now() - tries.since < self._patience.endurance:
            return True
        if self._breaker.last_success is None or self._breaker.last_success < tries.since:
            self._breaker.open(
                f"nothing got through for {self._patience.endurance:,.0f} s, last with {_sentence(failure)}"
            )
        return False


def _tokens(request: Request) -> int:
    """As providers count towards a limit: the prompt and the longest reply it allows."""
    usage = bound_usage(request, estimate_tokens)
    return usage.prompt_tokens + usage.completion_tokens


def _sentence(failure: CallFailure) -> str:
    return f"{str(failure).rstrip('.')}."


def _now() -> float:
    return asyncio.get_running_loop().time()
