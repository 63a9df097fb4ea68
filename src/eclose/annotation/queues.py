"""The task queues: a person's next task, progress and completed tasks, and the queue of adjudication.

Screeners and annotators get their tasks at the start, in an individual order, and do them in that order. Adjudicators
take the next waiting subject, preferably one of a question that is new to them: from the second response to a question
on they know its reference answer.
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation import audit_log
from eclose.annotation.accounts.people import PersonRole
from eclose.annotation.forms import AnnotationTaskKind
from eclose.annotation.read_annotations import explain_subject_adjudication
from eclose.core.identity import hash_sort_key

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.project import AnnotationProject

PAUSE_SECONDS = 30 * 60.0
"""Seconds between two finished tasks from which the time counts as a pause, not as work."""
RECENT_TASKS = 20
"""Number of latest tasks over which the time per task is taken."""
MAX_COMPLETED_TASKS = 50
"""Number of latest tasks that ``list_completed_tasks`` returns."""


class TaskProgress(NamedTuple):
    """Progress of a person through their tasks."""

    finished: int
    total: int
    """Number of tasks; for an adjudicator, those taken or waiting so far."""
    seconds_each: float | None
    """Median seconds per task over the latest tasks, without pauses; None before the second task."""


class CompletedPass(NamedTuple):
    """A submitted pass with its receipt."""

    name: str
    receipt: str
    at: str
    """Time of the submission."""


class CompletedTask(NamedTuple):
    """A task with its submitted passes."""

    position: int
    """Position in the queue of the person, from 1."""
    task: str
    passes: tuple[CompletedPass, ...]


def count_finished_tasks(connection: Connection, person: int) -> int:
    """Return how many tasks a person has finished."""
    return int(connection.execute(_CURSOR, {"person": person}).scalar_one_or_none() or 0)


def find_next_task(connection: Connection, person: Person) -> str | None:
    """Return the id of a person's next task; None where there is none. Adjudicators use ``take_next_task``."""
    values = {"person": person.id, "place": count_finished_tasks(connection, person.id) + 1}
    return connection.execute(_NEXT, values).scalar_one_or_none()


def count_awaiting_adjudication(connection: Connection, person: Person) -> int:
    """Return how many subjects wait for an adjudicator of this person's pool; 0 for other roles."""
    if person.role is not PersonRole.ADJUDICATOR:
        return 0
    return int(connection.execute(_WAITING, {"pool": person.pool}).scalar_one())


def take_next_task(connection: Connection, person: Person) -> str | None:
    """Return the id of a person's next task; give an adjudicator without one the next waiting subject.

    Needs a writing connection. Raises IntegrityError where another adjudicator took the same subject: try again.
    """
    task = find_next_task(connection, person)
    if task is not None or person.role is not PersonRole.ADJUDICATOR:
        return task
    row = connection.execute(_WAITS, {"person": person.id, "pool": person.pool}).mappings().one_or_none()
    if row is None:
        return None
    task = secrets.token_urlsafe(16)
    # An adjudicator has at most one open task, so the next place follows the finished ones.
    position = count_finished_tasks(connection, person.id) + 1
    connection.execute(_CLAIM, {**row, "id": task, "person": person.id, "place": position})
    detail = {"reference_seen_before": bool(row["met"])}
    rows = {audit_log.AuditedKind.TASKS: [task]}
    audit_log.append_audit_event(connection, person.name, "took", task=task, detail=detail, rows=rows)
    return task


def read_task_progress(connection: Connection, person: Person) -> TaskProgress:
    """Return how far a person is, and how fast."""
    finished = count_finished_tasks(connection, person.id)
    last = int(connection.execute(_LAST, {"person": person.id}).scalar_one_or_none() or 0)
    values = {"person": person.id, "first": finished - RECENT_TASKS, "last": finished}
    times = [datetime.fromisoformat(at) for at in connection.execute(_FINISHED_AT, values).scalars()]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    # Median instead of mean: robust against long looks at single tasks.
    worked = [gap for gap in gaps if gap < PAUSE_SECONDS]
    return TaskProgress(
        finished, last + count_awaiting_adjudication(connection, person), median(worked) if worked else None
    )


def finish_task(connection: Connection, project: AnnotationProject, task: Row[Any]) -> None:
    """Advance the person to the next task, and compare the annotators of this one."""
    connection.execute(_ADVANCE, {"person": task.person})
    queue_disputed_subject(connection, project, task)


