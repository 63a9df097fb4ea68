"""The call ledger: every model call of a run on disk, its intent before it is sent and its reply afterwards.

A run that is killed at any moment can be resumed and pays for no call twice. A call is identified by the hash of its
request and shared by all runs of a ledger; outcomes of records belong to one run. Rows are deleted only by ``prune``
and ``reopen_quarantined``.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.ledger import queries as sql
from eclose.calls.ledger import rows
from eclose.calls.ledger.accounts import (
    LEASE_SECONDS,
    CallInFlightError,
    CostCapExceededError,
    WriterAccounting,
    find_last_open_send,
)
from eclose.calls.ledger.commits import MAX_OUTAGE_SECONDS, CommitJournal, GroupCommitter
from eclose.calls.ledger.database import (
    WriterLock,
    describe_database_location,
    find_row,
    is_database_url,
    make_database_engine,
    open_schema,
    read_database_id,
    write_row,
)
from eclose.calls.ledger.queries import LEDGER_SCHEMA
from eclose.calls.ledger.rows import CallIntent, LedgerReply, RecordOutcome, RunAccount, RunUsage
from eclose.errors import RecordError, UserError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from typing import Self

    from sqlalchemy import Connection, Row, TextClause

    from eclose.calls.ledger.accounts import CallSend

__all__ = [
    "CallInFlightError",
    "CallIntent",
    "CostCapExceededError",
    "Ledger",
    "LedgerReply",
    "RecordOutcome",
    "RunAccount",
    "RunUsage",
]

_BEATS = 6
"""Renewals of a writer's lease per lifetime."""


