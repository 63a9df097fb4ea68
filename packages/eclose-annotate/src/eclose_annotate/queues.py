"""The task queues: a person's next task, progress and completed tasks, and the queue of adjudication.

Screeners and annotators get their tasks at the start, in an individual order, and do them in that order; tasks whose
question is not screened yet are passed over. Finished tasks have the first places of a person. Adjudicators take the
next waiting subject, preferably one of a question that is new to them: from the second response to a question on they
know its reference answer.
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.values.identity import hash_sort_key
from eclose_annotate import events
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.people.people import PersonRole
from eclose_annotate.read import explain_subject_adjudication, read_question_outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from eclose_annotate.people.people import Person
    from eclose_annotate.project import AnnotationProject

PAUSE_SECONDS = 30 * 60.0
"""Seconds between two finished tasks from which the time counts as a pause, not as work."""
RECENT_TASKS = 20
"""Number of latest tasks over which the time per task is taken."""
FREE_PLACE = 2**30
"""A place that no task has; used while places are exchanged."""


class TaskProgress(NamedTuple):
    """Progress of a person through their tasks."""

    finished: int
    total: int
    """Number of tasks; for an adjudicator, those taken or waiting so far."""
    seconds_each: float | None
    """Median seconds per task over the latest tasks, without pauses; None before the second task."""


def count_finished_tasks(connection: Connection, person: int) -> int:
    """Return how many tasks a person has finished."""
    return int(connection.execute(_CURSOR, {"person": person}).scalar_one_or_none() or 0)


def find_next_task(connection: Connection, person_id: int) -> str | None:
    """Return the id of the only task that a person may work on; None where there is none.

    Adjudicators use ``take_next_task``.
    """
    values = {"person": person_id, "done": count_finished_tasks(connection, person_id)}
    return connection.execute(_NEXT, values).scalar_one_or_none()


def count_awaiting_screening(connection: Connection, person: Person) -> int:
    """Return how many tasks of a person open only when the screening of their question is settled."""
    return int(connection.execute(_UNSCREENED, {"person": person.id}).scalar_one())


def move_to_front(connection: Connection, task: Row[Any]) -> None:
    """Let a task change places with the first unfinished one, so that a started task stays the open one."""
    front = count_finished_tasks(connection, task.person) + 1
    current = connection.execute(_PLACE, {"task": task.id}).scalar_one()
    if current == front:
        return
    # Through a free place, since two tasks of a person never have the same one.
    for values in (
        {"from": current, "to": FREE_PLACE},
        {"from": front, "to": current},
        {"from": FREE_PLACE, "to": front},
    ):
        connection.execute(_MOVE, {**values, "person": task.person})


def count_awaiting_adjudication(connection: Connection, person: Person) -> int:
    """Return how many subjects wait for an adjudicator of this person's pool; 0 for other roles."""
    if person.role is not PersonRole.ADJUDICATOR:
        return 0
    return int(connection.execute(_WAITING, {"pool": person.pool}).scalar_one())


def take_next_task(connection: Connection, person: Person) -> str | None:
    """Return the id of a person's next task; give an adjudicator without one the next waiting subject.

    Needs a writing connection. Raises IntegrityError where another adjudicator took the same subject: try again.
    """
    task = find_next_task(connection, person.id)
    if task is not None or person.role is not PersonRole.ADJUDICATOR:
        return task
    row = connection.execute(_WAITS, {"person": person.id, "pool": person.pool}).mappings().one_or_none()
    if row is None:
        return None
    # Behind any case of a question that was found ineligible meanwhile.
    values = {"id": secrets.token_urlsafe(16), "person": person.id, "place": last_place(connection, person.id) + 1}
    task = str(connection.execute(_CLAIM, {**row, **values}).scalar_one())
    detail = {"reference_seen_before": bool(row["met"])}
    events.append_audit_event(connection, person.name, "took", task=task, detail=detail)
    return task


def last_place(connection: Connection, person_id: int) -> int:
    """Return the last place in the queue of a person; 0 where it is empty."""
    return max(0, int(connection.execute(_LAST, {"person": person_id}).scalar_one_or_none() or 0))