def queue_disputed_subject(connection: Connection, project: AnnotationProject, task: Row[Any]) -> None:
    """Queue a task's subject for adjudication, where all its annotators have finished and disagree."""
    # Compared by the last annotator to finish, in the transaction of that submission: none is forgotten after a crash.
    if task.role == PersonRole.ADJUDICATOR or connection.execute(_UNFINISHED, {"subject": task.subject}).scalar_one():
        return
    triggers = explain_subject_adjudication(connection, AnnotationTaskKind(task.kind), task.subject)
    if triggers:
        values = {
            "subject": task.subject,
            "kind": task.kind,
            "question": task.question,
            "response": task.response,
            "family": task.family,
            "triggers": json.dumps(triggers),
            # Random but reproducible order of the adjudication queue.
            "rank": hash_sort_key("adjudication", project.settings.seed, task.subject),
            "at": audit_log.current_timestamp(),
        }
        if connection.execute(_DISPUTE, values).rowcount:
            rows = {audit_log.AuditedKind.ADJUDICATIONS: [task.subject]}
            audit_log.append_audit_event(connection, audit_log.SERVER_NAME, "queued for adjudication", rows=rows)


def list_completed_tasks(connection: Connection, person: Person) -> tuple[CompletedTask, ...]:
    """Return the latest tasks of a person with their receipts, newest first. Labels are not included."""
    rows = connection.execute(_COMPLETED, {"person": person.id, "most": MAX_COMPLETED_TASKS})
    return tuple(
        CompletedTask(
            position,
            task,
            tuple(
                CompletedPass(row.name, audit_log.AuditEventRef(row.event, row.hash).receipt, row.at)
                for row in submissions
            ),
        )
        for (position, task), submissions in groupby(rows, key=lambda row: (row.place, row.task))
    )


_POOL = "CASE a.kind WHEN 'screening' THEN 'questions' WHEN 'family' THEN 'families' ELSE 'responses' END"
_CURSOR = text("SELECT done FROM annotate_cursors WHERE person = :person")
_NEXT = text("SELECT id FROM annotate_tasks WHERE person = :person AND place = :place")
_LAST = text("SELECT max(place) FROM annotate_tasks WHERE person = :person")
# The first finished task of a person creates the row.
_ADVANCE = text(
    "INSERT INTO annotate_cursors (person, done) VALUES (:person, 1)"
    " ON CONFLICT (person) DO UPDATE SET done = annotate_cursors.done + 1"
)
_FINISHED_AT = text(
    "SELECT max(s.at) FROM annotate_tasks t JOIN annotate_submissions s ON s.task = t.id"
    " WHERE t.person = :person AND t.place > :first AND t.place <= :last GROUP BY t.place ORDER BY t.place"
)
# One letter of "passes" per pass, so its length is the number of passes.
_UNFINISHED = text(
    "SELECT count(*) FROM annotate_tasks t WHERE t.subject = :subject AND t.role <> 'adjudicator'"
    " AND (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) < length(t.passes)"
)
# Disputed subjects that no adjudicator has taken.
_OPEN = (
    " FROM annotate_adjudications a WHERE NOT EXISTS"
    " (SELECT 1 FROM annotate_tasks t WHERE t.subject = a.subject AND t.role = 'adjudicator')"
    f" AND {_POOL} = :pool"
)
_WAITING = text(f"SELECT count(*){_OPEN}")
# Whether the adjudicator has met the question; such subjects come last.
_MET = "EXISTS (SELECT 1 FROM annotate_tasks m WHERE m.person = :person AND m.question = a.question)"
_WAITS = text(
    f"SELECT a.kind, a.subject, a.question, a.response, a.family, {_POOL} AS pool, {_MET} AS met,"
    " (SELECT min(passes) FROM annotate_tasks t WHERE t.subject = a.subject) AS passes,"
    " (SELECT min(unasked) FROM annotate_tasks t WHERE t.subject = a.subject) AS unasked"
    f"{_OPEN} ORDER BY met, a.rank LIMIT 1"
)
# Passes and fields are copied from the disputed tasks.
_CLAIM = text(
    "INSERT INTO annotate_tasks"
    " (id, kind, subject, question, response, family, person, role, pool, place, passes, unasked)"
    " VALUES (:id, :kind, :subject, :question, :response, :family, :person, 'adjudicator', :pool, :place, :passes,"
    " :unasked)"
)
_DISPUTE = text(
    "INSERT INTO annotate_adjudications (subject, kind, question, response, family, triggers, rank, at)"
    " VALUES (:subject, :kind, :question, :response, :family, :triggers, :rank, :at) ON CONFLICT DO NOTHING"
)
_COMPLETED = text(
    "SELECT t.place, t.id AS task, s.pass AS name, s.event, e.hash, s.at FROM"
    " (SELECT id, place FROM annotate_tasks WHERE person = :person AND place <="
    " coalesce((SELECT done FROM annotate_cursors WHERE person = :person), 0) + 1"
    " ORDER BY place DESC LIMIT :most) t"
    " JOIN annotate_submissions s ON s.task = t.id JOIN annotate_events e ON e.seq = s.event"
    " ORDER BY t.place DESC, s.number"
)
