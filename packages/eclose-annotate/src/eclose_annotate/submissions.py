"""Work on a task: show its open pass, save drafts, submit passes.

The pages of annotators act through this module alone. Tasks of other people look like missing ones; only the open pass
can be read or submitted; a submitted pass is closed. The database enforces the same rules (``schema``), which decides
between simultaneous requests.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.calls.ledger.database import WRITE_OPTION
from eclose.values.identity import hash_sort_key
from eclose_annotate import events, queues, visible
from eclose_annotate.forms import (
    PASSES_BY_TASK_KIND,
    AnnotationPass,
    AnnotationTaskKind,
    FormEntry,
    FormProblem,
    find_form_problems,
    next_open_pass,
    trim_form_passes,
)
from eclose_annotate.people.people import PersonRole
from eclose_annotate.queues import TaskProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose_annotate.people.people import Person
    from eclose_annotate.project import AnnotationProject


class SubmissionRefusal(StrEnum):
    """Reason for refusing a submission."""

    UNKNOWN = "unknown"
    """The task does not exist or belongs to another person; the requester cannot tell which."""
    CLOSED = "closed"
    """The pass is not the open one (submitted before, or later in the order), or its page was not opened."""
    WRONG = "wrong"
    """The form is incomplete or contradictory."""


@dataclass(frozen=True, slots=True)
class TaskPageContent:
    """Everything that a page of work shows."""

    task: str
    kind: AnnotationTaskKind
    passes: tuple[str, ...]
    """Names of all passes of this kind, skipped ones included: their absence would reveal a missing answer."""
    form: AnnotationPass
    """The open pass."""
    material: visible.AnnotatorMaterial
    """Question, evidence, trace and answers, as far as this pass discloses them."""
    draft: tuple[FormEntry, ...]
    """Saved entries that were not submitted; empty where there are none."""
    key: str
    """Key of the pass, sent back with its form: proves that its page was opened, and recognises a repetition."""
    progress: TaskProgress
    others: tuple[tuple[FormEntry, ...], ...] = ()
    """Entries of the other annotators in this pass, in an order that is the same in all passes of the task; only for
    adjudicators, if the project allows."""

    @property
    def number(self) -> int:
        """Number of the open pass, from 1."""
        return self.passes.index(self.form.name) + 1

    @property
    def steps(self) -> int | None:
        """Number of entries, where the form has one for each step."""
        return len(self.material.steps) if self.form.each_step else None  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class PassSubmissionResult:
    """Outcome of a submission."""

    receipt: str | None = None
    """Proof for the person that the submission was recorded; None where it was refused."""
    refusal: SubmissionRefusal | None = None
    problems: tuple[FormProblem, ...] = ()
    finished: bool = False
    """Whether this was the last pass of the task."""


def open_task_page(
    connection: Connection, project: AnnotationProject, person: Person, task: str
) -> TaskPageContent | None:
    """Return the open pass of a person's task; None where the task is unknown or has no open pass.

    The first look at a pass writes. Over a connection that only reads, the page then has no key.
    """
    row = _find_task(connection, person, task)
    form = None if row is None else _open_pass(connection, row)
    if row is None or form is None:
        return None
    number = _number(row, form)
    page = build_task_page(connection, project, person, row, form, _draft(connection, task, number))
    if connection.get_execution_options().get(WRITE_OPTION):
        return replace(page, key=issue_pass_key(connection, task, number))
    opening = connection.execute(_OPENING, {"task": task, "number": number}).one_or_none()
    return replace(page, key="" if opening is None else str(opening.key))


def add_pass_key(connection: Connection, person: Person, sheet: TaskPageContent) -> TaskPageContent | None:
    """Return a page with the key of its form, which is issued at the first look at its pass."""
    row = _find_task(connection, person, sheet.task)
    if row is None:
        return None
    return replace(sheet, key=issue_pass_key(connection, sheet.task, _number(row, sheet.form)))


def issue_pass_key(connection: Connection, task: str, number: int) -> str:
    """Record that a pass was opened, where it was not before, and return the key of its form."""
    values = {"task": task, "number": number, "key": secrets.token_urlsafe(16), "at": events.current_timestamp()}
    connection.execute(_OPEN, values)
    return str(connection.execute(_OPENING, values).one().key)


def build_task_page(
    connection: Connection,
    project: AnnotationProject,
    person: Person,
    row: Row[Any],
    form: AnnotationPass,
    draft: tuple[FormEntry, ...],
) -> TaskPageContent:
    """Build the sheet of a pass. Callers check beforehand that the person may see it."""
    return TaskPageContent(
        task=row.id,
        kind=AnnotationTaskKind(row.kind),
        passes=tuple(each.name for each in PASSES_BY_TASK_KIND[AnnotationTaskKind(row.kind)]),
        form=form,
        material=visible.read_visible_material(
            connection, row.id, form.name, hide_evidence=project.settings.hide_evidence
        ),
        draft=draft,
        key=secrets.token_urlsafe(16),
        progress=queues.read_task_progress(connection, person),
        others=_other_entries(connection, project, row, form),
    )


def save_pass_draft(connection: Connection, person: Person, task: str, name: str, entries: Sequence[FormEntry]) -> bool:
    """Save a draft, without invalid choices; return False where that pass is not open."""
    row = _find_task(connection, person, task)
    form = None if row is None else _open_pass(connection, row)
    if row is None or form is None or form.name != name:
        return False
    queues.move_to_front(connection, row)
    # A draft may be incomplete, but must not store arbitrary text.
    choices = {field.name: field.choices for field in form.fields}
    entries = [{name: value for name, value in entry.items() if value in choices.get(name, ())} for entry in entries]
    values = {
        "task": task,
        "number": _number(row, form),
        "entries": json.dumps(entries),
        "at": events.current_timestamp(),
    }
    connection.execute(_SAVE_DRAFT, values)
    return True


def count_form_entries(connection: Connection, person: Person, task: str, name: str) -> int | None:
    """Return how many entries a pass of a person's task has; None where task or pass is unknown."""
    row = _find_task(connection, person, task)
    # Skipped passes count as known here: a difference would reveal that the response has no answer.
    form = (
        None
        if row is None
        else next((each for each in PASSES_BY_TASK_KIND[AnnotationTaskKind(row.kind)] if each.name == name), None)
    )
    if form is None:
        return None
    return visible.count_response_steps(connection, task) if form.each_step else 1


