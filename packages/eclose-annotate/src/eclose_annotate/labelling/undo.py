"""A person's own submitted passes: their list, undoing the last one, and corrections in ``eclose label``.

An undone pass counts as first submitted in its new form, since nothing else was disclosed before. Whoever labels alone
corrects any pass; agreement is not measured there. The first form is kept.
"""

from __future__ import annotations

import json
import secrets
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose_annotate import events, queues, visible
from eclose_annotate.forms import AnnotationTaskKind, find_form_problems, trim_form_passes
from eclose_annotate.submissions import PassSubmissionResult, SubmissionRefusal, TaskPageContent, build_task_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose_annotate.forms import AnnotationPass, FormEntry
    from eclose_annotate.people.people import Person
    from eclose_annotate.project import AnnotationProject

MAX_LISTED_TASKS = 50
"""Number of latest tasks that ``list_own_tasks`` returns."""


class OwnPass(NamedTuple):
    """A pass as its person submitted it."""

    name: str
    entries: tuple[FormEntry, ...]
    """The entries that hold now: the last change, or the first submission."""
    amended: bool
    receipt: str
    at: str
    """Time of the first submission."""
    reopening: str | None
    """Id under which the pass is open for a change; None where it is closed."""


class OwnTask(NamedTuple):
    """A task of a person with what they submitted."""

    position: int
    """Position in the queue of the person, from 1."""
    task: str
    kind: AnnotationTaskKind
    question: str
    passes: tuple[OwnPass, ...]


class ReopenedPass(NamedTuple):
    """A pass that its person opened again and has not changed yet."""

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
        kind = AnnotationTaskKind(submitted[0].kind)
        tasks.append(OwnTask(position, task, kind, _question(submitted[0]), tuple(map(_own_pass, submitted))))
    return tuple(tasks)


def _own_pass(row: Row[Any]) -> OwnPass:
    receipt = events.AuditEventRef(row.event, row.event_id).receipt
    entries = tuple(json.loads(row.newest or row.entries))
    return OwnPass(
        name=row.name,
        entries=entries,
        amended=row.newest is not None,
        receipt=receipt,
        at=row.at,
        reopening=row.reopening,
    )


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


def undo_last_pass(connection: Connection, person: Person, task: str, name: str) -> str | None:
    """Open the person's last pass for a change and return the id of the change; None where it cannot be undone."""
    if find_undoable_pass(connection, person) != (task, name):
        return None
    return reopen_own_pass(connection, person, task, name, action="undid")


def reopen_own_pass(
    connection: Connection, person: Person, task: str, name: str, *, action: str = "opened to correct"
) -> str | None:
    """Open a submitted pass for a change and return the id of the change; None where it is not the person's.

    A pass that is open already keeps its id. Callers check beforehand that nothing forbids a change.
    """
    values = {"task": task, "pass": name, "person": person.id}
    if (opened := connection.execute(_OPENED, values).scalar()) is not None:
        return str(opened)
    number = connection.execute(_SUBMITTED, values).scalar_one_or_none()
    if number is None:
        return None
    row = {"id": secrets.token_urlsafe(16), "task": task, "number": number, "at": events.current_timestamp()}
    connection.execute(_REOPEN, row)
    detail = {"pass": name, "reopening": row["id"]}
    events.append_audit_event(connection, person.name, action, task=task, detail=detail)
    return str(row["id"])


def list_reopened_passes(connection: Connection, person: Person) -> tuple[ReopenedPass, ...]:
    """Return the passes that a person has opened again and not changed yet."""
    return tuple(
        ReopenedPass(row.id, row.pass_name, row.place, _question(row))
        for row in connection.execute(_REOPENED, {"person": person.id})
    )


def open_pass_amendment(
    connection: Connection, project: AnnotationProject, person: Person, reopening: str
) -> TaskPageContent | None:
    """Return the page of a pass that was opened again, filled in as it is; None where there is none of this id."""
    row = _find_reopened(connection, person, reopening)
    if row is None:
        return None
    # The entries that hold now: the last change, or the first submission.
    entries = connection.execute(_NEWEST, {"task": row.id, "number": row.number}).scalar_one()
    return build_task_page(connection, project, person, row, _form(row), tuple(json.loads(entries)))


