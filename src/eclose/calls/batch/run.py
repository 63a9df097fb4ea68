"""A provider's batch files: requests by the ten thousand at half the price, answered within a day.

Nothing is paid twice, wherever a run is killed: what is to be sent is on disk before it is sent, the provider's own
list says whether it arrived, and replies are joined by custom id alone. They go into the ledger under the key that the
same call has online, so whoever asks later, and however, finds them. What a batch did not answer is listed with the
reason, and stays unanswered: it may be submitted again, or asked online.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Self

from eclose.calls.batch.files import BatchFolder, BatchLine, BatchShard, ShardNote, ShardState, format_custom_id
from eclose.calls.batch.provider import BatchProvider, ProviderBatch
from eclose.calls.batch.results import BatchSettlement, CollectedBatches, UnansweredRequest, build_unanswered, chunked
from eclose.calls.budget import BudgetSpent
from eclose.calls.cache import compute_call_key
from eclose.errors import SettingError
from eclose.models.interface import identify_request
from eclose.models.openai.dialect import Dialect
from eclose.models.token_counts import bound_usage
from eclose.store.ledger.database import WriterLock
from eclose.store.ledger.ledger import CallIntent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from eclose.calls.budget import Budget
    from eclose.calls.prices import Price
    from eclose.models.interface import Request
    from eclose.models.openai.endpoint import Route
    from eclose.store.ledger.ledger import Ledger

__all__ = ["BatchSettings", "Batches", "CollectedBatches", "SubmittedBatches", "UnansweredRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How large batches are, and how they are waited for."""

    requests: int = 50_000
    """Of one batch, at most: what OpenAI takes."""
    bytes: int = 200_000_000
    """Of one batch's file, at most: what OpenAI takes."""
    poll: float = 60.0
    """Seconds between two looks."""
    deadline: float = 900.0
    """Seconds for one upload, download or question about a batch."""
    attempts: int = 8
    first_wait: float = 1.0
    """Seconds before a failed question is asked again, doubled each time."""
    largest_result: int = 4 * 2**30
    """Bytes of one file of results."""

    def __post_init__(self) -> None:
        """Refuse limits that let nothing through."""
        if min(self.requests, self.bytes, self.attempts, self.largest_result) < 1 or self.deadline <= 0:
            raise SettingError("requests, bytes, deadline, attempts and largest_result must be positive.")
        if min(self.poll, self.first_wait) < 0:
            raise SettingError("waiting times are not negative.")


@dataclass(slots=True)
class SubmittedBatches:
    """Where the records of a submission are: answered, under way, sent or refused, each counted once."""

    asked: int = 0
    answered: int = 0
    """The ledger has the reply."""
    under_way: int = 0
    """The request is in a batch already, or in the same one for another record."""
    sent: int = 0
    refused: list[UnansweredRequest] = field(default_factory=list)
    """What no batch can take."""
    batches: list[str] = field(default_factory=list)
    """The batches made now."""


