"""Notes of annotators to the lead: a skipped task with its reason, a flag, a comment; and the lead's reply.

A skipped task moves to the end of its person's queue, so that the work goes on while the lead decides.
"""

from __future__ import annotations

import json
import secrets
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation import audit_log, queues
from eclose.annotation.accounts.people import PersonRole

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person

MAX_NOTE_CHARACTERS = 2_000
"""Longest text of a note or a reply; bounds what a request can store."""


class NoteKind(StrEnum):
    """What a note asks of the lead."""

    SKIP = "skip"
    """The task cannot be judged now; it waits at the end of the queue."""
    FLAG = "flag"
    """Something is wrong with the material; the text is optional."""
    COMMENT = "comment"
    """Anything else that the lead should know."""


class Note(NamedTuple):
    """A note of an annotator about a task."""

    id: str
    kind: NoteKind
    person: str
    """Name of the author."""
    position: int
    """Position of the task in the author's queue, from 1, as the pages number it."""
    pass_name: str
    """The pass that was open when the note was written."""
    question: str
    """The question of the task."""
    text: str
    at: str
    """Time of the note."""
    reply: str | None = None
    resolved_by: str | None = None
    """Name of the lead who resolved the note; None while it is open."""
    resolved_at: str | None = None


def add_note(
    connection: Connection, person: Person, task: str, pass_name: str, kind: NoteKind, body: str
) -> audit_log.AuditEventRef | None:
    """Store a note about a person's open task; return None where the task is not theirs or the text is not allowed.

    A skip also moves the task to the end of the queue. Adjudicators take one case at a time and cannot skip it.
    """
    row = connection.execute(_TASK, {"task": task, "person": person.id}).one_or_none()
    body = body.strip()
    if row is None or len(body) > MAX_NOTE_CHARACTERS or (not body and kind is not NoteKind.FLAG):
        return None
    detail: dict[str, object] = {"kind": kind, "pass": pass_name, "text": sha256(body.encode()).hexdigest()}
    if kind is NoteKind.SKIP:
        if row.role == PersonRole.ADJUDICATOR or row.id != queues.find_open_task(connection, person.id):
            return None
        detail |= {"from": row.place, "to": _move_to_end(connection, row)}
    note_id = secrets.token_urlsafe(16)
    # The hash of the text alone: a note may say what was decided, and the log must not.
    event = audit_log.append_audit_event(connection, person.name, "noted", task=task, detail=detail | {"note": note_id})
    values = {
        "id": note_id,
        "task": task,
        "person": person.id,
        "pass": pass_name,
        "kind": kind,
        "body": json.dumps(body),
        "event": event.seq,
        "at": audit_log.current_timestamp(),
    }
    connection.execute(_ADD, values)
    return event


def list_notes(connection: Connection, *, resolved: bool = False) -> tuple[Note, ...]:
    """Return the open notes of all people, oldest first; with ``resolved``, the resolved ones too."""
    rows = connection.execute(_ALL if resolved else _OPEN)
    return tuple(_note(row) for row in rows)


def list_person_notes(connection: Connection, person: Person) -> tuple[Note, ...]:
    """Return the notes of a person, newest first, with the replies to them."""
    return tuple(_note(row) for row in connection.execute(_OWN, {"person": person.id}))


def list_task_notes(connection: Connection, person: Person, task: str) -> tuple[Note, ...]:
    """Return a person's notes about one of their tasks, oldest first."""
    return tuple(_note(row) for row in connection.execute(_OF_TASK, {"person": person.id, "task": task}))


def resolve_note(connection: Connection, lead: Person, note_id: str, reply: str = "") -> audit_log.AuditEventRef | None:
    """Close a note, with a reply that its author reads; return None where it is unknown, closed, or the reply too long.

    The caller commits and then advances the head of the audit log, as for every event.
    """
    reply = reply.strip()
    if len(reply) > MAX_NOTE_CHARACTERS:
        return None
    values = {"id": note_id, "reply": json.dumps(reply), "by": lead.id, "at": audit_log.current_timestamp()}
    task = connection.execute(_RESOLVE, values).scalar_one_or_none()
    if task is None:
        return None
    detail = {"note": note_id, "reply": sha256(reply.encode()).hexdigest()}
    return audit_log.append_audit_event(connection, lead.name, "resolved note", task=task, detail=detail)


def _move_to_end(connection: Connection, task: Row[Any]) -> int:
    """Move a task behind all others of its person, and return its new position."""
    last = int(connection.execute(_LAST, {"person": task.person}).scalar_one())
    values = {"task": task.id, "person": task.person, "place": task.place, "last": last, "free": queues.FREE_PLACE}
    # Positions are unique at every moment, so the tasks behind pass through numbers that no task has.
    for statement in (_LIFT, _SET_ASIDE, _CLOSE_GAP):
        connection.execute(statement, values)
    return last


def _note(row: Row[Any]) -> Note:
    # The material of a family holds its question.
    question = json.loads(row.question) if row.question is not None else json.loads(row.shown)["question"]
    return Note(
        row.id,
        NoteKind(row.kind),
        row.name,
        row.place,
        row.pass_name,
        question,
        json.loads(row.body),
        row.at,
        None if row.reply is None else json.loads(row.reply),
        row.resolver,
        row.resolved,
    )


_TASK = text(
    "SELECT id, person, role, place FROM annotate_tasks WHERE id = :task AND person = :person AND withdrawn IS NULL"
)
_LAST = text("SELECT max(place) FROM annotate_tasks WHERE person = :person")
_LIFT = text("UPDATE annotate_tasks SET place = place + :free WHERE person = :person AND place > :place")
_SET_ASIDE = text("UPDATE annotate_tasks SET place = :last WHERE id = :task")
_CLOSE_GAP = text("UPDATE annotate_tasks SET place = place - :free - 1 WHERE person = :person AND place > :free")
_ADD = text(
    "INSERT INTO annotate_notes (id, task, person, pass, kind, body, event, at)"
    " VALUES (:id, :task, :person, :pass, :kind, :body, :event, :at)"
)
# The condition on resolved makes a second resolution impossible.
_RESOLVE = text(
    "UPDATE annotate_notes SET reply = :reply, resolved_by = :by, resolved = :at"
    " WHERE id = :id AND resolved IS NULL RETURNING task"
)
_NOTES = (
    "SELECT n.id, n.kind, p.name, t.place, n.pass AS pass_name, q.question, f.shown, n.body, n.at, n.reply,"
    " l.name AS resolver, n.resolved FROM annotate_notes n JOIN annotate_people p ON p.id = n.person"
    " JOIN annotate_tasks t ON t.id = n.task LEFT JOIN annotate_questions q ON q.id = t.question"
    " LEFT JOIN annotate_families f ON f.id = t.family LEFT JOIN annotate_people l ON l.id = n.resolved_by"
)
_ALL = text(f"{_NOTES} ORDER BY n.event")
_OPEN = text(f"{_NOTES} WHERE n.resolved IS NULL ORDER BY n.event")
_OWN = text(f"{_NOTES} WHERE n.person = :person ORDER BY n.event DESC")
_OF_TASK = text(f"{_NOTES} WHERE n.person = :person AND n.task = :task ORDER BY n.event")
