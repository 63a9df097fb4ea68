"""What people said, out of the database: judgments and screenings in the words all judges share."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.annotation.accounts.people import Role
from eclose.annotation.adjudication import Settled, Trigger, screening_triggers, settle, triggers
from eclose.annotation.form_labels import judgment_of, screening_of
from eclose.annotation.forms import Entry, Kind
from eclose.core.judgment import Screening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Row

    from eclose.core.judgment import Judgment

MARKED = "marks"
"""The trigger of a family: people do not say the same of it."""


@dataclass(frozen=True, slots=True)
class Said:
    """One person's finished task."""

    person: str
    role: Role
    filled: Mapping[str, tuple[Entry, ...]]
    """Entries by pass, as first submitted."""
    amended: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    """What was changed later, where the lead allowed it; the newest."""
    reference_seen_before: bool = False
    """Whether this adjudicator had met the question in another response."""

    @property
    def final(self) -> dict[str, tuple[Entry, ...]]:
        """Entries by pass with the changes."""
        return {**self.filled, **self.amended}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A response and all that people said of it."""

    response_id: str
    question_id: str
    origin: Mapping[str, Any]
    """Benchmark of the question; model, method and seed of the response."""
    kind: Kind
    wanted: int
    """How many were asked."""
    said: tuple[Said, ...] = ()
    """Those who finished, adjudicators apart, in the order of their names."""
    adjudicated: Said | None = None

    @property
    def first(self) -> tuple[Judgment, ...]:
        """What each said before anybody changed anything: agreement rests on this."""
        return tuple(self._judgment(one, one.filled) for one in self.said)

    @property
    def settled(self) -> Settled | None:
        """What holds in the end, changes included; None while somebody is still to look."""
        judgments = [self._judgment(one, one.final) for one in self.said]
        last = None if self.adjudicated is None else self._judgment(self.adjudicated, self.adjudicated.final)
        return settle(judgments, last, wanted=self.wanted)

    def _judgment(self, one: Said, filled: Mapping[str, tuple[Entry, ...]]) -> Judgment:
        return judgment_of(self.response_id, one.person, self.kind, filled)


@dataclass(frozen=True, slots=True)
class Screened:
    """A question and all that people said of it."""

    question_id: str
    origin: Mapping[str, Any]
    wanted: int
    said: tuple[Screening, ...] = ()
    adjudicated: Screening | None = None
    first: tuple[Screening, ...] = ()
    """What each said before anybody changed anything: agreement rests on this."""

    @property
    def settled(self) -> Screening | None:
        """What holds in the end; None while somebody is still to look."""
        if len(self.said) < self.wanted:
            return None
        if self.adjudicated is not None:
            return self.adjudicated
        return None if any(screening_triggers(self.said[0], one) for one in self.said[1:]) else self.said[0]


def differences(connection: Connection, kind: Kind, subject: str) -> tuple[str, ...]:
    """Why a subject needs another look; nothing where one person alone was asked, or all say the same."""
    said = list(_people(connection.execute(_ONE_SUBJECT, {"subject": subject})))
    if len(said) < 2:
        return ()
    if kind is Kind.FAMILY:
        return (MARKED,) if any(one.final != said[0].final for one in said[1:]) else ()
    if kind is Kind.SCREENING:
        first, *others = (_screening(subject, one) for one in said)
        found = {trigger for other in others for trigger in screening_triggers(first, other)}
        return tuple(trigger for trigger in Trigger if trigger in found)
    return triggers([judgment_of(subject, one.person, kind, one.final) for one in said])


def responses(connection: Connection) -> Iterator[Labelled]:
    """Every response that somebody is to label, with what was said of it so far, by its id."""
    said = _by_subject(connection, (Kind.RESPONSE, Kind.SHORT))
    for row in connection.execute(_RESPONSES):
        origin = {**json.loads(row.question_origin), **json.loads(row.response_origin)}
        people, last = _split(said.get(row.subject, ()))
        kind = Kind(row.kind)
        yield Labelled(json.loads(row.key), json.loads(row.question), origin, kind, row.wanted, people, last)


def screenings(connection: Connection) -> Iterator[Screened]:
    """Every question that somebody is to screen, with what was said of it so far, by its id."""
    said = _by_subject(connection, (Kind.SCREENING,))
    for row in connection.execute(_QUESTIONS):
        people, last = _split(said.get(row.subject, ()))
        key = json.loads(row.key)
        told = tuple(_screening(key, one) for one in people)
        first = tuple(screening_of(key, one.person, one.filled["S"][0]) for one in people)
        settled = None if last is None else _screening(key, last)
        yield Screened(key, json.loads(row.question_origin), row.wanted, told, settled, first)


def families(connection: Connection) -> Iterator[tuple[tuple[str, ...], tuple[Said, ...], Said | None]]:
    """Every family that somebody is to audit: the ids of its forms, what was said of it, and by whoever settles."""
    said = _by_subject(connection, (Kind.FAMILY,))
    for row in connection.execute(_FAMILIES):
        yield tuple(json.loads(row.key)), *_split(said.get(row.subject, ()))


def _split(said: Iterable[Said]) -> tuple[tuple[Said, ...], Said | None]:
    """Those who were asked first, and the adjudicator."""
    told = list(said)
    last = next((one for one in told if one.role is Role.ADJUDICATOR), None)
    return tuple(one for one in told if one.role is not Role.ADJUDICATOR), last


def _screening(key: str, one: Said) -> Screening:
    return screening_of(key, one.person, one.final["S"][0])


def _by_subject(connection: Connection, kinds: Sequence[Kind]) -> dict[str, list[Said]]:
    rows: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for kind in kinds:
        for row in connection.execute(_ALL_SUBJECTS, {"kind": kind}):
            rows[row.subject].append(row)
    return {subject: list(_people(found)) for subject, found in rows.items()}


def _people(rows: Iterable[Row[Any]]) -> Iterator[Said]:
    """The finished tasks among some submissions of one subject, by name."""
    by_task: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_task[row.task].append(row)
    found = []
    for told in by_task.values():
        first = told[0]
        filled = {row.name: tuple(json.loads(row.entries)) for row in told}
        if len(filled) < len(first.passes):
            continue
        # Rows are in the order of their amendments, so the newest stands last.
        amended = {row.name: tuple(json.loads(row.amended)) for row in told if row.amended is not None}
        seen = first.took is not None and bool(json.loads(first.took)["reference_seen_before"])
        found.append(Said(first.person, Role(first.role), filled, amended, seen))
    return iter(sorted(found, key=lambda one: one.person))


_SUBMITTED = (
    "SELECT t.subject, t.id AS task, p.name AS person, t.role, t.passes, s.pass AS name, s.entries,"
    " a.entries AS amended, {took} AS took FROM annotate_tasks t"
    " JOIN annotate_people p ON p.id = t.person JOIN annotate_submissions s ON s.task = t.id"
    " LEFT JOIN annotate_reopenings r ON r.task = s.task AND r.number = s.number"
    " LEFT JOIN annotate_amendments a ON a.reopening = r.id"
)
_ORDER = " ORDER BY t.subject, t.id, s.number, a.event"
# Asked whenever somebody finishes: without the log, which is long and not to be searched each time.
_ONE_SUBJECT = text(f"{_SUBMITTED.format(took='NULL')} WHERE t.subject = :subject AND t.role <> 'adjudicator'{_ORDER}")
_ALL_SUBJECTS = text(
    f"{_SUBMITTED.format(took='e.detail')} LEFT JOIN annotate_events e ON e.task = t.id AND e.action = 'took'"
    f" WHERE t.kind = :kind{_ORDER}"
)
_ASKED = (
    "(SELECT subject, min(kind) AS kind, min(response) AS response, min(question) AS question, min(family) AS family,"
    " count(*) AS wanted FROM annotate_tasks WHERE role <> 'adjudicator' GROUP BY subject) t"
)
_RESPONSES = text(
    "SELECT t.subject, t.kind, t.wanted, r.key, q.key AS question, qo.origin AS question_origin,"
    f" ro.origin AS response_origin FROM {_ASKED} JOIN annotate_responses r ON r.id = t.response"
    " JOIN annotate_questions q ON q.id = r.question"
    " JOIN annotate_question_origins qo ON qo.question = q.id"
    " JOIN annotate_response_origins ro ON ro.response = r.id ORDER BY r.id"
)
_QUESTIONS = text(
    f"SELECT t.subject, t.wanted, q.key, qo.origin AS question_origin FROM {_ASKED}"
    " JOIN annotate_questions q ON q.id = t.question AND t.kind = 'screening'"
    " JOIN annotate_question_origins qo ON qo.question = q.id ORDER BY q.id"
)
_FAMILIES = text(f"SELECT t.subject, f.key FROM {_ASKED} JOIN annotate_families f ON f.id = t.family ORDER BY f.id")
