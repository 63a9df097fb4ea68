"""Claims of one process on the records of a run, so that no other process on the same ledger works on them.

Claims are renewed while the process lives and given back when it stops. After a kill they run out, and another process
takes the records over. A ledger in a file has a single process, for which every claim succeeds without a query.
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
"""The stage of claims in the ledger: a record is claimed for all its jobs at once."""


class RecordClaims:
    """The claims of one process on the records of a run; created by :func:`hold_record_claims`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._active: set[str] = set()
        """Ids of claimed records that are in progress."""
        self._finished: set[str] = set()
        """Ids of finished records, whose claims are given back with the next renewal."""
        self._requests: list[tuple[str, asyncio.Future[bool]]] = []
        self._flush: asyncio.Task[None] | None = None

    async def claim(self, record_id: str) -> bool:
        """Claim a record; return whether this process has it now."""
        if not self._ledger.shared:
            return True
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._requests.append((record_id, granted))
        # Requests that arrive while a transaction runs go together in the next one.
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._answer_requests())
        return await granted

    async def claim_all(self, record_ids: Iterable[str]) -> set[str]:
        """Claim records; return the ids of those that this process has now."""
        claimed = set(await self._ledger.claim(RECORD_STAGE, record_ids))
        self._active |= claimed
        self._finished -= claimed
        return claimed

    def mark_finished(self, record_id: str) -> None:
        """Mark a record as finished: its claim is not renewed any more."""
        if record_id in self._active:
            self._active.discard(record_id)
            self._finished.add(record_id)

    async def renew(self) -> None:
        """Renew the claims on records in progress, and give back those on finished ones."""
        # A copy: records may be finished while the transaction runs.
        finished = set(self._finished)
        await self._ledger.give_back(RECORD_STAGE, finished)
        self._finished -= finished
        await self._ledger.claim(RECORD_STAGE, set(self._active))

    async def give_back_all(self) -> None:
        """Give back every claim."""
        await self._ledger.give_back(RECORD_STAGE, self._active | self._finished)

    async def _answer_requests(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            try:
                claimed = await self.claim_all(record_id for record_id, _ in requests)
            except Exception as error:
                for _, granted in requests:
                    if not granted.done():
                        granted.set_exception(error)
                continue
            for record_id, granted in requests:
                if not granted.done():
                    granted.set_result(record_id in claimed)


@asynccontextmanager
async def hold_record_claims(ledger: Ledger) -> AsyncIterator[RecordClaims]:
    """Renew claims while the block runs, and give them back at its end."""
    claims = RecordClaims(ledger)
    if not ledger.shared:
        yield claims
        return
    renewal = asyncio.create_task(_keep_renewing(claims))
    try:
        yield claims
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        with suppress(UserError):
            await claims.give_back_all()


async def _keep_renewing(claims: RecordClaims) -> None:
    while True:
        # A third of the lease: one renewal may fail or be late without losing the claims.
        await asyncio.sleep(LEASE_SECONDS / 3)
        # The run itself reports a database that is away.
        with suppress(UserError):
            await claims.renew()
