"""The log of a project: every event carries the hash of the one before, so nothing can be changed or taken out unseen.

What a chain alone does not show is that its end was cut off. So the number of events and the hash of the last are also
kept outside the database, and the chain must hold what is written there.
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

from eclose.core.identity import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, Row

START = "0" * 64
"""What the first event follows."""


@dataclass(frozen=True, slots=True)
class Link:
    """An event's place in the chain."""

    seq: int
    hash: str

    @property
    def receipt(self) -> str:
        """What a person may keep as proof that something was recorded."""
        return f"{self.seq}-{self.hash[:12]}"


def now() -> str:
    """The time as it is kept: UTC, to the millisecond, in an order that is that of its letters."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def append(
    connection: Connection, actor: str, action: str, *, task: str | None = None, detail: Mapping[str, Any] | None = None
) -> Link:
    """Add an event, in the transaction of what it tells of."""
    # The row of the head is changed first: whoever else wants to add waits here until this transaction ends.
    if not connection.execute(_ADVANCE).rowcount:
        connection.execute(_BEGIN, {"hash": START})
    count, previous = connection.execute(_HEAD).one()
    row = {
        "seq": int(count),
        "at": now(),
        "actor": actor,
        "action": action,
        "task": task,
        "detail": json.dumps(detail or {}, sort_keys=True),
        "previous": previous,
    }
    row["hash"] = _hash(row)
    connection.execute(_ADD, row)
    connection.execute(_SET_HEAD, row)
    return Link(row["seq"], row["hash"])


def last(connection: Connection) -> Link:
    """The end of the chain."""
    count, found = connection.execute(_HEAD).one()
    return Link(int(count), found)


def fingerprint(entries: object) -> str:
    """What the log says of a form: enough to find that it was changed, too little to tell what was decided."""
    return hashlib.sha256(canonical_json(entries).encode()).hexdigest()


def _hash(row: Mapping[str, Any]) -> str:
    told = [row[name] for name in ("seq", "at", "actor", "action", "task", "detail", "previous")]
    return hashlib.sha256(canonical_json(told).encode()).hexdigest()


class Head:
    """The end of the chain as it is known outside the database: a file of one line, which only ever grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Link | None:
        """What was written last; None where nothing was. A damaged file raises ValueError."""
        if not self.path.exists():
            return None
        words = self.path.read_text("ascii").split()
        if len(words) != 2:
            raise ValueError(f"{self.path}: is damaged")
        return Link(int(words[0]), words[1])

    def advance(self, link: Link) -> None:
        """Note a link, unless a later one is noted."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            words = os.pread(file, 128, 0).split()
            if len(words) == 2 and int(words[0]) >= link.seq:
                return
            # Of a fixed width and written over at once: who reads meanwhile, or after a crash, finds one or the other.
            os.pwrite(file, f"{link.seq:020d} {link.hash}\n".encode("ascii"), 0)
        finally:
            os.close(file)


def problems(connection: Connection, head: Head) -> Iterator[str]:
    """Everything that is wrong with the log and with what it vouches for; nothing, where all is as it was written."""
    known = head.read()
    previous, count, found_known = START, 0, known is None
    for row in connection.execute(_EVENTS).mappings():
        count += 1
        if row["seq"] != count:
            yield f"event {count} is missing."
            return
        if row["previous"] != previous or row["hash"] != _hash(dict(row)):
            yield f"event {count} was changed, or what stood before it was."
            return
        previous = row["hash"]
        found_known = found_known or (known is not None and known == Link(count, previous))
    if not found_known and known is not None:
        what = f"there are {count:,}" if count < known.seq else "the one of that number is another"
        yield f"event {known.seq:,} is known outside the database, but {what}: the log's end was cut off or replaced."
    yield from _forms(connection)


def _forms(connection: Connection) -> Iterator[str]:
    for statement in (_SUBMITTED, _AMENDED):
        for row in connection.execute(statement):
            if _told(row) != fingerprint(json.loads(row.entries)):
                yield f"what was submitted in event {row.event} is not what is stored."
    for seq in connection.execute(_WITHOUT_FORM).scalars():
        yield f"event {seq} tells of a submission that is not there."


def _told(row: Row[Any]) -> object:
    return None if row.detail is None else json.loads(row.detail).get("entries")


SUBMITTED, AMENDED = "submitted", "amended"
"""The events that vouch for a form."""

_ADVANCE = text("UPDATE annotate_head SET count = count + 1 WHERE id = 1")
_BEGIN = text("INSERT INTO annotate_head (id, count, hash) VALUES (1, 1, :hash)")
_HEAD = text("SELECT count, hash FROM annotate_head WHERE id = 1")
_SET_HEAD = text("UPDATE annotate_head SET hash = :hash WHERE id = 1")
_ADD = text(
    "INSERT INTO annotate_events (seq, at, actor, action, task, detail, previous, hash)"
    " VALUES (:seq, :at, :actor, :action, :task, :detail, :previous, :hash)"
)
_EVENTS = text("SELECT seq, at, actor, action, task, detail, previous, hash FROM annotate_events ORDER BY seq")
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
