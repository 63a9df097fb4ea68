"""Submit requests as batch files of a provider, and collect the replies: half the price, within a day.

Nothing is paid twice, wherever a run is killed: requests are on disk before they are sent, the provider's own list
shows which batches exist, and replies are joined by custom id alone. Replies are stored in the ledger under the key of
the same online call, so later runs find them. Requests without a reply are listed with the reason; they can be
submitted again or sent online.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Self

from eclose.calls.batches.files import (
    BatchFolder,
    BatchShard,
    BatchShardNote,
    BatchShardState,
    encode_request_line,
    format_custom_id,
    parse_custom_id,
)
from eclose.calls.batches.provider import BatchProvider, ProviderBatch
from eclose.calls.batches.results import (
    BatchLedgerWriter,
    CollectedBatches,
    UnansweredRequest,
    chunk_for_ledger,
)
from eclose.calls.budget import BudgetSpent
from eclose.calls.ledger.database import WriterLock
from eclose.calls.ledger.ledger import CallIntent
from eclose.calls.model import identify_request
from eclose.calls.paid_once import compute_call_key
from eclose.calls.tokens import bound_request_usage
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from eclose.calls.budget import RunBudget
    from eclose.calls.http.endpoint import ModelRoute
    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import Request
    from eclose.calls.prices import ModelPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Sizes of batches, and times for polling them."""

    requests: int = 50_000
    """Largest number of requests in a batch; the default is OpenAI's limit."""
    bytes: int = 200_000_000
    """Largest size of a batch file in bytes; the default is OpenAI's limit."""
    poll: float = 60.0
    """Seconds between two polls of a batch."""
    deadline: float = 900.0
    """Seconds for one upload, download or status request."""
    attempts: int = 8
    first_wait: float = 1.0
    """Seconds before the first retry of a failed request, doubled each time."""
    largest_result: int = 4 * 2**30
    """Largest size of a file of results in bytes."""
    price_factor: float = 0.5
    """Price of a call in a batch as a share of the price of a single call."""
    wait: float | None = None
    """Seconds that a run waits for its batches before it stops and leaves them to a later one; None for no limit."""

    def __post_init__(self) -> None:
        if min(self.requests, self.bytes, self.attempts, self.largest_result) < 1 or self.deadline <= 0:
            raise SettingError("requests, bytes, deadline, attempts and largest_result must be positive.")
        if min(self.poll, self.first_wait, self.price_factor, self.wait or 0.0) < 0:
            raise SettingError("poll, first_wait, price_factor and wait must not be negative.")


@dataclass(slots=True)
class SubmittedBatches:
    """Records of a submission by state: answered, in progress, sent or refused, each counted once."""

    received: int = 0
    answered: int = 0
    """Requests whose reply is in the ledger."""
    under_way: int = 0
    """Requests in an earlier batch, or in the same batch for another record."""
    sent: int = 0
    refused: list[UnansweredRequest] = field(default_factory=list)
    """Requests that are too large for a batch."""
    batches: list[str] = field(default_factory=list)
    """Ids of the batches that were created."""


