"""What somebody has done: the last tasks, pass by pass, with their receipts. Not what they decided."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from eclose.annotation.audit_log import Link

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eclose.annotation.accounts.people import Person

MOST = 50


class FinishedPass(NamedTuple):
    """A pass that was submitted."""

    name: str
    receipt: str
    at: str


class FinishedTask(NamedTuple):
    """A task with what was submitted of it."""

    place: int
    task: str
    passes: tuple[FinishedPass, ...]


def last(connection: Connection, person: Person) -> tuple[FinishedTask, ...]:
    """The tasks somebody worked on last, newest first."""
    rows = connection.execute(_LAST, {"person": person.id, "most": MOST})
    return tuple(
        FinishedTask(
            place, task, tuple(FinishedPass(row.name, Link(row.event, row.hash).receipt, row.at) for row in some)
        )
        for (place, task), some in groupby(rows, key=lambda row: (row.place, row.task))
    )


_LAST = text(
    "SELECT t.place, t.id AS task, s.pass AS name, s.event, e.hash, s.at FROM"
    " (SELECT id, place FROM annotate_tasks WHERE person = :person AND place <="
    " coalesce((SELECT done FROM annotate_cursors WHERE person = :person), 0) + 1"
    " ORDER BY place DESC LIMIT :most) t"
    " JOIN annotate_submissions s ON s.task = t.id JOIN annotate_events e ON e.seq = s.event"
    " ORDER BY t.place DESC, s.number"
)
