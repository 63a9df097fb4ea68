"""Read the annotations of a project from its database.

Annotators are called A1, A2, ... and screeners S1, S2, ... in the order of invitation, adjudicators included, unless
names are requested. People invited later get later numbers, so that two exports call a person alike.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation.accounts.people import AnnotatorPool, PersonRole, list_people
from eclose.annotation.adjudication import find_adjudication_triggers
from eclose.annotation.annotation_records import (
    MIN_SECONDS,
    MIN_SECONDS_PER_ENTRY,
    Annotation,
    AnnotationSet,
    PassTime,
    ScreeningAnnotation,
    find_screening_disputes,
    group_annotations,
)
from eclose.annotation.form_labels import judgment_from_form, screening_from_form
from eclose.annotation.forms import AnnotationTaskKind, FormEntry
from eclose.annotation.material_store import decode_response_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Row

FAMILY_TRIGGER = "marks"
"""Reason for the adjudication of a family: its auditors gave different marks."""
_LETTERS = {AnnotatorPool.RESPONSES: "A", AnnotatorPool.QUESTIONS: "S"}


@dataclass(frozen=True, slots=True)
class FinishedTaskEntries:
    """The entries of one person's finished task."""

    person: str
    role: PersonRole
    entries: Mapping[str, tuple[FormEntry, ...]]
    """Entries by pass, as first submitted."""
    amended: Mapping[str, tuple[FormEntry, ...]] = field(default_factory=dict)
    """Newest amendment by pass; only of amended passes."""
    reference_seen_before: bool = False
    """Whether this adjudicator knew the reference from another response to the question."""

    @property
    def final(self) -> dict[str, tuple[FormEntry, ...]]:
        """Entries by pass, with amendments."""
        return {**self.entries, **self.amended}


class AuditedFamily(NamedTuple):
    """The finished audits of a family."""

    form_ids: tuple[str, ...]
    audits: tuple[FinishedTaskEntries, ...]
    adjudication: FinishedTaskEntries | None


def read_annotations(connection: Connection, *, names: bool = False) -> AnnotationSet:
    """Read all annotations; responses and questions without a finished one included."""
    labels = _person_labels(connection, names=names)
    annotations = group_annotations(_response_records(connection, labels), _question_records(connection, labels))
    return annotations._replace(times=tuple(_pass_times(connection, labels)))


def _pass_times(connection: Connection, labels: Mapping[str, str]) -> Iterator[PassTime]:
    for row in connection.execute(_TIMES):
        entries = len(json.loads(row.entries))
        seconds = (datetime.fromisoformat(row.at) - datetime.fromisoformat(row.opened)).total_seconds()
        yield PassTime(
            None if row.question is None else json.loads(row.question),
            None if row.response is None else json.loads(row.response),
            labels[row.person],
            row.role == PersonRole.ADJUDICATOR,
            row.name,
            row.opened,
            row.at,
            seconds,
            entries,
            seconds < max(MIN_SECONDS, entries * MIN_SECONDS_PER_ENTRY),
        )


def explain_subject_adjudication(connection: Connection, kind: AnnotationTaskKind, subject: str) -> tuple[str, ...]:
    """Return why a subject needs adjudication; empty where all agree, or a single person was assigned."""
    tasks = _filled_tasks(connection.execute(_ONE_SUBJECT, {"subject": subject}))
    if len(tasks) < 2:
        return ()
    # All marks of a family are asked in one pass, so any different entry is a dispute.
    if kind is AnnotationTaskKind.FAMILY:
        return (FAMILY_TRIGGER,) if any(task.final != tasks[0].final for task in tasks[1:]) else ()
    if kind is AnnotationTaskKind.SCREENING:
        return find_screening_disputes(
            [screening_from_form(subject, task.person, task.final["S"][0]) for task in tasks]
        )
    return find_adjudication_triggers([judgment_from_form(subject, task.person, kind, task.final) for task in tasks])


def read_family_audits(connection: Connection) -> Iterator[AuditedFamily]:
    """Yield every assigned family with its finished audits."""
    tasks = _tasks_by_subject(connection, (AnnotationTaskKind.FAMILY,))
    for row in connection.execute(_FAMILIES):
        finished = tasks.get(row.subject, ())
        audits = tuple(task for task in finished if task.role is not PersonRole.ADJUDICATOR)
        adjudication = next((task for task in finished if task.role is PersonRole.ADJUDICATOR), None)
        yield AuditedFamily(tuple(json.loads(row.key)), audits, adjudication)


def _person_labels(connection: Connection, *, names: bool) -> dict[str, str]:
    """Return the label of each person, by name."""
    counts: Counter[str] = Counter()
    labels = {}
    # All people count, also those without annotations, so that labels stay stable.
    for person in list_people(connection):
        letter = _LETTERS.get(person.pool, "P")
        counts[letter] += 1
        labels[person.name] = person.name if names else f"{letter}{counts[letter]}"
    return labels


def _response_records(connection: Connection, labels: Mapping[str, str]) -> Iterator[Annotation]:
    tasks = _tasks_by_subject(connection, (AnnotationTaskKind.RESPONSE, AnnotationTaskKind.SHORT))
    for row in connection.execute(_RESPONSES):
        unfinished = Annotation(
            json.loads(row.key),
            json.loads(row.question),
            AnnotationTaskKind(row.kind),
            row.required,
            benchmark=json.loads(row.question_origin).get("benchmark"),
            source=decode_response_source(json.loads(row.response_origin)),
        )
        # Always yielded: keeps a response without finished annotations in the result.
        yield unfinished
        for task in tasks.get(row.subject, ()):
            yield _annotation(unfinished, task, labels[task.person])


