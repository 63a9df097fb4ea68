"""Turn an assignment of people into task rows. Later changes of people are in ``staffing``."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.errors import SettingError, UserError
from eclose_annotate.assignment.assign import AssignmentItem, assign_to_annotators
from eclose_annotate.choices import ScreeningMode
from eclose_annotate.forms import AnnotationTaskKind, applicable_annotation_passes, inapplicable_form_fields
from eclose_annotate.material_store import describe_system
from eclose_annotate.people.people import AnnotatorPool, PersonRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from eclose_annotate.assignment.assign import AssignmentPlan
    from eclose_annotate.forms import AnnotationPass
    from eclose_annotate.people.people import Person
    from eclose_annotate.project import AnnotationProjectSettings


POOL_BY_TASK_KIND = {
    AnnotationTaskKind.SCREENING: AnnotatorPool.QUESTIONS,
    AnnotationTaskKind.RESPONSE: AnnotatorPool.RESPONSES,
    AnnotationTaskKind.SHORT: AnnotatorPool.RESPONSES,
    AnnotationTaskKind.FAMILY: AnnotatorPool.FAMILIES,
}
"""The pool that works on each kind of task. A CHECK of annotate_tasks enforces the same rule."""


def assign_questions_to_screeners(
    connection: Connection, screeners: Sequence[Person], settings: AnnotationProjectSettings
) -> AssignmentPlan:
    """Assign every question to every screener; raise where a question has no reference answer."""
    _check_unassigned(connection, AnnotationTaskKind.SCREENING)
    rows = {json.loads(row.key): row for row in connection.execute(_QUESTIONS)}
    if without := [key for key, row in rows.items() if not row.referenced]:
        raise UserError(
            f"question {without[0]!r} and {len(without) - 1} more have no reference answer, which screening needs."
        )
    assignment = _assign(rows, screeners, AnnotatorPool.QUESTIONS, len(screeners), settings, lambda _row: "")
    _insert_tasks(connection, assignment, screeners, lambda item: _question_task(rows[item.id]))
    if settings.screening is ScreeningMode.REQUIRED:
        # The tasks of these questions' responses open when a row here says that the question is eligible.
        connection.execute(_AWAIT_SCREENING, [{"question": row.question} for row in rows.values()])
    return assignment


def assign_responses_to_annotators(
    connection: Connection,
    annotators: Sequence[Person],
    settings: AnnotationProjectSettings,
    *,
    per_response: int = 2,
    kind: AnnotationTaskKind = AnnotationTaskKind.RESPONSE,
) -> AssignmentPlan:
    """Assign every response to ``per_response`` annotators."""
    _check_unassigned(connection, kind)
    rows = {json.loads(row.key): row for row in connection.execute(_RESPONSES)}
    assignment = _assign(
        rows, annotators, AnnotatorPool.RESPONSES, per_response, settings, lambda row: describe_system(row.origin)
    )
    _insert_tasks(connection, assignment, annotators, lambda item: _response_task(rows[item.id], kind, settings))
    return assignment


def append_response_tasks(
    connection: Connection, annotator: Person, settings: AnnotationProjectSettings, *, kind: AnnotationTaskKind
) -> AssignmentPlan:
    """Assign every response without a task to one annotator, behind the tasks that annotator has."""
    rows = {json.loads(row.key): row for row in connection.execute(_RESPONSES) if not row.assigned}
    assignment = _assign(
        rows, [annotator], AnnotatorPool.RESPONSES, 1, settings, lambda row: describe_system(row.origin)
    )
    last = int(connection.execute(_LAST, {"person": annotator.id}).scalar_one() or 0)
    _insert_tasks(
        connection, assignment, [annotator], lambda item: _response_task(rows[item.id], kind, settings), after=last
    )
    return assignment


def assign_families_to_auditors(
    connection: Connection, auditors: Sequence[Person], settings: AnnotationProjectSettings
) -> AssignmentPlan:
    """Assign every family to every auditor."""
    _check_unassigned(connection, AnnotationTaskKind.FAMILY)
    # The key of a family is the JSON list of its form ids, unique as it is.
    rows = {row.key: row for row in connection.execute(_FAMILIES)}
    assignment = _assign(rows, auditors, AnnotatorPool.FAMILIES, len(auditors), settings, lambda _row: "")
    _insert_tasks(connection, assignment, auditors, lambda item: _family_task(rows[item.id]))
    return assignment


def _assign(
    rows: Mapping[str, Any],
    people: Sequence[Person],
    pool: AnnotatorPool,
    per_response: int,
    settings: AnnotationProjectSettings,
    system: Callable[[Any], str],
) -> AssignmentPlan:
    for person in people:
        if person.pool is not pool or person.role is PersonRole.ADJUDICATOR:
            raise SettingError(f"{person.name} is {person.role} of {person.pool} and cannot be assigned {pool}.")
    # By their keys: row numbers would make the assignment depend on the order of the input.
    items = [AssignmentItem(key, str(json.loads(row.question_key)), system(row)) for key, row in rows.items()]
    names = [person.name for person in people]
    share = settings.share_questions
    return assign_to_annotators(items, names, per_response=per_response, seed=settings.seed, share_questions=share)


def _question_task(row: Any) -> dict[str, Any]:
    passes = applicable_annotation_passes(AnnotationTaskKind.SCREENING)
    return _task(AnnotationTaskKind.SCREENING, f"question {row.question}", passes, question=row.question)


def _family_task(row: Any) -> dict[str, Any]:
    passes = applicable_annotation_passes(AnnotationTaskKind.FAMILY)
    return _task(AnnotationTaskKind.FAMILY, f"family {row.question}", passes, family=row.question)


def _response_task(row: Any, kind: AnnotationTaskKind, settings: AnnotationProjectSettings) -> dict[str, Any]:
    parts = {"answered": bool(row.answered), "referenced": bool(row.referenced)}
    passes = applicable_annotation_passes(kind, steps=len(json.loads(row.steps)), **parts)
    return _task(
        kind,
        f"response {row.response}",
        passes,
        question=row.question,
        response=row.response,
        unasked=",".join(sorted(inapplicable_form_fields(**parts))),
        apart=None if settings.share_questions else row.question,
    )


def _task(
    kind: AnnotationTaskKind, subject: str, passes: Sequence[AnnotationPass], **columns: int | str | None
) -> dict[str, Any]:
    empty = {"question": None, "response": None, "family": None, "unasked": "", "apart": None}
    return {"kind": kind, "subject": subject, "passes": "".join(form.name for form in passes), **empty, **columns}


def _insert_tasks(
    connection: Connection,
    assignment: AssignmentPlan,
    people: Sequence[Person],
    task: Callable[[AssignmentItem], dict[str, Any]],
    *,
    after: int = 0,
) -> None:
    by_name = {person.name: person for person in people}
    rows = []
    for assigned in assignment.tasks:
        person = by_name[assigned.annotator]
        # A random id: the URL of a task must reveal neither response nor question.
        columns = {"id": secrets.token_urlsafe(16), "person": person.id, "role": person.role, "pool": person.pool}
        rows.append(task(assigned.item) | columns | {"place": after + assigned.position})
    connection.execute(_ADD, rows)


def _check_unassigned(connection: Connection, kind: AnnotationTaskKind) -> None:
    if connection.execute(_COUNT_TASKS, {"pool": POOL_BY_TASK_KIND[kind]}).scalar_one():
        raise UserError("tasks were assigned before. Replace a person with: eclose annotate reassign.")


_AWAIT_SCREENING = text("INSERT INTO annotate_eligibility (question) VALUES (:question)")
_FAMILIES = text("SELECT id AS question, key, key AS question_key FROM annotate_families ORDER BY id")
_LAST = text("SELECT max(place) FROM annotate_tasks WHERE person = :person")
_COUNT_TASKS = text("SELECT count(*) FROM annotate_tasks WHERE pool = :pool")
# "referenced" and "answered" tell which passes and fields apply.
_QUESTIONS = text(
    "SELECT q.id AS question, q.key, q.key AS question_key, k.question IS NOT NULL AS referenced"
    " FROM annotate_questions q"
    " LEFT JOIN annotate_references k ON k.question = q.id ORDER BY q.id"
)
_RESPONSES = text(
    "SELECT r.id AS response, r.key, r.question, q.key AS question_key, r.steps, o.origin,"
    " a.response IS NOT NULL AS answered, k.question IS NOT NULL AS referenced,"
    " EXISTS (SELECT 1 FROM annotate_tasks t WHERE t.response = r.id) AS assigned"
    " FROM annotate_responses r JOIN annotate_questions q ON q.id = r.question"
    " JOIN annotate_response_origins o ON o.response = r.id LEFT JOIN annotate_answers a ON a.response = r.id"
    " LEFT JOIN annotate_references k ON k.question = r.question ORDER BY r.id"
)
_ADD = text(
    "INSERT INTO annotate_tasks"
    " (id, kind, subject, question, response, family, person, role, pool, place, apart, passes, unasked)"
    " VALUES (:id, :kind, :subject, :question, :response, :family, :person, :role, :pool, :place, :apart, :passes,"
    " :unasked)"
)