def submit_pass(
    connection: Connection,
    project: AnnotationProject,
    person: Person,
    task: str,
    name: str,
    entries: Sequence[FormEntry],
    key: str,
) -> PassSubmissionResult:
    """Close a pass with its entries. The caller commits before showing the receipt.

    A repeated submission with the same key gets the same receipt. Raises IntegrityError where a simultaneous one won.
    """
    row = _find_task(connection, person, task)
    if row is None:
        return PassSubmissionResult(refusal=SubmissionRefusal.UNKNOWN)
    # Before the check for an open pass: a repeated request, as after a lost answer, finds its own pass closed.
    if (previous := _find_repeated(connection, task, name, entries, key)) is not None:
        return previous
    form = _open_pass(connection, row)
    if form is None or form.name != name:
        return PassSubmissionResult(refusal=SubmissionRefusal.CLOSED)
    if wrong := find_form_problems(
        form, entries, visible.count_response_steps(connection, task) if form.each_step else None
    ):
        return PassSubmissionResult(refusal=SubmissionRefusal.WRONG, problems=wrong)
    opening = connection.execute(_OPENING, {"task": task, "number": _number(row, form)}).one_or_none()
    if opening is None or opening.key != key:
        # Not a form of a page that this server has shown.
        return PassSubmissionResult(refusal=SubmissionRefusal.CLOSED)
    receipt = _record(connection, person, row, form, entries, opening)
    finished = name == row.passes[-1]
    # In the same transaction, so that a finished task always has its follow-up.
    if finished:
        queues.finish_task(connection, project, row)
    return PassSubmissionResult(receipt=receipt, finished=finished)


def _record(
    connection: Connection,
    person: Person,
    row: Row[Any],
    form: AnnotationPass,
    entries: Sequence[FormEntry],
    opening: Row[Any],
) -> str:
    """Store a submission and return its receipt."""
    number = _number(row, form)
    # The log must not reveal labels.
    event = events.append_audit_event(connection, person.name, "submitted", task=row.id, detail={"pass": form.name})
    values = {
        "task": row.id,
        "number": number,
        "follows": None if number == 1 else number - 1,
        "pass": form.name,
        "entries": json.dumps(entries),
        "key": opening.key,
        "event": event.seq,
        "at": event.at,
    }
    # The unique keys of this table decide between two simultaneous submissions.
    connection.execute(_SUBMIT, values)
    queues.move_to_front(connection, row)
    connection.execute(_DROP_DRAFT, values)
    return event.receipt


def submit_pass_and_commit(
    project: AnnotationProject, person: Person, task: str, name: str, entries: Sequence[FormEntry], key: str
) -> PassSubmissionResult:
    """Submit in a transaction of its own, which is on disk on return."""
    # A simultaneous submission fails on a unique key; the second try finds it and answers closed, or with its receipt.
    for _ in range(2):
        try:
            with project.writing() as connection:
                return submit_pass(connection, project, person, task, name, entries, key)
        except IntegrityError:
            continue
    return PassSubmissionResult(refusal=SubmissionRefusal.CLOSED)


