"""Cost totals of runs, sends in flight, and the leases of writers.

A writer is one open ledger of one process. The totals of a run are one row of the database, updated in the transaction
that changes the rows they sum up. The cap is compared with that row and so holds for all processes of the run. A writer
whose lease ran out is dead: its open sends are marked as broken off and count as possibly billed. All methods run in
the thread that commits.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import eclose
from eclose.calls.ledger import queries as sql
from eclose.calls.ledger.database import read_database_time, write_row
from eclose.calls.ledger.rows import RunAccount, encode_call_key, encode_utf8_text
from eclose.errors import RecordError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Transaction

LEASE_SECONDS = 15.0
"""Lifetime of a writer, and of its claims on records, after its last sign of life."""
# As long as a committer waits for an absent server (``group_commit.MAX_OUTAGE_SECONDS``): a writer that is still
# waiting must not be taken for dead.
OUTAGE_SECONDS = 120.0
"""Longest outage of the database. A writer that has not observed it for a full lease takes others for dead only after
this time: their leases may have run out because of an outage."""


class CostCapExceededError(UserError):
    """The cap does not cover the highest cost of a call on top of what the run has, or may have, cost."""

    def __init__(self, account: RunAccount) -> None:
        self.account = account
        super().__init__("the budget does not cover the next call.")


class CallInFlightError(RecordError):
    """Another live process has sent the same call and waits for its reply."""


@dataclass(frozen=True, slots=True)
class CallSend:
    """One send of a call and how it ended."""

    seq: int
    run: bytes
    writer: bytes
    reserved: int
    released: bool
    broken: bool
    """Whether the send broke off; otherwise it may be in flight."""


@dataclass(frozen=True, slots=True)
class CallSendHistory:
    """All sends of a call, first to last, and its reply."""

    sends: tuple[CallSend, ...]
    reply: tuple[bytes, bytes, int] | None = None
    """Writer whose last send the reply settles, run that got it, and cost; None without a reply."""

    def open(self) -> list[CallSend]:
        """Return the sends that were neither settled by the reply nor released."""
        writer = None if self.reply is None else self.reply[0]
        settled = max((send.seq for send in self.sends if send.writer == writer), default=None)
        return [send for send in self.sends if not send.released and send.seq != settled]

    def amounts(self) -> Mapping[bytes, RunAccount]:
        """Return what the call adds to the totals of each run."""
        totals: dict[bytes, Counter[str]] = {}
        for send in self.open():
            total = totals.setdefault(send.run, Counter())
            if not send.broken:
                total["reserved"] += send.reserved
            else:
                # A later reply shows the real cost of the same request, which bounds that of the broken send.
                total["assumed"] += send.reserved if self.reply is None else self.reply[2]
        if self.reply is not None:
            totals.setdefault(self.reply[1], Counter())["spent"] += self.reply[2]
        return {run: RunAccount(total["spent"], total["reserved"], total["assumed"]) for run, total in totals.items()}

    def changed(self, send: CallSend, **changes: Any) -> CallSendHistory:
        """Return the sends with one of them changed."""
        return replace(self, sends=tuple(replace(each, **changes) if each == send else each for each in self.sends))


class WriterAccounting:
    """The totals of one writer's run, and the writer's lease."""

    def __init__(self, run: bytes, writer: bytes, label: str, *, shared: bool) -> None:
        self._run = run
        self._writer = writer
        self._label = label
        """The ledger's name in messages."""
        self._shared = shared
        """Whether other processes may be alive. A file has one writer at a time, so all others are dead."""
        self._priced = False
        """Whether the run has a cost. If not, the totals stay 0 and are not updated."""
        self._locked_in: Transaction | None = None
        """Transaction in which the totals of the run are locked, the last one of this writer."""
        self._claims_locked_in: Transaction | None = None
        """The same for the claims of the run."""
        self._claims_locked_at = -inf
        self._beat_server_time = -inf
        """Time of the last heartbeat by the database's clock, in seconds."""
        self._beat_local_time = -inf
        """Time of the last heartbeat by this process's monotonic clock, in seconds."""
        self._observed_since = inf
        """Start of the gap-free observation of the database, by the database's clock."""

    # --- leases of writers --------------------------------------------------------------------------------------------

    def join(self, connection: Connection) -> None:
        """Start the lease of this writer, and mark the sends of dead writers as broken off."""
        self.beat(connection)
        account = connection.execute(sql.ACCOUNT, {"run": self._run}).one_or_none()
        if self.bury_dead(connection) or account is None:
            self._priced = any(self.derive(connection))
        else:
            self._priced = any(account)

    def beat(self, connection: Connection) -> None:
        """Renew the lease."""
        now = read_database_time(connection)
        # A gap between two beats means an outage, or a process that was suspended.
        if now - self._beat_server_time > LEASE_SECONDS / 2:
            self._observed_since = now
        self._beat_server_time, self._beat_local_time = now, time.monotonic()
        version = encode_utf8_text(eclose.__version__)
        row = {"writer": self._writer, "run": self._run, "version": version, "expires": now + LEASE_SECONDS}
        connection.execute(sql.JOIN_WRITER, row)

    def read_commits(self, connection: Connection) -> int:
        """Return the number of this writer's last commit that the database has."""
        return int(connection.execute(sql.COMMITS, {"writer": self._writer}).scalar_one_or_none() or 0)

    def number_commit(self, connection: Connection, number: int) -> bool:
        """Write the number of the current commit; return False where its transaction has only read."""
        return bool(connection.execute(sql.SET_COMMITS, {"writer": self._writer, "number": number}).rowcount)

    def leave(self, connection: Connection) -> None:
        """End the lease: this writer has nothing in flight any more."""
        connection.execute(sql.END_LEASE, {"writer": self._writer})

    def horizon(self, connection: Connection) -> float:
        """Return the time before which the lease of a dead writer ran out, by the database's clock.

        After an outage all leases have run out. Writers that renew late must not be taken for dead by those that renew
        first, so every writer waits for one lease after a gap of its own.
        """
        if not self._shared:
            return inf
        if time.monotonic() - self._beat_local_time > LEASE_SECONDS / 2:
            self.beat(connection)
        # The database's time without a query: the local clock measures what has passed since the last beat.
        now = self._beat_server_time + time.monotonic() - self._beat_local_time
        return now if now - self._observed_since >= LEASE_SECONDS else now - OUTAGE_SECONDS

    def bury_dead(self, connection: Connection) -> bool:
        """Mark the open sends of dead writers as broken off; return whether there was a dead writer."""
        parameters = {"run": self._run, "writer": self._writer, "horizon": self.horizon(connection)}
        dead_writers = [bytes(writer) for writer in connection.execute(sql.DEAD_WRITERS, parameters).scalars()]
        for writer in dead_writers:
            connection.execute(sql.BREAK_ALL, {"run": self._run, "dead": writer})
            connection.execute(sql.BURY_WRITER, {"dead": writer})
        return bool(dead_writers)

    def claim(
        self, connection: Connection, stage: bytes, record_ids: Sequence[str], worker: bytes, lease_seconds: float
    ) -> set[str]:
        """Claim records for a worker; return the ids of those that it has now."""
        now = self._lock_claims(connection)
        parameters = {"run": self._run, "stage": stage, "worker": worker, "now": now, "expires": now + lease_seconds}
        ids = ((encode_utf8_text(record_id), record_id) for record_id in record_ids)
        return {name for raw, name in ids if connection.execute(sql.CLAIM, {**parameters, "record_id": raw}).rowcount}

    def give_back(self, connection: Connection, stage: bytes, record_ids: Sequence[bytes]) -> None:
        """Delete this writer's claims on records."""
        if record_ids:
            self._lock_claims(connection)
            parameters = {"run": self._run, "stage": stage, "worker": self._writer}
            connection.execute(sql.GIVE_BACK, [{**parameters, "record_id": record_id} for record_id in record_ids])

    def _lock_claims(self, connection: Connection) -> float:
        """Lock the claims of the run until the transaction ends; return the time of the lock in the database."""
        if (transaction := connection.get_transaction()) is not self._claims_locked_in:
            # Two processes that claim the same records in different orders would deadlock.
            if self._shared:
                connection.execute(sql.LOCK_CLAIMS, {"lock": sql.compute_advisory_lock("claims", self._run)})
            self._claims_locked_in, self._claims_locked_at = transaction, read_database_time(connection)
        return self._claims_locked_at

    # --- cost totals --------------------------------------------------------------------------------------------------

    def derive(self, connection: Connection, run: bytes | None = None) -> RunAccount:
        """Compute the totals of a run from its rows, store and return them."""
        parameters = {"run": run or self._run}
        connection.execute(sql.OPEN_ACCOUNT, parameters)
        spent = int(connection.execute(sql.COST, parameters).scalar_one())
        reserved, assumed = map(int, connection.execute(sql.RESERVED, parameters).one())
        amounts = {"spent": spent, "reserved": reserved, "assumed": assumed}
        return RunAccount(*connection.execute(sql.SET_ACCOUNT, {**parameters, **amounts}).one())

    def reserve(self, connection: Connection, amount: int, cap: int | None) -> RunAccount | None:
        """Reserve an amount and return the totals, None where the run has no cost; raise where the cap is exceeded."""
        if not amount and cap is None:
            return None
        self._priced = True
        parameters = {"run": self._run, "amount": amount, "cap": cap}
        row = connection.execute(sql.RESERVE, parameters).one_or_none()
        if row is None:
            raise self._refuse(connection)
        return RunAccount(*row)

    def _refuse(self, connection: Connection) -> CostCapExceededError:
        # The totals in the message should include what dead writers left behind. Otherwise the row is right: adding up
        # all calls of the run for each refused one would take minutes, since every record in progress is refused.
        if self.bury_dead(connection):
            return CostCapExceededError(self.derive(connection))
        account = connection.execute(sql.ACCOUNT, {"run": self._run}).one_or_none()
        return CostCapExceededError(RunAccount(0, 0, 0) if account is None else RunAccount(*account))

    def read_sends(self, connection: Connection, key: str) -> CallSendHistory:
        """Return all sends of a call."""
        rows = connection.execute(sql.SENDS, {"key": encode_call_key(key)}).all()
        reply = None
        if rows and rows[0].settled_writer is not None:
            reply = bytes(rows[0].settled_writer), bytes(rows[0].settled_run), int(rows[0].cost)
        sends = (
            CallSend(
                seq=row.seq,
                run=bytes(row.run),
                writer=bytes(row.writer),
                reserved=row.reserved,
                released=bool(row.released),
                broken=bool(row.broken),
            )
            for row in rows
        )
        return CallSendHistory(tuple(sends), reply)

    def apply(self, connection: Connection, before: CallSendHistory, after: CallSendHistory) -> None:
        """Update the totals of all runs by the difference between the sends of a call before and after a change."""
        old, new, nothing = before.amounts(), after.amounts(), RunAccount(0, 0, 0)
        # Sorted, so that two transactions lock the rows of runs in the same order.
        for run in sorted({*old, *new}):
            pairs = zip(new.get(run, nothing), old.get(run, nothing), strict=True)
            difference = RunAccount(*(now - then for now, then in pairs))
            if any(difference):
                self._priced = True
                connection.execute(sql.CHANGE_ACCOUNT, {"run": run, **difference._asdict()})

    def intend(
        self, connection: Connection, key: str, row: Mapping[str, Any], cap: int | None, *, again: bool
    ) -> RunAccount | None:
        """Write an intent and reserve its highest cost; ``again`` where the transaction is repeated."""
        if again and find_last_open_send(self.read_sends(connection, key), self._writer) is not None:
            return None  # the connection was lost after the commit took effect
        account: RunAccount | None
        if self._shared and (row["reserved"] or cap is not None):
            self._priced = True
            result = connection.execute(sql.INTEND_NEW, {**row, "cap": cap}).one_or_none()
            if result is None:
                raise self._refuse(connection)
            account, exists = RunAccount(result.spent, result.reserved, result.assumed), not result.written
        else:
            account = self.reserve(connection, row["reserved"], cap)
            exists = not write_row(connection, sql.ADD_CALL, row)
            if not exists:
                write_row(connection, sql.ADD_INTENT, row)
        # A new call cannot be in flight elsewhere, so the lock and the queries are needed for known calls only.
        if not exists:
            return account
        in_flight = self.is_in_flight(connection, key)
        if not in_flight and write_row(connection, sql.ADD_INTENT, row):
            return account
        if account is not None:
            # Undone in the same transaction: a refusal is committed with the other jobs of its batch and must leave no
            # reservation.
            self.reserve(connection, -row["reserved"], None)
        if in_flight:
            raise CallInFlightError("is under way in another process.", path=self._label, record=key)
        problem = "was answered before, and would be paid twice. Use the reply there is."
        raise RecordError(problem, path=self._label, record=key)

    def is_in_flight(self, connection: Connection, key: str) -> bool:
        """Return whether another live writer waits for the reply to a call; mark sends of dead ones as broken off."""
        if self._shared:
            connection.execute(sql.LOCK_CALL, {"key": encode_call_key(key)})
        sends = self.read_sends(connection, key)
        if sends.reply is not None:
            return False
        for send in sends.open():
            if not send.broken and send.writer != self._writer:
                alive = {"writer": send.writer, "horizon": self.horizon(connection)}
                if connection.execute(sql.WRITER_ALIVE, alive).one_or_none() is not None:
                    return True
                connection.execute(sql.BREAK, {"intent": send.seq})
                broken = sends.changed(send, broken=True)
                self.apply(connection, sends, broken)
                sends = broken
        return False

    def settle(self, connection: Connection, key: str, row: Mapping[str, Any], add: Callable[[], bool]) -> None:
        """Replace the reservation of a call by its cost, where ``add`` reports that the reply is new."""
        cost = row["cost"]
        priced = bool(cost) or self._priced
        if priced and self._shared:
            # The order of ``intend``: a reply locks its call, and a process that sends the same call for another record
            # already holds the account.
            if (transaction := connection.get_transaction()) is not self._locked_in:
                connection.execute(sql.LOCK_ACCOUNT, {"run": self._run})
                self._locked_in = transaction
            if connection.execute(sql.SETTLE_ONLY_SEND, row).rowcount:
                return
        before = self.read_sends(connection, key) if priced else None
        if add() and before is not None:
            # As in ADD_REPLY: the reply settles this writer's own send, or else the latest one.
            has_own_send = any(send.writer == self._writer for send in before.sends)
            writer = self._writer if has_own_send else before.sends[-1].writer
            self.apply(connection, before, replace(before, reply=(writer, self._run, cost)))


def find_last_open_send(sends: CallSendHistory, writer: bytes | None) -> CallSend | None:
    """Return the last send that a writer has in flight; without a writer the last open one, broken off or not."""
    candidates: Sequence[CallSend] = [
        send for send in sends.open() if writer is None or (send.writer == writer and not send.broken)
    ]
    return candidates[-1] if candidates else None