class Ledger:
    """Calls and outcomes of a run. An asynchronous context manager, used from the event loop it was entered in.

    An entered ledger is a *writer* with an id of its own. Amounts are in millionths of the currency. Every method that
    writes returns once its transaction is on disk.
    """

    def __init__(self, location: Path | str, *, run: str) -> None:
        self._location = location
        self._label = describe_database_location(location)
        self._run = run
        # Distinguishes the intents of this writer from those of a killed one.
        self._writer = secrets.token_bytes(8)
        self._lock: WriterLock | None = None
        self._claim_commits: GroupCommitter | None = None
        self.shared = is_database_url(location)
        """Whether other processes may work on the same run at the same time (PostgreSQL)."""
        self.id = ""
        """Id of the database, which it got with its tables; empty before the ledger is entered."""
        self._run_id = rows.encode_utf8_text(run)
        self._accounts = WriterAccounting(self._run_id, self._writer, self._label, shared=self.shared)

    @classmethod
    def open(cls, location: Path | str, *, run: str) -> Ledger:
        """Return a ledger in a file (SQLite, one process at a time) or at a ``postgresql://`` URL (many)."""
        return cls(location, run=run)

    async def __aenter__(self) -> Self:
        """Connect, create missing tables, and start the lease of this writer."""
        engine = make_database_engine(self._location)
        if not self.shared:
            # Taken before the first connection: SQLite itself would let two processes write in turns.
            self._lock = WriterLock(Path(self._location), f"run {self._run}")
        journal = CommitJournal(engine, self._read_commits, self._accounts.number_commit) if self.shared else None
        # A file has one writer, which needs no sign of life.
        self._commits = GroupCommitter(
            engine,
            self._label,
            max_outage=MAX_OUTAGE_SECONDS,
            beat=self._accounts.beat if self.shared else None,
            beat_seconds=LEASE_SECONDS / _BEATS,
            journal=journal,
        )
        try:
            await self._commits.run(self._join)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit what is queued, end the lease and release the lock."""
        # Best effort: where the server is away, the lease runs out by itself.
        with suppress(UserError, asyncio.CancelledError):
            await self._commits.run_anyway(self._accounts.leave)
        self._close()

    def _join(self, connection: Connection) -> None:
        self.id = open_schema(connection, LEDGER_SCHEMA, self._label)
        self._accounts.join(connection)

    def _read_commits(self, connection: Connection) -> int | None:
        """Return the number of the last commit that the database has; None where it is not the one that was opened."""
        same = read_database_id(connection, LEDGER_SCHEMA) == self.id
        return self._accounts.read_commits(connection) if same else None

    def _close(self) -> None:
        for commits in (self._claim_commits, self._commits):
            if commits is not None:
                commits.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def shorten_waits(self) -> None:
        """Shorten the wait for a database that is away: the run was asked to stop."""
        for commits in (self._claim_commits, self._commits):
            if commits is not None:
                commits.shorten_waits()

    async def find_reply(self, key: str) -> LedgerReply | None:
        """Return the reply to a request, None where there is none. Raise where the stored reply is damaged."""
        return await self._commits.run(lambda connection: self._find(connection, key))

    async def intend(self, intent: CallIntent, *, cap: int | None = None) -> RunAccount | None:
        """Write the intent of a call that is about to be sent, and reserve its highest cost.

        A second intent for the same call is another attempt. Returns the totals of the run, None where it has no cost.

        Raises:
            RecordError: There is a reply; read it with ``find_reply``.
            CallInFlightError: Another process has the same call in flight; try again later.
            CostCapExceededError: The cap does not cover the highest cost; calls in flight may free a part of it.
        """
        executions = 0

        def job(connection: Connection) -> RunAccount | None:
            nonlocal executions
            executions += 1  # the committer repeats a job after a rollback or a lost connection
            row = rows.build_intent_row(intent, self._writer, self._run)
            return self._accounts.intend(connection, intent.key, row, cap, again=executions > 1)

        return await self._commits.run(job)

    async def release(self, key: str, *, any_writer: bool = False) -> None:
        """Release the last send of a call that was certainly not billed: it was never sent, or was refused.

        This is the send that this writer has in flight, or, with ``any_writer``, the last open one (a batch that
        another process submitted).
        """
        await self._end(key, None if any_writer else self._writer, sql.RELEASE, released=True)

    async def break_off(self, key: str) -> None:
        """Mark the send that this writer has in flight as ended without a reply; it may have been billed."""
        await self._end(key, self._writer, sql.BREAK, broken=True)

    async def _end(self, key: str, writer: bytes | None, statement: TextClause, **changes: Any) -> None:
        target: CallSend | None = None

        def job(connection: Connection) -> None:
            nonlocal target
            sends = self._accounts.read_sends(connection, key)
            # Kept between executions: a repeated job must end the same send, not the one before it. A database that
            # lacked the send has it again under another number.
            same = [send for send in sends.sends if target is not None and send.seq == target.seq]
            target = same[0] if same else find_last_open_send(sends, writer)
            if target is not None and connection.execute(statement, {"intent": target.seq}).rowcount:
                self._accounts.apply(connection, sends, sends.changed(target, **changes))

        await self._commits.run_anyway(job)

    async def settle(self, reply: LedgerReply, outcome: RecordOutcome | None = None) -> None:
        """Write the reply to a call, and in the same transaction the outcome of its record.

        A call has one reply: writing the same again does nothing, another reply raises. The reply is written even when
        the waiting task is cancelled, since it is paid for, and stays where the outcome is refused.
        """

        def job(connection: Connection) -> None:
            row = rows.build_reply_row(reply, self._writer, self._run)

            def add() -> bool:
                return bool(write_row(connection, sql.ADD_REPLY, row)) or self._check_same_reply(connection, reply)

            self._accounts.settle(connection, reply.key, row, add)
            if outcome is not None:
                self._conclude(connection, outcome)

        await self._commits.run_anyway(job)

    async def conclude(self, outcome: RecordOutcome) -> None:
        """Write the outcome of a record. The same again does nothing; another outcome raises."""
        await self._commits.run_anyway(lambda connection: self._conclude(connection, outcome))

    async def find_last_outcome(self, stages: Sequence[str], record_id: str) -> RecordOutcome | None:
        """Return the outcome of a record in the last of these stages that it has passed; None where in none."""
        parameters = {"run": self._run_id, "record_id": rows.encode_utf8_text(record_id)}

        def job(connection: Connection) -> RecordOutcome | None:
            for stage in reversed(stages):
                row = connection.execute(
                    sql.FIND_OUTCOME, {**parameters, "stage": rows.encode_utf8_text(stage)}
                ).one_or_none()
                if row is not None:
                    return self._read_outcome(row)
            return None

        return await self._commits.run(job)

    async def count_outcomes(self, stage: str) -> dict[tuple[str, str | None], int]:
        """Return the number of records in a stage of this run, by kind and reason of their outcome."""
        counts = await self._commits.run(
            lambda connection: connection.execute(
                sql.COUNT_OUTCOMES, {"run": self._run_id, "stage": rows.encode_utf8_text(stage)}
            ).all()
        )
        return {
            (kind, None if reason is None else rows.decode_utf8_text(reason)): count for kind, reason, count in counts
        }

    async def reopen_quarantined(self, stage: str) -> int:
        """Delete the outcomes of quarantined records in a stage, so that they are retried; return their number."""
        parameters = {"run": self._run_id, "stage": rows.encode_utf8_text(stage)}
        return await self._commits.run(
            lambda connection: connection.execute(sql.REOPEN_QUARANTINED, parameters).rowcount
        )

    async def read_outcomes(self, stage: str) -> AsyncIterator[RecordOutcome]:
        """Yield the outcomes of a stage of this run, in the order of record ids."""
        parameters = {"run": self._run_id, "stage": rows.encode_utf8_text(stage)}
        async for row in self._rows(sql.OUTCOMES, b"", parameters):
            yield self._read_outcome(row)

    async def list_orphans(self) -> list[CallIntent]:
        """Return the open intents of this run, one for each send: neither settled nor released, so possibly billed.

        On a shared ledger these include the calls that other processes have in flight.
        """
        open_rows = await self._commits.run(
            lambda connection: connection.execute(sql.ORPHANS, {"run": self._run_id}).all()
        )
        intents = [(row, rows.decode_intent_row(row)) for row in open_rows]
        for row, intent in intents:
            if intent is None:
                raise self._damaged(f"the intent of {rows.describe_ledger_row(row)}")
        return [intent for _, intent in intents if intent is not None]

    async def compute_account(self) -> RunAccount:
        """Return the cost totals of this run over all its processes, computed from the rows."""

        def job(connection: Connection) -> RunAccount:
            self._accounts.bury_dead(connection)
            return self._accounts.derive(connection)

        return await self._commits.run(job)

    async def list_versions(self) -> list[str]:
        """Return the versions of the program that have worked on this run."""
        run = {"run": self._run_id}
        versions = await self._commits.run(lambda connection: connection.execute(sql.VERSIONS, run).scalars().all())
        return [rows.decode_utf8_text(version) for version in versions]

    async def compute_usage(self) -> RunUsage:
        """Return the usage of this run so far, over all its processes."""
        run = {"run": self._run_id}

        def job(connection: Connection) -> RunUsage:
            usage = RunUsage(*map(int, connection.execute(sql.USAGE, run).one()))
            return usage._replace(unsettled=int(connection.execute(sql.UNSETTLED_COUNT, run).scalar_one()))

        return await self._commits.run(job)

    async def compute_usage_by(self, group: Callable[[str, str], str]) -> dict[str, RunUsage]:
        """Return the usage of this run by ``group(stage, record_id)``, without open sends."""

        def job(connection: Connection) -> dict[str, RunUsage]:
            usage: dict[str, RunUsage] = {}
            for stage, record_id, *amounts in connection.execute(sql.USAGE_BY_RECORD, {"run": self._run_id}):
                name = group(rows.decode_utf8_text(stage), rows.decode_utf8_text(record_id))
                total = usage.get(name, RunUsage(0, 0, 0, 0, 0))
                usage[name] = RunUsage(*map(sum, zip(total, map(int, amounts), strict=True)))
            return usage

        return await self._commits.run(job)

    async def claim(
        self, stage: str, record_ids: Iterable[str], worker: str | None = None, lease_seconds: float = LEASE_SECONDS
    ) -> list[str]:
        """Claim records for a worker; return the ids of those that it has now.

        Refused are finished records and those that another worker claimed with a lease that still runs. Claiming again
        renews the lease, and a lease of 0 seconds gives the record back. The worker is this writer by default.
        """
        ids = list(dict.fromkeys(record_ids))
        name = self._writer if worker is None else rows.encode_utf8_text(worker)
        claimed = await self._get_claim_commits().run(
            lambda connection: self._accounts.claim(connection, rows.encode_utf8_text(stage), ids, name, lease_seconds)
        )
        return [record_id for record_id in ids if record_id in claimed]

    async def give_back(self, stage: str, record_ids: Iterable[str]) -> None:
        """Give back this writer's claims on records."""
        ids = sorted(map(rows.encode_utf8_text, record_ids))
        await self._get_claim_commits().run_anyway(
            lambda connection: self._accounts.give_back(connection, rows.encode_utf8_text(stage), ids)
        )

    def _get_claim_commits(self) -> GroupCommitter:
        """Return the committer for claims: on a server one with its own connection.

        All processes claim the same records under one lock, and neither claims nor calls should wait for the other.
        """
        if not self.shared:
            return self._commits
        if self._claim_commits is None:
            self._claim_commits = GroupCommitter(
                make_database_engine(self._location), self._label, max_outage=MAX_OUTAGE_SECONDS
            )
        return self._claim_commits

    async def verify(self) -> AsyncIterator[rows.LedgerProblem]:
        """Yield every problem of the stored rows of all runs; keys and checksums are computed again."""
        try:
            for problem in await self._commits.run(rows.find_database_problems):
                yield rows.LedgerProblem(f"{self._label}: {problem}")
            for name, query, is_sound in rows.ROW_CHECKS:
                async for row in self._rows(query, 0, {}):
                    if not is_sound(row):
                        yield rows.LedgerProblem(
                            f"{self._label}: {name} {rows.describe_ledger_row(row)} is damaged.", row
                        )
        except UserError as error:
            yield rows.LedgerProblem(str(error), unreadable=True)

    async def prune(self, *, calls: Iterable[str] = (), runs: Iterable[str] = ()) -> int:
        """Delete calls with all their attempts, and the outcomes of runs; return the number of rows.

        A deleted call is sent, and paid, again when it is needed.
        """
        keys, names = [rows.encode_call_key(key) for key in calls], [rows.encode_utf8_text(run) for run in runs]

        def job(connection: Connection) -> int:
            deleted = [connection.execute(part, {"key": key}) for key in keys for part in sql.PRUNE_CALL]
            # Deleted calls may have counted in the totals of any run.
            for run in [bytes(run) for run in connection.execute(sql.RUNS).scalars()] if keys else []:
                self._accounts.derive(connection, run)
            deleted += [connection.execute(part, {"run": run}) for run in names for part in sql.PRUNE_RUN]
            return sum(result.rowcount for result in deleted)

        return await self._commits.run(job)

    def _find(self, connection: Connection, key: str) -> LedgerReply | None:
        row = find_row(connection, sql.FIND_REPLY, {"key": rows.encode_call_key(key)})
        if row is None:
            return None
        if (reply := rows.decode_reply_row(row)) is None:
            raise self._damaged(f"the reply to {key}")
        return reply

    def _read_outcome(self, row: Row[Any]) -> RecordOutcome:
        if (outcome := rows.decode_outcome_row(row)) is None:
            raise self._damaged(f"the outcome of {rows.describe_ledger_row(row)}")
        return outcome

    def _check_same_reply(self, connection: Connection, reply: LedgerReply) -> bool:
        """Return False, as for a row that was not added, where the reply equals the stored one; raise otherwise."""
        stored = self._find(connection, reply.key)
        if stored is None:
            raise self._error(reply.key, "has a reply but was never intended. Note the intent before sending.")
        if stored != reply:
            raise self._error(reply.key, "was settled before with another reply. Use the one there is.")
        return False

    def _conclude(self, connection: Connection, outcome: RecordOutcome) -> None:
        row = rows.build_outcome_row(outcome, self._run)
        if write_row(connection, sql.ADD_OUTCOME, row):
            return
        stored = rows.decode_outcome_row(connection.execute(sql.FIND_OUTCOME, row).one())
        if stored != outcome:
            before = "damaged" if stored is None else stored.kind
            problem = f"is {before} in stage {outcome.stage} already, and now {outcome.kind} with other content."
            raise self._error(outcome.record_id, f"{problem} Name another run to do it anew.")

    async def _rows(self, query: sql.PagedQuery, first: Any, parameters: dict[str, Any]) -> AsyncIterator[Row[Any]]:
        parameters = {**parameters, "first": first}
        while page := await self._commits.run(lambda connection: query.read_page(connection, parameters)):
            for row in page:
                yield row
            position = page[-1].position
            parameters["first"] = position + 1 if isinstance(position, int) else position + b"\0"

    def _error(self, record: str, problem: str) -> RecordError:
        return RecordError(problem, path=self._label, record=record)

    def _damaged(self, name: str) -> UserError:
        return UserError(
            f"{self._label}: {name} is damaged. Restore the ledger from a copy, or delete what is damaged: "
            f"eclose ledger check {self._label} --delete-damaged"
        )