class ModelBatches:
    """The batches of one model in one run. Use it in an ``async with``; one process at a time may use the folder."""

    def __init__(
        self,
        route: ModelRoute,
        ledger: Ledger,
        folder: Path,
        *,
        stage: str,
        price: ModelPrice | None = None,
        settings: BatchSettings | None = None,
    ) -> None:
        if not route.model:
            raise SettingError(f"{route.base_url}: no model is named. Name one of the models of this server.")
        self._route = route
        self._ledger = ledger
        self._path = folder
        self._folder = BatchFolder(folder, route.name)
        self._stage = stage
        self._price = price
        """Price of batch calls, which differs from the price of single calls."""
        self._settings = settings or BatchSettings()
        self._dialect = route.dialect

    async def __aenter__(self) -> Self:
        """Lock the folder; nothing is sent yet."""
        self._lock = WriterLock(self._path / "batches", f"batches of {self._stage}")
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

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._provider.aclose()
        finally:
            self._lock.release()

    # --- sending -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        requests: Iterable[tuple[str, Request]] | AsyncIterable[list[tuple[str, Request]]],
        budget: RunBudget | None = None,
    ) -> SubmittedBatches:
        """Send the requests that have no reply and are in no batch; given one by one, or in lists as they are built.

        Batches that were created but not noted are adopted first. Where the budget does not cover the next request,
        the requests before it are sent and ``BudgetSpent`` is raised.
        """
        # Before anything is sent: a batch whose creation was not noted (kill -9 after the request) would be created
        # twice.
        listed = await self._adopt()
        notes = self._folder.notes()
        default = asdict(self._route.dialect)
        for note in notes:
            # The variant of the request body that earlier results showed to work.
            learned = {name: value for name, value in note.dialect.items() if value != default[name]}
            self._dialect = replace(self._dialect, **learned)
        unsent = [note for note in notes if note.state is BatchShardState.WRITTEN]
        under_way = {name for note in notes if note.state is BatchShardState.CREATED for name in note.records}
        names = {name for note in unsent for name in note.records}
        # Shards that were never sent may have intents in the ledger; their requests need no second one.
        orphans = await self._ledger.list_orphans() if unsent else []
        intended = {intent.key for intent in orphans if format_custom_id(intent.key) in names}
        submission = _Submission(listed, intended, under_way)
        try:
            async for chunk in _chunk_requests(requests):
                await self._add_new(chunk, submission, budget)
        except BudgetSpent:
            await self._send(submission)
            raise
        await self._send(submission)
        for note in unsent:
            current = self._folder.find(note.shard)
            if current is not None and current.state is BatchShardState.WRITTEN:
                self._folder.drop(note)
        return submission.counts

    async def _add_new(
        self, chunk: list[tuple[str, Request]], submission: _Submission, budget: RunBudget | None
    ) -> None:
        keys = [compute_call_key(self._route.name, request) for _, request in chunk]
        replies = await asyncio.gather(*(self._ledger.find_reply(key) for key in keys))
        for (record_id, request), key, settled in zip(chunk, keys, replies, strict=True):
            submission.counts.received += 1
            if settled is not None:
                submission.counts.answered += 1
            elif not submission.join(key, record_id):
                worst = 0 if self._price is None else self._price.cost(bound_request_usage(request))
                intent = CallIntent(key, identify_request(self._route.name, request), self._stage, record_id, worst)
                line = encode_request_line(key, self._dialect.body(self._route.model, request))
                await self._add(intent, line, submission, budget)

    async def _add(self, intent: CallIntent, line: bytes, submission: _Submission, budget: RunBudget | None) -> None:
        limits, size = self._settings, len(line)
        if size > limits.bytes:
            problem = f"the request has {size:,} bytes, and a batch at most {limits.bytes:,}."
            submission.counts.refused.append(UnansweredRequest(intent.key, "too_large", problem))
            return
        if len(submission.shard.lines) == limits.requests or submission.shard.size + size > limits.bytes:
            await self._send(submission)
        if budget is not None:
            budget.reserve(intent.reserved)
        submission.shard.add(intent, line)
        submission.counts.sent += 1

    async def _send(self, submission: _Submission) -> None:
        """Create a batch of the shard unless it is empty, and start the next shard."""
        shard, submission.shard = submission.shard, BatchShard()
        if not shard.lines:
            return
        note = shard.create_note(self._route.name)
        if (earlier := self._folder.find(note.shard)) is not None:
            # The same requests once more: their collected batches are on the provider's list and must not be adopted as
            # the new one.
            note.earlier = [*earlier.earlier, *([earlier.batch_id] if earlier.batch_id else [])]
        self._folder.write(shard, note)
        # Intents are on disk before the batch exists: a killed run leaves no unknown cost.
        intents = (intent for intent, _ in shard.lines.values())
        for chunk in chunk_for_ledger(intent for intent in intents if intent.key not in submission.intended):
            await asyncio.gather(*(self._ledger.intend(intent) for intent in chunk))
        if (batch := _find_batch(note, submission.listed, set(note.earlier))) is None:
            note.file_id = await self._provider.upload(self._folder.requests(note))
            # From here on only the provider's list tells whether the batch exists.
            note.state = BatchShardState.INTENDED
            self._folder.save(note)
            batch = await self._provider.create(note.file_id, note.shard)
            submission.counts.batches.append(batch.id)
        self._save_created(note, batch)
        submission.under_way.update(shard.lines)

    def _save_created(self, note: BatchShardNote, batch: ProviderBatch) -> None:
        note.state, note.batch_id = BatchShardState.CREATED, batch.id
        self._folder.save(note)

    async def _adopt(self) -> list[ProviderBatch]:
        """Find the batches of shards whose creation was not noted; return all batches of the provider."""
        listed = await self._provider.list_batches()
        notes = self._folder.notes()
        noted_ids = {batch_id for note in notes for batch_id in (note.batch_id, *note.earlier) if batch_id}
        lost = [note for note in notes if note.state is BatchShardState.INTENDED]
        if any(_find_batch(note, listed, noted_ids) is None for note in lost):
            # The list may lag behind. Waiting costs a minute, a second batch may cost the full price again.
            await asyncio.sleep(self._settings.poll)
            listed = await self._provider.list_batches()
        for note in lost:
            if (batch := _find_batch(note, listed, noted_ids)) is not None:
                self._save_created(note, batch)
            else:
                note.state = BatchShardState.WRITTEN
                self._folder.save(note)
        return listed

    # --- collecting ----------------------------------------------------------------------------------------------

    async def collect(self, *, wait: float | None = None) -> CollectedBatches:
        """Write the replies of finished batches to the ledger; wait for the others, at most ``wait`` seconds."""
        # A process may have been killed between the creation of a batch and its note.
        if any(note.state is BatchShardState.INTENDED for note in self._folder.notes()):
            await self._adopt()
        end = None if wait is None else time.monotonic() + wait
        collected = CollectedBatches()
        while True:
            await self._poll(collected)
            remaining = math.inf if end is None else end - time.monotonic()
            if not collected.under_way or remaining <= 0:
                break
            await asyncio.sleep(min(self._settings.poll, remaining))
        for note in self._folder.notes():
            if note.state is BatchShardState.WRITTEN:
                collected.unanswered += [UnansweredRequest(parse_custom_id(name), "unsent") for name in note.records]
        return collected

    async def _poll(self, collected: CollectedBatches) -> None:
        # Counted anew at every poll, unlike the other counts, which each batch changes once.
        collected.under_way = 0
        for note in self._folder.notes():
            if note.state is not BatchShardState.CREATED:
                continue
            assert note.batch_id is not None
            batch = await self._provider.retrieve(note.batch_id)
            if batch.finished:
                await self._settle(note, batch, collected)
            else:
                collected.under_way += len(note.records)

    async def _settle(self, note: BatchShardNote, batch: ProviderBatch, collected: CollectedBatches) -> None:
        paths = [(self._folder.results(note, kind), file_id) for kind, file_id in batch.files]
        downloaded = [path for path, file_id in paths if await self._provider.download(file_id, path)]
        settlement = BatchLedgerWriter(
            note=note,
            batch=batch,
            ledger=self._ledger,
            price=self._price,
            secret=self._route.key,
            dialect=self._dialect,
        )
        await settlement.run(self._folder.requests(note), downloaded, collected)
        self._dialect = settlement.dialect
        # Last, after all replies are in the ledger: a process killed before collects this batch again, which changes
        # nothing.
        note.state, note.dialect = BatchShardState.COLLECTED, asdict(self._dialect)
        self._folder.save(note)


