"""The lead's overview of a project: people, queues, times. It never contains labels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from eclose_annotate import queues
from eclose_annotate.people.people import NO_PASSWORD, person_from_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection

    from eclose_annotate.annotations import PassTime


class DashboardPerson(NamedTuple):
    """Progress and state of a person."""

    name: str
    role: str
    pool: str
    finished: int
    """Finished tasks."""
    total: int
    """Assigned tasks; for an adjudicator, those taken or waiting, as that person's own overview counts them."""
    active: bool
    joined: bool
    """Whether the person has chosen a password."""
    last_seen: str | None
    seconds_each: float | None = None
    """Median seconds per task over the latest tasks, without pauses; None before the second task."""
    unfinished: int = 0
    """Tasks that are assigned to this person and not finished."""


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


class PersonTimes(NamedTuple):
    """How long a person takes for each pass, from its first opening to its submission."""

    person: str
    passes: Mapping[str, tuple[float, int]]
    """Median seconds and number of submissions, by name of the pass."""
    fast: int
    """Passes that were submitted faster than a person can read and answer."""


@dataclass(frozen=True, slots=True)
class LeadDashboard:
    """Contents of the lead's page."""

    people: tuple[DashboardPerson, ...]
    queues: tuple[DashboardQueue, ...]
    pools: frozenset[str]
    """Pools that have tasks, which decide on the roles that can be added."""
    events: int
    submissions: int
    last_hour: int
    """Submissions within the last hour."""


def read_lead_dashboard(connection: Connection, *, an_hour_ago: str) -> LeadDashboard:
    """Read the overview."""
    counts = connection.execute(_COUNTS, {"since": an_hour_ago}).one()
    return LeadDashboard(
        people=read_dashboard_people(connection),
        queues=read_dashboard_queues(connection),
        pools=frozenset(connection.execute(_POOLS).scalars()),
        events=int(counts.events),
        submissions=int(counts.submissions),
        last_hour=int(counts.last_hour),
    )


def read_dashboard_people(connection: Connection) -> tuple[DashboardPerson, ...]:
    """Return all people, in the order in which they were invited."""
    rows = connection.execute(_PEOPLE, {"unset": NO_PASSWORD}).all()
    # The same function as on a person's own overview, so that the two never differ.
    progress = [queues.read_task_progress(connection, person_from_row(row)) for row in rows]
    return tuple(
        DashboardPerson(
            name=row.name,
            role=row.role,
            pool=row.pool,
            finished=own.finished,
            total=own.total,
            active=bool(row.active),
            joined=bool(row.joined),
            last_seen=row.last_seen,
            seconds_each=own.seconds_each,
            unfinished=int(row.unfinished),
        )
        for row, own in zip(rows, progress, strict=True)
    )


def read_dashboard_queues(connection: Connection) -> tuple[DashboardQueue, ...]:
    """Return the progress of each kind of work."""
    return tuple(
        DashboardQueue(
            kind=row.kind,
            total=row.total,
            finished=row.finished,
            in_adjudication=row.disputed - row.adjudicated,
            adjudicated=row.adjudicated,
            # Disputed subjects are finished, but not settled before their adjudication.
            settled=row.finished - (row.disputed - row.adjudicated),
        )
        for row in connection.execute(_QUEUES)
    )


def summarise_pass_times(times: Iterable[PassTime]) -> tuple[PersonTimes, ...]:
    """Return the median time of each pass by person, in the order of first submissions."""
    by_person: defaultdict[str, list[PassTime]] = defaultdict(list)
    for time in times:
        by_person[time.annotator].append(time)
    summaries = []
    for person, rows in by_person.items():
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for time in rows:
            seconds[time.pass_name].append(time.seconds)
        medians = {name: (median(values), len(values)) for name, values in sorted(seconds.items())}
        summaries.append(PersonTimes(person, medians, sum(time.fast for time in rows)))
    return tuple(summaries)


_COUNTS = text(
    "SELECT (SELECT coalesce(max(count), 0) FROM annotate_head) AS events,"
    " (SELECT count(*) FROM annotate_submissions) AS submissions,"
    " (SELECT count(*) FROM annotate_submissions WHERE at > :since) AS last_hour"
)
_POOLS = text("SELECT DISTINCT pool FROM annotate_current_tasks")
# One letter of "passes" per pass, so its length is the number of passes.
_IS_FINISHED = "(SELECT count(*) FROM annotate_submissions s WHERE s.task = t.id) >= length(t.passes)"
_PEOPLE = text(
    "SELECT p.id, p.name, p.role, p.pool, p.active, p.password <> :unset AS joined,"
    " (SELECT count(*) FROM annotate_current_tasks t WHERE t.person = p.id AND NOT"
    f" {_IS_FINISHED}) AS unfinished,"
    " (SELECT max(seen) FROM annotate_sessions s WHERE s.person = p.id) AS last_seen"
    " FROM annotate_people p ORDER BY p.id"
)
_QUEUES = text(
    "SELECT kind, count(*) AS total, sum(finished) AS finished, sum(disputed) AS disputed,"
    " sum(adjudicated) AS adjudicated FROM (SELECT t.subject, min(t.kind) AS kind,"
    f" min(CASE WHEN t.role = 'adjudicator' OR {_IS_FINISHED} THEN 1 ELSE 0 END) AS finished,"
    " max(CASE WHEN a.subject IS NULL THEN 0 ELSE 1 END) AS disputed,"
    f" max(CASE WHEN t.role = 'adjudicator' AND {_IS_FINISHED} THEN 1 ELSE 0 END) AS adjudicated"
    " FROM annotate_current_tasks t LEFT JOIN annotate_adjudications a ON a.subject = t.subject"
    " GROUP BY t.subject) s GROUP BY kind ORDER BY kind"
)
