"""What a person works at: the next task, the pass of it that is open, drafts, and submissions that hold.

All that a page may do goes through here. A task that is not one's own does not exist; a pass that is not the open one
cannot be seen or submitted; what was submitted once is closed. The database holds the same rules (``schema``), so that
of two who try at the same time one fails there.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation import audit_log, queues, visible
from eclose.annotation.accounts.people import Role
from eclose.annotation.audit_log import Link
from eclose.annotation.forms import PASSES, Entry, Kind, Pass, Problem, next_pass, passes_named, problems
from eclose.annotation.queues import Progress
from eclose.protocol.annotation import Shown
from eclose.protocol.prompts import Reader, load_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.project import Project


class Refusal(StrEnum):
    """Why something is not done."""

    UNKNOWN = "unknown"
    """There is no such task, or it is somebody else's: the two are not told apart."""
    CLOSED = "closed"
    """This pass is not the open one: submitted before, or its turn has not come."""
    WRONG = "wrong"
    """The form is not complete, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that a page of work is made of."""

    task: str
    kind: Kind
    passes: tuple[str, ...]
    """The names of all passes of this kind. That one will be left out would tell that there is no answer."""
    form: Pass
    """The open one."""
    shown: Shown
    draft: tuple[Entry, ...]
    """What was filled in and not submitted; empty where nothing was."""
    key: str
    """Goes back with the submission, so that the same one twice is known as one."""
    guideline: str
    """Markdown."""
    progress: Progress
    others: tuple[tuple[Entry, ...], ...] = ()
    """What others decided in this pass, in random order: for an adjudicator, where the project shows it."""

    @property
    def number(self) -> int:
        """Which pass this is, from 1."""
        return self.passes.index(self.form.name) + 1

    @property
    def steps(self) -> int | None:
        """How many entries the form has where every step is one."""
        return len(self.shown.steps) if self.form.each_step else None  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a submission."""

    receipt: str | None = None
    """What a person may keep: it is recorded for good."""
    refusal: Refusal | None = None
    problems: tuple[Problem, ...] = ()
    finished: bool = False
    """Whether that was the task's last pass."""
    link: Link | None = None
    """The event that tells of it; None where it was there before."""


def sheet(connection: Connection, project: Project, person: Person, task: str) -> Sheet | None:
    """The open pass of one's own task; None where there is no such task, or nothing is open in it."""
    row = _own(connection, person, task)
    form = None if row is None else _open(connection, row)
    if row is None or form is None:
        return None
    return sheet_of(connection, project, person, row, form, _draft(connection, task, _number(row, form)))


def sheet_of(
    connection: Connection, project: Project, person: Person, row: Row[Any], form: Pass, draft: tuple[Entry, ...]
) -> Sheet:
    """A pass of a task as its page shows it. Whoever calls has made sure that the person may see it."""
    return Sheet(
        task=row.id,
        kind=Kind(row.kind),
        passes=tuple(one.name for one in PASSES[Kind(row.kind)]),
        form=form,
        shown=visible.see(connection, row.id, form.name, hide_evidence=project.settings.hide_evidence),
        draft=draft,
        key=secrets.token_urlsafe(16),
        guideline=load_text(form.guideline).addressed_to(Reader.PEOPLE),
        progress=queues.progress(connection, person),
        others=_others(connection, project, row, form),
    )


def save_draft(connection: Connection, person: Person, task: str, name: str, entries: Sequence[Entry]) -> bool:
    """Keep what is filled in so far; False where that pass is not open. Choices there are none of are left out."""
    row = _own(connection, person, task)
    form = None if row is None else _open(connection, row)
    if row is None or form is None or form.name != name:
        return False
    choices = {field.name: field.choices for field in form.fields}
    entries = [{name: value for name, value in one.items() if value in choices.get(name, ())} for one in entries]
    given = {"task": task, "number": _number(row, form), "entries": json.dumps(entries), "at": audit_log.now()}
    connection.execute(_SAVE_DRAFT, given)
    return True


def entries_asked(connection: Connection, person: Person, task: str, name: str) -> int | None:
    """How many entries a pass of one's own task has; None where there is no such task or pass."""
    row = _own(connection, person, task)
    # Of all passes of its kind: were those that are left out unknown, it would tell that there is no answer.
    form = None if row is None else next((one for one in PASSES[Kind(row.kind)] if one.name == name), None)
    if form is None:
        return None
    return visible.steps(connection, task) if form.each_step else 1


def submit(
    connection: Connection, project: Project, person: Person, task: str, name: str, entries: Sequence[Entry], key: str
) -> Outcome:
    """Close a pass with what was decided. The caller commits, and only then shows the receipt.

    The same submission again (by its key) gives the same receipt. Raises IntegrityError where another won.
    """
    row = _own(connection, person, task)
    if row is None:
        return Outcome(refusal=Refusal.UNKNOWN)
    if (before := _again(connection, task, name, entries, key)) is not None:
        return before
    form = _open(connection, row)
    if form is None or form.name != name:
        return Outcome(refusal=Refusal.CLOSED)
    if wrong := problems(form, entries, visible.steps(connection, task) if form.each_step else None):
        return Outcome(refusal=Refusal.WRONG, problems=wrong)
    link = _record(connection, person, row, form, entries, key)
    finished = name == row.passes[-1]
    if finished:
        queues.finish(connection, project, row)
    return Outcome(receipt=link.receipt, finished=finished, link=link)


