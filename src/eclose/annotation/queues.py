"""Whose turn it is: the next task of a person, how far they are, and what goes to adjudication.

Screeners and annotators have their tasks from the start, in an order of their own, and do them in it. An adjudicator
takes the next that is open, one whose question they have not met before if there is one: from the second response to
a question on they know its reference.
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation import audit_log
from eclose.annotation.accounts.people import Role
from eclose.annotation.collect import differences
from eclose.annotation.forms import Kind
from eclose.core.identity import hash_rank

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.project import Project

PAUSE = 30 * 60.0
"""Seconds after which somebody was not working."""
LATELY = 20
"""So many tasks tell how long one takes."""


class Progress(NamedTuple):
    """How far somebody is."""

    done: int
    total: int
    """Without what may still come: of an adjudicator, what is there so far."""
    seconds_each: float | None
    """How long a task has taken lately, pauses left out; None before the second."""


def done(connection: Connection, person: int) -> int:
    """How many tasks somebody has finished."""
    return int(connection.execute(_CURSOR, {"person": person}).scalar_one_or_none() or 0)


def next_task(connection: Connection, person: Person) -> str | None:
    """The task whose turn it is; None where there is none (yet). For an adjudicator see ``take``."""
    given = {"person": person.id, "place": done(connection, person.id) + 1}
    return connection.execute(_NEXT, given).scalar_one_or_none()


def waiting(connection: Connection, person: Person) -> int:
    """How many subjects wait for an adjudicator of this person's pool."""
    if person.role is not Role.ADJUDICATOR:
        return 0
    return int(connection.execute(_WAITING, {"pool": person.pool}).scalar_one())


def take(connection: Connection, person: Person) -> str | None:
    """The task whose turn it is; an adjudicator who has none is given the next that waits. Needs a writing connection.

    Of two who take the same, one fails on the index of subjects, and tries again.
    """
    own = next_task(connection, person)
    if own is not None or person.role is not Role.ADJUDICATOR:
        return own
    row = connection.execute(_WAITS, {"person": person.id, "pool": person.pool}).mappings().one_or_none()
    if row is None:
        return None
    task = secrets.token_urlsafe(16)
    place = done(connection, person.id) + 1
    connection.execute(_CLAIM, {**row, "id": task, "person": person.id, "place": place})
    detail = {"reference_seen_before": bool(row["met"])}
    audit_log.append(connection, person.name, "took", task=task, detail=detail)
    return task


def progress(connection: Connection, person: Person) -> Progress:
    """How far somebody is, and how fast."""
    finished = done(connection, person.id)
    last = int(connection.execute(_LAST, {"person": person.id}).scalar_one_or_none() or 0)
    given = {"person": person.id, "first": finished - LATELY, "last": finished}
    times = [datetime.fromisoformat(at) for at in connection.execute(_FINISHED_AT, given).scalars()]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    worked = [gap for gap in gaps if gap < PAUSE]
    return Progress(finished, last + waiting(connection, person), median(worked) if worked else None)


def finish(connection: Connection, project: Project, task: Row[Any]) -> None:
    """Move on to the next task, and see what comes of this one."""
    connection.execute(_ADVANCE, {"person": task.person})
    compare(connection, project, task)


def compare(connection: Connection, project: Project, task: Row[Any]) -> None:
    """Where all who were asked have finished with a task's subject, see whether they agree; else another must look."""
    if task.role == Role.ADJUDICATOR or connection.execute(_UNFINISHED, {"subject": task.subject}).scalar_one():
        return
    found = differences(connection, Kind(task.kind), task.subject)
    if found:
        given = {
            "subject": task.subject,
            "kind": task.kind,
            "question": task.question,
            "response": task.response,
            "family": task.family,
            "triggers": json.dumps(found),
            "rank": hash_rank("adjudication", project.settings.seed, task.subject),
            "at": audit_log.now(),
        }
        connection.execute(_DISPUTE, given)


_POOL = "CASE a.kind WHEN 'screening' THEN 'questions' WHEN 'family' THEN 'families' ELSE 'responses' END"
_CURSOR = text("SELECT done FROM annotate_cursors WHERE person = :person")
_NEXT = text("SELECT id FROM annotate_tasks WHERE person = :person AND place = :place")
_LAST = text("SELECT max(place) FROM annotate_tasks WHERE person = :person")
_ADVANCE = text(
    "INSERT INTO annotate_cursors (person, done) VALUES (:person, 1)"
    " ON CONFLICT (person) DO UPDATE SET done = annotate_cursors.done + 1"
)
_FINISHED_AT = text(
    "SELECT max(s.at) FROM annotate_tasks t JOIN annotate_submissions s ON s.task = t.id"
    " WHERE t.person = :person AND t.place > :first AND t.place <= :last GROUP BY t.place ORDER BY t.place"
)
_UNFINISHED = text(
    "SELECT count(*) FROM annotate_tasks t WHERE t.subject = :subject AND t.role <> 'adjudicator'"
    " AND (SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) < length(t.passes)"
)
_OPEN = (
    " FROM annotate_adjudications a WHERE NOT EXISTS"
    " (SELECT 1 FROM annotate_tasks t WHERE t.subject = a.subject AND t.role = 'adjudicator')"
    f" AND {_POOL} = :pool"
)
_WAITING = text(f"SELECT count(*){_OPEN}")
# Passes and fields are those of the tasks in dispute.
_MET = "EXISTS (SELECT 1 FROM annotate_tasks m WHERE m.person = :person AND m.question = a.question)"
_WAITS = text(
    f"SELECT a.kind, a.subject, a.question, a.response, a.family, {_POOL} AS pool, {_MET} AS met,"
    " (SELECT min(passes) FROM annotate_tasks t WHERE t.subject = a.subject) AS passes,"
    " (SELECT min(unasked) FROM annotate_tasks t WHERE t.subject = a.subject) AS unasked"
    f"{_OPEN} ORDER BY met, a.rank LIMIT 1"
)
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