def read_task_progress(connection: Connection, person: Person) -> TaskProgress:
    """Return how far a person is, and how fast."""
    finished = count_finished_tasks(connection, person.id)
    remaining = int(connection.execute(_REMAINING, {"person": person.id, "done": finished}).scalar_one())
    values = {"person": person.id, "first": max(0, finished - RECENT_TASKS), "last": finished}
    times = [datetime.fromisoformat(at) for at in connection.execute(_FINISHED_AT, values).scalars()]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    # Median instead of mean: robust against long looks at single tasks.
    worked = [gap for gap in gaps if gap < PAUSE_SECONDS]
    total = finished + remaining + count_awaiting_adjudication(connection, person)
    return TaskProgress(finished, total, median(worked) if worked else None)


def finish_task(connection: Connection, project: AnnotationProject, task: Row[Any]) -> None:
    """Advance the person to the next task, and compare the annotators of this one."""
    connection.execute(_ADVANCE, {"person": task.person})
    update_task_subject(connection, project, task)


def update_task_subject(connection: Connection, project: AnnotationProject, task: Row[Any]) -> None:
    """Queue the subject of a finished or amended task for adjudication if needed, and record a settled screening."""
    # Done by the last annotator to finish, in the transaction of that submission: none is forgotten after a crash.
    if connection.execute(_UNFINISHED, {"subject": task.subject}).scalar_one():
        return
    if task.role != PersonRole.ADJUDICATOR:
        _queue_disputed_subject(connection, project, task)
    if task.kind == AnnotationTaskKind.SCREENING:
        _record_eligibility(connection, task)


def queue_flagged_responses(connection: Connection, project: AnnotationProject) -> None:
    """Queue the flagged responses of single annotators that had no adjudicator."""
    for task in find_flagged_responses(connection):
        _queue_disputed_subject(connection, project, task)


def find_flagged_responses(connection: Connection) -> list[Row[Any]]:
    """Return the tasks of single annotators with inconsistent labels that wait for no adjudicator: the lead decides."""
    return [
        task
        for task in connection.execute(_SINGLE_TASKS)
        if explain_subject_adjudication(connection, AnnotationTaskKind(task.kind), task.subject)
    ]


def count_eligibility(connection: Connection) -> dict[str, int]:
    """Return the number of questions by outcome of screening; empty where screening does not decide."""
    rows = connection.execute(_ELIGIBILITY_COUNTS).all()
    return {
        "not settled"
        if row.eligible is None
        else "eligible"
        if row.eligible
        else f"ineligible ({row.code})": row.questions
        for row in rows
    }


def _queue_disputed_subject(connection: Connection, project: AnnotationProject, task: Row[Any]) -> None:
    triggers = explain_subject_adjudication(connection, AnnotationTaskKind(task.kind), task.subject)
    values = {"subject": task.subject, "kind": task.kind}
    # An annotator has undone the pass that made the difference, and no adjudicator has seen the case.
    if not triggers and connection.execute(_UNDISPUTE, values).rowcount:
        events.append_audit_event(connection, events.SERVER_NAME, "left adjudication", detail={"subject": task.subject})
    # Only one annotator: without an adjudicator, the flag is shown to the lead (find_flagged_responses).
    if not triggers or (
        connection.execute(_COUNT_PEOPLE, values).scalar_one() == 1
        and not connection.execute(_HAS_ADJUDICATOR, values).scalar_one()
    ):
        return
    values |= {
        "question": task.question,
        "response": task.response,
        "family": task.family,
        "triggers": json.dumps(triggers),
        # Random but reproducible order of the adjudication queue.
        "rank": hash_sort_key("adjudication", project.settings.seed, task.subject),
        "at": events.current_timestamp(),
    }
    if connection.execute(_DISPUTE, values).rowcount:
        events.append_audit_event(
            connection, events.SERVER_NAME, "queued for adjudication", detail={"subject": task.subject}
        )


def _record_eligibility(connection: Connection, task: Row[Any]) -> None:
    """Record the outcome of a screening, which opens or removes the tasks of the question's responses."""
    required = int(connection.execute(_COUNT_PEOPLE, {"subject": task.subject}).scalar_one())
    outcome = read_question_outcome(connection, task.subject, required)
    values = {
        "question": task.question,
        "eligible": None if outcome is None else int(bool(outcome.eligible)),
        "code": None if outcome is None else outcome.code,
    }
    connection.execute(_ELIGIBILITY, values)