class Batches:
    """The batches of one model in one run. Use it in an ``async with``; one process at a time has the folder."""

    def __init__(
        self,
        route: Route,
        ledger: Ledger,
        folder: Path,
        *,
        stage: str,
        price: Price | None = None,
        settings: BatchSettings | None = None,
    ) -> None:
        if not route.model:
            raise SettingError(f"{route.base_url}: which model? Name one of those it serves.")
        self._route = route
        self._ledger = ledger
        self._place = folder
        self._folder = BatchFolder(folder, route.name)
        self._stage = stage
        self._price = price
        """Of batches, which is another than that of single calls."""
        self._settings = settings or BatchSettings()
        self._dialect = Dialect()

    async def __aenter__(self) -> Self:
        """Take the folder. Nothing is sent yet."""
        self._lock = WriterLock(self._place / "batches", f"batches of {self._stage}")
        self._folder.clear()
        limits = self._settings
        self._provider = BatchProvider(
            self._route,
            deadline=limits.deadline,
            attempts=limits.attempts,
            first_wait=limits.first_wait,
            largest=limits.largest_result,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections, and let others in."""
        try:
            await self._provider.aclose()
        finally:
            self._lock.release()

    # --- sending -------------------------------------------------------------------------------------------------

    async def submit(self, requests: Iterable[tuple[str, Request]], budget: Budget | None = None) -> SubmittedBatches:
        """Send those of the records' requests that have no reply and are in no batch.

        Batches that were made and never noted are adopted first. Where the budget does not cover the next request,
        those before it are sent, and ``BudgetSpent`` is raised.
        """
        listed = await self._adopt()
        notes = self._folder.notes()
        self._learn(notes)
        unsent = [note for note in notes if note.state is ShardState.WRITTEN]
        under_way = {name for note in notes if note.state is ShardState.CREATED for name in note.records}
        sending = _Sending(listed, await self._intended_for(unsent), under_way)
        try:
            for some in chunked(requests):
                await self._take_in(some, sending, budget)
        except BudgetSpent:
            await self._send(sending)
            raise
        await self._send(sending)
        self._forget(unsent)
        return sending.tally

    def _learn(self, notes: list[ShardNote]) -> None:
        """Ask in the form that earlier results taught."""
        usual = asdict(Dialect())
        for note in notes:
            learned = {name: value for name, value in note.dialect.items() if value != usual[name]}
            self._dialect = replace(self._dialect, **learned)

    async def _intended_for(self, unsent: list[ShardNote]) -> set[str]:
        """The keys that were noted in the ledger for shards that never left: no second intent is due for them."""
        if not unsent:
            return set()
        names = {name for note in unsent for name in note.records}
        return {intent.key for intent in await self._ledger.list_orphans() if format_custom_id(intent.key) in names}

    async def _take_in(self, some: list[tuple[str, Request]], sending: _Sending, budget: Budget | None) -> None:
        """Put those requests of a handful that are new into the shard, and send it when it is full."""
        keys = [compute_call_key(self._route.name, request) for _, request in some]
        found = await asyncio.gather(*(self._ledger.find_reply(key) for key in keys))
        for (record_id, request), key, settled in zip(some, keys, found, strict=True):
            sending.tally.asked += 1
            if settled is not None:
                sending.tally.answered += 1
            elif not sending.joins(key, record_id):
                await self._put(self._asked(key, record_id, request), sending, budget)

    def _asked(self, key: str, record_id: str, request: Request) -> BatchLine:
        worst = 0 if self._price is None else self._price.cost(bound_usage(request))
        intent = CallIntent(key, identify_request(self._route.name, request), self._stage, record_id, worst)
        return BatchLine.of(intent, self._dialect.body(self._route.model, request))

    async def _put(self, asked: BatchLine, sending: _Sending, budget: Budget | None) -> None:
        limits, size = self._settings, len(asked.line)
        if size > limits.bytes:
            problem = f"the request has {size:,} bytes, and a batch {limits.bytes:,} at most."
            refused = UnansweredRequest(asked.intent.key, (asked.intent.record_id,), "too_large", problem)
            sending.tally.refused.append(refused)
            return
        if len(sending.shard.asked) == limits.requests or sending.shard.size + size > limits.bytes:
            await self._send(sending)
        if budget is not None:
            budget.reserve(asked.intent.reserved)
        sending.shard.add(asked)
        sending.tally.sent += 1

    async def _send(self, sending: _Sending) -> None:
        """Make a batch of the shard, if there is anything in it, and begin another."""
        shard, sending.shard = sending.shard, BatchShard()
        if not shard.asked:
            return
        note = shard.note(self._route.name)
        if (before := self._folder.find(note.shard)) is not None:
            note.earlier = [*before.earlier, *([before.batch_id] if before.batch_id else [])]
        self._folder.write(shard, note)
        intents = (asked.intent for asked in shard.asked.values())
        for some in chunked(intent for intent in intents if intent.key not in sending.intended):
            await asyncio.gather(*(self._ledger.intend(intent) for intent in some))
        if (batch := _made_of(note, sending.listed, set(note.earlier))) is None:
            batch = await self._create(note)
            sending.tally.batches.append(batch.id)
        self._keep(note, batch)
        sending.under_way.update(shard.asked)

    async def _create(self, note: ShardNote) -> ProviderBatch:
        """Make a batch. From the second line on nobody but the provider knows whether there is one."""
        note.file_id = await self._provider.upload(self._folder.requests(note))
        note.state = ShardState.INTENDED
        self._folder.save(note)
        return await self._provider.create(note.file_id, note.shard)

    def _keep(self, note: ShardNote, batch: ProviderBatch) -> None:
        note.state, note.batch_id = ShardState.CREATED, batch.id
        self._folder.save(note)

    def _forget(self, unsent: list[ShardNote]) -> None:
        """Drop shards that never left: what is still wanted of them is in new ones."""
        for note in unsent:
            now = self._folder.find(note.shard)
            if now is not None and now.state is ShardState.WRITTEN:
                self._folder.drop(note)

    async def _adopt(self) -> list[ProviderBatch]:
        """Find the batches of shards whose making was not noted; all that the provider has."""
        listed = await self._provider.all()
        notes = self._folder.notes()
        known = {batch_id for note in notes for batch_id in (note.batch_id, *note.earlier) if batch_id}
        lost = [note for note in notes if note.state is ShardState.INTENDED]
        if any(_made_of(note, listed, known) is None for note in lost):
            # A list may lag behind. To wait costs a minute, to make a batch anew may cost all of it again.
            await asyncio.sleep(self._settings.poll)
            listed = await self._provider.all()
        for note in lost:
            if (batch := _made_of(note, listed, known)) is not None:
                self._keep(note, batch)
            else:
                note.state = ShardState.WRITTEN
                self._folder.save(note)
        return listed

    # --- collecting ----------------------------------------------------------------------------------------------

    async def collect(self, *, wait: float | None = None) -> CollectedBatches:
        """Put into the ledger what batches answered, as they get done; after so many seconds, what there is by then."""
        if any(note.state is ShardState.INTENDED for note in self._folder.notes()):
            await self._adopt()
        end = None if wait is None else time.monotonic() + wait
        collected = CollectedBatches()
        while True:
            await self._look(collected)
            left = math.inf if end is None else end - time.monotonic()
            if not collected.under_way or left <= 0:
                break
            await asyncio.sleep(min(self._settings.poll, left))
        for note in self._folder.notes():
            if note.state is ShardState.WRITTEN:
                collected.unanswered += [build_unanswered(note, name, "unsent") for name in note.records]
        return collected

    async def _look(self, collected: CollectedBatches) -> None:
        """Collect the batches that are done, and count the requests of the others."""
        collected.under_way = 0
        for note in self._folder.notes():
            if note.state is not ShardState.CREATED:
                continue
            assert note.batch_id is not None
            batch = await self._provider.retrieve(note.batch_id)
            if batch.done:
                await self._settle(note, batch, collected)
            else:
                collected.under_way += len(note.records)

    async def _settle(self, note: ShardNote, batch: ProviderBatch, collected: CollectedBatches) -> None:
        fetched = [(path, await self._provider.download(file_id, path)) for path, file_id in self._files(note, batch)]
        settling = BatchSettlement(note, batch, self._ledger, self._price, self._route.key, self._dialect)
        await settling.run(self._folder.requests(note), [path for path, there in fetched if there], collected)
        self._dialect = settling.dialect
        note.state, note.dialect = ShardState.COLLECTED, asdict(self._dialect)
        self._folder.save(note)

    def _files(self, note: ShardNote, batch: ProviderBatch) -> list[tuple[Path, str]]:
        return [(self._folder.results(note, kind), file_id) for kind, file_id in batch.files]


class _Sending:
    """One submission on its way."""

    def __init__(self, listed: list[ProviderBatch], intended: set[str], under_way: set[str]) -> None:
        self.tally = SubmittedBatches()
        self.shard = BatchShard()
        self.listed = listed
        self.intended = intended
        self.under_way = under_way

    def joins(self, key: str, record_id: str) -> bool:
        """Whether the request is in a batch, so that the record need only wait."""
        name = format_custom_id(key)
        if name in self.shard.records:
            self.shard.records[name].append(record_id)
        elif name not in self.under_way:
            return False
        self.tally.under_way += 1
        return True


def _made_of(note: ShardNote, listed: list[ProviderBatch], known: set[str]) -> ProviderBatch | None:
    """The batch of a shard that no note knows: by what was written on it, or, where that got lost, by its file."""
    for batch in listed:
        ours = batch.shard == note.shard or (note.file_id is not None and batch.input_file_id == note.file_id)
        if ours and batch.id not in known:
            return batch
    return None
