"""The audit log of a project: a hash chain of events that covers the records of the database.

An event holds the digests of the records it added or changed. ``verify_audit_log`` compares the latest digest of each
record with the record as it is, so that changed, added and removed records are detected.

A chain alone does not show that its end was cut off. The number of events and the last hash are therefore also written
to a file outside the database, and the chain must contain that event.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, text

from eclose.core.identity import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, TextClause

# As long as a SHA-256 in hex, so that the column holds it.
HASH_BEFORE_FIRST_EVENT = "0" * 64
"""Previous hash of the first event."""


LEAD_NAME, SERVER_NAME = "lead", "server"
"""The actors of events that the command line causes, and of those that follow from the rules of a project."""

HAS_EVENTS = "eclose_audit_events"
"""Key in the ``info`` of a connection that has added events since it was opened for writing."""


class AuditedKind(StrEnum):
    """A kind of records that the log covers."""

    SETTINGS = "settings"
    """Key: name of the setting."""
    PEOPLE = "people"
    """Key: id. The password is not covered."""
    QUESTIONS = "questions"
    """Question, evidence, reference, aliases and origin. Key: column ``key``."""
    RESPONSES = "responses"
    """Steps, answer and origin. Key: column ``key``."""
    FAMILIES = "families"
    """Key: column ``key``."""
    TASKS = "tasks"
    """Key: id."""
    ADJUDICATIONS = "adjudications"
    """Key: subject."""
    REOPENINGS = "reopenings"
    """Key: id."""
    GOLD = "gold labels"
    """Known labels of gold items. Key: id of the response."""


@dataclass(frozen=True, slots=True)
class AuditEventRef:
    """Number and hash of an event."""

    seq: int
    hash: str
    at: str = field(default="", compare=False)
    """Time of the event; empty where the log was not read."""

    @property
    def receipt(self) -> str:
        """Short text that proves to a person that an event was recorded."""
        return f"{self.seq}-{self.hash[:12]}"


def format_utc_timestamp(moment: datetime) -> str:
    """Return a time as it is stored: UTC with milliseconds, so that text order is time order."""
    if moment.tzinfo is None:
        raise ValueError("the time has no time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def current_timestamp() -> str:
    """Return the current time as it is stored."""
    return format_utc_timestamp(datetime.now(UTC))


def append_audit_event(
    connection: Connection,
    actor: str,
    action: str,
    *,
    task: str | None = None,
    detail: Mapping[str, Any] | None = None,
    rows: Mapping[AuditedKind, Iterable[Any]] | None = None,
) -> AuditEventRef:
    """Add an event in the transaction of the change it describes.

    Args:
        connection: A writing connection.
        actor: Name of the person who causes the event.
        action: What happened.
        task: Id of the task concerned.
        detail: Further facts. The log must not reveal labels, so it holds digests of forms only.
        rows: Keys of the records that were added, changed or deleted, by kind. Call after the change: the event holds
            the digests of the records as they are now. A changed record without an event fails ``verify_audit_log``.
    """
    digests = {kind: _digest_records(connection, kind, list(keys)) for kind, keys in (rows or {}).items()}
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
        "detail": json.dumps({**(detail or {}), **({"rows": digests} if digests else {})}, sort_keys=True),
        "previous": previous,
    }
    # Covers the previous hash, which makes the chain.
    row["hash"] = _hash(row)
    connection.execute(_ADD, row)
    connection.execute(_SET_HEAD, row)
    connection.info[HAS_EVENTS] = True
    return AuditEventRef(row["seq"], row["hash"], row["at"])


def _digest_records(connection: Connection, kind: AuditedKind, keys: list[Any]) -> dict[str, str | None]:
    digests: dict[str, str | None] = {str(key): None for key in keys}
    # Databases limit the number of parameters of a statement.
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        batch = {"keys": keys[start : start + _KEYS_PER_QUERY]}
        for row in connection.execute(_RECORDS_BY_KEY[kind], batch).mappings():
            digests[str(row["audit_key"])] = _digest_record(dict(row))
    return digests


def _digest_record(row: Mapping[str, Any]) -> str:
    # Empty columns are left out: a column added by a later version does not change the digests of older records.
    values = {name: value for name, value in row.items() if value is not None and name not in _UNCOVERED}
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


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
            # A missing file stays missing for verify_audit_log to report: a new one would hide that it was deleted.
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
    os.pwrite(file, f"{event.seq:020d} {event.hash}\n".encode("ascii"), 0)


def _parse_head(line: bytes) -> AuditEventRef | None:
    parts = line.split()
    if len(parts) != 2 or not parts[0].isdigit():
        return None
    return AuditEventRef(int(parts[0]), parts[1].decode("ascii", "replace"))


class AuditLogReport(NamedTuple):
    """The result of checking a log."""

    problems: tuple[str, ...]
    """A sentence for each problem; empty where everything is as it was recorded."""
    events: int
    last: AuditEventRef | None
    """The last event of the chain; None where the log is empty."""
    head: AuditEventRef | None
    """The event that the file outside the database records; None where it cannot be read."""
    records: Mapping[AuditedKind, int]
    """Number of records of each kind that agree with the log."""


class _LoggedRecords:
    """The latest digest of every record in the log, with the number of its event."""

    def __init__(self) -> None:
        self.digests: dict[str, dict[str, tuple[str | None, int]]] = {kind: {} for kind in AuditedKind}

    def read(self, seq: int, detail: str) -> None:
        """Take over the digests of an event."""
        # Most events have none, and parsing JSON takes most of the time of a check.
        if '"rows"' in detail:
            for kind, digests in json.loads(detail).get("rows", {}).items():
                self.digests.setdefault(kind, {}).update({key: (digest, seq) for key, digest in digests.items()})


def check_audit_log(
    connection: Connection, head: AuditLogHead, settings: Mapping[str, Any] | None = None
) -> AuditLogReport:
    """Check the chain of events, its recorded end, all records it covers and all submitted forms.

    Args:
        connection: A connection that sees one consistent state of the database.
        head: The file that records the end of the log.
        settings: Settings in force, to be compared with those that were recorded when the project was created.
    """
    problems: list[str] = []
    recorded = None
    # Before the events: read after them, the file could name an event that a running server has added since.
    try:
        recorded = head.read()
    except ValueError as error:
        problems.append(f"{error}: whether the end of the log was cut off cannot be checked. Put back your copy.")
    last, count, head_in_chain, logged = None, 0, recorded is None, _LoggedRecords()
    for row in connection.execute(_EVENTS).mappings():
        count += 1
        # All later events would fail too, so the first problem of the chain ends the check.
        if row["seq"] != count:
            problems.append(f"event {count} is missing.")
            return AuditLogReport(tuple(problems), count - 1, last, recorded, {})
        previous = HASH_BEFORE_FIRST_EVENT if last is None else last.hash
        if row["previous"] != previous or row["hash"] != _hash(dict(row)):
            problems.append(f"event {count} was changed, or the event before it.")
            return AuditLogReport(tuple(problems), count - 1, last, recorded, {})
        last = AuditEventRef(count, row["hash"], row["at"])
        head_in_chain = head_in_chain or recorded == last
        logged.read(count, row["detail"])
    if not head_in_chain and recorded is not None:
        state = f"the log has {count:,} events" if count < recorded.seq else "the log has another event of that number"
        problems.append(
            f"event {recorded.seq:,} is recorded in {head.path.name}, but {state}: its end was cut off or replaced."
        )
    records = {kind: _verify_records(connection, kind, logged.digests[kind], problems) for kind in AuditedKind}
    problems.extend(_verify_settings(connection, settings))
    problems.extend(_verify_forms(connection))
    return AuditLogReport(tuple(problems), count, last, recorded, records)


def verify_audit_log(connection: Connection, head: AuditLogHead) -> Iterator[str]:
    """Yield every problem of the log and of what it covers; nothing where all is as it was recorded."""
    yield from check_audit_log(connection, head).problems


def describe_audit_coverage(report: AuditLogReport, head: AuditLogHead) -> Iterator[str]:
    """Yield sentences that say what a log without problems vouches for, and what it does not."""
    last = report.last or AuditEventRef(0, HASH_BEFORE_FIRST_EVENT)
    records = ", ".join(f"{count:,} {kind}" for kind, count in report.records.items() if count)
    yield f"{report.events:,} events up to {last.at}, chained without a gap; the last is {last.receipt}."
    yield f"As they were recorded: all submitted forms with person, task, pass and time, and {records}."
    recorded = report.head or last
    later = report.events - recorded.seq
    yield (
        f"{head.path} records event {recorded.seq:,}"
        f"{', the last one' if not later else f'; the {later:,} events after it could be cut off unnoticed'}."
    )
    yield (
        "Not covered: passwords, sessions, invitations, drafts, practice answers and the order of a person's"
        " tasks. A person who can write both the database and this file can rewrite both: compare with a copy kept"
        " elsewhere, by --head FILE."
    )


def _verify_records(
    connection: Connection, kind: AuditedKind, logged: Mapping[str, tuple[str | None, int]], problems: list[str]
) -> int:
    """Compare the records of a kind with their digests in the log; return how many agree."""
    current = {
        str(row["audit_key"]): _digest_record(dict(row)) for row in connection.execute(_RECORDS[kind]).mappings()
    }
    expected = {key: digest for key, (digest, _) in logged.items() if digest is not None}
    different = [key for key in expected if key in current and current[key] != expected[key]]
    outcomes = {
        "differ from what the log records": different,
        "are in the log, but not in the database": [key for key in expected if key not in current],
        "are in the database, but not in the log": [key for key in current if key not in expected],
    }
    for outcome, keys in outcomes.items():
        if keys:
            first = keys[0]
            event = f", event {logged[first][1]:,}" if first in logged else ""
            problems.append(f"{len(keys):,} of the {kind} {outcome} (first: {first}{event}).")
    return len(expected) - len(different)


def _verify_settings(connection: Connection, settings: Mapping[str, Any] | None) -> Iterator[str]:
    """Compare the settings in force with the recorded ones, which the digests of the settings cover."""
    stored = connection.execute(_STORED_SETTINGS).scalar_one_or_none()
    if settings is None or stored is None:
        return
    recorded = json.loads(stored)
    for name in sorted(settings.keys() | recorded.keys()):
        if settings.get(name) != recorded.get(name):
            yield f"the setting {name} is {settings.get(name)!r}, but {recorded.get(name)!r} was recorded."


def _verify_forms(connection: Connection) -> Iterator[str]:
    """Compare every stored form with its event, and every such event with the stored forms."""
    for statement in (_SUBMITTED, _AMENDED):
        for row in connection.execute(statement):
            detail = {} if row.detail is None else json.loads(row.detail)
            if detail.get("entries") != hash_form_entries(json.loads(row.entries)):
                yield f"the form submitted in event {row.event} differs from the stored form."
            elif (detail.get("pass"), row.event_at, row.actor) != (row.name, row.at, row.person):
                yield f"pass, time or person of the form submitted in event {row.event} differ from the log."
            elif detail.get("opened") != row.opened:
                yield f"the time at which the form of event {row.event} was opened differs from the log."
    # A deleted submission leaves its event behind.
    for seq in connection.execute(_WITHOUT_FORM).scalars():
        yield f"the submission of event {seq} is missing."


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
    "SELECT s.entries, s.event, s.at, s.pass AS name, e.detail, e.at AS event_at, e.actor, p.name AS person,"
    " o.at AS opened FROM annotate_submissions s LEFT JOIN annotate_events e ON e.seq = s.event AND e.task = s.task"
    " LEFT JOIN annotate_openings o ON o.task = s.task AND o.number = s.number"
    " LEFT JOIN annotate_tasks t ON t.id = s.task LEFT JOIN annotate_people p ON p.id = t.person ORDER BY s.event"
)
_AMENDED = text(
    "SELECT a.entries, a.event, a.at, s.pass AS name, e.detail, e.at AS event_at, e.actor, p.name AS person,"
    " NULL AS opened FROM annotate_amendments a LEFT JOIN annotate_reopenings r ON r.id = a.reopening"
    " LEFT JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " LEFT JOIN annotate_events e ON e.seq = a.event AND e.task = r.task"
    " LEFT JOIN annotate_tasks t ON t.id = r.task LEFT JOIN annotate_people p ON p.id = t.person ORDER BY a.event"
)
_WITHOUT_FORM = text(
    "SELECT seq FROM annotate_events WHERE action IN ('submitted', 'amended')"
    " AND seq NOT IN (SELECT event FROM annotate_submissions) AND seq NOT IN (SELECT event FROM annotate_amendments)"
    " ORDER BY seq"
)
_STORED_SETTINGS = text("SELECT value FROM annotate_settings WHERE name = 'settings'")

_KEYS_PER_QUERY = 500
# The password changes with every renewal of its hash; its changes are events of their own. The place of a task is its
# position in the queue, which changes when it is skipped, or started before a task whose question is not screened.
_UNCOVERED = frozenset({"audit_key", "password", "place"})
# All columns, so that a column added later is covered. Parts of questions and responses have their own tables.
_RECORD_QUERIES: Mapping[AuditedKind, tuple[str, str]] = {
    AuditedKind.SETTINGS: ("SELECT x.name AS audit_key, x.* FROM annotate_settings x", "x.name"),
    AuditedKind.PEOPLE: ("SELECT x.id AS audit_key, x.* FROM annotate_people x", "x.id"),
    AuditedKind.QUESTIONS: (
        "SELECT x.key AS audit_key, x.*, k.reference, k.aliases, o.origin FROM annotate_questions x"
        " LEFT JOIN annotate_references k ON k.question = x.id"
        " LEFT JOIN annotate_question_origins o ON o.question = x.id",
        "x.key",
    ),
    AuditedKind.RESPONSES: (
        "SELECT x.key AS audit_key, x.*, a.answer, o.origin FROM annotate_responses x"
        " LEFT JOIN annotate_answers a ON a.response = x.id"
        " LEFT JOIN annotate_response_origins o ON o.response = x.id",
        "x.key",
    ),
    AuditedKind.FAMILIES: ("SELECT x.key AS audit_key, x.* FROM annotate_families x", "x.key"),
    AuditedKind.TASKS: ("SELECT x.id AS audit_key, x.* FROM annotate_tasks x", "x.id"),
    AuditedKind.ADJUDICATIONS: ("SELECT x.subject AS audit_key, x.* FROM annotate_adjudications x", "x.subject"),
    AuditedKind.REOPENINGS: ("SELECT x.id AS audit_key, x.* FROM annotate_reopenings x", "x.id"),
    AuditedKind.GOLD: ("SELECT x.response AS audit_key, x.* FROM annotate_gold x", "x.response"),
}
_RECORDS: Mapping[AuditedKind, TextClause] = {
    kind: text(f"{query} ORDER BY 1") for kind, (query, _) in _RECORD_QUERIES.items()
}
_RECORDS_BY_KEY: Mapping[AuditedKind, TextClause] = {
    kind: text(" WHERE ".join(query) + " IN :keys").bindparams(bindparam("keys", expanding=True))
    for kind, query in _RECORD_QUERIES.items()
}