def _record(
    connection: Connection, person: Person, row: Row[Any], form: Pass, entries: Sequence[Entry], key: str
) -> Link:
    number = _number(row, form)
    detail = {"pass": form.name, "entries": audit_log.fingerprint(entries)}
    link = audit_log.append(connection, person.name, audit_log.SUBMITTED, task=row.id, detail=detail)
    given = {
        "task": row.id,
        "number": number,
        "follows": None if number == 1 else number - 1,
        "pass": form.name,
        "entries": json.dumps(entries),
        "key": key,
        "event": link.seq,
        "at": audit_log.now(),
    }
    connection.execute(_SUBMIT, given)
    connection.execute(_DROP_DRAFT, given)
    return link


def submit_once(project: Project, person: Person, task: str, name: str, entries: Sequence[Entry], key: str) -> Outcome:
    """Submit in a transaction of its own: on disk on return. Who comes second finds the pass closed, or their own."""
    for _ in range(2):
        try:
            with project.writing() as connection:
                outcome = submit(connection, project, person, task, name, entries, key)
            break
        except IntegrityError:
            continue
    else:
        return Outcome(refusal=Refusal.CLOSED)
    if outcome.link is not None:
        project.head.advance(outcome.link)
    return outcome


def _again(connection: Connection, task: str, name: str, entries: Sequence[Entry], key: str) -> Outcome | None:
    """The receipt of the same submission, if it was made before."""
    row = connection.execute(_SUBMITTED, {"task": task, "pass": name}).one_or_none()
    if row is None:
        return None
    if row.key != key or json.loads(row.entries) != [dict(entry) for entry in entries]:
        return Outcome(refusal=Refusal.CLOSED)
    return Outcome(receipt=audit_log.Link(row.event, row.hash).receipt, finished=name == row.passes[-1])


def _own(connection: Connection, person: Person, task: str) -> Row[Any] | None:
    return connection.execute(_TASK, {"task": task, "person": person.id}).one_or_none()


def _open(connection: Connection, row: Row[Any]) -> Pass | None:
    """The pass whose turn it is; None when all are done, and before the task's turn has come."""
    if row.place != queues.done(connection, row.person) + 1:
        return None
    submitted = connection.execute(_DONE, {"task": row.id}).scalars().all()
    return next_pass(passes_named(Kind(row.kind), row.passes, row.unasked.split(",")), submitted)


def _number(row: Row[Any], form: Pass) -> int:
    return int(row.passes.index(form.name)) + 1


def _draft(connection: Connection, task: str, number: int) -> tuple[Entry, ...]:
    found = connection.execute(_DRAFT, {"task": task, "number": number}).scalar_one_or_none()
    return () if found is None else tuple(json.loads(found))


def _others(connection: Connection, project: Project, row: Row[Any], form: Pass) -> tuple[tuple[Entry, ...], ...]:
    """What those who disagreed said in this pass, where an adjudicator is to know it; in no order that tells who."""
    if row.role != Role.ADJUDICATOR or not project.settings.shows_labels(Kind(row.kind)):
        return ()
    found = connection.execute(_OTHERS, {"task": row.id, "subject": row.subject, "pass": form.name}).scalars()
    forms = [tuple(json.loads(entries)) for entries in found]
    secrets.SystemRandom().shuffle(forms)
    return tuple(forms)


_TASK = text(
    "SELECT id, kind, subject, question, response, family, person, role, place, passes, unasked FROM annotate_tasks"
    " WHERE id = :task AND person = :person"
)
_DONE = text("SELECT pass FROM annotate_submissions WHERE task = :task ORDER BY number")
_DRAFT = text("SELECT entries FROM annotate_drafts WHERE task = :task AND number = :number")
_SAVE_DRAFT = text(
    "INSERT INTO annotate_drafts (task, number, entries, at) VALUES (:task, :number, :entries, :at)"
    " ON CONFLICT (task, number) DO UPDATE SET entries = excluded.entries, at = excluded.at"
)
_DROP_DRAFT = text("DELETE FROM annotate_drafts WHERE task = :task AND number = :number")
_SUBMIT = text(
    "INSERT INTO annotate_submissions (task, number, follows, pass, entries, key, event, at)"
    " VALUES (:task, :number, :follows, :pass, :entries, :key, :event, :at)"
)
_SUBMITTED = text(
    "SELECT s.key, s.entries, s.event, e.hash, t.passes FROM annotate_submissions s"
    " JOIN annotate_events e ON e.seq = s.event JOIN annotate_tasks t ON t.id = s.task"
    " WHERE s.task = :task AND s.pass = :pass"
)
_OTHERS = text(
    "SELECT s.entries FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " WHERE t.subject = :subject AND t.id <> :task AND s.pass = :pass"
)
