"""Amendments of submitted passes: an annotator asks, the lead decides, and the first form is kept.

An annotator who amends a pass has meanwhile seen later passes. Agreement is therefore always measured on the first
form; the amendment is stored beside it.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation import audit_log, queues, visible
from eclose.annotation.forms import AnnotationTaskKind, find_form_problems, trim_form_passes
from eclose.annotation.submissions import PassSubmissionResult, SubmissionRefusal, TaskPageContent, build_task_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.forms import FormEntry
    from eclose.annotation.project import AnnotationProject

# In characters; bounds what a request can store.
LONGEST_REASON = 2_000
GRANTED, REFUSED = "granted", "refused"


class ReopenRequest(NamedTuple):
    """A request to change a submitted pass."""

    id: str
    person: str
    pass_name: str
    reason: str
    at: str
    """Time of the request."""


def request_reopening(
    connection: Connection, person: Person, task: str, name: str, reason: str
) -> audit_log.AuditEventRef | None:
    """Ask to change a submitted pass; return None where it does not exist, or a request is open already."""
    number = connection.execute(_SUBMITTED, {"task": task, "pass": name, "person": person.id}).scalar_one_or_none()
    # An empty or overlong reason is treated like a missing pass.
    if number is None or not reason.strip() or len(reason) > LONGEST_REASON:
        return None
    row = {"id": secrets.token_urlsafe(16), "task": task, "number": number}
    # A unique index allows one open request per pass.
    try:
        with connection.begin_nested():
            connection.execute(_ASK, {**row, "reason": json.dumps(reason), "asked": audit_log.current_timestamp()})
    except IntegrityError:
        return None
    rows = {audit_log.AuditedKind.REOPENINGS: [row["id"]]}
    return audit_log.append_audit_event(
        connection, person.name, "asked to reopen", task=task, detail={"pass": name}, rows=rows
    )


def list_reopen_requests(connection: Connection) -> tuple[ReopenRequest, ...]:
    """Return the open requests, oldest first."""
    return tuple(
        ReopenRequest(row.id, row.name, row.pass_name, json.loads(row.reason), row.asked)
        for row in connection.execute(_REQUESTS)
    )


def decide_reopen_request(
    connection: Connection, lead: Person, request: str, *, grant: bool
) -> audit_log.AuditEventRef | None:
    """Grant or refuse a request; return None where it does not exist or is decided already."""
    decision = GRANTED if grant else REFUSED
    values = {"id": request, "decision": decision, "by": lead.id, "at": audit_log.current_timestamp()}
    task = connection.execute(_DECIDE, values).scalar_one_or_none()
    if task is None:
        return None
    rows = {audit_log.AuditedKind.REOPENINGS: [request]}
    return audit_log.append_audit_event(
        connection, lead.name, decision, task=task, detail={"request": request}, rows=rows
    )


def list_granted_reopenings(connection: Connection, person: Person) -> tuple[tuple[str, str], ...]:
    """Return the granted requests of a person that are still unused, with the name of the pass."""
    return tuple((row.id, row.pass_name) for row in connection.execute(_GRANTED, {"person": person.id}))


def open_pass_amendment(
    connection: Connection, project: AnnotationProject, person: Person, request: str
) -> TaskPageContent | None:
    """Return the pass that a granted request opens, filled in as it is; None where there is no such request."""
    row = _find_granted(connection, person, request)
    return (
        None if row is None else build_task_page(connection, project, person, row, _form(row), _newest(connection, row))
    )


def submit_pass_amendment(
    connection: Connection,
    project: AnnotationProject,
    person: Person,
    request: str,
    entries: Sequence[FormEntry],
    key: str,
) -> PassSubmissionResult:
    """Store an amended form beside the first one. The caller commits before showing the receipt."""
    row = _find_granted(connection, person, request)
    if row is None:
        return PassSubmissionResult(refusal=SubmissionRefusal.UNKNOWN)
    form = _form(row)
    if wrong := find_form_problems(
        form, entries, visible.count_response_steps(connection, row.id) if form.each_step else None
    ):
        return PassSubmissionResult(refusal=SubmissionRefusal.WRONG, problems=wrong)
    detail = {"pass": form.name, "entries": audit_log.hash_form_entries(entries), "request": request}
    # The event first: the amendment's row refers to it.
    event = audit_log.append_audit_event(connection, person.name, audit_log.AMENDED, task=row.id, detail=detail)
    values = {
        "request": request,
        "entries": json.dumps(entries),
        "key": key,
        "event": event.seq,
        "at": event.at,
    }
    connection.execute(_AMEND, values)
    # The amendment may create a disagreement that the first forms did not have.
    queues.queue_disputed_subject(connection, project, row)
    return PassSubmissionResult(receipt=event.receipt, finished=True, event=event)


def _find_granted(connection: Connection, person: Person, request: str) -> Row[Any] | None:
    return connection.execute(_GRANTED_TASK, {"id": request, "person": person.id}).one_or_none()


def _form(row: Row[Any]) -> Any:
    return trim_form_passes(AnnotationTaskKind(row.kind), row.pass_name, row.unasked.split(","))[0]


def _newest(connection: Connection, row: Row[Any]) -> tuple[FormEntry, ...]:
    """Return the entries that hold now: the last amendment, or the first submission."""
    entries = connection.execute(_NEWEST, {"task": row.id, "number": row.number}).scalar_one()
    return tuple(json.loads(entries))


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
# The condition on decision makes a second decision of a request impossible.
_DECIDE = text(
    "UPDATE annotate_reopenings SET decision = :decision, decided_by = :by, decided = :at"
    " WHERE id = :id AND decision IS NULL RETURNING task"
)
# Granted requests without an amendment; each allows one.
_OPEN = (
    " FROM annotate_reopenings r JOIN annotate_tasks t ON t.id = r.task"
    " JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " WHERE t.person = :person AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
)
_GRANTED = text(f"SELECT r.id, s.pass AS pass_name{_OPEN} ORDER BY r.decided, r.id")
_GRANTED_TASK = text(
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role, t.place, t.passes, t.unasked,"
    f" s.pass AS pass_name, s.number{_OPEN} AND r.id = :id"
)
# The last amendment, else the submission.
_NEWEST = text(
    "SELECT coalesce((SELECT a.entries FROM annotate_amendments a JOIN annotate_reopenings r ON r.id = a.reopening"
    " WHERE r.task = :task AND r.number = :number ORDER BY a.event DESC LIMIT 1),"
    " (SELECT entries FROM annotate_submissions WHERE task = :task AND number = :number))"
)
_AMEND = text(
    "INSERT INTO annotate_amendments (reopening, entries, key, event, at)"
    " VALUES (:request, :entries, :key, :event, :at)"
)
