"""Amendments of submitted passes: an annotator asks, the lead decides, and the first form is kept.

An annotator who amends a pass has meanwhile seen later passes. Agreement is therefore always measured on the first
form; the amendment is stored beside it. It sends the case to the adjudicator, or reopens the pass for the adjudicator
who has decided on it; it never replaces the adjudicator's label. A pass that its person undoes, before anything else
was disclosed, counts as first submitted in its new form.
"""

from __future__ import annotations

import json
import secrets
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation import audit_log, queues, visible
from eclose.annotation.accounts.people import PersonRole
from eclose.annotation.forms import AnnotationTaskKind, find_form_problems, trim_form_passes
from eclose.annotation.submissions import PassSubmissionResult, SubmissionRefusal, TaskPageContent, build_task_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.forms import FormEntry
    from eclose.annotation.project import AnnotationProject

MAX_LISTED_TASKS = 50
"""Number of latest tasks that ``list_own_tasks`` returns."""
# In characters; bounds what a request can store.
LONGEST_REASON = 2_000
GRANTED, REFUSED = "granted", "refused"
UNDO_REASON = "undo: nothing was disclosed since"
"""Reason of a reopening by which a person undoes their own last submission."""
AMENDED_AFTER_ADJUDICATION = "an annotator changed this pass after its adjudication"


class ReopenRequest(NamedTuple):
    """A request to change a submitted pass."""

    id: str
    person: str
    pass_name: str
    reason: str
    at: str
    """Time of the request."""


class OwnPass(NamedTuple):
    """A pass as its person submitted it, with the state of the latest request to reopen it."""

    name: str
    entries: tuple[FormEntry, ...]
    """The entries that hold now: the last amendment, or the first submission."""
    amended: bool
    receipt: str
    at: str
    """Time of the first submission."""
    request: str | None = None
    """State of the latest request: ``asked``, ``granted`` (not used yet), ``refused`` or ``used``."""
    request_id: str | None = None


class OwnTask(NamedTuple):
    """A task of a person with what they submitted."""

    position: int
    """Position in the queue of the person, from 1."""
    task: str
    kind: AnnotationTaskKind
    question: str
    passes: tuple[OwnPass, ...]


class GrantedReopening(NamedTuple):
    """A granted request that is still unused."""

    id: str
    pass_name: str
    position: int
    question: str


def list_own_tasks(connection: Connection, person: Person, *, most: int = MAX_LISTED_TASKS) -> tuple[OwnTask, ...]:
    """Return the latest tasks of a person with their own labels, newest first."""
    rows = connection.execute(_OWN, {"person": person.id, "most": most})
    tasks = []
    for (position, task), own in groupby(rows, key=lambda row: (row.place, row.task)):
        submitted = tuple(own)
        passes = {row.name: _own_pass(row) for row in submitted}
        # Requests of a pass come in their order, so that the latest one is kept.
        first = submitted[0]
        kind = AnnotationTaskKind(first.kind)
        tasks.append(OwnTask(position, task, kind, _question(first), tuple(passes.values())))
    return tuple(tasks)


def _own_pass(row: Row[Any]) -> OwnPass:
    request = None
    if row.request is not None:
        request = "used" if row.used else row.decision or "asked"
    receipt = audit_log.AuditEventRef(row.event, row.hash).receipt
    entries = tuple(json.loads(row.newest or row.entries))
    return OwnPass(row.name, entries, row.newest is not None, receipt, row.at, request, row.request)


def _question(row: Row[Any]) -> str:
    # The material of a family holds its question.
    question: str = json.loads(row.shown)["question"] if row.question is None else json.loads(row.question)
    return question


def find_undoable_pass(connection: Connection, person: Person) -> tuple[str, str] | None:
    """Return task and name of the person's last submission, if nothing was disclosed since; else None.

    The last pass of a task discloses nothing, and neither does pass A: pass B shows the same material as one text.
    """
    row = connection.execute(_LAST_SUBMITTED, {"person": person.id}).one_or_none()
    if row is None or not (row.name == "A" or row.name == row.passes[-1]):
        return None
    return row.task, row.name


def undo_last_pass(
    connection: Connection, person: Person, task: str, name: str
) -> tuple[str, audit_log.AuditEventRef] | None:
    """Open the person's last pass for a change; return the id of the reopening, None where it cannot be undone.

    No decision of the lead is needed: the person has seen nothing since.
    """
    if find_undoable_pass(connection, person) != (task, name):
        return None
    number = connection.execute(_SUBMITTED, {"task": task, "pass": name, "person": person.id}).scalar_one()
    now = audit_log.current_timestamp()
    row = {"id": secrets.token_urlsafe(16), "task": task, "number": number, "reason": json.dumps(UNDO_REASON)}
    try:
        with connection.begin_nested():
            connection.execute(_UNDO, {**row, "at": now, "by": person.id})
    except IntegrityError:
        return None
    detail, rows = {"pass": name, "request": row["id"]}, {audit_log.AuditedKind.REOPENINGS: [row["id"]]}
    return row["id"], audit_log.append_audit_event(
        connection, person.name, "undid", task=task, detail=detail, rows=rows
    )


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


def has_open_request(connection: Connection, person: Person, task: str, name: str) -> bool:
    """Return whether the lead has not decided yet on a person's request to change a pass."""
    values = {"task": task, "pass": name, "person": person.id}
    return connection.execute(_UNDECIDED, values).scalar_one_or_none() is not None


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


