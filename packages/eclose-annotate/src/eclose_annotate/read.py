"""Read the annotations of a project from its database.

Annotators are called A1, A2, ... and screeners S1, S2, ... in the order of invitation, adjudicators included, unless
names are requested. People invited later get later numbers, so that two exports call a person alike.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose_annotate.adjudication import find_adjudication_triggers
from eclose_annotate.annotations import (
    MIN_SECONDS,
    MIN_SECONDS_PER_ENTRY,
    Annotation,
    AnnotationSet,
    PassTime,
    ScreeningAnnotation,
    SetAsideWork,
    find_screening_disputes,
    group_annotations,
)
from eclose_annotate.forms import YES, AnnotationTaskKind, FormEntry, judgment_from_form, screening_from_form
from eclose_annotate.material_store import decode_response_source
from eclose_annotate.people.people import AnnotatorPool, PersonRole, list_people

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Row

    from eclose.values.judgment import QuestionScreening

FAMILY_TRIGGER = "decision"
"""Reason for the adjudication of a family: one auditor passes it and another does not (appendix B.6)."""
_LETTERS = {AnnotatorPool.RESPONSES: "A", AnnotatorPool.QUESTIONS: "S"}


@dataclass(frozen=True, slots=True)
class FinishedTaskEntries:
    """The entries of one person's finished task."""

    task: str
    """Id of the task."""
    person: str
    role: PersonRole
    entries: Mapping[str, tuple[FormEntry, ...]]
    """Entries by pass; of a pass that its person changed, the newest."""
    reference_seen_before: bool = False
    """Whether this person knew the reference from another response to the question."""


def read_annotations(connection: Connection, *, names: bool = False) -> AnnotationSet:
    """Read all annotations; responses and questions without a finished one included."""
    labels = _person_labels(connection, names=names)
    annotations = group_annotations(_response_records(connection, labels), _question_records(connection, labels))
    return annotations._replace(
        set_aside=tuple(_set_aside_work(connection, labels)), times=tuple(_pass_times(connection, labels))
    )


def _pass_times(connection: Connection, labels: Mapping[str, str]) -> Iterator[PassTime]:
    for row in connection.execute(_TIMES):
        entries = len(json.loads(row.entries))
        seconds = (datetime.fromisoformat(row.at) - datetime.fromisoformat(row.opened)).total_seconds()
        yield PassTime(
            question_id=None if row.question is None else json.loads(row.question),
            response_id=None if row.response is None else json.loads(row.response),
            annotator=labels[row.person],
            adjudicates=row.role == PersonRole.ADJUDICATOR,
            pass_name=row.name,
            opened=row.opened,
            submitted=row.at,
            seconds=seconds,
            entries=entries,
            fast=seconds < max(MIN_SECONDS, entries * MIN_SECONDS_PER_ENTRY),
        )


def explain_subject_adjudication(connection: Connection, kind: AnnotationTaskKind, subject: str) -> tuple[str, ...]:
    """Return why a subject needs adjudication; empty where it needs none."""
    tasks = [task for task in _subject_tasks(connection, subject) if task.role is not PersonRole.ADJUDICATOR]
    if kind is AnnotationTaskKind.FAMILY:
        # A family passes where all its marks are yes. Auditors who fail it for different marks agree on the decision.
        decisions = {all(value == YES for entry in task.entries["F"] for value in entry.values()) for task in tasks}
        return (FAMILY_TRIGGER,) if len(decisions) > 1 else ()
    if kind is AnnotationTaskKind.SCREENING:
        screenings = [screening_from_form(subject, task.person, task.entries["S"][0]) for task in tasks]
        return find_screening_disputes(screenings)
    return find_adjudication_triggers([judgment_from_form(subject, task.person, kind, task.entries) for task in tasks])


def read_question_outcome(connection: Connection, subject: str, required: int) -> QuestionScreening | None:
    """Return the final screening of a question; None where it is not settled."""
    queued = bool(connection.execute(_IS_QUEUED, {"subject": subject}).scalar_one())
    unfinished = ScreeningAnnotation(subject, required, queued=queued)
    rows = [_screening_record(unfinished, task, task.person) for task in _subject_tasks(connection, subject)]
    return group_annotations((), rows).questions[0].final if rows else None