async def _chunk_requests(
    requests: Iterable[tuple[str, Request]] | AsyncIterable[list[tuple[str, Request]]],
) -> AsyncIterator[list[tuple[str, Request]]]:
    if isinstance(requests, AsyncIterable):
        async for group in requests:
            for chunk in chunk_for_ledger(group):
                yield chunk
    else:
        for chunk in chunk_for_ledger(requests):
            yield chunk


class _Submission:
    def __init__(self, listed: list[ProviderBatch], intended: set[str], under_way: set[str]) -> None:
        self.counts = SubmittedBatches()
        self.shard = BatchShard()
        self.listed = listed
        self.intended = intended
        self.under_way = under_way

    def join(self, key: str, record_id: str) -> bool:
        """Add a record to a request that is in a batch already; return False where there is none."""
        name = format_custom_id(key)
        if name in self.shard.records:
            self.shard.records[name].append(record_id)
        elif name not in self.under_way:
            return False
        self.counts.under_way += 1
        return True


def _find_batch(note: BatchShardNote, listed: list[ProviderBatch], noted_ids: set[str]) -> ProviderBatch | None:
    """Return the batch of a shard that is in no note, by its metadata or else by its input file."""
    for batch in listed:
        is_of_shard = batch.shard == note.shard or (note.file_id is not None and batch.input_file_id == note.file_id)
        if is_of_shard and batch.id not in noted_ids:
            return batch
    return None
