"""A resumable map of jobs over records: nothing is lost, nothing is done twice, and it may be killed at any moment.

A record goes through the jobs one after the other, without waiting for its neighbours. Where it went in each of them
is noted in the ledger before it goes on, so the same command takes a run up where it was. Processes that share a ledger
share the records of a run: each is worked on by one of them, and all see what became of it. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from eclose.errors import EcloseError, RecordError, Resumable, UserError
from eclose.store.ledger.ledger import RecordOutcome
from eclose.store.ledger.record_claims import RecordClaims, hold_claims
from eclose.store.ledger.rows import OutcomeKind
from eclose.store.records.jsonl import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.store.ledger.ledger import Ledger
    from eclose.store.records.jsonl import ReadRecord

T = TypeVar("T")
U = TypeVar("U")

READ_STAGE = "read"
"""The stage in which a record that never got to a job is accounted for."""
WORKERS = 128
LOOK_SECONDS = 1.0
"""Between two looks at the records that other processes work on."""
_LOOKS = 256
"""Records that are looked at together."""

working_on: ContextVar[tuple[str, str]] = ContextVar("working_on", default=("", ""))
"""The job and the record this task is at, for whoever has to say on whose behalf something was done."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that is set aside on purpose."""

    reason: str
    """Counted, so one of a few."""
    value: object | None = None
    """What there is to show for it."""


Result: TypeAlias = "U | Rejection"
Bring: TypeAlias = "Callable[[ReadRecord[T]], Awaitable[None]]"


@dataclass(frozen=True)
class Job(Generic[T, U]):
    """One stage: what is made of a record, or why it is set aside. An error quarantines the record."""

    name: str
    work: Callable[[T], Awaitable[Result[U]]]
    kind: type[U]
    """What is made: it is read back when a run goes on in the middle of a record."""


class RunStoppedError(Resumable):
    """Somebody asked the run to stop."""


@dataclass(slots=True)
class RunProgress:
    """How far a run is."""

    received: int = 0
    """Records taken from the input."""
    before: int = 0
    """Of these, done by an earlier run of the same command, or by another process."""
    done: Counter[OutcomeKind] = field(default_factory=Counter)
    """Records that got to their end, by where they went."""