def submit_pass_amendment(
    connection: Connection, project: AnnotationProject, person: Person, reopening: str, entries: Sequence[FormEntry]
) -> PassSubmissionResult:
    """Store a changed form beside the first one. The caller commits before showing the receipt."""
    row = _find_reopened(connection, person, reopening)
    if row is None:
        return PassSubmissionResult(refusal=SubmissionRefusal.UNKNOWN)
    form = _form(row)
    if wrong := find_form_problems(
        form, entries, visible.count_response_steps(connection, row.id) if form.each_step else None
    ):
        return PassSubmissionResult(refusal=SubmissionRefusal.WRONG, problems=wrong)
    detail = {"pass": form.name, "reopening": reopening}
    # The event first: the change's row refers to it.
    event = events.append_audit_event(connection, person.name, "amended", task=row.id, detail=detail)
    values = {"reopening": reopening, "entries": json.dumps(entries), "event": event.seq, "at": event.at}
    connection.execute(_AMEND, values)
    queues.update_task_subject(connection, project, row)
    return PassSubmissionResult(receipt=event.receipt, finished=True)


def _find_reopened(connection: Connection, person: Person, reopening: str) -> Row[Any] | None:
    return connection.execute(_REOPENED_TASK, {"id": reopening, "person": person.id}).one_or_none()


def _form(row: Row[Any]) -> AnnotationPass:
    return trim_form_passes(AnnotationTaskKind(row.kind), row.pass_name, row.unasked.split(","))[0]


_SUBMITTED = text(
    "SELECT s.number FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " WHERE s.task = :task AND s.pass = :pass AND t.person = :person AND t.withdrawn IS NULL"
)
_REOPEN = text("INSERT INTO annotate_reopenings (id, task, number, at) VALUES (:id, :task, :number, :at)")
_UNUSED = "NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
# Passes that were opened again and not changed yet; each allows one change.
_OPEN = (
    " FROM annotate_reopenings r JOIN annotate_tasks t ON t.id = r.task"
    " JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    f" WHERE t.person = :person AND t.withdrawn IS NULL AND {_UNUSED}"
)
_OPENED = text(f"SELECT r.id{_OPEN} AND r.task = :task AND s.pass = :pass")
_REOPENED = text(
    "SELECT r.id, s.pass AS pass_name, t.place, (SELECT question FROM annotate_questions WHERE id = t.question) AS"
    " question, (SELECT shown FROM annotate_families WHERE id = t.family) AS shown"
    f"{_OPEN} ORDER BY r.at, r.id"
)
_REOPENED_TASK = text(
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role, t.place, t.passes, t.unasked,"
    f" s.pass AS pass_name, s.number{_OPEN} AND r.id = :id"
)
_LAST_AMENDMENT = (
    "(SELECT a.entries FROM annotate_amendments a JOIN annotate_reopenings r ON r.id = a.reopening"
    " WHERE r.task = s.task AND r.number = s.number ORDER BY a.event DESC LIMIT 1)"
)
_NEWEST = text(
    f"SELECT coalesce({_LAST_AMENDMENT}, s.entries) FROM annotate_submissions s"
    " WHERE s.task = :task AND s.number = :number"
)
_AMEND = text(
    "INSERT INTO annotate_amendments (reopening, entries, event, at) VALUES (:reopening, :entries, :event, :at)"
)
_OWN = text(
    "SELECT t.place, t.id AS task, t.kind, q.question, f.shown, s.pass AS name, s.entries, s.event,"
    f" e.id AS event_id, s.at, {_LAST_AMENDMENT} AS newest, (SELECT min(r.id) FROM annotate_reopenings r"
    f" WHERE r.task = s.task AND r.number = s.number AND {_UNUSED}) AS reopening FROM"
    " (SELECT * FROM annotate_tasks k WHERE k.person = :person AND EXISTS"
    " (SELECT 1 FROM annotate_submissions x WHERE x.task = k.id) ORDER BY place DESC LIMIT :most) t"
    " JOIN annotate_submissions s ON s.task = t.id JOIN annotate_events e ON e.seq = s.event"
    " LEFT JOIN annotate_questions q ON q.id = t.question LEFT JOIN annotate_families f ON f.id = t.family"
    " ORDER BY t.place DESC, s.number"
)
_LAST_SUBMITTED = text(
    "SELECT t.id AS task, s.pass AS name, t.passes FROM annotate_submissions s"
    " JOIN annotate_tasks t ON t.id = s.task WHERE t.person = :person ORDER BY s.event DESC LIMIT 1"
)
