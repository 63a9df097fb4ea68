"""The lead's overview of a project: people, queues, agreement, requests. It never contains labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation.accounts.people import NO_PASSWORD
from eclose.annotation.reopening import ReopenRequest, list_reopen_requests

if TYPE_CHECKING:
    from sqlalchemy import Connection


class DashboardPerson(NamedTuple):
    """Progress and state of a person."""

    name: str
    role: str
    pool: str
    finished: int
    """Finished tasks."""
    total: int
    """Assigned tasks."""
    active: bool
    joined: bool
    """Whether the person has chosen a password."""
    last_seen: str | None


class DashboardQueue(NamedTuple):
    """Progress of one kind of work, counted in subjects (questions, responses or families)."""

    kind: str
    total: int
    finished: int
    """Subjects that all their annotators have finished."""
    in_adjudication: int
    """Subjects that wait for an adjudicator or are being adjudicated."""
    adjudicated: int
    settled: int
    """Subjects without disagreement, or adjudicated."""


class DashboardAgreement(NamedTuple):
    """Agreement on one judgment, formatted."""

    judgment: str
    n: int
    raw: str
    alpha: str


@dataclass(frozen=True, slots=True)
class LeadDashboard:
    """Contents of the lead's page."""

    people: tuple[DashboardPerson, ...]
    queues: tuple[DashboardQueue, ...]
    agreement: tuple[DashboardAgreement, ...] | None
    """Empty before two people have finished the same subject; None where it was not requested."""
    requests: tuple[ReopenRequest, ...]
    events: int
    submissions: int
    last_hour: int
    """Submissions within the last hour."""


def read_lead_dashboard(
    connection: Connection, agreement: tuple[DashboardAgreement, ...] | None, *, an_hour_ago: str
) -> LeadDashboard:
    """Read the overview; ``agreement`` is passed through, because it takes seconds to compute."""
    counts = connection.execute(_COUNTS, {"since": an_hour_ago}).one()
    return LeadDashboard(
        people=read_dashboard_people(connection),
        queues=read_dashboard_queues(connection),
        agreement=agreement,
        requests=list_reopen_requests(connection),
        events=int(counts.events),
        submissions=int(counts.submissions),
        last_hour=int(counts.last_hour),
    )


def read_dashboard_people(connection: Connection) -> tuple[DashboardPerson, ...]:
    """Return all people, in the order in which they were invited."""
    return tuple(
        DashboardPerson(
            row.name, row.role, row.pool, row.finished, row.total, bool(row.active), bool(row.joined), row.last_seen
        )
        for row in connection.execute(_PEOPLE, {"unset": NO_PASSWORD})
    )


def read_dashboard_queues(connection: Connection) -> tuple[DashboardQueue, ...]:
    """Return the progress of each kind of work."""
    return tuple(_queue(row) for row in connection.execute(_QUEUES))


def _queue(row: Any) -> DashboardQueue:
    # Disputed subjects are finished, but not settled before their adjudication.
    waiting = row.disputed - row.adjudicated
    return DashboardQueue(row.kind, row.total, row.finished, waiting, row.adjudicated, row.finished - waiting)


_COUNTS = text(
    "SELECT (SELECT coalesce(max(count), 0) FROM annotate_head) AS events,"
    " (SELECT count(*) FROM annotate_submissions) AS submissions,"
    " (SELECT count(*) FROM annotate_submissions WHERE at > :since) AS last_hour"
)
# Finished tasks have the first places of a person; the others are counted as far as they are in force.
_PEOPLE = text(
    "SELECT p.name, p.role, p.pool, p.active, p.password <> :unset AS joined,"
    " coalesce((SELECT done FROM annotate_cursors c WHERE c.person = p.id), 0) AS finished,"
    " coalesce((SELECT done FROM annotate_cursors c WHERE c.person = p.id), 0) + (SELECT count(*) FROM"
    " annotate_current_tasks t LEFT JOIN annotate_cursors c ON c.person = t.person WHERE t.person = p.id"
    " AND t.place > coalesce(c.done, 0)) AS total,"
    " (SELECT max(seen) FROM annotate_sessions s WHERE s.person = p.id) AS last_seen"
    " FROM annotate_people p ORDER BY p.id"
)
# Tasks are done in order, so a task is finished when the cursor of its person has passed it.
_QUEUES = text(
    "SELECT kind, count(*) AS total, sum(finished) AS finished, sum(disputed) AS disputed,"
    " sum(adjudicated) AS adjudicated FROM (SELECT t.subject, min(t.kind) AS kind,"
    " min(CASE WHEN t.role = 'adjudicator' OR t.place <= coalesce(c.done, 0) THEN 1 ELSE 0 END) AS finished,"
    " max(CASE WHEN a.subject IS NULL THEN 0 ELSE 1 END) AS disputed,"
    " max(CASE WHEN t.role = 'adjudicator' AND t.place <= coalesce(c.done, 0) THEN 1 ELSE 0 END) AS adjudicated"
    " FROM annotate_current_tasks t LEFT JOIN annotate_cursors c ON c.person = t.person"
    " LEFT JOIN annotate_adjudications a ON a.subject = t.subject GROUP BY t.subject) s GROUP BY kind ORDER BY kind"
)
