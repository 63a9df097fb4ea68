"""The call ledger: every model call of a run, the intent before it is sent and the reply after, on disk.

A run that is killed at any moment goes on where it was and pays for nothing twice. Calls are known by the hash of
their request and shared by all runs of a ledger; outcomes belong to one run. Nothing is changed or deleted unasked.
Knows keys, JSON and bytes, nothing of chat models.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, UserError
from eclose.store.ledger import queries as sql
from eclose.store.ledger.accounts import (
    LEASE_SECONDS,
    CallInFlightError,
    CapExceededError,
    RunAccounting,
    find_last_open,
)
from eclose.store.ledger.database import WriterLock, describe_location, is_url, make_engine, migrate
from eclose.store.ledger.group_commit import MAX_OUTAGE_SECONDS, GroupCommitter, Heartbeat
from eclose.store.ledger.row_checks import ROW_CHECKS, describe_row, find_database_problems
from eclose.store.ledger.rows import (
    CallIntent,
    LedgerReply,
    RecordOutcome,
    RunAccount,
    RunUsage,
    build_intent_row,
    build_outcome_row,
    build_reply_row,
    decode_text,
    encode_key,
    encode_request,
    encode_text,
    read_intent,
    read_outcome,
    read_reply,
)
from eclose.store.ledger.schema import MIGRATIONS, MIGRATIONS_TABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from sqlalchemy import Connection, Row, TextClause

    from eclose.store.ledger.accounts import Send

__all__ = [
    "CallInFlightError",
    "CallIntent",
    "CapExceededError",
    "Ledger",
    "LedgerReply",
    "RecordOutcome",
    "RunAccount",
    "RunUsage",
]

_BEATS = 6
"""Renewals of a lease within its time."""
_FILE_BEAT = 60.0
"""Seconds between two notes that the writer of a file is alive, which tell how old its orphans are."""


class Ledger:
    """Calls and outcomes of a run. An asynchronous context manager, used from the event loop it was entered in."""

    def __init__(self, where: Path | str, *, run: str) -> None:
        self._where = where
        self._place = describe_location(where)
        self._run = run
        # Tells this opening's intents from those of one that was killed.
        self._writer = secrets.token_bytes(8)
        self._lock: WriterLock | None = None
        self._leases: GroupCommitter | None = None
        self.shared = is_url(where)
        """Whether other processes may work on the same run at the same time."""
        self._accounts = RunAccounting(encode_text(run), self._writer, self._place, shared=self.shared)

    @classmethod
    def open(cls, where: Path | str, *, run: str) -> Ledger:
        """Return a ledger in a file (SQLite, one process at a time) or at a ``postgresql://`` URL (many)."""
        return cls(where, run=run)

    async def __aenter__(self) -> Self:
        """Open the place, and bring its tables up to date."""
        engine = make_engine(self._where)
        if not self.shared:
            self._lock = WriterLock(Path(self._where), f"run {self._run}")
        self._commits = GroupCommitter(engine, self._place, patience=MAX_OUTAGE_SECONDS, beat=self._beat())
        try:
            await self._commits.run(self._join)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is queued, and let others in."""
        with suppress(UserError, asyncio.CancelledError):
            await self._commits.run_anyway(self._accounts.leave)
        self._close()

    def _beat(self) -> Heartbeat:
        return Heartbeat(self._accounts.beat, LEASE_SECONDS / _BEATS if self.shared else _FILE_BEAT)

    def _join(self, connection: Connection) -> None:
        migrate(connection, MIGRATIONS, MIGRATIONS_TABLE, self._place)
        self._accounts.join(connection)

    def _close(self) -> None:
        for commits in (self._leases, self._commits):
            if commits is not None:
                commits.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def shorten_waits(self) -> None:
        """Wait only a short time more for a database that is away: the run was asked to stop."""
        for commits in (self._leases, self._commits):
            if commits is not None:
                commits.shorten_waits()

    async def find_reply(self, key: str) -> LedgerReply | None:
        """The reply to a request, if there is one. A damaged one raises: it is neither used nor paid again unasked."""
        return await self._commits.run(lambda connection: self._find(connection, key))

    async def intend(self, intent: CallIntent, *, cap: int | None = None) -> RunAccount | None:
        """Note what is about to be sent, and set its worst case aside; on disk on return.

        Another intent for a call counts another attempt. Returns the sums of the run, None where it costs nothing.

        Raises:
            RecordError: There is a reply: take it with ``find``.
            UnderWayError: Another process has the same call under way. Ask again in a while.
            NotCoveredError: The cap does not cover the worst case. Calls under way may make room.
        """
        request = encode_request(intent)
        runs = 0

        def job(connection: Connection) -> RunAccount | None:
            nonlocal runs
            runs += 1
            row = build_intent_row(intent, request, self._writer, self._run)
            return self._accounts.intend(connection, intent.key, row, cap, again=runs > 1)

        return await self._commits.run(job)

    async def release(self, key: str, *, any_writer: bool = False) -> None:
        """Note that what was intended last for a call was certainly not billed: it never went out or was turned away.

        That is what this opening has under way, or, with ``any_writer``, the last that is open (a batch that was adopted).
        """
        await self._end(key, None if any_writer else self._writer, sql.RELEASE, released=True)

    async def break_off(self, key: str) -> None:
        """Note that what this opening has under way for a call ended without an answer, and may have been billed."""
        await self._end(key, self._writer, sql.BREAK, counted=1)

    async def _end(self, key: str, writer: bytes | None, statement: TextClause, **changes: Any) -> None:
        target: Send | None = None

        def job(connection: Connection) -> None:
            nonlocal target
            sends = self._accounts.sends(connection, key)
            target = target or find_last_open(sends, writer)  # the same again where the commit was in doubt
            if target is not None and connection.execute(statement, {"intent": target.seq}).rowcount:
                self._accounts.apply(connection, sends, sends.changed(target, **changes))

        await self._commits.run_anyway(job)

    async def settle(self, settled: LedgerReply, outcome: RecordOutcome | None = None) -> None:
        """Note what came back, and in the same transaction what became of its record; on disk on return.

        A call is settled once; the same again is no harm, another reply is refused. It is written even when the task
        that waits is cancelled, since it is paid for. When the outcome is refused, the reply is kept.
        """

        def job(connection: Connection) -> None:
            row = build_reply_row(settled, self._writer, self._run)

            def add() -> bool:
                return bool(connection.execute(sql.ADD_REPLY, row).rowcount) or self._check_same_reply(
                    connection, settled
                )

            self._accounts.settle(connection, settled.key, settled.cost, add)
            if outcome is not None:
                self._conclude(connection, outcome)

        await self._commits.run_anyway(job)

    async def conclude(self, outcome: RecordOutcome) -> None:
        """Note where a record went; on disk on return. The same again is no harm, anything else is refused."""
        await self._commits.run_anyway(lambda connection: self._conclude(connection, outcome))

    async def find_last_outcome(self, stages: Sequence[str], record_id: str) -> RecordOutcome | None:
        """What became of a record in the last of these stages of this run that it has been through."""
        given = {"run": encode_text(self._run), "record_id": encode_text(record_id)}

        def job(connection: Connection) -> RecordOutcome | None:
            for stage in reversed(stages):
                row = connection.execute(sql.FIND_OUTCOME, {**given, "stage": encode_text(stage)}).one_or_none()
                if row is not None:
                    return self._read_outcome(row)
            return None

        return await self._commits.run(job)

    async def count_outcomes(self, stage: str) -> dict[tuple[str, str | None], int]:
        """How many records of a stage of this run went where, by kind and reason."""
        given = {"run": encode_text(self._run), "stage": encode_text(stage)}
        rows = await self._commits.run(lambda c: c.execute(sql.COUNT_OUTCOMES, given).all())
        return {(kind, None if reason is None else decode_text(reason)): count for kind, reason, count in rows}

    async def reopen_quarantined(self, stage: str) -> int:
        """Forget where the quarantined records of a stage went, so that they are tried again; how many there were."""
        given = {"run": encode_text(self._run), "stage": encode_text(stage)}
        return await self._commits.run(lambda c: c.execute(sql.REOPEN, given).rowcount)

    async def read_concluded_ids(self, stage: str) -> AsyncIterator[str]:
        """The ids of the records that are done in a stage of this run, in order."""
        given = {"run": encode_text(self._run), "stage": encode_text(stage), "first": b"", "most": sql.PAGE_ROWS}
        while ids := await self._commits.run(lambda c: list(c.execute(sql.IDS, given).scalars())):
            for record_id in ids:
                yield decode_text(record_id)
            given["first"] = _after(ids[-1])

    async def read_outcomes(self, stage: str) -> AsyncIterator[RecordOutcome]:
        """The outcomes of a stage of this run, in the order of their records' ids."""
        given = {"run": encode_text(self._run), "stage": encode_text(stage)}
        async for row in self._rows(sql.OUTCOMES, b"", given):
            yield self._read_outcome(row)

    async def list_orphans(self) -> list[CallIntent]:
        """What this run intended and neither settled nor released, and may have been billed for, one for each send.

        On a ledger of many workers, what others have in flight is among it.
        """
        rows = await self._commits.run(lambda c: c.execute(sql.ORPHANS, {"run": encode_text(self._run)}).all())
        intents = [(row, read_intent(row)) for row in rows]
        for row, intent in intents:
            if intent is None:
                raise self._damaged(f"the intent of {describe_row(row)}")
        return [intent for _, intent in intents if intent is not None]

    async def compute_account(self) -> RunAccount:
        """Compute what this run's replies cost, what is under way and what broke off, over all its processes."""

        def job(connection: Connection) -> RunAccount:
            self._accounts.bury(connection)
            return self._accounts.derive(connection)

        return await self._commits.run(job)

    async def compute_spending(self) -> tuple[int, int]:
        """Return what this run's replies cost, and what its unsettled sends count for in the budget."""
        account = await self.compute_account()
        return account.spent, account.reserved + account.assumed

    async def release_orphans(self, *, older_than: float = 0.0) -> tuple[int, int]:
        """Give back to the budgets of all runs what they hold for sends of processes that ended.

        Only what ended more than ``older_than`` seconds ago. The sends stay listed by ``orphans``, since they may have
        been billed. Returns how many sends, and the amount in millionths of the currency.
        """
        return await self._commits.run(lambda c: self._accounts.release_orphans(c, older_than))

    async def compute_usage(self) -> RunUsage:
        """What this run has asked and got so far, over all its openings."""
        run = {"run": encode_text(self._run)}

        def job(connection: Connection) -> RunUsage:
            replies, prompt, completion, cost = map(int, connection.execute(sql.USAGE, run).one())
            unsettled = int(connection.execute(sql.UNSETTLED_COUNT, run).scalar_one())
            return RunUsage(replies, prompt, completion, cost, unsettled)

        return await self._commits.run(job)

    async def compute_usage_by(self, group: Callable[[str, str], str]) -> dict[str, RunUsage]:
        """What this run has asked and got, by what a stage and a record's id belong to; what is open is not in it."""

        def job(connection: Connection) -> dict[str, RunUsage]:
            found: dict[str, RunUsage] = {}
            for stage, record_id, *amounts in connection.execute(sql.USAGE_BY_RECORD, {"run": encode_text(self._run)}):
                name = group(decode_text(stage), decode_text(record_id))
                before = found.get(name, RunUsage(0, 0, 0, 0, 0))
                more = (*map(int, amounts), 0)
                found[name] = RunUsage(*(one + other for one, other in zip(before, more, strict=True)))
            return found

        return await self._commits.run(job)

    async def claim(
        self, stage: str, record_ids: Iterable[str], worker: str | None = None, lease_seconds: float = LEASE_SECONDS
    ) -> list[str]:
        """Return those of the records that are now this worker's: not done, and not another's whose lease still runs.

        Claiming again renews a lease, and claiming for no seconds gives a record back. The worker is this opening
        unless it is named.
        """
        ids = list(dict.fromkeys(record_ids))
        name = self._writer if worker is None else encode_text(worker)
        ours = await self._claims().run(lambda c: self._accounts.claim(c, encode_text(stage), ids, name, lease_seconds))
        return [record_id for record_id in ids if record_id in ours]

    async def give_back(self, stage: str, record_ids: Iterable[str]) -> None:
        """Give up this opening's claims on records."""
        ids = sorted(map(encode_text, record_ids))
        await self._claims().run_anyway(lambda c: self._accounts.give_back(c, encode_text(stage), ids))

    def _claims(self) -> GroupCommitter:
        """Return where claims are written: on a server in transactions of their own.

        All processes claim the same records, and must not wait for each other's books, nor these for a claim.
        """
        if not self.shared:
            return self._commits
        if self._leases is None:
            self._leases = GroupCommitter(make_engine(self._where), self._place, patience=MAX_OUTAGE_SECONDS)
        return self._leases

    async def verify(self) -> AsyncIterator[str]:
        """Everything that is wrong with what is stored, of all runs: every key and checksum is computed again."""
        try:
            for problem in await self._commits.run(find_database_problems):
                yield f"{self._place}: {problem}"
            for what, pages, sound in ROW_CHECKS:
                async for row in self._rows(pages, 0, {}):
                    if not sound(row):
                        yield f"{self._place}: {what} {describe_row(row)} is damaged."
        except UserError as error:
            yield str(error)

    async def prune(self, *, calls: Iterable[str] = (), runs: Iterable[str] = ()) -> int:
        """Delete these calls with all their attempts, and the outcomes of these runs; how many rows that were.

        A call that is deleted is asked, and paid, again when it is needed.
        """
        keys, names = [encode_key(key) for key in calls], [encode_text(run) for run in runs]

        def job(connection: Connection) -> int:
            deleted = [connection.execute(part, {"key": key}) for key in keys for part in sql.PRUNE_CALL]
            for run in [bytes(run) for run in connection.execute(sql.RUNS).scalars()] if keys else []:
                self._accounts.derive(connection, run)
            deleted += [connection.execute(part, {"run": run}) for run in names for part in sql.PRUNE_RUN]
            return sum(result.rowcount for result in deleted)

        return await self._commits.run(job)

    def _find(self, connection: Connection, key: str) -> LedgerReply | None:
        row = connection.execute(sql.FIND, {"key": encode_key(key)}).one_or_none()
        if row is None:
            return None
        if (settled := read_reply(row)) is None:
            raise self._damaged(f"the reply to {key}")
        return settled

    def _read_outcome(self, row: Row[Any]) -> RecordOutcome:
        if (outcome := read_outcome(row)) is None:
            raise self._damaged(f"the outcome of {describe_row(row)}")
        return outcome

    def _check_same_reply(self, connection: Connection, settled: LedgerReply) -> bool:
        """Return False, for there is nothing new, where the reply is the one that is kept."""
        known = self._find(connection, settled.key)
        if known is None:
            raise self._error(settled.key, "has a reply but was never intended. Note the intent before sending.")
        if known != settled:
            raise self._error(settled.key, "was settled before with another reply. Use the one there is.")
        return False

    def _conclude(self, connection: Connection, outcome: RecordOutcome) -> None:
        row = build_outcome_row(outcome, self._run)
        if connection.execute(sql.ADD_OUTCOME, row).rowcount:
            return
        known = read_outcome(connection.execute(sql.FIND_OUTCOME, row).one())
        if known != outcome:
            before = "damaged" if known is None else known.kind
            problem = f"is {before} in stage {outcome.stage} already, and now {outcome.kind} with other content."
            raise self._error(outcome.record_id, f"{problem} Name another run to do it anew.")

    async def _rows(self, pages: sql.PagedQuery, first: Any, given: dict[str, Any]) -> AsyncIterator[Row[Any]]:
        given = {**given, "first": first}
        while page := await self._commits.run(lambda connection: pages.next(connection, given)):
            for row in page:
                yield row
            given["first"] = _after(page[-1].place)

    def _error(self, record: str, problem: str) -> RecordError:
        return RecordError(problem, path=self._place, record=record)

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self._place}: {what} is damaged. Restore the ledger from a copy, or delete what is damaged: "
            f"eclose ledger prune {self._place} --damaged"
        )


def _after(place: Any) -> Any:
    """The next place there can be."""
    return place + 1 if isinstance(place, int) else place + b"\0"
