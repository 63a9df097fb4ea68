"""Corrections of one's own labels in a project without a lead: the first label is kept, and the log names both."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation import reopening

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Row

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.audit_log import AuditEventRef

SELF_CORRECTION = "corrected by the labeller"
"""Reason that is stored with a correction."""


class OwnPass(NamedTuple):
    """A submitted pass with the entries that hold now."""

    name: str
    entries: tuple[Mapping[str, str], ...]
    corrected: bool
    """Whether the entries differ from those first submitted."""


class LabelledTask(NamedTuple):
    """A task of the labeller with its labels."""

    position: int
    """Position in the queue, from 1."""
    task: str
    question: str
    kind: str
    passes: tuple[OwnPass, ...]


def list_own_labels(connection: Connection, person: Person) -> tuple[LabelledTask, ...]:
    """Return all tasks of a person with a submitted pass, newest first, with their labels."""
    rows = connection.execute(_OWN_LABELS, {"person": person.id})
    tasks = groupby(rows, key=lambda row: (row.place, row.task, row.question, row.kind))
    return tuple(
        LabelledTask(position, task, json.loads(question), kind, tuple(map(_own_pass, submissions)))
        for (position, task, question, kind), submissions in tasks
    )


def _own_pass(row: Row[Any]) -> OwnPass:
    first, newest = json.loads(row.entries), json.loads(row.amended or row.entries)
    return OwnPass(row.name, tuple(newest), corrected=newest != first)


def open_own_correction(
    connection: Connection, person: Person, task: str, name: str
) -> tuple[str, AuditEventRef | None] | None:
    """Return the id under which a person may correct a submitted pass, and the event of opening it.

    A correction that was opened before and not used is opened again, without an event. None where the pass is not
    submitted, or not the person's own.
    """
    values = {"task": task, "pass": name, "person": person.id}
    if (unused := connection.execute(_UNUSED, values).scalar_one_or_none()) is not None:
        return unused, None
    if reopening.request_reopening(connection, person, task, name, SELF_CORRECTION) is None:
        return None
    request = connection.execute(_ASKED, values).scalar_one()
    # There is no lead: the labeller decides, and the log says so.
    return request, reopening.decide_reopen_request(connection, person, request, grant=True)


# The newest amendment of each pass, if any.
_OWN_LABELS = text(
    "SELECT t.place, t.id AS task, t.kind, q.question, s.pass AS name, s.entries,"
    " (SELECT a.entries FROM annotate_amendments a JOIN annotate_reopenings r ON r.id = a.reopening"
    " WHERE r.task = s.task AND r.number = s.number ORDER BY a.event DESC LIMIT 1) AS amended"
    " FROM annotate_tasks t JOIN annotate_questions q ON q.id = t.question"
    " JOIN annotate_submissions s ON s.task = t.id WHERE t.person = :person ORDER BY t.place DESC, s.number"
)
_REQUEST = (
    "SELECT r.id FROM annotate_reopenings r JOIN annotate_submissions s ON s.task = r.task AND s.number = r.number"
    " JOIN annotate_tasks t ON t.id = r.task WHERE r.task = :task AND s.pass = :pass AND t.person = :person"
)
_ASKED = text(f"{_REQUEST} AND r.decision IS NULL")
_UNUSED = text(
    f"{_REQUEST} AND r.decision = 'granted'"
    " AND NOT EXISTS (SELECT 1 FROM annotate_amendments a WHERE a.reopening = r.id)"
)
