"""Shared rate limit of many workers: each leases a share of it in the common database.

The live workers divide the limit, and the sum of their shares never exceeds it. A new worker gets nothing until the
others have released a part; the share of a dead worker is free when its lease expires. All times are the database's.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.calls.ledger.commits import GroupCommitter
from eclose.calls.ledger.database import describe_database_location, is_database_url, make_database_engine, open_schema
from eclose.calls.ledger.queries import LEDGER_SCHEMA
from eclose.calls.ledger.rows import encode_utf8_text
from eclose.errors import Resumable, SettingError, UserError
from eclose.values.identity import hash_sort_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from contextlib import AsyncExitStack
    from pathlib import Path

    from sqlalchemy import Connection

    from eclose.calls.client import CallSettings, ModelConnection
    from eclose.calls.rate_limit import AdaptiveLimiter

LEASE_SECONDS = 15.0
"""Seconds for which a worker keeps its share without renewing it."""
_PATIENCE = 4
"""Leases without a successful renewal after which a worker stops."""
_CAUTION = 0.9
"""Part of its lease after which a worker without renewal stops sending: clocks of two machines differ."""

# Workers divide the limit of a model one at a time, so that no share is granted twice.
_LOCK = text("SELECT pg_advisory_xact_lock(:lock)")
_NOW = text("SELECT extract(epoch FROM clock_timestamp())")
_DELETE_EXPIRED = text("DELETE FROM ledger_shares WHERE run = :run AND model = :model AND expires <= :now")
_SELECT_OTHERS = text("""
    SELECT worker, ceiling, requests_per_minute, tokens_per_minute FROM ledger_shares
    WHERE run = :run AND model = :model AND worker <> :worker
""")
_UPSERT_SHARE = text("""
    INSERT INTO ledger_shares (run, model, worker, ceiling, requests_per_minute, tokens_per_minute, expires)
    VALUES (:run, :model, :worker, :ceiling, :requests_per_minute, :tokens_per_minute, :expires)
    ON CONFLICT (run, model, worker) DO UPDATE SET ceiling = excluded.ceiling, expires = excluded.expires,
    requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute
""")
_DELETE_SHARE = text("DELETE FROM ledger_shares WHERE run = :run AND model = :model AND worker = :worker")


@dataclass(frozen=True, slots=True)
class RateLimitShare:
    """A rate limit, or a worker's part of it."""

    ceiling: int
    """Largest number of requests in flight."""
    requests_per_minute: int | None = None
    """Requests per minute; None for no limit, here and below."""
    tokens_per_minute: int | None = None


class RateLimitDivision(NamedTuple):
    """Share of one worker after a division of the limit."""

    granted: RateLimitShare
    """Share that the worker may use from now on."""
    recorded: RateLimitShare
    """Share recorded in the database: larger while requests in flight exceed ``granted``."""
    settled: bool
    """Whether the worker has exactly its equal part."""


