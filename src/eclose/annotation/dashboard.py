"""What a lead sees of a project: who is how far, what waits, how far people agree. Never a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation.accounts.people import NO_PASSWORD
from eclose.annotation.reopening import Request, requests

if TYPE_CHECKING:
    from sqlalchemy import Connection


class PersonRow(NamedTuple):
    """How far somebody is."""

    name: str
    role: str
    pool: str
    done: int
    total: int
    active: bool
    joined: bool
    last_seen: str | None


class QueueRow(NamedTuple):
    """How far one kind of work is, in subjects."""

    kind: str
    total: int
    finished: int
    """All who were asked first have finished."""
    in_adjudication: int
    """Waiting for an adjudicator, or before one."""
    adjudicated: int
    settled: int
    """Finished without a difference, or adjudicated."""


class AgreementLine(NamedTuple):
    """Agreement on one judgment, in words."""

    judgment: str
    n: int
    raw: str
    alpha: str


@dataclass(frozen=True, slots=True)
class Board:
    """All of a lead's page."""

    people: tuple[PersonRow, ...]
    queues: tuple[QueueRow, ...]
    agreement: tuple[AgreementLine, ...] | None
    """Empty before two people have finished the same; None where it was not asked for."""
    requests: tuple[Request, ...]
    events: int
    submissions: int
    last_hour: int
    """Submissions in it."""


def board(connection: Connection, agreement: tuple[AgreementLine, ...] | None, *, an_hour_ago: str) -> Board:
    """How the project stands."""
    counts = connection.execute(_COUNTS, {"since": an_hour_ago}).one()
    return Board(
        people=people(connection),
        queues=queues(connection),
        agreement=agreement,
        requests=requests(connection),
        events=int(counts.events),
        submissions=int(counts.submissions),
        last_hour=int(counts.last_hour),
    )


def people(connection: Connection) -> tuple[PersonRow, ...]:
    """Everybody, in the order in which they were invited."""
    return tuple(
        PersonRow(row.name, row.role, row.pool, row.done, row.total, bool(row.active), bool(row.joined), row.last_seen)
        for row in connection.execute(_PEOPLE, {"nobody": NO_PASSWORD})
    )


def queues(connection: Connection) -> tuple[QueueRow, ...]:
    """How far each kind of work is."""
    return tuple(_queue(row) for row in connection.execute(_QUEUES))


def _queue(row: Any) -> QueueRow:
    waiting = row.disputed - row.adjudicated
    return QueueRow(row.kind, row.total, row.finished, waiting, row.adjudicated, row.finished - waiting)


_COUNTS = text(
    "SELECT (SELECT coalesce(max(count), 0) FROM annotate_head) AS events,"
    " (SELECT count(*) FROM annotate_submissions) AS submissions,"
    " (SELECT count(*) FROM annotate_submissions WHERE at > :since) AS last_hour"
)
_PEOPLE = text(
    "SELECT p.name, p.role, p.pool, p.active, p.password <> :nobody AS joined,"
    " coalesce((SELECT done FROM annotate_cursors c WHERE c.person = p.id), 0) AS done,"
    " coalesce((SELECT max(place) FROM annotate_tasks t WHERE t.person = p.id), 0) AS total,"
    " (SELECT max(seen) FROM annotate_sessions s WHERE s.person = p.id) AS last_seen"
    " FROM annotate_people p ORDER BY p.id"
)
# A task is finished when its person's cursor has passed it: tasks are done in order.
_QUEUES = text(
    "SELECT kind, count(*) AS total, sum(finished) AS finished, sum(disputed) AS disputed,"
    " sum(adjudicated) AS adjudicated FROM (SELECT t.subject, min(t.kind) AS kind,"
    " min(CASE WHEN t.role = 'adjudicator' OR t.place <= coalesce(c.done, 0) THEN 1 ELSE 0 END) AS finished,"
    " max(CASE WHEN a.subject IS NULL THEN 0 ELSE 1 END) AS disputed,"
    " max(CASE WHEN t.role = 'adjudicator' AND t.place <= coalesce(c.done, 0) THEN 1 ELSE 0 END) AS adjudicated"
    " FROM annotate_tasks t LEFT JOIN annotate_cursors c ON c.person = t.person"
    " LEFT JOIN annotate_adjudications a ON a.subject = t.subject GROUP BY t.subject) s GROUP BY kind ORDER BY kind"
)
