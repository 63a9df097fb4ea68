"""One limit for many workers: each leases a share of it from the database they all work on.

As many workers as are alive divide the limit between them, and what they hold never adds up to more than the whole. A
newcomer gets nothing until the others have given something up; what a dead worker held comes back when its lease runs
out. All times are the database's. Knows limits as numbers, nothing of who is asked.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sqlalchemy import text

from eclose.core.identity import hash_rank
from eclose.errors import Resumable, SettingError, UserError
from eclose.store.ledger.database import make_engine, is_url, migrate, describe_location
from eclose.store.ledger.group_commit import GroupCommitter
from eclose.store.ledger.rows import encode_text
from eclose.store.ledger.schema import MIGRATIONS, MIGRATIONS_TABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from sqlalchemy import Connection

LEASE_SECONDS = 15.0
"""How long a worker that says nothing keeps its share."""
_PATIENCE = 4
"""Leases without a word from the database after which a worker gives up."""
_CAUTION = 0.9
"""The part of its lease after which a worker that could not renew it stops: clocks do not run quite alike."""

# One at a time divides the limit of a model, so that nobody counts on what another is about to take.
_ALONE = text("SELECT pg_advisory_xact_lock(:lock)")
_NOW = text("SELECT extract(epoch FROM clock_timestamp())")
_FORGET = text("DELETE FROM ledger_shares WHERE run = :run AND model = :model AND expires <= :now")
_OTHERS = text("""
    SELECT worker, ceiling, requests_per_minute, tokens_per_minute FROM ledger_shares
    WHERE run = :run AND model = :model AND worker <> :worker
""")
_KEEP = text("""
    INSERT INTO ledger_shares (run, model, worker, ceiling, requests_per_minute, tokens_per_minute, expires)
    VALUES (:run, :model, :worker, :ceiling, :requests_per_minute, :tokens_per_minute, :expires)
    ON CONFLICT (run, model, worker) DO UPDATE SET ceiling = excluded.ceiling, expires = excluded.expires,
    requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute
""")
_LEAVE = text("DELETE FROM ledger_shares WHERE run = :run AND model = :model AND worker = :worker")


@dataclass(frozen=True, slots=True)
class LimitShare:
    """A limit, or a part of one."""

    ceiling: int
    """Requests under way at most."""
    requests_per_minute: int | None = None
    """None for no limit, here and below: of that everybody has as much."""
    tokens_per_minute: int | None = None


class BoundedLimiter(Protocol):
    """What keeps a worker's requests within bounds that can be moved."""

    in_flight: int
    """Requests under way."""

    def bound(self, *, ceiling: int, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        """Keep to these from now on; a ceiling of 0 lets nobody go."""
        ...


class LimitDivision(NamedTuple):
    """What dividing a limit came to for one worker."""

    granted: LimitShare
    """What the worker may use from now on."""
    kept: LimitShare
    """What is noted as its own: more, as long as it has not let go of what it had."""
    settled: bool
    """Whether it has what it should have, and no more."""


def divide_limit(
    total: LimitShare, others: Mapping[bytes, LimitShare], worker: bytes, using: LimitShare
) -> LimitDivision:
    """A worker's equal part, as far as the others have left it; ``using`` is what it may have in use at this moment."""
    workers = sorted({*others, worker})
    place, count = workers.index(worker), len(workers)
    target = _usable(_each(lambda whole: whole // count + (place < whole % count), total))
    free = _each(lambda whole, *taken: max(0, whole - sum(taken)), total, *others.values())
    granted = _usable(_each(min, target, free))
    kept = _each(max, granted, using)
    return LimitDivision(granted, kept, settled=granted == kept == target)


@asynccontextmanager
async def share_limit(
    limiter: BoundedLimiter,
    total: LimitShare,
    where: Path | str,
    *,
    run: str,
    model: str,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[None]:
    """Keep a limiter within this worker's share of a run's limit, for as long as the block lasts.

    At first, and whenever the share is lost, nothing may go. Raises ``Resumable`` in the block when the database has
    not been heard of for some leases.
    """
    if not is_url(where):
        raise SettingError(f"{where}: workers share a limit in a PostgreSQL database only. Write postgresql://...")
    worker = _Worker(limiter, total, where, run=run, model=model, lease_seconds=lease_seconds)
    worker.apply(worker.nothing)
    try:
        await worker.join()
        async with _alongside(worker.keep()):
            yield
    finally:
        await worker.leave()


class _Worker:
    """One worker, from when it joins to when it leaves."""

    def __init__(
        self,
        limiter: BoundedLimiter,
        total: LimitShare,
        where: Path | str,
        *,
        run: str,
        model: str,
        lease_seconds: float,
    ) -> None:
        self.nothing = _each(lambda _: 0, total)
        self._limiter = limiter
        self._total = total
        self._name = secrets.token_bytes(8)
        self._given = {"run": encode_text(run), "model": encode_text(model), "worker": self._name}
        self._lock = int(hash_rank("shares", run, model)[:15], 16)
        self._lease = lease_seconds
        self._place = describe_location(where)
        self._commits = GroupCommitter(make_engine(where), self._place)
        self._granted = self.nothing
        self._joined = -inf
        self._until = 0.0
        self._lapse: asyncio.TimerHandle | None = None

    async def join(self) -> None:
        """Be counted from now on."""
        await self._commits.run(lambda c: migrate(c, MIGRATIONS, MIGRATIONS_TABLE, self._place))
        await self._renew()
        self._joined = _time()

    async def keep(self) -> None:
        """Renew the lease for good; raises when that has not worked for long."""
        settled = False
        while True:
            # Those who start together, and those who wait for each other, look more often.
            early = not settled or _time() < self._joined + self._lease
            await asyncio.sleep(self._lease / (15 if early else 3))
            try:
                settled = await self._renew()
            except UserError as problem:
                settled = False
                if _time() > self._until + _PATIENCE * self._lease:
                    raise Resumable(
                        f"this worker's share of the limit could not be renewed: {problem} "
                        "What is done is kept: run the same command again to go on."
                    ) from problem

    async def leave(self) -> None:
        """Give the share back, unless some of it is still in use: then its lease runs out."""
        self._stop_timer()
        self.apply(self.nothing)
        with suppress(UserError):
            if self._joined > -inf and not self._limiter.in_flight:
                await self._commits.run(lambda c: c.execute(_LEAVE, self._given).rowcount)
        self._commits.close()

    def apply(self, share: LimitShare) -> None:
        """Have the limiter keep to a share."""
        self._granted = share
        rate = share.requests_per_minute
        # Sends are spaced evenly, yet a minute that begins at any moment may hold one more than its part, and so may
        # one in which the shares move: that one is kept in hand.
        spaced = None if rate is None else max(min(rate, 1), rate - 1)
        self._limiter.bound(
            ceiling=share.ceiling, requests_per_minute=spaced, tokens_per_minute=share.tokens_per_minute
        )

    async def _renew(self) -> bool:
        """Whether this worker has what it should have now."""
        asked_at = _time()
        # What was granted may be used up to the moment it is taken back, and requests under way cannot be.
        using = replace(self._granted, ceiling=max(self._granted.ceiling, self._limiter.in_flight))
        division = await self._commits.run(lambda connection: self._divide(connection, using))
        self._until = asked_at + _CAUTION * self._lease
        self._stop_timer()
        # A timer of the loop's own comes before any task that might send.
        self._lapse = asyncio.get_running_loop().call_at(self._until, self.apply, self.nothing)
        if division.granted != self._granted:
            self.apply(division.granted)
        return division.settled

    def _divide(self, connection: Connection, using: LimitShare) -> LimitDivision:
        connection.execute(_ALONE, {"lock": self._lock})
        now = float(connection.execute(_NOW).scalar_one())
        connection.execute(_FORGET, {**self._given, "now": now})
        others = {
            bytes(worker): LimitShare(*amounts) for worker, *amounts in connection.execute(_OTHERS, self._given).all()
        }
        division = divide_limit(self._total, others, self._name, using)
        ceiling, requests, tokens = (amount or 0 for amount in astuple(division.kept))
        amounts = {"ceiling": ceiling, "requests_per_minute": requests, "tokens_per_minute": tokens}
        connection.execute(_KEEP, {**self._given, **amounts, "expires": now + self._lease})
        return division

    def _stop_timer(self) -> None:
        if self._lapse is not None:
            self._lapse.cancel()
            self._lapse = None


def _each(combine: Callable[..., int], first: LimitShare, *more: LimitShare) -> LimitShare:
    """Combine the parts of shares one by one; what is not limited in the first stays so."""
    rows = zip(*(astuple(share) for share in (first, *more)), strict=True)
    return LimitShare(*(None if row[0] is None else combine(*row) for row in rows))  # type: ignore[arg-type]


def _usable(share: LimitShare) -> LimitShare:
    """Who has none of one thing can use nothing of the others."""
    return _each(lambda _: 0, share) if 0 in astuple(share) else share


@asynccontextmanager
async def _alongside(keeping: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have something done for as long as the block lasts; where it fails, the block ends with its error."""
    block = asyncio.current_task()
    assert block is not None
    keeper = asyncio.create_task(keeping)

    def end_block(_: asyncio.Task[None]) -> None:
        block.cancel()

    keeper.add_done_callback(end_block)
    try:
        yield
    except asyncio.CancelledError:
        if not keeper.done() or keeper.cancelled():
            raise
        block.uncancel()
        keeper.result()
    finally:
        keeper.remove_done_callback(end_block)
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


def _time() -> float:
    return asyncio.get_running_loop().time()