def list_granted_reopenings(connection: Connection, person: Person) -> tuple[GrantedReopening, ...]:
    """Return the granted requests of a person that are still unused."""
    return tuple(
        GrantedReopening(row.id, row.pass_name, row.place, _question(row))
        for row in connection.execute(_GRANTED, {"person": person.id})
    )


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
    if row.role != PersonRole.ADJUDICATOR and not row.undone:
        _reopen_adjudication(connection, person, row)
    queues.update_task_subject(connection, project, row)
    return PassSubmissionResult(receipt=event.receipt, finished=True, event=event)


def _reopen_adjudication(connection: Connection, person: Person, row: Row[Any]) -> None:
    """Let the adjudicator change the amended pass, where they have submitted it and may not change it already."""
    adjudicated = connection.execute(_ADJUDICATED, {"subject": row.subject, "number": row.number}).scalar_one_or_none()
    if adjudicated is None:
        return
    values = {
        "id": secrets.token_urlsafe(16),
        "task": adjudicated,
        "number": row.number,
        "reason": json.dumps(AMENDED_AFTER_ADJUDICATION),
        "at": audit_log.current_timestamp(),
    }
    connection.execute(_REOPEN, values)
    detail = {"pass": row.pass_name, "request": values["id"]}
    rows = {audit_log.AuditedKind.REOPENINGS: [values["id"]]}
    audit_log.append_audit_event(connection, person.name, "reopened", task=adjudicated, detail=detail, rows=rows)


def _find_granted(connection: Connection, person: Person, request: str) -> Row[Any] | None:
    return connection.execute(_GRANTED_TASK, {"id": request, "person": person.id}).one_or_none()


def _form(row: Row[Any]) -> Any:
    return trim_form_passes(AnnotationTaskKind(row.kind), row.pass_name, row.unasked.split(","))[0]


def _newest(connection: Connection, row: Row[Any]) -> tuple[FormEntry, ...]:
    """Return the entries that hold now: the last amendment, or the first submission."""
    entries = connection.execute(_NEWEST, {"task": row.id, "number": row.number}).scalar_one()
    return tuple(json.loads(entries))


# The task of the adjudicator who submitted a pass, unless the pass is open for them already.
_ADJUDICATED = text(
    "SELECT t.id FROM annotate_tasks t JOIN annotate_submissions s ON s.task = t.id AND s.number = :number"
    " WHERE t.subject = :subject AND t.role = 'adjudicator' AND t.withdrawn IS NULL AND NOT EXISTS"
    " (SELECT 1 FROM annotate_reopenings r WHERE r.task = t.id AND r.number = :number AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id))"
)
_REOPEN = text(
    "INSERT INTO annotate_reopenings (id, task, number, reason, asked, decision, decided)"
    " VALUES (:id, :task, :number, :reason, :at, 'granted', :at)"
)
_SUBMITTED = text(
    "SELECT s.number FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " WHERE s.task = :task AND s.pass = :pass AND t.person = :person AND t.withdrawn IS NULL"
)
_ASK = text(
    "INSERT INTO annotate_reopenings (id, task, number, reason, asked) VALUES (:id, :task, :number, :reason, :asked)"
)
_UNDECIDED = text(
    "SELECT r.id FROM annotate_reopenings r JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " JOIN annotate_tasks t ON t.id = r.task WHERE r.task = :task AND s.pass = :pass AND t.person = :person"
    " AND t.withdrawn IS NULL AND r.decision IS NULL"
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
    " WHERE t.person = :person AND t.withdrawn IS NULL AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
)
_GRANTED = text(
    "SELECT r.id, s.pass AS pass_name, t.place, (SELECT question FROM annotate_questions WHERE id = t.question) AS"
    " question, (SELECT shown FROM annotate_families WHERE id = t.family) AS shown"
    f"{_OPEN} ORDER BY r.decided, r.id"
)
_GRANTED_TASK = text(
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role, t.place, t.passes, t.unasked,"
    " s.pass AS pass_name, s.number, coalesce(r.decided_by = t.person, FALSE) AS undone"
    f"{_OPEN} AND r.id = :id"
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
# Tasks up to the open one, each pass once for every request to reopen it, in the order of the requests.
_OWN = text(
    "SELECT t.place, t.id AS task, t.kind, q.question, f.shown, s.pass AS name, s.entries, s.event, e.hash, s.at,"
    " (SELECT a.entries FROM annotate_amendments a JOIN annotate_reopenings o ON o.id = a.reopening"
    " WHERE o.task = s.task AND o.number = s.number ORDER BY a.event DESC LIMIT 1) AS newest,"
    " r.id AS request, r.decision, EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id) AS used FROM"
    " (SELECT * FROM annotate_tasks k WHERE k.person = :person AND EXISTS"
    " (SELECT 1 FROM annotate_submissions x WHERE x.task = k.id) ORDER BY place DESC LIMIT :most) t"
    " JOIN annotate_submissions s ON s.task = t.id JOIN annotate_events e ON e.seq = s.event"
    " LEFT JOIN annotate_questions q ON q.id = t.question LEFT JOIN annotate_families f ON f.id = t.family"
    " LEFT JOIN annotate_reopenings r ON r.task = s.task AND r.number = s.number"
    " ORDER BY t.place DESC, s.number, r.asked, r.id"
)
_LAST_SUBMITTED = text(
    "SELECT t.id AS task, s.pass AS name, t.passes FROM annotate_submissions s"
    " JOIN annotate_tasks t ON t.id = s.task WHERE t.person = :person ORDER BY s.event DESC LIMIT 1"
)
_UNDO = text(
    "INSERT INTO annotate_reopenings (id, task, number, reason, asked, decision, decided_by, decided)"
    " VALUES (:id, :task, :number, :reason, :at, 'granted', :by, :at)"
)