def _subject_tasks(connection: Connection, subject: str) -> list[FinishedTaskEntries]:
    return _filled_tasks(connection.execute(_ONE_SUBJECT, {"subject": subject}))


def read_family_audits(
    connection: Connection,
) -> Iterator[tuple[tuple[str, ...], list[str], dict[str | None, FinishedTaskEntries]]]:
    """Yield the form ids of every family, the names of its auditors in the order of invitation, and its audits.

    The audits are by the name of the auditor; that of the adjudicator is under None.
    """
    tasks = _tasks_by_subject(connection, (AnnotationTaskKind.FAMILY,))
    auditors: defaultdict[str, list[str]] = defaultdict(list)
    for row in connection.execute(_AUDITORS):
        auditors[row.subject].append(row.name)
    for row in connection.execute(_FAMILIES):
        finished = tasks.get(row.subject, ())
        audits = {None if task.role is PersonRole.ADJUDICATOR else task.person: task for task in finished}
        yield tuple(json.loads(row.key)), auditors[row.subject], audits


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
    knew_reference = set(connection.execute(_KNEW_REFERENCE).scalars())
    for row in connection.execute(_RESPONSES):
        unfinished = Annotation(
            json.loads(row.key),
            json.loads(row.question),
            AnnotationTaskKind(row.kind),
            row.required,
            benchmark=json.loads(row.question_origin).get("benchmark"),
            source=decode_response_source(json.loads(row.response_origin)),
            queued=bool(row.queued),
        )
        # Always yielded: keeps a response without finished annotations in the result.
        yield unfinished
        for task in tasks.get(row.subject, ()):
            label = labels[task.person]
            yield replace(
                unfinished,
                annotator=label,
                judgment=judgment_from_form(unfinished.response_id, label, unfinished.kind, task.entries),
                adjudicates=task.role is PersonRole.ADJUDICATOR,
                reference_seen_before=task.reference_seen_before or task.task in knew_reference,
            )


def _question_records(connection: Connection, labels: Mapping[str, str]) -> Iterator[ScreeningAnnotation]:
    tasks = _tasks_by_subject(connection, (AnnotationTaskKind.SCREENING,))
    for row in connection.execute(_QUESTIONS):
        key, benchmark = json.loads(row.key), json.loads(row.question_origin).get("benchmark")
        unfinished = ScreeningAnnotation(
            key, row.required, benchmark=benchmark, decides=bool(row.decides), queued=bool(row.queued)
        )
        yield unfinished
        for task in tasks.get(row.subject, ()):
            yield _screening_record(unfinished, task, labels[task.person])


def _screening_record(unfinished: ScreeningAnnotation, task: FinishedTaskEntries, label: str) -> ScreeningAnnotation:
    # Screening has a single pass, S, with one entry.
    return replace(
        unfinished,
        annotator=label,
        screening=screening_from_form(unfinished.question_id, label, task.entries["S"][0]),
        adjudicates=task.role is PersonRole.ADJUDICATOR,
    )