class Runner(Generic[T]):
    """Runs jobs over records, many at a time. One for each run."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: Sequence[Job[Any, Any]],
        id_of: Callable[[T], str],
        *,
        workers: int = WORKERS,
        mine: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.progress = RunProgress()
        self._ledger = ledger
        self._jobs = jobs
        self._names = [job.name for job in jobs]
        self._id_of = id_of
        self._workers = workers
        self._mine = mine
        """Whether a record with this id is ours; the others are for other runners on the same ledger."""
        self._stop: Exception | None = None
        self._resumes = False
        self._elsewhere: dict[str, ReadRecord[T] | None] = {}
        """Records that other processes work on; None for one that can be read again."""
        self._rereads = True
        self._claims = RecordClaims(ledger)

    def stop(self) -> None:
        """Take no further record; what is under way is finished."""
        self._ledger.shorten_waits()
        self._stop_for(RunStoppedError("stopped. What is done is kept: run the same command again to go on."))

    async def run(self, records: Iterable[ReadRecord[T]]) -> None:
        """Bring every record to its end; raises what stopped it before."""
        self._resumes = any([await self._ledger.count_outcomes(stage) for stage in (READ_STAGE, *self._names)])
        remaining = iter(records)
        self._rereads = remaining is not records
        async with hold_claims(self._ledger) as self._claims:
            await self._take_all(remaining, self._bring)
            while self._elsewhere and self._stop is None:
                try:
                    await self._look_elsewhere(records)
                except Exception as error:
                    self._stop_for(error)
        if self._stop is not None:
            raise self._stop

    async def _take_all(self, records: Iterator[ReadRecord[T]], bring: Bring[T]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._take(records, bring))

    async def _look_elsewhere(self, records: Iterable[ReadRecord[T]]) -> None:
        """Count what other processes have finished, and take over what none of them works on any more."""
        ids = list(self._elsewhere)
        for start in range(0, len(ids), _LOOKS):
            some = ids[start : start + _LOOKS]
            done = await asyncio.gather(*map(self._is_done, some))
            for record_id in [record_id for record_id, is_done in zip(some, done, strict=True) if is_done]:
                del self._elsewhere[record_id]
        ours = await self._claims.take_all(self._elsewhere)
        if not ours:
            await asyncio.sleep(LOOK_SECONDS)
            return
        stored = {record_id: self._elsewhere.pop(record_id) for record_id in ours}
        if self._rereads:
            again = (record for record in records if record.value is not None and self._id_of(record.value) in ours)
        else:
            again = (record for record in stored.values() if record is not None)
        await self._take_all(again, self._work_on)

    async def _take(self, records: Iterator[ReadRecord[T]], bring: Bring[T]) -> None:
        try:
            # A worker that is free takes the next: a slow record holds up no other.
            while self._stop is None and (record := next(records, None)) is not None:
                await bring(record)
        except Exception as error:
            # The others finish what they have under way, for it may be paid, and then learn of it.
            self._stop_for(error)

    def _stop_for(self, error: Exception) -> None:
        self._stop = self._stop or error

    async def _bring(self, record: ReadRecord[T]) -> None:
        """Bring a record of the input to its end, unless another process does."""
        if record.value is None:
            await self._set_aside(record)
            return
        record_id = self._id_of(record.value)
        if not self._mine(record_id):
            return
        self.progress.received += 1
        if self._resumes and await self._is_done(record_id):
            return
        if await self._claims.take(record_id):
            await self._work_on(record)
        else:
            self._elsewhere[record_id] = None if self._rereads else record

    async def _work_on(self, record: ReadRecord[T]) -> None:
        """Bring a record that is ours to its end."""
        value: Any = record.value
        record_id = self._id_of(value)
        try:
            # Another process may have finished it before this one claimed it.
            reads = self._resumes or self._ledger.shared
            reached = await self._ledger.find_last_outcome(self._names, record_id) if reads else None
            if reached is not None and self._ended(reached):
                self._count_as_done(reached)
                return
            first = 0
            if reached is not None:
                first = self._names.index(reached.stage) + 1
                value = decode_outcome(self._jobs[first - 1].kind, reached)
            await self._go_through(self._jobs[first:], record_id, value)
        finally:
            self._claims.finish(record_id)

    async def _is_done(self, record_id: str) -> bool:
        """Return whether a record has reached its end, and count it if so."""
        reached = await self._ledger.find_last_outcome(self._names, record_id)
        if reached is None or not self._ended(reached):
            return False
        self._count_as_done(reached)
        return True

    def _count_as_done(self, outcome: RecordOutcome) -> None:
        self.progress.before += 1
        self.progress.done[outcome.kind] += 1

    async def _go_through(self, jobs: Sequence[Job[Any, Any]], record_id: str, value: Any) -> None:
        for job in jobs:
            if self._stop is not None:
                return
            outcome, value = await self._attempt(job, record_id, value)
            await self._ledger.conclude(outcome)
            if self._ended(outcome):
                self.progress.done[outcome.kind] += 1
                return

    async def _attempt(self, job: Job[Any, Any], record_id: str, value: Any) -> tuple[RecordOutcome, Any]:
        working_on.set((job.name, record_id))
        try:
            result = await job.work(value)
        except RecordError as error:
            return _quarantined(job.name, record_id, error), None
        except UserError:
            raise  # not this record's fault: the service is down, the budget spent, the disk full
        except Exception as error:
            return _quarantined(job.name, record_id, error), None
        if isinstance(result, Rejection):
            body = None if result.value is None else encode(result.value)
            return RecordOutcome(job.name, record_id, "rejected", result.reason, body), None
        return RecordOutcome(job.name, record_id, "accepted", None, encode(result)), result

    async def _set_aside(self, record: ReadRecord[T]) -> None:
        """What could not be read, or was not wanted, is known by where it stands."""
        if not self._mine(record.where):
            return
        self.progress.received += 1
        kind: OutcomeKind = "quarantined" if record.error is not None else "rejected"
        self.progress.done[kind] += 1
        known = await self._ledger.find_last_outcome([READ_STAGE], record.where) if self._resumes else None
        if known is not None and known.kind == kind:
            # Noted by an earlier run, which may have had the input under another path, or said it in other words.
            return
        reason = record.error_kind if record.error is not None else record.rejected
        body = None if record.error is None else _explanation(_without_folder(record.error))
        await self._ledger.conclude(RecordOutcome(READ_STAGE, record.where, kind, reason, body))

    def _ended(self, outcome: RecordOutcome) -> bool:
        return outcome.kind != "accepted" or outcome.stage == self._names[-1]


def _without_folder(error: RecordError) -> RecordError:
    """Return the error with the name of its file alone: a result must not depend on where its input lies."""
    if error.path is None:
        return error
    return RecordError(error.problem, path=PurePath(error.path).name, record=error.record)


def decode_outcome(kind: type[U], outcome: RecordOutcome) -> U:
    """What a job made of a record."""
    return decode(kind, json.loads(outcome.body or b"null"))


def _quarantined(stage: str, record_id: str, error: Exception) -> RecordOutcome:
    reason = str(getattr(error, "kind", type(error).__name__))
    return RecordOutcome(stage, record_id, "quarantined", reason, _explanation(error))


def _explanation(error: Exception) -> bytes:
    told: dict[str, Any] = {"error": str(error)}
    if not isinstance(error, EcloseError):
        # A fault of the program: where it happened is what somebody will want to know.
        told["traceback"] = traceback.format_exception(error)
    return json.dumps(told).encode()
