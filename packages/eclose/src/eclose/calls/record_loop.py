"""A resumable runner of jobs over records: no record is lost or processed twice, and a kill at any moment is safe.

A record passes through the jobs one after the other, independently of other records. Its outcome in each job is in the
ledger before the next job starts, so the same command resumes a run. Processes that share a ledger share the records
of a run: every record is processed by one of them, and all of them see its outcome.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import eclose
from eclose.calls.ledger.accounts import LEASE_SECONDS
from eclose.calls.ledger.ledger import RecordOutcome
from eclose.calls.ledger.rows import OutcomeKind
from eclose.calls.model import CallContext
from eclose.errors import EcloseError, RecordError, Resumable, UserError
from eclose.files.atomic import AtomicFile
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.values.identity import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import RunModel
    from eclose.files.jsonl import ReadRecord
    from eclose.files.step import PipelineStep


T = TypeVar("T")
U = TypeVar("U")

READ_STAGE = "read"
"""The stage that accounts for records that reach no job, being unreadable or rejected when read."""
DEFAULT_WORKERS = 128
"""Records that are processed at the same time."""
POLL_SECONDS = 1.0
"""Pause between two checks of the records that other processes work on."""
_EQUAL_ERRORS = 20
"""Records in a row that the same bug ends until the run stops: no further record would fare better."""
_POLL_RECORDS = 256
"""Records per check, which bounds the queries in flight."""


@dataclass(frozen=True, slots=True)
class RecordRejection:
    """The result of a job that sets a record aside on purpose."""

    reason: str
    """The reason under which the record is counted; one of a few texts."""
    value: object | None = None
    """Details for the file of rejected records."""


ProcessRecord: TypeAlias = "Callable[[ReadRecord[T]], Awaitable[None]]"


@dataclass(frozen=True)
class RecordJob:
    """One stage of a run. An error of its work quarantines the record."""

    name: str
    work: Callable[..., Awaitable[Any]]
    """Coroutine function of the record, or of the result of the job before, and of the models of the run, in their
    order; returns a result or a ``RecordRejection``."""
    kind: type
    """Type of the result, which is decoded from the ledger when a run resumes between two jobs of a record."""


class RunStoppedError(Resumable):
    """The run was asked to stop."""


@dataclass(slots=True)
class RunProgress:
    """Progress of a run, in records."""

    received: int = 0
    """Records taken from the input."""
    finished_before: int = 0
    """Of these, finished by an earlier run of the same command, or by another process."""
    finished: Counter[OutcomeKind] = field(default_factory=Counter)
    """Finished records by outcome, with those finished before."""


class JobRunner(Generic[T]):
    """Runs jobs over records, many at a time. Used for one run."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: Sequence[RecordJob],
        id_of: Callable[[T], str],
        *,
        models: Sequence[RunModel] = (),
        workers: int = DEFAULT_WORKERS,
        in_shard: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.progress = RunProgress()
        self._ledger = ledger
        self._jobs = jobs
        self._names = [job.name for job in jobs]
        self._id_of = id_of
        self._models = models
        self._workers = workers
        self._in_shard = in_shard
        """Whether a record with this id belongs to this runner; the others belong to other runners on the ledger."""
        self._stop: Exception | None = None
        """Why no further record is started; None while the run goes on."""
        self._resumes = False
        """Whether the ledger holds outcomes of this run from before."""
        self._claimed_elsewhere: dict[str, ReadRecord[T] | None] = {}
        """Records that other processes work on; None where the record can be read again from the input."""
        self._rereads = True
        """Whether the input can be iterated again."""
        self._claims = RecordClaims(ledger)
        self._last_bug = ""
        self._equal_bugs = 0
        """Records in a row that ended with the last bug."""

    def stop(self) -> None:
        """Start no further record; records in progress are finished."""
        self._ledger.shorten_waits()
        self._stop_for(RunStoppedError("stopped. Finished work is kept: run the same command again to continue."))

    async def run(self, records: Iterable[ReadRecord[T]]) -> None:
        """Process every record; raise the error that stopped the run."""
        self._resumes = any([await self._ledger.count_outcomes(stage) for stage in (READ_STAGE, *self._names)])
        remaining = iter(records)
        self._rereads = remaining is not records  # an iterator returns itself, and is consumed once
        async with self._claims:
            await self._process_all(remaining, self._start_record)
            while self._claimed_elsewhere and self._stop is None:
                try:
                    await self._poll_elsewhere(records)
                except Exception as error:
                    self._stop_for(error)
        if self._stop is not None:
            raise self._stop

    async def _process_all(self, records: Iterator[ReadRecord[T]], process: ProcessRecord[T]) -> None:
        async def work() -> None:
            try:
                # All workers draw from one iterator, so a slow record delays no other.
                while self._stop is None and (record := next(records, None)) is not None:
                    await process(record)
            except Exception as error:
                # Other workers finish their current records, whose calls may be paid, and then stop as well.
                self._stop_for(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(work())

    async def _poll_elsewhere(self, records: Iterable[ReadRecord[T]]) -> None:
        """Count the records that other processes finished, and process those whose claims ran out."""
        ids = list(self._claimed_elsewhere)
        for start in range(0, len(ids), _POLL_RECORDS):
            batch = ids[start : start + _POLL_RECORDS]
            states = await asyncio.gather(*map(self._is_finished, batch))
            for record_id in [record_id for record_id, is_finished in zip(batch, states, strict=True) if is_finished]:
                del self._claimed_elsewhere[record_id]
        claimed = await self._claims.claim_all(self._claimed_elsewhere)
        if not claimed:
            await asyncio.sleep(POLL_SECONDS)
            return
        stored = {record_id: self._claimed_elsewhere.pop(record_id) for record_id in claimed}
        if self._rereads:
            again = (record for record in records if record.value is not None and self._id_of(record.value) in claimed)
        else:
            again = (record for record in stored.values() if record is not None)
        await self._process_all(again, self._process_claimed)

    def _stop_for(self, error: Exception) -> None:
        self._stop = self._stop or error

    async def _start_record(self, record: ReadRecord[T]) -> None:
        if record.value is None:
            await self._set_aside(record)
            return
        record_id = self._id_of(record.value)
        if not self._in_shard(record_id):
            return
        self.progress.received += 1
        if self._resumes and await self._is_finished(record_id):
            return
        if await self._claims.claim(record_id):
            await self._process_claimed(record)
        else:
            # Not waited for here: a waiting worker could process another record meanwhile.
            self._claimed_elsewhere[record_id] = None if self._rereads else record

    async def _process_claimed(self, record: ReadRecord[T]) -> None:
        value: Any = record.value
        record_id = self._id_of(value)
        try:
            # Another process may have finished the record before this one claimed it.
            may_have_outcome = self._resumes or self._ledger.shared
            outcome = await self._ledger.find_last_outcome(self._names, record_id) if may_have_outcome else None
            if self._count_finished_before(outcome):
                return
            first = 0
            if outcome is not None:
                # Resume after the last job whose result is in the ledger, with that result.
                first = self._names.index(outcome.stage) + 1
                value = decode_job_result(self._jobs[first - 1].kind, outcome)
            await self._run_jobs(self._jobs[first:], record_id, value)
        finally:
            self._claims.mark_finished(record_id)

    async def _is_finished(self, record_id: str) -> bool:
        return self._count_finished_before(await self._ledger.find_last_outcome(self._names, record_id))

    def _count_finished_before(self, outcome: RecordOutcome | None) -> bool:
        """Return whether the record of an outcome is finished, and count it if so."""
        if outcome is None or not self._is_final(outcome):
            return False
        self.progress.finished_before += 1
        self.progress.finished[outcome.kind] += 1
        return True

    async def _run_jobs(self, jobs: Sequence[RecordJob], record_id: str, value: Any) -> None:
        for job in jobs:
            if self._stop is not None:
                return
            outcome, value = await self._run_job(job, record_id, value)
            await self._ledger.conclude(outcome)
            if self._is_final(outcome):
                self.progress.finished[outcome.kind] += 1
                return

    async def _run_job(self, job: RecordJob, record_id: str, value: Any) -> tuple[RecordOutcome, Any]:
        try:
            context = CallContext(job.name, record_id)
            result = await job.work(value, *(model.for_record(context) for model in self._models))
        except RecordError as error:
            return _quarantine(job.name, record_id, error), None
        except UserError:
            raise  # not the record's fault: the service is down, the budget is spent, the disk is full
        except Exception as error:
            # A bug that one record triggers must not stop the others.
            self._count_bug(job.name, error)
            return _quarantine(job.name, record_id, error), None
        self._equal_bugs = 0
        if isinstance(result, RecordRejection):
            body = None if result.value is None else encode_json_line(result.value)
            return RecordOutcome(job.name, record_id, "rejected", result.reason, body), None
        return RecordOutcome(job.name, record_id, "accepted", None, encode_json_line(result)), result

    def _count_bug(self, job: str, error: Exception) -> None:
        """Count an error that is no failure of a call, and stop the run where the same one ends every record."""
        if isinstance(error, EcloseError):
            return
        # The place of the error and not its message, which may quote the record.
        bug = f"{job} {type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1:]}"
        self._last_bug, self._equal_bugs = bug, self._equal_bugs + 1 if bug == self._last_bug else 1
        if self._equal_bugs == _EQUAL_ERRORS:
            self._stop_for(
                RunStoppedError(
                    f"{job}: the same error ended {_EQUAL_ERRORS} records in a row ({type(error).__name__}: {error}). "
                    "Correct its cause and run the same command with --retry."
                )
            )

    async def _set_aside(self, record: ReadRecord[T]) -> None:
        """Record the outcome of a record that was unreadable or rejected when read; its location is its id."""
        if not self._in_shard(record.where):
            return
        self.progress.received += 1
        error = record.error
        kind: OutcomeKind = "quarantined" if error is not None else "rejected"
        self.progress.finished[kind] += 1
        earlier = await self._ledger.find_last_outcome([READ_STAGE], record.where) if self._resumes else None
        if earlier is not None and earlier.kind == kind:
            # An earlier run may have had the input under another path, and so another text of the error.
            return
        reason = record.error_kind if error is not None else record.rejected
        if error is not None and error.path is not None:
            # The name alone: a result must not depend on the folder of its input.
            error = RecordError(error.problem, path=PurePath(error.path).name, record=error.record)
        body = None if error is None else _explanation(error)
        await self._ledger.conclude(RecordOutcome(READ_STAGE, record.where, kind, reason, body))

    def _is_final(self, outcome: RecordOutcome) -> bool:
        return outcome.kind != "accepted" or outcome.stage == self._names[-1]


def decode_job_result(kind: type[U], outcome: RecordOutcome) -> U:
    """Return the result of a job from its outcome."""
    return decode_core_value(kind, json.loads(outcome.body or b"null"))


def _quarantine(stage: str, record_id: str, error: Exception) -> RecordOutcome:
    reason = str(getattr(error, "kind", type(error).__name__))
    return RecordOutcome(stage, record_id, "quarantined", reason, _explanation(error))


def _explanation(error: Exception) -> bytes:
    details: dict[str, Any] = {"error": str(error)}
    if not isinstance(error, EcloseError):
        # A bug of the program: a report of it needs the traceback.
        details["traceback"] = traceback.format_exception(error)
    return json.dumps(details).encode()


# Export of a finished run from its ledger: results in the order of their ids, rejected and quarantined records, and the
# manifest.
#
# The files do not depend on the order of the work, nor on how often it was interrupted.


async def count_run_funnel(ledger: Ledger, stages: Sequence[str], received: int) -> dict[str, RecordCounts]:
    """Return the counts of every stage, in order: a stage receives the records that the one before accepted."""
    counts: dict[str, RecordCounts] = {}
    for stage in (READ_STAGE, *stages):
        outcomes = await ledger.count_outcomes(stage)
        rejected = {str(reason): count for (kind, reason), count in outcomes.items() if kind == "rejected"}
        quarantined = {str(reason): count for (kind, reason), count in outcomes.items() if kind == "quarantined"}
        set_aside = sum(rejected.values()) + sum(quarantined.values())
        # The reading stage writes no rows for the records that it accepts.
        accepted = received - set_aside if stage == READ_STAGE else outcomes.get(("accepted", None), 0)
        counts[stage] = RecordCounts(received, accepted, rejected, quarantined)
        received = accepted
    return counts


def sum_run_funnel(stage_counts: Mapping[str, RecordCounts]) -> RecordCounts:
    """Return the counts of the whole run: received by the first stage, accepted by the last."""
    stages = list(stage_counts.values())
    set_aside: dict[str, dict[str, int]] = {"rejected": {}, "quarantined": {}}
    for name, counts in stage_counts.items():
        for kind, reasons in set_aside.items():
            reasons.update({f"{name}: {reason}": count for reason, count in getattr(counts, kind).items()})
    return RecordCounts(stages[0].received, stages[-1].accepted, **set_aside)


async def list_earlier_versions(ledger: Ledger) -> tuple[str, ...]:
    """Return the versions other than this one that have worked on the run of a ledger."""
    return tuple(version for version in await ledger.list_versions() if version != eclose.__version__)


async def write_run_results(
    ledger: Ledger,
    step: PipelineStep,
    jobs: Sequence[str],
    received: int,
    calls: Mapping[str, Any] | None = None,
    sources: Mapping[str, RecordCounts] | None = None,
) -> Manifest:
    """Write all files of a run, the manifest last: it marks the run as finished.

    ``received`` records were taken from the input; results are those of the last job. ``calls`` are the numbers of
    calls for the manifest, ``sources`` the counts of other files that were read. Raises UserError where an input was
    changed since the start of the run; nothing is written then.
    """
    step.refuse_changed_inputs()
    counts = await count_run_funnel(ledger, jobs, received)
    funnel = {**(sources or {}), **counts}
    manifest = Manifest(
        stage=step.name,
        settings=step.settings,
        inputs=step.input_hashes,
        outputs={},
        counts=sum_run_funnel(counts),
        funnel=funnel,
        calls=calls or {},
    )
    # Before any file is touched: a run that lost a record must not replace an earlier result.
    manifest.refuse_losses()
    with ExitStack() as stack:
        files: dict[Path, AtomicFile] = {}

        def open_file(path: Path) -> AtomicFile:
            if path not in files:
                files[path] = stack.enter_context(AtomicFile(path))
            return files[path]

        # Created even without results, so that an empty result is told from a missing one.
        out = open_file(step.out)
        for name in (READ_STAGE, *jobs):
            async for outcome in ledger.read_outcomes(name):
                if outcome.kind != "accepted":
                    path = step.rejected_path if outcome.kind == "rejected" else step.quarantine_path
                    open_file(path).write(_explain(outcome))
                elif name == jobs[-1]:
                    out.write((outcome.body or b"null") + b"\n")
    for path in (step.rejected_path, step.quarantine_path):
        if path not in files:
            # Written by an earlier export of this run, before its quarantined records were retried.
            path.unlink(missing_ok=True)
    manifest = replace(manifest, outputs=hash_files(files), earlier_versions=await list_earlier_versions(ledger))
    manifest.write(step.manifest_path)
    return manifest


def _explain(outcome: RecordOutcome) -> bytes:
    line: dict[str, Any] = {"id": outcome.record_id, "stage": outcome.stage, "reason": outcome.reason}
    if outcome.body is not None:
        value: Any = None
        with suppress(ValueError):
            value = json.loads(outcome.body)
        line |= value if outcome.kind == "quarantined" and isinstance(value, dict) else {"value": value}
    return canonical_json(line).encode("utf-8", "backslashreplace") + b"\n"


# Claims of one process on the records of a run, so that no other process on the same ledger works on them.
#
# Claims are renewed while the process lives and given back when it stops. After a kill they run out, and another
# process takes the records over. A ledger in a file has a single process, for which every claim succeeds without a
# query.


RECORD_STAGE = "record"
"""The stage of claims in the ledger: a record is claimed for all its jobs at once."""


class RecordClaims:
    """The claims of one process on the records of a run; renewed, and then given back, by an ``async with``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._active: set[str] = set()
        """Ids of claimed records that are in progress."""
        self._finished: set[str] = set()
        """Ids of finished records, whose claims are given back with the next renewal."""
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._ledger.shared:
            self._renewal = asyncio.create_task(self._keep_renewing())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewal is None:
            return
        self._renewal.cancel()
        await asyncio.gather(self._renewal, return_exceptions=True)
        with suppress(UserError):
            await self._ledger.give_back(RECORD_STAGE, self._active | self._finished)

    async def _keep_renewing(self) -> None:
        while True:
            # A third of the lease: one renewal may fail or be late without losing the claims.
            await asyncio.sleep(LEASE_SECONDS / 3)
            # A copy: records may be finished while the transaction runs.
            finished = set(self._finished)
            # The run itself reports a database that is away.
            with suppress(UserError):
                await self._ledger.give_back(RECORD_STAGE, finished)
                self._finished -= finished
                await self._ledger.claim(RECORD_STAGE, set(self._active))

    async def claim(self, record_id: str) -> bool:
        """Claim a record; return whether this process has it now."""
        return not self._ledger.shared or bool(await self.claim_all([record_id]))

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
