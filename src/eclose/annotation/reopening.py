"""Changing what was submitted: by request, with the lead's leave, and with the old form kept.

Whoever changes a pass has seen more than it showed. So the first form stays what agreement is measured on, and the new
one stands beside it.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation import audit_log, queues, visible
from eclose.annotation.forms import Kind, passes_named, problems
from eclose.annotation.submissions import Outcome, Refusal, Sheet, sheet_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.forms import Entry
    from eclose.annotation.project import Project

LONGEST_REASON = 2_000
GRANTED, REFUSED = "granted", "refused"


class Request(NamedTuple):
    """Somebody asks to change a pass."""

    id: str
    person: str
    pass_name: str
    reason: str
    asked: str


def ask(connection: Connection, person: Person, task: str, name: str, reason: str) -> audit_log.Link | None:
    """Ask to change a submitted pass of one's own; None where there is none, or one has asked already."""
    number = connection.execute(_SUBMITTED, {"task": task, "pass": name, "person": person.id}).scalar_one_or_none()
    if number is None or not reason.strip() or len(reason) > LONGEST_REASON:
        return None
    row = {"id": secrets.token_urlsafe(16), "task": task, "number": number}
    try:
        with connection.begin_nested():
            connection.execute(_ASK, {**row, "reason": json.dumps(reason), "asked": audit_log.now()})
    except IntegrityError:
        return None
    return audit_log.append(connection, person.name, "asked to reopen", task=task, detail={"pass": name})


def requests(connection: Connection) -> tuple[Request, ...]:
    """What the lead is to decide, oldest first."""
    return tuple(
        Request(row.id, row.name, row.pass_name, json.loads(row.reason), row.asked)
        for row in connection.execute(_REQUESTS)
    )


def decide(connection: Connection, lead: Person, request: str, *, grant: bool) -> audit_log.Link | None:
    """Grant or refuse a request; None where there is none that is open."""
    decision = GRANTED if grant else REFUSED
    given = {"id": request, "decision": decision, "by": lead.id, "at": audit_log.now()}
    task = connection.execute(_DECIDE, given).scalar_one_or_none()
    if task is None:
        return None
    return audit_log.append(connection, lead.name, decision, task=task, detail={"request": request})


def granted(connection: Connection, person: Person) -> tuple[tuple[str, str], ...]:
    """What somebody may change now: the request and the name of the pass."""
    return tuple((row.id, row.pass_name) for row in connection.execute(_GRANTED, {"person": person.id}))


def amendment(connection: Connection, project: Project, person: Person, request: str) -> Sheet | None:
    """The pass that may be changed, filled in as it is; None where there is no such leave."""
    row = _leave(connection, person, request)
    return None if row is None else sheet_of(connection, project, person, row, _form(row), _newest(connection, row))


def amend(
    connection: Connection, project: Project, person: Person, request: str, entries: Sequence[Entry], key: str
) -> Outcome:
    """Put another form beside the old one. The caller commits, and only then shows the receipt."""
    row = _leave(connection, person, request)
    if row is None:
        return Outcome(refusal=Refusal.UNKNOWN)
    form = _form(row)
    if wrong := problems(form, entries, visible.steps(connection, row.id) if form.each_step else None):
        return Outcome(refusal=Refusal.WRONG, problems=wrong)
    detail = {"pass": form.name, "entries": audit_log.fingerprint(entries), "request": request}
    link = audit_log.append(connection, person.name, audit_log.AMENDED, task=row.id, detail=detail)
    given = {"request": request, "entries": json.dumps(entries), "key": key, "event": link.seq, "at": audit_log.now()}
    connection.execute(_AMEND, given)
    queues.compare(connection, project, row)
    return Outcome(receipt=link.receipt, finished=True, link=link)


def _leave(connection: Connection, person: Person, request: str) -> Row[Any] | None:
    return connection.execute(_LEAVE, {"id": request, "person": person.id}).one_or_none()


def _form(row: Row[Any]) -> Any:
    return passes_named(Kind(row.kind), row.pass_name, row.unasked.split(","))[0]


def _newest(connection: Connection, row: Row[Any]) -> tuple[Entry, ...]:
    """What holds now: the last change, or what was submitted first."""
    found = connection.execute(_NEWEST, {"task": row.id, "number": row.number}).scalar_one()
    return tuple(json.loads(found))


_SUBMITTED = text(
    "SELECT s.number FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " WHERE s.task = :task AND s.pass = :pass AND t.person = :person"
)
_ASK = text(
    "INSERT INTO annotate_reopenings (id, task, number, reason, asked) VALUES (:id, :task, :number, :reason, :asked)"
)
_REQUESTS = text(
    "SELECT r.id, p.name, s.pass AS pass_name, r.reason, r.asked FROM annotate_reopenings r"
    " JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " JOIN annotate_tasks t ON t.id = r.task JOIN annotate_people p ON p.id = t.person"
    " WHERE r.decision IS NULL ORDER BY r.asked, r.id"
)
_DECIDE = text(
    "UPDATE annotate_reopenings SET decision = :decision, decided_by = :by, decided = :at"
    " WHERE id = :id AND decision IS NULL RETURNING task"
)
_OPEN = (
    " FROM annotate_reopenings r JOIN annotate_tasks t ON t.id = r.task"
    " JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " WHERE t.person = :person AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
)
_GRANTED = text(f"SELECT r.id, s.pass AS pass_name{_OPEN} ORDER BY r.decided, r.id")
_LEAVE = text(
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role, t.place, t.passes, t.unasked,"
    f" s.pass AS pass_name, s.number{_OPEN} AND r.id = :id"
)
_NEWEST = text(
    "SELECT coalesce((SELECT a.entries FROM annotate_amendments a JOIN annotate_reopenings r ON r.id = a.reopening"
    " WHERE r.task = :task AND r.number = :number ORDER BY a.event DESC LIMIT 1),"
    " (SELECT entries FROM annotate_submissions WHERE task = :task AND number = :number))"
)
_AMEND = text(
    "INSERT INTO annotate_amendments (reopening, entries, key, event, at)"
    " VALUES (:request, :entries, :key, :event, :at)"
)