def _annotation(unfinished: Annotation, task: FinishedTaskEntries, label: str) -> Annotation:
    response_id, kind = unfinished.response_id, unfinished.kind
    return replace(
        unfinished,
        annotator=label,
        judgment=judgment_from_form(response_id, label, kind, task.entries),
        amended=judgment_from_form(response_id, label, kind, task.final) if task.amended else None,
        adjudicates=task.role is PersonRole.ADJUDICATOR,
        reference_seen_before=task.reference_seen_before,
    )


def _question_records(connection: Connection, labels: Mapping[str, str]) -> Iterator[ScreeningAnnotation]:
    tasks = _tasks_by_subject(connection, (AnnotationTaskKind.SCREENING,))
    for row in connection.execute(_QUESTIONS):
        key, benchmark = json.loads(row.key), json.loads(row.question_origin).get("benchmark")
        yield ScreeningAnnotation(key, row.required, benchmark=benchmark)
        for task in tasks.get(row.subject, ()):
            label = labels[task.person]
            # Screening has a single pass, S, with one entry.
            first, final = (screening_from_form(key, label, entries["S"][0]) for entries in (task.entries, task.final))
            yield ScreeningAnnotation(
                key,
                row.required,
                label,
                first,
                None if final == first else final,
                adjudicates=task.role is PersonRole.ADJUDICATOR,
                benchmark=benchmark,
            )


def _tasks_by_subject(
    connection: Connection, kinds: Sequence[AnnotationTaskKind]
) -> dict[str, list[FinishedTaskEntries]]:
    rows: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for kind in kinds:
        for row in connection.execute(_ALL_SUBJECTS, {"kind": kind}):
            rows[row.subject].append(row)
    return {subject: _filled_tasks(submissions) for subject, submissions in rows.items()}


def _filled_tasks(rows: Iterable[Row[Any]]) -> list[FinishedTaskEntries]:
    """Return the finished tasks among the submissions of one subject, sorted by person."""
    by_task: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_task[row.task].append(row)
    tasks = []
    for submissions in by_task.values():
        first = submissions[0]
        entries = {row.name: tuple(json.loads(row.entries)) for row in submissions}
        # One letter of "passes" per pass: tasks with missing passes are unfinished.
        if len(entries) < len(first.passes):
            continue
        # A pass has one row per amendment, in their order, so the newest comes last and wins.
        amended = {row.name: tuple(json.loads(row.amended)) for row in submissions if row.amended is not None}
        seen_before = first.took is not None and bool(json.loads(first.took)["reference_seen_before"])
        tasks.append(FinishedTaskEntries(first.person, PersonRole(first.role), entries, amended, seen_before))
    return sorted(tasks, key=lambda task: task.person)


_SUBMITTED = (
    "SELECT t.subject, t.id AS task, p.name AS person, t.role, t.passes, s.pass AS name, s.entries,"
    " a.entries AS amended, {took} AS took FROM annotate_tasks t"
    " JOIN annotate_people p ON p.id = t.person JOIN annotate_submissions s ON s.task = t.id"
    " LEFT JOIN annotate_reopenings r ON r.task = s.task AND r.number = s.number"
    " LEFT JOIN annotate_amendments a ON a.reopening = r.id"
)
_ORDER = " ORDER BY t.subject, t.id, s.number, a.event"
# Executed after every finished task, so it does not join the long table of events.
_ONE_SUBJECT = text(f"{_SUBMITTED.format(took='NULL')} WHERE t.subject = :subject AND t.role <> 'adjudicator'{_ORDER}")
_ALL_SUBJECTS = text(
    f"{_SUBMITTED.format(took='e.detail')} LEFT JOIN annotate_events e ON e.task = t.id AND e.action = 'took'"
    f" WHERE t.kind = :kind{_ORDER}"
)
_TIMES = text(
    "SELECT p.name AS person, t.role, s.pass AS name, s.entries, s.at, o.at AS opened, q.key AS question,"
    " r.key AS response FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
    " JOIN annotate_people p ON p.id = t.person JOIN annotate_openings o ON o.task = s.task AND o.number = s.number"
    " LEFT JOIN annotate_questions q ON q.id = t.question LEFT JOIN annotate_responses r ON r.id = t.response"
    " ORDER BY s.event"
)
# One row per subject, with the number of assigned people without adjudicators.
_ASSIGNED = (
    "(SELECT subject, min(kind) AS kind, min(response) AS response, min(question) AS question, min(family) AS family,"
    " count(*) AS required FROM annotate_tasks WHERE role <> 'adjudicator' GROUP BY subject) t"
)
_RESPONSES = text(
    "SELECT t.subject, t.kind, t.required, r.key, q.key AS question, qo.origin AS question_origin,"
    f" ro.origin AS response_origin FROM {_ASSIGNED} JOIN annotate_responses r ON r.id = t.response"
    " JOIN annotate_questions q ON q.id = r.question"
    " JOIN annotate_question_origins qo ON qo.question = q.id"
    " JOIN annotate_response_origins ro ON ro.response = r.id ORDER BY r.id"
)
_QUESTIONS = text(
    f"SELECT t.subject, t.required, q.key, qo.origin AS question_origin FROM {_ASSIGNED}"
    " JOIN annotate_questions q ON q.id = t.question AND t.kind = 'screening'"
    " JOIN annotate_question_origins qo ON qo.question = q.id ORDER BY q.id"
)
_FAMILIES = text(f"SELECT t.subject, f.key FROM {_ASSIGNED} JOIN annotate_families f ON f.id = t.family ORDER BY f.id")
