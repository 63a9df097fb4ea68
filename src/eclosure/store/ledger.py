"""The call ledger: every model call of a run, the intent before it is sent and the reply after, on disk.

A run that is killed at any moment goes on where it was and pays for nothing twice. Calls are known by the hash of
their request and shared by all runs of a ledger; outcomes belong to one run. Nothing is changed or deleted unasked.
Knows keys, JSON and bytes, nothing of chat models.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, text

from eclosure.errors import RecordError, UserError
from eclosure.store import ledger_queries as sql
from eclosure.store.commits import Commits
from eclosure.store.database import WriterLock, engine_of, is_url, migrate, shown
from eclosure.store.ledger_rows import (
    Intent,
    Outcome,
    RunUsage,
    Settled,
    intent_row,
    key_bytes,
    key_text,
    outcome_row,
    read_intent,
    read_outcome,
    read_settled,
    request_bytes,
    settled_row,
    to_bytes,
    to_text,
)
from eclosure.store.ledger_schema import MIGRATIONS, MIGRATIONS_TABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["Intent", "Ledger", "Outcome", "RunUsage", "Settled"]


class Ledger:
    """Calls and outcomes of a run. An asynchronous context manager, used from the event loop it was entered in."""

    def __init__(self, where: Path | str, *, run: str) -> None:
        self._where = where
        self._place = shown(where)
        self._run = run
        # Tells this opening's intents from those of one that was killed.
        self._writer = secrets.token_bytes(8)
        self._lock: WriterLock | None = None

    @classmethod
    def open(cls, where: Path | str, *, run: str) -> Ledger:
        """A ledger in a file (SQLite, one process at a time) or at a ``postgresql://`` URL (many)."""
        return cls(where, run=run)

    async def __aenter__(self) -> Self:
        """Open the place, and bring its tables up to date."""
        engine = engine_of(self._where)
        if not is_url(self._where):
            self._lock = WriterLock(Path(self._where), f"run {self._run}")
        self._commits = Commits(engine, self._place)
        try:
            await self._commits.run(lambda c: migrate(c, MIGRATIONS, MIGRATIONS_TABLE, self._place))
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is queued, and let others in."""
        self._close()

    def _close(self) -> None:
        self._commits.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def find(self, key: str) -> Settled | None:
        """The reply to a request, if there is one. A damaged one raises: it is neither used nor paid again unasked."""
        return await self._commits.run(lambda connection: self._find(connection, key))

    async def intend(self, intent: Intent) -> None:
        """Note what is about to be sent; on disk on return. Another intent for a call counts another attempt.

        Raises when there is a reply: take it with ``find``.
        """
        request = request_bytes(intent)

        def job(connection: Connection) -> None:
            row = intent_row(intent, request, self._writer, self._run)
            connection.execute(sql.ADD_CALL, row)
            if not connection.execute(sql.ADD_INTENT, row).rowcount:
                raise self._error(intent.key, "was answered before, and would be paid twice. Use the reply there is.")

        await self._commits.run(job)

    async def release(self, key: str, *, whoever: bool = False) -> None:
        """Note that what was intended last for a call was certainly not billed: it never went out or was turned away.

        That is what this opening intended, or the last that is open, whoever did (a batch that was adopted).
        """
        given = {"key": key_bytes(key), "writer": self._writer}
        statement = sql.RELEASE_WHOEVER if whoever else sql.RELEASE
        await self._commits.run_anyway(lambda connection: connection.execute(statement, given).rowcount)

    async def settle(self, settled: Settled, outcome: Outcome | None = None) -> None:
        """Note what came back, and in the same transaction what became of its record; on disk on return.

        A call is settled once; the same again is no harm, another reply is refused. It is written even when the task
        that waits is cancelled, since it is paid for. When the outcome is refused, the reply is kept.
        """

        def job(connection: Connection) -> None:
            row = settled_row(settled, self._writer, self._run)
            if not connection.execute(sql.ADD_REPLY, row).rowcount:
                self._check_same_reply(connection, settled)
            if outcome is not None:
                self._conclude(connection, outcome)

        await self._commits.run_anyway(job)

    async def conclude(self, outcome: Outcome) -> None:
        """Note where a record went; on disk on return. The same again is no harm, anything else is refused."""
        await self._commits.run_anyway(lambda connection: self._conclude(connection, outcome))

    async def reached(self, stages: Sequence[str], record_id: str) -> Outcome | None:
        """What became of a record in the last of these stages of this run that it has been through."""
        given = {"run": to_bytes(self._run), "record_id": to_bytes(record_id)}

        def job(connection: Connection) -> Outcome | None:
            for stage in reversed(stages):
                row = connection.execute(sql.FIND_OUTCOME, {**given, "stage": to_bytes(stage)}).one_or_none()
                if row is not None:
                    return self._read_outcome(row)
            return None

        return await self._commits.run(job)

    async def tally(self, stage: str) -> dict[tuple[str, str | None], int]:
        """How many records of a stage of this run went where, by kind and reason."""
        given = {"run": to_bytes(self._run), "stage": to_bytes(stage)}
        rows = await self._commits.run(lambda c: c.execute(sql.TALLY, given).all())
        return {(kind, None if reason is None else to_text(reason)): count for kind, reason, count in rows}

    async def reopen(self, stage: str) -> int:
        """Forget where the quarantined records of a stage went, so that they are tried again; how many there were."""
        given = {"run": to_bytes(self._run), "stage": to_bytes(stage)}
        return await self._commits.run(lambda c: c.execute(sql.REOPEN, given).rowcount)

    async def concluded(self, stage: str) -> AsyncIterator[str]:
        """The ids of the records that are done in a stage of this run, in order."""
        given = {"run": to_bytes(self._run), "stage": to_bytes(stage), "first": b"", "most": sql.PAGE_ROWS}
        while ids := await self._commits.run(lambda c: list(c.execute(sql.IDS, given).scalars())):
            for record_id in ids:
                yield to_text(record_id)
            given["first"] = _after(ids[-1])

    async def outcomes(self, stage: str) -> AsyncIterator[Outcome]:
        """The outcomes of a stage of this run, in the order of their records' ids."""
        given = {"run": to_bytes(self._run), "stage": to_bytes(stage)}
        async for row in self._rows(sql.OUTCOMES, b"", given):
            yield self._read_outcome(row)

    async def orphans(self) -> list[Intent]:
        """What this run intended and neither settled nor released, and may have been billed for, one for each send.

        On a ledger of many workers, what others have in flight is among it.
        """
        rows = await self._commits.run(lambda c: c.execute(sql.ORPHANS, {"run": to_bytes(self._run)}).all())
        intents = [(row, read_intent(row)) for row in rows]
        for row, intent in intents:
            if intent is None:
                raise self._damaged(f"the intent of {_named(row)}")
        return [intent for _, intent in intents if intent is not None]

    async def spent(self) -> tuple[int, int]:
        """What this run's replies cost, and what its unsettled intents may cost at worst."""
        run = {"run": to_bytes(self._run)}
        return await self._commits.run(
            lambda c: (int(c.execute(sql.COST, run).scalar_one()), int(c.execute(sql.RESERVED, run).scalar_one()))
        )

    async def usage(self) -> RunUsage:
        """What this run has asked and got so far, over all its openings."""
        run = {"run": to_bytes(self._run)}

        def job(connection: Connection) -> RunUsage:
            replies, prompt, completion, cost = map(int, connection.execute(sql.USAGE, run).one())
            unsettled = int(connection.execute(sql.UNSETTLED_COUNT, run).scalar_one())
            return RunUsage(replies, prompt, completion, cost, unsettled)

        return await self._commits.run(job)

    async def usage_by(self, group: Callable[[str, str], str]) -> dict[str, RunUsage]:
        """What this run has asked and got, by what a stage and a record's id belong to; what is open is not in it."""

        def job(connection: Connection) -> dict[str, RunUsage]:
            found: dict[str, RunUsage] = {}
            for stage, record_id, *amounts in connection.execute(sql.USAGE_BY_RECORD, {"run": to_bytes(self._run)}):
                name = group(to_text(stage), to_text(record_id))
                before = found.get(name, RunUsage(0, 0, 0, 0, 0))
                more = (*map(int, amounts), 0)
                found[name] = RunUsage(*(one + other for one, other in zip(before, more, strict=True)))
            return found

        return await self._commits.run(job)

    async def claim(self, stage: str, record_ids: Iterable[str], worker: str, lease_seconds: float) -> list[str]:
        """Those of the records that are now this worker's: not done, and not another's whose lease still runs.

        Claiming again renews a lease, and claiming for no seconds gives a record back.
        """
        wanted = list(dict.fromkeys(record_ids))
        given = {"run": to_bytes(self._run), "stage": to_bytes(stage), "worker": to_bytes(worker)}

        def job(connection: Connection) -> set[str]:
            now = _now(connection)
            times = {**given, "now": now, "expires": now + lease_seconds}
            # In one order for all workers, so that no two wait for each other.
            ids = sorted((to_bytes(record_id), record_id) for record_id in wanted)
            return {id_ for raw, id_ in ids if connection.execute(sql.CLAIM, {**times, "record_id": raw}).rowcount}

        ours = await self._commits.run(job)
        return [record_id for record_id in wanted if record_id in ours]

    async def verify(self) -> AsyncIterator[str]:
        """Everything that is wrong with what is stored, of all runs: every key and checksum is computed again."""
        try:
            for problem in await self._commits.run(_inner_problems):
                yield f"{self._place}: {problem}"
            for what, pages, sound in sql.CHECKS:
                async for row in self._rows(pages, 0, {}):
                    if not sound(row):
                        yield f"{self._place}: {what} {_named(row)} is damaged."
        except UserError as error:
            yield str(error)

    async def prune(self, *, calls: Iterable[str] = (), runs: Iterable[str] = ()) -> int:
        """Delete these calls with all their attempts, and the outcomes of these runs; how many rows that were.

        A call that is deleted is asked, and paid, again when it is needed.
        """
        keys, names = [key_bytes(key) for key in calls], [to_bytes(run) for run in runs]

        def job(connection: Connection) -> int:
            deleted = [connection.execute(part, {"key": key}) for key in keys for part in sql.PRUNE_CALL]
            deleted += [connection.execute(part, {"run": run}) for run in names for part in sql.PRUNE_RUN]
            return sum(result.rowcount for result in deleted)

        return await self._commits.run(job)

    def _find(self, connection: Connection, key: str) -> Settled | None:
        row = connection.execute(sql.FIND, {"key": key_bytes(key)}).one_or_none()
        if row is None:
            return None
        if (settled := read_settled(row)) is None:
            raise self._damaged(f"the reply to {key}")
        return settled

    def _read_outcome(self, row: Row[Any]) -> Outcome:
        if (outcome := read_outcome(row)) is None:
            raise self._damaged(f"the outcome of {_named(row)}")
        return outcome

    def _check_same_reply(self, connection: Connection, settled: Settled) -> None:
        known = self._find(connection, settled.key)
        if known is None:
            raise self._error(settled.key, "has a reply but was never intended. Note the intent before sending.")
        if known != settled:
            raise self._error(settled.key, "was settled before with another reply. Use the one there is.")

    def _conclude(self, connection: Connection, outcome: Outcome) -> None:
        row = outcome_row(outcome, self._run)
        if connection.execute(sql.ADD_OUTCOME, row).rowcount:
            return
        known = read_outcome(connection.execute(sql.FIND_OUTCOME, row).one())
        if known != outcome:
            before = "damaged" if known is None else known.kind
            problem = f"is {before} in stage {outcome.stage} already, and now {outcome.kind} with other content."
            raise self._error(outcome.record_id, f"{problem} Name another run to do it anew.")

    async def _rows(self, pages: sql.Pages, first: Any, given: dict[str, Any]) -> AsyncIterator[Row[Any]]:
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
            f"eclosure ledger prune {self._place} --damaged"
        )


def _after(place: Any) -> Any:
    """The next place there can be."""
    return place + 1 if isinstance(place, int) else place + b"\0"


def _now(connection: Connection) -> float:
    """Seconds since 1970 by the one clock that all workers share."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def _inner_problems(connection: Connection) -> list[str]:
    """What the database finds wrong with itself; only SQLite can be asked."""
    if connection.dialect.name != "sqlite":
        return []
    found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    lost = [
        f"row {row[1]} of {row[0]} belongs to nothing" for row in connection.execute(text("PRAGMA foreign_key_check"))
    ]
    return [problem for problem in found if problem != "ok"] + lost


def _named(row: Row[Any]) -> str:
    """What a row is called in a message, as far as it can still be read."""
    fields = row._asdict()
    names = ["key"] if "key" in fields else ["record_id", "stage", "run"]
    return " of ".join(_readable(fields[name], name) for name in names)


def _readable(value: object, name: str) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    return key_text(value) if name == "key" else value.decode("utf-8", "backslashreplace")
