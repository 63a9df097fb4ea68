"""Retry policy for model calls. The only layer that retries: every other layer sends once and raises.

Rate limits and connection failures do not use up a record's attempts. Time-outs and 5xx do, but a record is not given
up while no call at all succeeds. An unusable answer of the model is retried only on request. After enough failures over
enough time without a success the circuit breaker stops the run, and the same command resumes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import CallContext
from eclose.calls.tokens import bound_request_usage, estimate_token_count
from eclose.errors import Resumable, SettingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from eclose.calls.model import Reply, Request
    from eclose.calls.rate_limit import AdaptiveLimiter

# More attempts would select the replies that happen to match the schema, and so bias what is measured.
MOST_SEMANTIC_ATTEMPTS = 3
# Failures that say something about the server; many in a row stop the run.
_SERVICE_FAILURES = frozenset({CallFailureKind.CONNECTION, CallFailureKind.TIMEOUT, CallFailureKind.TRANSIENT})
# Failures that say something about one request; the record is given up without a retry.
_REQUEST_FAILURES = frozenset({CallFailureKind.PERMANENT, CallFailureKind.TOO_LONG})
# Failures that waiting alone resolves and that say nothing about the record: they use up none of its attempts.
_FREE_FAILURES = frozenset({CallFailureKind.RATE_LIMIT, CallFailureKind.CONNECTION})


class ServiceDown(Resumable):
    """The model server cannot be used at the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of retrying, and of the circuit breaker."""

    attempts: int = 5
    """Service failures (5xx, time-out) after which a record is given up, if other calls succeeded since its first
    failure or ``breaker_seconds`` have passed."""
    semantic_attempts: int = 1
    """Attempts where the model refuses, is cut off or does not match the schema. More than one shifts the distribution
    of accepted replies, so attempts are counted."""
    first_wait: float = 1.0
    longest_wait: float = 60.0
    """Seconds: a retry waits a random time up to ``first_wait``, doubled per failure, at most ``longest_wait``."""
    longest_pause: float = 900.0
    """Seconds: a longer ``Retry-After`` stops the run."""
    endurance: float = 3600.0
    """Seconds for which one record may meet rate limits or connection failures."""
    breaker_failures: int = 20
    """Service failures in a row, over all records, that stop the run once ``breaker_seconds`` have passed."""
    breaker_seconds: float = 60.0
    """Seconds without a success since the first failure in the row that stop the run after ``breaker_failures``."""

    def __post_init__(self) -> None:
        problems = []
        if self.attempts < 1:
            problems.append("attempts must be at least 1.")
        if not 1 <= self.semantic_attempts <= MOST_SEMANTIC_ATTEMPTS:
            problems.append(f"semantic_attempts must lie between 1 and {MOST_SEMANTIC_ATTEMPTS}.")
        if self.breaker_failures < 1:
            problems.append("breaker_failures must be at least 1.")
        seconds = (self.first_wait, self.longest_wait, self.longest_pause, self.endurance, self.breaker_seconds)
        if min(seconds) < 0:
            problems.append("waiting times must not be negative.")
        if problems:
            raise SettingError(" ".join(problems))


class CircuitBreaker:
    """Admits requests, and stops the run after enough failures over enough time. Once open it stays open."""

    def __init__(self, policy: RetryPolicy, limiter: AdaptiveLimiter) -> None:
        self.policy = policy
        self._limiter = limiter
        self._failures_in_row = 0
        self._refused = 0
        """Number of requests that were refused for their content."""
        self._row_began = 0.0
        self._row_seconds = 0.0
        self._problem: str | None = None
        self.opened = asyncio.Event()
        self.last_success: float | None = None

    def check(self) -> None:
        """Raise ``ServiceDown`` if the breaker is open."""
        if self._problem is not None:
            raise ServiceDown(f"{self._problem} Finished work is kept: run the same command again to continue.")

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[None]:
        """Hold a slot of the limiter for a request; record a ``CallFailure`` that ends the block."""
        tokens = 0
        # Tokens are counted only where a limit needs them: counting reads the whole prompt.
        if self._limiter.limits.tokens_per_minute is not None:
            # As providers do for rate limits: the prompt and the longest reply it allows.
            usage = bound_request_usage(request, estimate_token_count)
            tokens = usage.prompt_tokens + usage.completion_tokens
        async with self._limiter.slot(tokens):
            self.check()  # after the queue: nothing is sent once the breaker is open
            try:
                yield
            except CallFailure as failure:
                self._limiter.record_failure(failure)
                self._record_failure(failure)
                raise

    def record_success(self) -> None:
        """Record that the service answered."""
        self._limiter.record_success()
        self._end_row()

    def _end_row(self) -> None:
        self._failures_in_row = 0
        self.last_success = _now()

    def _record_failure(self, failure: CallFailure) -> None:
        if failure.kind.semantic:
            self._end_row()  # the model answered, so the service works
        elif failure.kind is CallFailureKind.DENIED:
            self.open(f"the model server refuses all requests ({failure}).")
        elif failure.kind in _REQUEST_FAILURES:
            # One refused request concerns its record only. If all are refused, a setting is wrong.
            self._failures_in_row, self._refused = 0, self._refused + 1
            if self.last_success is None and self._refused >= self.policy.breaker_failures:
                self.open(f"the model server refused all of {self._refused} requests, last with {_sentence(failure)}")
        elif failure.kind in _SERVICE_FAILURES:
            self._count_failure(failure)

    def _count_failure(self, failure: CallFailure) -> None:
        if self._failures_in_row == 0:
            self._row_began = _now()
        self._failures_in_row += 1
        self._row_seconds = _now() - self._row_began
        if self._failures_in_row >= self.policy.breaker_failures and self._row_seconds >= self.policy.breaker_seconds:
            self.open(
                f"the model server failed {self._failures_in_row} times in a row for {self._row_seconds:,.0f} s, last "
                f"with {_sentence(failure)} (breaker_seconds sets how long to wait.)"
            )

    @property
    def trouble(self) -> str | None:
        """Text about the time without a success; None while calls succeed."""
        if self._failures_in_row < self.policy.breaker_failures:
            return None
        return f"no success for {self._row_seconds:,.0f} s (stops at {self.policy.breaker_seconds:,.0f} s)"

    def open(self, problem: str) -> None:
        """Stop the run with this problem, unless it is stopped already."""
        if self._problem is None:
            self._problem = problem
            self.opened.set()
            self._limiter.release_waiting()  # requests in the queue meet the breaker instead of waiting

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or until the breaker opens."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.opened.wait()


@dataclass(slots=True)
class _Failures:
    service: int = 0
    semantic: int = 0
    free: int = 0
    since: float | None = None
    """Time of its first rate limit or connection failure."""
    service_since: float | None = None
    """Time of its first service failure."""


class RetryingModel:
    """A ``ChatModel`` that retries failures. Its copies for records share the breaker and the counts."""

    def __init__(
        self,
        name: str,
        send: Callable[[Request, CallContext], Awaitable[Reply]],
        breaker: CircuitBreaker,
        *,
        rng: Random | None = None,
    ) -> None:
        self.name = name
        """Name of the model in records and call keys."""
        self.failures: Counter[CallFailureKind] = Counter()
        """Number of failures of all attempts, by kind."""
        self._send = send
        """Coroutine function of a request and what it is for, which sends it once."""
        self._breaker = breaker
        self._policy = breaker.policy
        self._rng = rng or Random()
        self._context = CallContext()

    def for_record(self, context: CallContext) -> RetryingModel:
        """Return the model for the calls of one job on one record."""
        model = copy(self)
        model._context = context
        return model

    @property
    def trouble(self) -> str | None:
        """Text about the time without a success, for a progress line; None while calls succeed."""
        return self._breaker.trouble

    async def complete(self, request: Request) -> Reply:
        """Return the reply; raise the last failure where attempts are used up, or ``ServiceDown`` to stop the run."""
        failures = _Failures()
        while True:
            try:
                return await self._send(request, self._context)
            except CallFailure as failure:
                self.failures[failure.kind] += 1
                wait = self._wait_after(failure, failures)
                self._breaker.check()
                if wait is None:
                    raise
            # An unusable answer is stored under its own key, so the next attempt is a different request.
            request = replace(request, attempt=failures.semantic)
            await self._breaker.sleep(wait)

    def _wait_after(self, failure: CallFailure, failures: _Failures) -> float | None:
        if failure.kind in _FREE_FAILURES:
            failures.free += 1
            count, retry = failures.free, self._may_wait(failure, failures)
        elif failure.kind in _SERVICE_FAILURES:
            failures.service += 1
            count, retry = failures.service, self._may_fail_again(failures)
        elif failure.kind.semantic:
            failures.semantic += 1
            count, retry = 0, failures.semantic < self._policy.semantic_attempts
        else:
            return None
        if not retry:
            return None
        if (pause := failure.retry_after) is not None:
            # Without jitter: the limiter spaces the retries.
            if pause > self._policy.longest_pause:
                self._breaker.open(f"the model server asks for a pause of {pause:,.0f} s ({failure}).")
            return pause
        # Full jitter, so that calls that failed together are spread out. The exponent is bounded at 30, since 2**1024
        # no longer fits into a float; the wait has reached its limit long before.
        longest = min(self._policy.longest_wait, self._policy.first_wait * 2 ** min(count - 1, 30))
        return self._rng.uniform(0, longest) if count else 0.0

    def _may_fail_again(self, failures: _Failures) -> bool:
        failures.service_since = _now() if failures.service_since is None else failures.service_since
        if failures.service < self._policy.attempts:
            return True
        success = self._breaker.last_success
        # While no other call succeeds, the service is at fault and not the record.
        others_succeed = success is not None and success > failures.service_since
        return not others_succeed and _now() - failures.service_since < self._policy.breaker_seconds

    def _may_wait(self, failure: CallFailure, failures: _Failures) -> bool:
        """Return whether a record may wait longer; open the breaker where no other call succeeded meanwhile."""
        failures.since = _now() if failures.since is None else failures.since
        if _now() - failures.since < self._policy.endurance:
            return True
        if self._breaker.last_success is None or self._breaker.last_success < failures.since:
            self._breaker.open(f"no call succeeded for {self._policy.endurance:,.0f} s, last with {_sentence(failure)}")
        return False


def _sentence(failure: CallFailure) -> str:
    return f"{str(failure).rstrip('.')}."


def _now() -> float:
    return asyncio.get_running_loop().time()
