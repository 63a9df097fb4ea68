"""Which records this process works on: claimed in the ledger, so that no other process on the same run takes them.

A claim is renewed while the process lives and given back when it stops. After a kill it runs out, and another process
takes the record over. A ledger in a file has one process, which need not claim anything.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.store.ledger.accounts import LEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from eclose.store.ledger.ledger import Ledger

RECORD_STAGE = "record"
"""The stage under which a record is claimed with all its jobs."""


class RecordClaims:
    """The claims of one process on the records of a run; made by :func:`claiming`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: set[str] = set()
        self._over: set[str] = set()
        """Done, and to be given back with the next renewal."""
        self._requests: list[tuple[str, asyncio.Future[bool]]] = []
        self._flush: asyncio.Task[None] | None = None

    async def take(self, record_id: str) -> bool:
        """Claim a record; return whether it is ours. Those that are asked for at the same time go together."""
        if not self._ledger.shared:
            return True
        ours: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._requests.append((record_id, ours))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._answer())
        return await ours

    async def take_all(self, record_ids: Iterable[str]) -> set[str]:
        """Claim records; return those that are ours."""
        ours = set(await self._ledger.claim(RECORD_STAGE, record_ids))
        self._held |= ours
        self._over -= ours
        return ours

    def finish(self, record_id: str) -> None:
        """Note that the work on a record has ended."""
        if record_id in self._held:
            self._held.discard(record_id)
            self._over.add(record_id)

    async def renew(self) -> None:
        """Renew what is held, and give back what is done."""
        over = set(self._over)
        await self._ledger.give_back(RECORD_STAGE, over)
        self._over -= over
        await self._ledger.claim(RECORD_STAGE, set(self._held))

    async def leave(self) -> None:
        """Give everything back."""
        await self._ledger.give_back(RECORD_STAGE, self._held | self._over)

    async def _answer(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            try:
                ours = await self.take_all(record_id for record_id, _ in requests)
            except Exception as error:
                for _, future in requests:
                    if not future.done():
                        future.set_exception(error)
                continue
            for record_id, future in requests:
                if not future.done():
                    future.set_result(record_id in ours)


@asynccontextmanager
async def hold_claims(ledger: Ledger) -> AsyncIterator[RecordClaims]:
    """Hold claims for as long as the block lasts."""
    claims = RecordClaims(ledger)
    if not ledger.shared:
        yield claims
        return
    keeper = asyncio.create_task(_keep(claims))
    try:
        yield claims
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        with suppress(UserError):
            await claims.leave()


async def _keep(claims: RecordClaims) -> None:
    while True:
        await asyncio.sleep(LEASE_SECONDS / 3)
        # Where the database is away the run learns of it by itself.
        with suppress(UserError):
            await claims.renew()
