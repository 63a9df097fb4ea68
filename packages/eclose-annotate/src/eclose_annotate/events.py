"""The audit log of a project: events that are appended and never changed.

A database can lose its end, as when its file is copied without the write-ahead log. The number and id of the last event
are therefore also written to a file outside the database, and a database that lacks this event is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sqlalchemy import Connection

LEAD_NAME, SERVER_NAME = "lead", "server"
"""The actors of events that the command line causes, and of those that follow from the rules of a project."""

LAST_EVENT = "eclose_last_audit_event"
"""Key in the ``info`` of a connection of the last event that was added since it was opened for writing."""


@dataclass(frozen=True, slots=True)
class AuditEventRef:
    """Number and id of an event."""

    seq: int
    id: str
    at: str = field(default="", compare=False)
    """Time of the event; empty where the log was not read."""

    @property
    def receipt(self) -> str:
        """Short text that proves to a person that an event was recorded."""
        return f"{self.seq}-{self.id}"


def format_utc_timestamp(moment: datetime) -> str:
    """Return a time as it is stored: UTC with milliseconds, so that text order is time order."""
    if moment.tzinfo is None:
        raise ValueError("the time has no time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def current_timestamp() -> str:
    """Return the current time as it is stored."""
    return format_utc_timestamp(datetime.now(UTC))


def append_audit_event(
    connection: Connection, actor: str, action: str, *, task: str | None = None, detail: Mapping[str, Any] | None = None
) -> AuditEventRef:
    """Add an event in the transaction of the change it describes. The log must not reveal labels."""
    # Updating the single head row first makes concurrent writers wait here until this transaction ends.
    event = AuditEventRef(int(connection.execute(_ADVANCE).scalar_one()), secrets.token_hex(6), current_timestamp())
    row = {"seq": event.seq, "id": event.id, "at": event.at, "actor": actor, "action": action, "task": task}
    connection.execute(_ADD, {**row, "detail": json.dumps(detail or {}, sort_keys=True)})
    connection.info[LAST_EVENT] = event
    return event


def last_audit_event(connection: Connection) -> AuditEventRef:
    """Return the last event of the log."""
    row = connection.execute(_LAST).one()
    return AuditEventRef(row.seq, row.id, row.at)


class AuditLogHead:
    """The last event as recorded in a file of one line outside the database. Its number only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> AuditEventRef:
        """Return the recorded event; raise ValueError where the file is missing, empty or damaged."""
        try:
            line = self.path.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{self.path}: is missing") from None
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be read ({error.strerror})") from None
        event = _parse_head(line)
        if event is None:
            raise ValueError(f"{self.path}: is {'damaged' if line.strip() else 'empty'}")
        return event

    def start(self, event: AuditEventRef) -> None:
        """Create the file with the first recorded event, readable by its owner only."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_head(file, event)
        finally:
            os.close(file)

    def advance(self, event: AuditEventRef) -> None:
        """Record an event, unless a later one is recorded."""
        try:
            file = os.open(self.path, os.O_RDWR)
        except OSError:
            # A missing file stays missing, for the status to report: a new one would hide that it was deleted.
            return
        try:
            # Several processes (server and commands) may write the head of one project.
            fcntl.flock(file, fcntl.LOCK_EX)
            recorded = _parse_head(os.pread(file, 128, 0))
            # A damaged line stays, too: overwritten, it would hide what happened.
            if recorded is not None and recorded.seq < event.seq:
                _write_head(file, event)
        finally:
            os.close(file)


def _write_head(file: int, event: AuditEventRef) -> None:
    # Fixed width and a single write: a reader, also after a crash, finds the old or the new line.
    os.pwrite(file, f"{event.seq:020d} {event.id}\n".encode("ascii"), 0)


def _parse_head(line: bytes) -> AuditEventRef | None:
    parts = line.split()
    if len(parts) != 2 or not parts[0].isdigit():
        return None
    return AuditEventRef(int(parts[0]), parts[1].decode("ascii", "replace"))


# The first event of a project inserts the row.
_ADVANCE = text(
    "INSERT INTO annotate_head (id, count) VALUES (1, 1)"
    " ON CONFLICT (id) DO UPDATE SET count = annotate_head.count + 1 RETURNING count"
)
_ADD = text(
    "INSERT INTO annotate_events (seq, id, at, actor, action, task, detail)"
    " VALUES (:seq, :id, :at, :actor, :action, :task, :detail)"
)
_LAST = text("SELECT seq, id, at FROM annotate_events ORDER BY seq DESC LIMIT 1")