_POOL = "CASE a.kind WHEN 'screening' THEN 'questions' WHEN 'family' THEN 'families' ELSE 'responses' END"
_CURSOR = text("SELECT done FROM annotate_cursors WHERE person = :person")
_NEXT = text(
    "SELECT id FROM annotate_current_tasks WHERE person = :person AND place > :done AND ready = 1"
    " ORDER BY place LIMIT 1"
)
_REMAINING = text("SELECT count(*) FROM annotate_current_tasks WHERE person = :person AND place > :done")
_UNSCREENED = text("SELECT count(*) FROM annotate_current_tasks WHERE person = :person AND ready = 0")
_LAST = text("SELECT max(place) FROM annotate_tasks WHERE person = :person")
_PLACE = text("SELECT place FROM annotate_tasks WHERE id = :task")
_MOVE = text("UPDATE annotate_tasks SET place = :to WHERE person = :person AND place = :from")
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
    " AND t.withdrawn IS NULL"
    " AND (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) < length(t.passes)"
)
_COUNT_PEOPLE = text(
    "SELECT count(*) FROM annotate_tasks WHERE subject = :subject AND role <> 'adjudicator' AND withdrawn IS NULL"
)
_HAS_ADJUDICATOR = text(
    "SELECT EXISTS (SELECT 1 FROM annotate_people p WHERE p.role = 'adjudicator' AND p.active = 1"
    f" AND p.pool = {_POOL.replace('a.kind', ':kind')})"
)
_SINGLE_TASKS = text(
    "SELECT t.id, t.kind, t.subject, t.question, t.response, t.family, t.person, t.role FROM annotate_current_tasks t"
    " WHERE t.kind IN ('response', 'short') AND t.role = 'annotator'"
    " AND (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) = length(t.passes)"
    " AND NOT EXISTS (SELECT 1 FROM annotate_adjudications a WHERE a.subject = t.subject)"
    " AND NOT EXISTS (SELECT 1 FROM annotate_current_tasks o WHERE o.subject = t.subject AND o.id <> t.id)"
)
_ELIGIBILITY_COUNTS = text(
    "SELECT eligible, code, count(*) AS questions FROM annotate_eligibility GROUP BY eligible, code"
    " ORDER BY coalesce(eligible, -1) DESC, code"
)
_ELIGIBILITY = text("UPDATE annotate_eligibility SET eligible = :eligible, code = :code WHERE question = :question")
# Disputed subjects that no adjudicator has taken, without those whose question is ineligible or not screened.
_OPEN = (
    " FROM annotate_adjudications a WHERE NOT EXISTS"
    " (SELECT 1 FROM annotate_tasks t WHERE t.subject = a.subject AND t.role = 'adjudicator' AND t.withdrawn IS NULL)"
    " AND EXISTS (SELECT 1 FROM annotate_current_tasks c WHERE c.subject = a.subject AND c.ready = 1)"
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
# Passes and fields are copied from the disputed tasks. An adjudicator who gets a released case again continues it.
_CLAIM = text(
    "INSERT INTO annotate_tasks"
    " (id, kind, subject, question, response, family, person, role, pool, place, passes, unasked)"
    " VALUES (:id, :kind, :subject, :question, :response, :family, :person, 'adjudicator', :pool, :place, :passes,"
    " :unasked) ON CONFLICT (subject, person) DO UPDATE SET withdrawn = NULL, place = excluded.place RETURNING id"
)
_DISPUTE = text(
    "INSERT INTO annotate_adjudications (subject, kind, question, response, family, triggers, rank, at)"
    " VALUES (:subject, :kind, :question, :response, :family, :triggers, :rank, :at) ON CONFLICT DO NOTHING"
)
_UNDISPUTE = text(
    "DELETE FROM annotate_adjudications WHERE subject = :subject AND NOT EXISTS"
    " (SELECT 1 FROM annotate_tasks t WHERE t.subject = :subject AND t.role = 'adjudicator')"
)
