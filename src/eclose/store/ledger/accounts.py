"""What a run has cost, what may be under way, and which openings of the ledger are alive.

The sums of a run are one row of the database, changed in the transaction that changes what they are sums of. A cap is
held against that row, so it holds for all processes that work on the run. An opening whose lease has run out is dead:
its open sends are marked as broken off, and count as possibly billed from then on. Everything here runs in the thread
of the commits.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, UserError
from eclose.store.ledger import queries as sql
from eclose.store.ledger.database import read_server_time
from eclose.store.ledger.rows import RunAccount, encode_key, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

LEASE_SECONDS = 15.0
"""How long an opening that says nothing is taken to be alive, and a record that it claimed to be its own."""
OUTAGE_SECONDS = 120.0
"""How long the database may be away. Until an opening has watched it for a lease, nothing that may be due to an outage
counts as a death."""


class CapExceededError(UserError):
    """The cap does not cover the worst case of a call on top of what the run has cost, or may have."""

    def __init__(self, account: RunAccount) -> None:
        self.account = account
        super().__init__("the budget does not cover the next call.")


class CallInFlightError(RecordError):
    """Another process that is alive has sent the same call, and waits for its answer."""


@dataclass(frozen=True, slots=True)
class Send:
    """One send of a call, and what became of it."""

    seq: int
    run: bytes
    writer: bytes
    reserved: int
    released: bool
    counted: int | None
    """1 where it broke off and is counted, 0 where it broke off and is not, None where it may be under way."""


@dataclass(frozen=True, slots=True)
class CallSends:
    """All sends of a call, first to last, and its reply where there is one."""

    sends: tuple[Send, ...]
    reply: tuple[bytes, bytes, int] | None = None
    """The writer whose last send it settles, the run that got it, and its cost."""

    def open(self) -> list[Send]:
        """Return the sends that were neither answered nor released."""
        writer = None if self.reply is None else self.reply[0]
        answered = max((send.seq for send in self.sends if send.writer == writer), default=None)
        return [send for send in self.sends if not send.released and send.seq != answered]

    def amounts(self) -> Mapping[bytes, RunAccount]:
        """Return what the call adds to the sums of each run."""
        totals: dict[bytes, Counter[str]] = {}
        for send in self.open():
            total = totals.setdefault(send.run, Counter())
            if send.counted is None:
                total["reserved"] += send.reserved
            elif send.counted:
                total["assumed"] += send.reserved if self.reply is None else self.reply[2]
        if self.reply is not None:
            totals.setdefault(self.reply[1], Counter())["spent"] += self.reply[2]
        return {run: RunAccount(total["spent"], total["reserved"], total["assumed"]) for run, total in totals.items()}

    def changed(self, send: Send, **changes: Any) -> CallSends:
        """Return the same with one send changed."""
        return replace(self, sends=tuple(replace(each, **changes) if each == send else each for each in self.sends))


class RunAccounting:
    """The sums of the run of one opening, and its lease."""

    def __init__(self, run: bytes, writer: bytes, place: str, *, shared: bool) -> None:
        self._run = run
        self._writer = writer
        self._place = place
        self._shared = shared
        """Whether other processes may be at work. A file has one writer at a time, so all others are dead."""
        self._priced = False
        """Whether anything of this run costs anything. If not, the sums stay 0 and are left alone."""
        self._seen = -inf
        """The database's clock at the last beat."""
        self._seen_at = -inf
        """This process's clock at the last beat."""
        self._since = inf
        """The database's clock when this opening began to be seen without a gap."""

    # --- who is alive ------------------------------------------------------------------------------------------------

    def join(self, connection: Connection) -> None:
        """Be alive from now on, and settle the affairs of those that died."""
        self.beat(connection)
        known = connection.execute(sql.ACCOUNT, {"run": self._run}).one_or_none()
        if self.bury(connection) or known is None:
            self._priced = any(self.derive(connection))
        else:
            self._priced = any(known)

    def beat(self, connection: Connection) -> None:
        """Renew the lease."""
        now = read_server_time(connection)
        if now - self._seen > LEASE_SECONDS / 2:
            self._since = now
        self._seen, self._seen_at = now, time.monotonic()
        times = {"now": now, "expires": now + LEASE_SECONDS}
        connection.execute(sql.JOIN, {"writer": self._writer, "run": self._run, **times})

    def leave(self, connection: Connection) -> None:
        """Give the lease up: nothing is under way any more."""
        connection.execute(sql.LEAVE, {"writer": self._writer})

    def horizon(self, connection: Connection) -> float:
        """Return the moment at which the lease of a dead opening had run out.

        After an outage all leases have run out. Those that beat late must not be taken for dead by those that beat
        first, so every opening waits for one lease after a gap of its own.
        """
        if not self._shared:
            return inf
        if time.monotonic() - self._seen_at > LEASE_SECONDS / 2:
            self.beat(connection)
        now = self._seen + time.monotonic() - self._seen_at
        return now if now - self._since >= LEASE_SECONDS else now - OUTAGE_SECONDS

    def is_alive(self, connection: Connection, writer: bytes) -> bool:
        """Return whether another opening may still get the answer to what it sent."""
        given = {"writer": writer, "horizon": self.horizon(connection)}
        return connection.execute(sql.WRITER_ALIVE, given).one_or_none() is not None

    def _dead(self, connection: Connection, run: bytes | None = None) -> list[bytes]:
        given = {"run": run or self._run, "writer": self._writer, "horizon": self.horizon(connection)}
        return [bytes(writer) for writer in connection.execute(sql.DEAD_WRITERS, given).scalars()]

    def bury(self, connection: Connection, run: bytes | None = None) -> bool:
        """Mark what the dead had under way as broken off; return whether there were any."""
        dead = self._dead(connection, run)
        for writer in dead:
            connection.execute(sql.BREAK_ALL, {"run": run or self._run, "dead": writer})
            connection.execute(sql.BURY, {"dead": writer})
        return bool(dead)

    def release_orphans(self, connection: Connection, older_than: float) -> tuple[int, int]:
        """Stop counting what the dead had under way; return how many sends, and the amount that is free again."""
        count = amount = 0
        before = read_server_time(connection) - older_than
        for run in [bytes(run) for run in connection.execute(sql.RUNS).scalars()]:
            self.bury(connection, run)
            assumed = self.derive(connection, run).assumed
            given = {"run": run, "writer": self._writer, "before": before}
            count += connection.execute(sql.RELEASE_BROKEN, given).rowcount
            amount += assumed - self.derive(connection, run).assumed
        return count, amount

    def claim(
        self, connection: Connection, stage: bytes, record_ids: Sequence[str], worker: bytes, lease_seconds: float
    ) -> set[str]:
        """Claim records for a worker; return those that are its own now."""
        if self._shared:
            connection.execute(sql.LOCK_CLAIMS, {"lock": sql.compute_lock_number("claims", self._run)})
        now = read_server_time(connection)
        given = {"run": self._run, "stage": stage, "worker": worker, "now": now, "expires": now + lease_seconds}
        ids = ((encode_text(record_id), record_id) for record_id in record_ids)
        return {name for raw, name in ids if connection.execute(sql.CLAIM, {**given, "record_id": raw}).rowcount}

    def give_back(self, connection: Connection, stage: bytes, record_ids: Sequence[bytes]) -> None:
        """Delete this opening's claims on records."""
        if self._shared:
            connection.execute(sql.LOCK_CLAIMS, {"lock": sql.compute_lock_number("claims", self._run)})
        given = {"run": self._run, "stage": stage, "worker": self._writer}
        if record_ids:
            connection.execute(sql.GIVE_BACK, [{**given, "record_id": record_id} for record_id in record_ids])

    # --- sums --------------------------------------------------------------------------------------------------------

    def derive(self, connection: Connection, run: bytes | None = None) -> RunAccount:
        """Compute the sums of a run from its rows, and keep them."""
        given = {"run": run or self._run}
        connection.execute(sql.OPEN_ACCOUNT, given)
        spent = int(connection.execute(sql.COST, given).scalar_one())
        reserved, assumed = map(int, connection.execute(sql.RESERVED, given).one())
        amounts = {"spent": spent, "reserved": reserved, "assumed": assumed}
        return RunAccount(*connection.execute(sql.SET_ACCOUNT, {**given, **amounts}).one())

    def reserve(self, connection: Connection, amount: int, cap: int | None) -> RunAccount | None:
        """Set an amount aside; None where the run costs nothing. Raises where the cap does not cover it."""
        if not amount and cap is None:
            return None
        self._priced = True
        given = {"run": self._run, "amount": amount, "cap": cap}
        row = connection.execute(sql.RESERVE, given).one_or_none()
        if row is None:
            self.bury(connection)
            raise CapExceededError(self.derive(connection))
        return RunAccount(*row)

    def sends(self, connection: Connection, key: str) -> CallSends:
        """Return all sends of a call."""
        rows = connection.execute(sql.SENDS, {"key": encode_key(key)}).all()
        reply = None
        if rows and rows[0].settled_writer is not None:
            reply = bytes(rows[0].settled_writer), bytes(rows[0].settled_run), int(rows[0].cost)
        sends = (
            Send(row.seq, bytes(row.run), bytes(row.writer), row.reserved, bool(row.released), row.counted)
            for row in rows
        )
        return CallSends(tuple(sends), reply)

    def apply(self, connection: Connection, before: CallSends, after: CallSends) -> None:
        """Change the sums of all runs from what a call added to them before to what it adds now."""
        old, new, nothing = before.amounts(), after.amounts(), RunAccount(0, 0, 0)
        for run in sorted({*old, *new}):
            pairs = zip(new.get(run, nothing), old.get(run, nothing), strict=True)
            difference = RunAccount(*(now - then for now, then in pairs))
            if any(difference):
                self._priced = True
                connection.execute(sql.CHANGE_ACCOUNT, {"run": run, **difference._asdict()})

    def intend(
        self, connection: Connection, key: str, row: Mapping[str, Any], cap: int | None, *, again: bool
    ) -> RunAccount | None:
        """Note an intent and set its worst case aside; ``again`` where the job was run before."""
        if again and find_last_open(self.sends(connection, key), self._writer) is not None:
            return None  # the connection was lost at the commit, which was made
        account = self.reserve(connection, row["reserved"], cap)
        known = not connection.execute(sql.ADD_CALL, row).rowcount
        busy = known and self.is_under_way(connection, key)
        if not busy and connection.execute(sql.ADD_INTENT, row).rowcount:
            return account
        if account is not None:
            self.reserve(connection, -row["reserved"], None)
        if busy:
            raise CallInFlightError("is under way in another process.", path=self._place, record=key)
        problem = "was answered before, and would be paid twice. Use the reply there is."
        raise RecordError(problem, path=self._place, record=key)

    def is_under_way(self, connection: Connection, key: str) -> bool:
        """Return whether another opening waits for the answer to a call; mark what the dead sent as broken off."""
        if self._shared:
            connection.execute(sql.LOCK_CALL, {"key": encode_key(key)})
        sends = self.sends(connection, key)
        if sends.reply is not None:
            return False
        for send in sends.open():
            if send.counted is None and send.writer != self._writer:
                if self.is_alive(connection, send.writer):
                    return True
                connection.execute(sql.BREAK, {"intent": send.seq})
                broken = sends.changed(send, counted=1)
                self.apply(connection, sends, broken)
                sends = broken
        return False

    def settle(self, connection: Connection, key: str, cost: int, add: Callable[[], bool]) -> None:
        """Put what a call cost in the place of what was set aside for it, where its reply is new."""
        before = self.sends(connection, key) if cost or self._priced else None
        if add() and before is not None:
            own = any(send.writer == self._writer for send in before.sends)
            writer = self._writer if own else before.sends[-1].writer
            self.apply(connection, before, replace(before, reply=(writer, self._run, cost)))


def find_last_open(sends: CallSends, writer: bytes | None) -> Send | None:
    """Return the last send that may be under way: of one opening, or, without one, of any, broken off or not."""
    candidates: Sequence[Send] = [
        send for send in sends.open() if writer is None or (send.writer == writer and send.counted is None)
    ]
    return candidates[-1] if candidates else None