def _find_repeated(
    connection: Connection, task: str, name: str, entries: Sequence[FormEntry], key: str
) -> PassSubmissionResult | None:
    """Return the result of an earlier submission of this pass: its receipt if it was the same, else a refusal."""
    row = connection.execute(_SUBMITTED, {"task": task, "pass": name}).one_or_none()
    if row is None:
        return None
    if row.key != key or json.loads(row.entries) != [dict(entry) for entry in entries]:
        return PassSubmissionResult(refusal=SubmissionRefusal.CLOSED)
    return PassSubmissionResult(
        receipt=events.AuditEventRef(row.event, row.event_id).receipt, finished=name == row.passes[-1]
    )


def _find_task(connection: Connection, person: Person, task: str) -> Row[Any] | None:
    return connection.execute(_TASK, {"task": task, "person": person.id}).one_or_none()


def _open_pass(connection: Connection, row: Row[Any]) -> AnnotationPass | None:
    """Return the open pass of a task; None where all are submitted, or an earlier task is unfinished."""
    # Tasks are done in order: only the next one whose question is screened is open.
    if row.id != queues.find_next_task(connection, row.person):
        return None
    submitted = connection.execute(_DONE, {"task": row.id}).scalars().all()
    return next_open_pass(trim_form_passes(AnnotationTaskKind(row.kind), row.passes, row.unasked.split(",")), submitted)


def _number(row: Row[Any], form: AnnotationPass) -> int:
    return int(row.passes.index(form.name)) + 1


def _draft(connection: Connection, task: str, number: int) -> tuple[FormEntry, ...]:
    entries = connection.execute(_DRAFT, {"task": task, "number": number}).scalar_one_or_none()
    return () if entries is None else tuple(json.loads(entries))


def _other_entries(
    connection: Connection, project: AnnotationProject, row: Row[Any], form: AnnotationPass
) -> tuple[tuple[FormEntry, ...], ...]:
    """Return the entries of the other annotators in this pass, where an adjudicator may see them."""
    if row.role != PersonRole.ADJUDICATOR or not project.settings.shows_labels(AnnotationTaskKind(row.kind)):
        return ()
    rows = connection.execute(_OTHERS, {"task": row.id, "subject": row.subject, "pass": form.name}).all()
    # Ordered by secret ids: the same people in the same order in every pass of this case, and in another order in the
    # next one, so that the order does not reveal which annotator an entry is by.
    rows = sorted(rows, key=lambda other: hash_sort_key("others", row.id, other.id))
    return tuple(tuple(json.loads(other.entries)) for other in rows)


# The person is part of the condition: tasks of others are not found.
_TASK = text(
    "SELECT id, kind, subject, question, response, family, person, role, place, passes, unasked FROM annotate_tasks"
    " WHERE id = :task AND person = :person AND withdrawn IS NULL"
)
_DONE = text("SELECT pass FROM annotate_submissions WHERE task = :task ORDER BY number")
_DRAFT = text("SELECT entries FROM annotate_drafts WHERE task = :task AND number = :number")
_SAVE_DRAFT = text(
    "INSERT INTO annotate_drafts (task, number, entries, at) VALUES (:task, :number, :entries, :at)"
    " ON CONFLICT (task, number) DO UPDATE SET entries = excluded.entries, at = excluded.at"
)
_OPEN = text(
    "INSERT INTO annotate_openings (task, number, key, at) VALUES (:task, :number, :key, :at) ON CONFLICT DO NOTHING"
)
_OPENING = text("SELECT key, at FROM annotate_openings WHERE task = :task AND number = :number")
_DROP_DRAFT = text("DELETE FROM annotate_drafts WHERE task = :task AND number = :number")
_SUBMIT = text(
    "INSERT INTO annotate_submissions (task, number, follows, pass, entries, key, event, at)"
    " VALUES (:task, :number, :follows, :pass, :entries, :key, :event, :at)"
)
_SUBMITTED = text(
    "SELECT s.key, s.entries, s.event, e.id AS event_id, t.passes FROM annotate_submissions s"
    " JOIN annotate_events e ON e.seq = s.event JOIN annotate_tasks t ON t.id = s.task"
    " WHERE s.task = :task AND s.pass = :pass"
)
# Excludes the adjudicator's own task, and reads the current pass alone.
_OTHERS = text(
    "SELECT t.id, s.entries FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " WHERE t.subject = :subject AND t.id <> :task AND t.withdrawn IS NULL AND s.pass = :pass"
)