def _set_aside_work(connection: Connection, labels: Mapping[str, str]) -> Iterator[SetAsideWork]:
    for row in connection.execute(_SET_ASIDE):
        yield SetAsideWork(
            question_id=json.loads(row.question),
            response_id=None if row.response is None else json.loads(row.response),
            annotator=labels[row.person],
            adjudicates=row.role == PersonRole.ADJUDICATOR,
            pass_name=row.passes[row.number - 1],
            submitted=bool(row.submitted),
            entries=tuple(json.loads(row.entries)),
            at=row.at,
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
        # A pass has one row for each change, in their order, so the newest comes last and wins.
        entries = {row.name: tuple(json.loads(row.amended or row.entries)) for row in submissions}
        # One letter of "passes" per pass: tasks with missing passes are unfinished.
        if len(entries) < len(first.passes):
            continue
        seen_before = first.took is not None and bool(json.loads(first.took)["reference_seen_before"])
        tasks.append(FinishedTaskEntries(first.task, first.person, PersonRole(first.role), entries, seen_before))
    return sorted(tasks, key=lambda task: task.person)


_SUBMITTED = (
    "SELECT t.subject, t.id AS task, p.name AS person, t.role, t.passes, s.pass AS name, s.entries,"
    " a.entries AS amended, {took} AS took FROM annotate_tasks t"
    " JOIN annotate_people p ON p.id = t.person JOIN annotate_submissions s ON s.task = t.id"
    " LEFT JOIN (annotate_reopenings r JOIN annotate_amendments a ON a.reopening = r.id)"
    " ON r.task = s.task AND r.number = s.number"
)
_ORDER = " ORDER BY t.subject, t.id, s.number, a.event"
# Executed after every finished task, so it does not join the long table of events.
_ONE_SUBJECT = text(f"{_SUBMITTED.format(took='NULL')} WHERE t.subject = :subject AND t.withdrawn IS NULL{_ORDER}")
_ALL_SUBJECTS = text(
    f"{_SUBMITTED.format(took='e.detail')} LEFT JOIN annotate_events e ON e.task = t.id AND e.action = 'took'"
    f" WHERE t.kind = :kind AND t.withdrawn IS NULL{_ORDER}"
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
    " count(*) AS required FROM annotate_tasks WHERE role <> 'adjudicator' AND withdrawn IS NULL GROUP BY subject) t"
)
_RESPONSES = text(
    "SELECT t.subject, t.kind, t.required, r.key, q.key AS question, qo.origin AS question_origin,"
    " ro.origin AS response_origin, (SELECT count(*) FROM annotate_adjudications a WHERE a.subject = t.subject)"
    f" AS queued FROM {_ASSIGNED} JOIN annotate_responses r ON r.id = t.response"
    " JOIN annotate_questions q ON q.id = r.question"
    " JOIN annotate_question_origins qo ON qo.question = q.id"
    " JOIN annotate_response_origins ro ON ro.response = r.id ORDER BY r.id"
)
# Tasks started after the same person had opened pass D, which shows the reference, of another response to the question.
_IS_QUEUED = text("SELECT count(*) FROM annotate_adjudications WHERE subject = :subject")
_KNEW_REFERENCE = text(
    "SELECT t.id FROM annotate_tasks t JOIN annotate_submissions s ON s.task = t.id AND s.number = 1"
    " WHERE t.role = 'annotator' AND t.response IS NOT NULL AND EXISTS (SELECT 1 FROM annotate_tasks o"
    " JOIN annotate_submissions d ON d.task = o.id AND d.pass = 'D' WHERE o.person = t.person"
    " AND o.question = t.question AND o.id <> t.id AND d.event < s.event)"
)
_QUESTIONS = text(
    "SELECT t.subject, t.required, q.key, qo.origin AS question_origin,"
    " (SELECT count(*) FROM annotate_eligibility e WHERE e.question = q.id) AS decides,"
    " (SELECT count(*) FROM annotate_adjudications a WHERE a.subject = t.subject) AS queued"
    f" FROM {_ASSIGNED} JOIN annotate_questions q ON q.id = t.question AND t.kind = 'screening'"
    " JOIN annotate_question_origins qo ON qo.question = q.id ORDER BY q.id"
)
_FAMILIES = text(f"SELECT t.subject, f.key FROM {_ASSIGNED} JOIN annotate_families f ON f.id = t.family ORDER BY f.id")
_AUDITORS = text(
    "SELECT t.subject, p.name FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
    " WHERE t.kind = 'family' AND t.role <> 'adjudicator' AND t.withdrawn IS NULL ORDER BY t.subject, p.id"
)
# Submitted passes and drafts of withdrawn tasks.
_WORK_OF_WITHDRAWN = (
    "SELECT q.key AS question, r.key AS response, p.name AS person, t.role, t.passes, w.number, w.entries, w.at,"
    " {submitted} AS submitted, t.id AS task FROM annotate_tasks t JOIN {table} w ON w.task = t.id"
    " JOIN annotate_people p ON p.id = t.person JOIN annotate_questions q ON q.id = t.question"
    " LEFT JOIN annotate_responses r ON r.id = t.response WHERE t.withdrawn IS NOT NULL"
)
_SET_ASIDE = text(
    f"{_WORK_OF_WITHDRAWN.format(submitted=1, table='annotate_submissions')} UNION ALL"
    f" {_WORK_OF_WITHDRAWN.format(submitted=0, table='annotate_drafts')} ORDER BY task, number"
)
