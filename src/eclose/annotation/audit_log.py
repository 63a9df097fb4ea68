"""The audit log of a project: a hash chain of events, so that changes and removals are detected.

A chain alone does not show that its end was cut off. The number of events and the last hash are therefore also written
to a file outside the database, and the chain must contain that event.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.annotation.accounts.tokens import format_utc_timestamp
from eclose.core.identity import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, Row

# As long as a SHA-256 in hex, so that the column holds it.
HASH_BEFORE_FIRST_EVENT = "0" * 64
"""Previous hash of the first event."""


@dataclass(frozen=True, slots=True)
class AuditEventRef:
    """Number and hash of an event."""

    seq: int
    hash: str

    @property
    def receipt(self) -> str:
        """Short text that proves to a person that an event was recorded."""
        return f"{self.seq}-{self.hash[:12]}"


def current_timestamp() -> str:
    """Return the current time as it is stored."""
    return format_utc_timestamp(datetime.now(UTC))


def append_audit_event(
    connection: Connection, actor: str, action: str, *, task: str | None = None, detail: Mapping[str, Any] | None = None
) -> AuditEventRef:
    """Add an event in the transaction of the change it describes."""
    # Updating the single head row first makes concurrent writers wait here until this transaction ends.
    if not connection.execute(_ADVANCE).rowcount:
        # The first event of a project.
        connection.execute(_BEGIN, {"hash": HASH_BEFORE_FIRST_EVENT})
    count, previous = connection.execute(_HEAD).one()
    row = {
        "seq": int(count),
        "at": current_timestamp(),
        "actor": actor,
        "action": action,
        "task": task,
        "detail": json.dumps(detail or {}, sort_keys=True),
        "previous": previous,
    }
    # Covers the previous hash, which makes the chain.
    row["hash"] = _hash(row)
    connection.execute(_ADD, row)
    connection.execute(_SET_HEAD, row)
    return AuditEventRef(row["seq"], row["hash"])


def last_audit_event(connection: Connection) -> AuditEventRef:
    """Return the last event of the chain."""
    count, event_hash = connection.execute(_HEAD).one()
    return AuditEventRef(int(count), event_hash)


def hash_form_entries(entries: object) -> str:
    """Return the SHA-256 of a form's entries: reveals that they were changed, but not what was decided."""
    return hashlib.sha256(canonical_json(entries).encode()).hexdigest()


def _hash(row: Mapping[str, Any]) -> str:
    values = [row[name] for name in ("seq", "at", "actor", "action", "task", "detail", "previous")]
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


class AuditLogHead:
    """The end of the chain as recorded in a file of one line outside the database. Its event number only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> AuditEventRef | None:
        """Return the recorded event, None where the file is missing; raise ValueError where it is damaged."""
        if not self.path.exists():
            return None
        event = _parse_head(self.path.read_bytes())
        if event is None:
            raise ValueError(f"{self.path}: is damaged")
        return event

    def advance(self, event: AuditEventRef) -> None:
        """Record an event, unless a later one is recorded."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # Several processes (server and commands) may write the head of one project.
            fcntl.flock(file, fcntl.LOCK_EX)
            if line := os.pread(file, 128, 0):
                recorded = _parse_head(line)
                # A damaged line stays for verify_audit_log to report: overwritten, it would hide what happened.
                if recorded is None or recorded.seq >= event.seq:
                    return
            # Fixed width and a single write: a reader, also after a crash, finds the old or the new line.
            os.pwrite(file, f"{event.seq:020d} {event.hash}\n".encode("ascii"), 0)
        finally:
            os.close(file)


def _parse_head(line: bytes) -> AuditEventRef | None:
    """Return the event that the line records; None where it is damaged."""
    parts = line.split()
    if len(parts) != 2 or not parts[0].isdigit():
        return None
    return AuditEventRef(int(parts[0]), parts[1].decode("ascii", "replace"))


def verify_audit_log(connection: Connection, head: AuditLogHead) -> Iterator[str]:
    """Yield every problem of the log and of the submissions it covers; nothing where all is as written."""
    # Before the events: read after them, the file could name an event that a running server has added since.
    recorded = None
    try:
        recorded = head.read()
    except ValueError:
        yield f"{head.path.name} is damaged: whether the end of the log was cut off cannot be checked."
    previous, count, head_in_chain = HASH_BEFORE_FIRST_EVENT, 0, recorded is None
    for row in connection.execute(_EVENTS).mappings():
        count += 1
        # All later events would fail too, so the first problem of the chain ends the check.
        if row["seq"] != count:
            yield f"event {count} is missing."
            return
        if row["previous"] != previous or row["hash"] != _hash(dict(row)):
            yield f"event {count} was changed, or the event before it."
            return
        previous = row["hash"]
        head_in_chain = head_in_chain or recorded == AuditEventRef(count, previous)
    if not head_in_chain and recorded is not None:
        state = f"the log has {count:,} events" if count < recorded.seq else "the log has another event of that number"
        yield f"event {recorded.seq:,} is recorded in {head.path.name}, but {state}: its end was cut off or replaced."
    yield from _verify_forms(connection)


def _verify_forms(connection: Connection) -> Iterator[str]:
    """Compare every stored form with the hash in its event, and every such event with the stored forms."""
    for statement in (_SUBMITTED, _AMENDED):
        for row in connection.execute(statement):
            if _logged_hash(row) != hash_form_entries(json.loads(row.entries)):
                yield f"the form submitted in event {row.event} differs from the stored form."
    # A deleted submission leaves its event behind.
    for seq in connection.execute(_WITHOUT_FORM).scalars():
        yield f"the submission of event {seq} is missing."


def _logged_hash(row: Row[Any]) -> object:
    return None if row.detail is None else json.loads(row.detail).get("entries")


SUBMITTED, AMENDED = "submitted", "amended"
"""Actions of the events that hold the hash of a form."""

_ADVANCE = text("UPDATE annotate_head SET count = count + 1 WHERE id = 1")
_BEGIN = text("INSERT INTO annotate_head (id, count, hash) VALUES (1, 1, :hash)")
_HEAD = text("SELECT count, hash FROM annotate_head WHERE id = 1")
_SET_HEAD = text("UPDATE annotate_head SET hash = :hash WHERE id = 1")
_ADD = text(
    "INSERT INTO annotate_events (seq, at, actor, action, task, detail, previous, hash)"
    " VALUES (:seq, :at, :actor, :action, :task, :detail, :previous, :hash)"
)
_EVENTS = text("SELECT seq, at, actor, action, task, detail, previous, hash FROM annotate_events ORDER BY seq")
# Joined by task too: an event of another task does not cover a submission.
_SUBMITTED = text(
    "SELECT s.entries, s.event, e.detail FROM annotate_submissions s"
    " LEFT JOIN annotate_events e ON e.seq = s.event AND e.task = s.task ORDER BY s.event"
)
_AMENDED = text(
    "SELECT a.entries, a.event, e.detail FROM annotate_amendments a"
    " LEFT JOIN annotate_events e ON e.seq = a.event ORDER BY a.event"
)
_WITHOUT_FORM = text(
    "SELECT seq FROM annotate_events WHERE action IN ('submitted', 'amended')"
    " AND seq NOT IN (SELECT event FROM annotate_submissions) AND seq NOT IN (SELECT event FROM annotate_amendments)"
    " ORDER BY seq"
)