def divide_rate_limit(
    total: RateLimitShare, others: Mapping[bytes, RateLimitShare], worker: bytes, using: RateLimitShare
) -> RateLimitDivision:
    """Return a worker's equal part as far as the others have released it; ``using`` is its share in use now."""
    workers = sorted({*others, worker})
    index, count = workers.index(worker), len(workers)
    # The first workers in order get the remainder of the division.
    target = _usable(_combine(lambda limit: limit // count + (index < limit % count), total))
    # What others hold is subtracted although it may exceed their equal parts: they keep it until their next renewal.
    free = _combine(lambda limit, *shares: max(0, limit - sum(shares)), total, *others.values())
    granted = _usable(_combine(min, target, free))
    recorded = _combine(max, granted, using)
    return RateLimitDivision(granted, recorded, settled=granted == recorded == target)


async def share_rate_limits(
    connections: Mapping[str, ModelConnection],
    calls: CallSettings,
    where: Path | str,
    stack: AsyncExitStack,
    *,
    run: str,
) -> None:
    """Keep connected models, by name, within this process's share of the run's limits until the stack is closed."""
    total = RateLimitShare(calls.concurrency, calls.requests_per_minute, calls.tokens_per_minute)
    for name, connection in connections.items():
        await stack.enter_async_context(share_rate_limit(connection.limiter, total, where, run=run, model=name))


@asynccontextmanager
async def share_rate_limit(
    limiter: AdaptiveLimiter,
    total: RateLimitShare,
    where: Path | str,
    *,
    run: str,
    model: str,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[None]:
    """Keep a limiter within this worker's share of a run's limit for the length of the block.

    Nothing is sent before the first share is granted, or after it expires. Raises ``Resumable`` in the block where the
    database cannot be reached for several leases.
    """
    if not is_database_url(where):
        raise SettingError(
            f"{where}: workers can share a limit only in a PostgreSQL database. Pass --ledger postgresql://..."
        )
    worker = _Worker(limiter, total, where, run=run, model=model, lease_seconds=lease_seconds)
    # Before the first query: the limiter was built with the limit of the whole run.
    worker.apply(worker.nothing)
    try:
        await worker.join()
        async with _run_alongside(worker.renew_forever()):
            yield
    finally:
        await worker.leave()


class _Worker:
    def __init__(
        self,
        limiter: AdaptiveLimiter,
        total: RateLimitShare,
        where: Path | str,
        *,
        run: str,
        model: str,
        lease_seconds: float,
    ) -> None:
        self.nothing = _combine(lambda _: 0, total)
        self._limiter = limiter
        self._total = total
        self._name = secrets.token_bytes(8)
        self._row = {"run": encode_utf8_text(run), "model": encode_utf8_text(model), "worker": self._name}
        self._lock = int(hash_sort_key("shares", run, model)[:15], 16)
        self._lease = lease_seconds
        self._database = describe_database_location(where)
        self._commits = GroupCommitter(make_database_engine(where), self._database)
        self._granted = self.nothing
        self._joined = -inf
        self._until = 0.0
        self._expiry: asyncio.TimerHandle | None = None

    async def join(self) -> None:
        """Add this worker to the division."""
        await self._commits.run(lambda c: open_schema(c, LEDGER_SCHEMA, self._database))
        await self._renew()
        self._joined = _time()

    async def renew_forever(self) -> None:
        """Renew the lease until cancelled; raise where renewal fails for ``_PATIENCE`` leases."""
        settled = False
        while True:
            # Workers that start together or wait for each other's release renew more often.
            early = not settled or _time() < self._joined + self._lease
            await asyncio.sleep(self._lease / (15 if early else 3))
            try:
                settled = await self._renew()
            except UserError as problem:
                settled = False
                if _time() > self._until + _PATIENCE * self._lease:
                    raise Resumable(
                        f"this worker's share of the limit could not be renewed: {problem} "
                        "Finished work is kept: run the same command again to continue."
                    ) from problem

    async def leave(self) -> None:
        """Return the share; while requests are in flight it stays recorded until its lease expires."""
        self._stop_timer()
        self.apply(self.nothing)
        with suppress(UserError):
            if self._joined > -inf and not self._limiter.in_flight:
                await self._commits.run(lambda c: c.execute(_DELETE_SHARE, self._row).rowcount)
        self._commits.close()

    def apply(self, share: RateLimitShare) -> None:
        """Set the bounds of the limiter to a share."""
        self._granted = share
        rate = share.requests_per_minute
        # Requests are spaced evenly, but any window of a minute may hold one more than the rate, as may a minute in
        # which shares change: one request per minute is held back.
        spaced = None if rate is None else max(min(rate, 1), rate - 1)
        self._limiter.bound(
            ceiling=share.ceiling, requests_per_minute=spaced, tokens_per_minute=share.tokens_per_minute
        )

    async def _renew(self) -> bool:
        started = _time()
        # The granted share may be in use until it is withdrawn, and requests in flight cannot be withdrawn.
        using = replace(self._granted, ceiling=max(self._granted.ceiling, self._limiter.in_flight))
        division = await self._commits.run(lambda connection: self._divide(connection, using))
        # From the time before the query: the lease in the database starts at some moment after it, so this one ends
        # first.
        self._until = started + _CAUTION * self._lease
        self._stop_timer()
        # A timer of the event loop runs before any task that might send.
        self._expiry = asyncio.get_running_loop().call_at(self._until, self.apply, self.nothing)
        if division.granted != self._granted:
            self.apply(division.granted)
        return division.settled

    def _divide(self, connection: Connection, using: RateLimitShare) -> RateLimitDivision:
        connection.execute(_LOCK, {"lock": self._lock})
        now = float(connection.execute(_NOW).scalar_one())
        # Deletes this worker's own expired row as well; the upsert below writes it anew.
        connection.execute(_DELETE_EXPIRED, {**self._row, "now": now})
        others = {
            bytes(worker): RateLimitShare(*amounts)
            for worker, *amounts in connection.execute(_SELECT_OTHERS, self._row).all()
        }
        division = divide_rate_limit(self._total, others, self._name, using)
        # The columns are NOT NULL; ``_combine`` ignores the 0 of a limit that the run does not have.
        ceiling, requests, tokens = (amount or 0 for amount in astuple(division.recorded))
        amounts = {"ceiling": ceiling, "requests_per_minute": requests, "tokens_per_minute": tokens}
        connection.execute(_UPSERT_SHARE, {**self._row, **amounts, "expires": now + self._lease})
        return division

    def _stop_timer(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _combine(combine: Callable[..., int], first: RateLimitShare, *more: RateLimitShare) -> RateLimitShare:
    """Combine shares field by field; a field without a limit in the first share stays without."""
    rows = zip(*(astuple(share) for share in (first, *more)), strict=True)
    return RateLimitShare(*(None if row[0] is None else combine(*row) for row in rows))  # type: ignore[arg-type]


def _usable(share: RateLimitShare) -> RateLimitShare:
    """Return an empty share where any of its limits is 0, because nothing can be sent with it."""
    return _combine(lambda _: 0, share) if 0 in astuple(share) else share


@asynccontextmanager
async def _run_alongside(background: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine for the length of the block; where it fails, the block ends with its error."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(background)
            try:
                yield
            finally:
                task.cancel()
    except BaseExceptionGroup as failures:
        # The error of the coroutine comes before that of the block.
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure


def _time() -> float:
    return asyncio.get_running_loop().time()
