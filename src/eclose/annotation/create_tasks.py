"""Give out the work: who labels what becomes tasks, in an order that is fixed from then on."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.annotation.accounts.people import Pool, Role
from eclose.annotation.assignment.assign import Item, assign
from eclose.annotation.forms import Kind, passes_of, unasked
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from eclose.annotation.accounts.people import Person
    from eclose.annotation.assignment.assign import Assignment
    from eclose.annotation.project import Settings


POOLS = {
    Kind.SCREENING: Pool.QUESTIONS,
    Kind.RESPONSE: Pool.RESPONSES,
    Kind.SHORT: Pool.RESPONSES,
    Kind.FAMILY: Pool.FAMILIES,
}
"""Whose work each kind is. The table of tasks holds the same rule."""


def give_questions(connection: Connection, screeners: Sequence[Person], settings: Settings) -> Assignment:
    """Every question before every screener. Without a reference there is nothing to screen by: refused."""
    _refuse_again(connection, Kind.SCREENING)
    rows = {json.loads(row.key): row for row in connection.execute(_QUESTIONS)}
    if without := [key for key, row in rows.items() if not row.referenced]:
        raise UserError(f"question {without[0]!r} has no reference, and {len(without) - 1} more. Screening needs one.")
    made = _assign(rows, screeners, Pool.QUESTIONS, len(screeners), settings, lambda _row: "")
    _put(connection, made, screeners, lambda item: _question_task(rows[item.id]))
    return made


def give_responses(
    connection: Connection,
    annotators: Sequence[Person],
    settings: Settings,
    *,
    per_response: int = 2,
    kind: Kind = Kind.RESPONSE,
) -> Assignment:
    """Every response before so many annotators."""
    _refuse_again(connection, kind)
    rows = {json.loads(row.key): row for row in connection.execute(_RESPONSES)}
    made = _assign(rows, annotators, Pool.RESPONSES, per_response, settings, _system)
    _put(connection, made, annotators, lambda item: _response_task(rows[item.id], kind, settings))
    return made


def give_families(connection: Connection, auditors: Sequence[Person], settings: Settings) -> Assignment:
    """Every family before every auditor."""
    _refuse_again(connection, Kind.FAMILY)
    rows = {row.key: row for row in connection.execute(_FAMILIES)}
    made = _assign(rows, auditors, Pool.FAMILIES, len(auditors), settings, lambda _row: "")
    _put(connection, made, auditors, lambda item: _family_task(rows[item.id]))
    return made


def _assign(
    rows: Mapping[str, Any],
    people: Sequence[Person],
    pool: Pool,
    per_response: int,
    settings: Settings,
    system: Callable[[Any], str],
) -> Assignment:
    for one in people:
        if one.pool is not pool or one.role is Role.ADJUDICATOR:
            raise SettingError(f"{one.name} is {one.role} of {one.pool} and cannot be given {pool}.")
    items = [Item(key, str(row.question), system(row)) for key, row in rows.items()]
    names = [one.name for one in people]
    share = settings.share_questions
    return assign(items, names, per_response=per_response, seed=settings.seed, share_questions=share)


def _system(row: Any) -> str:
    origin = json.loads(row.origin)
    return f"{origin.get('model')} / {origin.get('method')}"


def _question_task(row: Any) -> dict[str, Any]:
    passes = passes_of(Kind.SCREENING)
    return _task(Kind.SCREENING, f"question {row.question}", row.question, None, [one.name for one in passes])


def _family_task(row: Any) -> dict[str, Any]:
    names = [one.name for one in passes_of(Kind.FAMILY)]
    return _task(Kind.FAMILY, f"family {row.question}", None, None, names) | {"family": row.question}


def _response_task(row: Any, kind: Kind, settings: Settings) -> dict[str, Any]:
    has = {"answered": bool(row.answered), "referenced": bool(row.referenced)}
    names = [one.name for one in passes_of(kind, steps=len(json.loads(row.steps)), **has)]
    task = _task(kind, f"response {row.response}", row.question, row.response, names)
    return task | {
        "unasked": ",".join(sorted(unasked(**has))),
        "apart": None if settings.share_questions else row.question,
    }


def _task(
    kind: Kind, subject: str, question: int | None, response: int | None, passes: Sequence[str]
) -> dict[str, Any]:
    return {
        "kind": kind,
        "subject": subject,
        "question": question,
        "response": response,
        "family": None,
        "passes": "".join(passes),
        "unasked": "",
        "apart": None,
    }


def _put(
    connection: Connection, made: Assignment, people: Sequence[Person], task: Callable[[Item], dict[str, Any]]
) -> None:
    by_name = {one.name: one for one in people}
    rows = []
    for one in made.tasks:
        person = by_name[one.annotator]
        # An id that says nothing: not the response's, nor its place, nor its question's.
        own = {"id": secrets.token_urlsafe(16), "person": person.id, "role": person.role, "pool": person.pool}
        rows.append(task(one.item) | own | {"place": one.place})
    connection.execute(_ADD, rows)


def _refuse_again(connection: Connection, kind: Kind) -> None:
    if connection.execute(_GIVEN, {"pool": POOLS[kind]}).scalar_one():
        raise UserError("the work was given out before. An assignment is made once; begin a new project for another.")


_FAMILIES = text("SELECT id AS question, key FROM annotate_families ORDER BY id")
_GIVEN = text("SELECT count(*) FROM annotate_tasks WHERE pool = :pool")
_QUESTIONS = text(
    "SELECT q.id AS question, q.key, k.question IS NOT NULL AS referenced FROM annotate_questions q"
    " LEFT JOIN annotate_references k ON k.question = q.id ORDER BY q.id"
)
_RESPONSES = text(
    "SELECT r.id AS response, r.key, r.question, r.steps, o.origin, a.response IS NOT NULL AS answered,"
    " k.question IS NOT NULL AS referenced FROM annotate_responses r"
    " JOIN annotate_response_origins o ON o.response = r.id LEFT JOIN annotate_answers a ON a.response = r.id"
    " LEFT JOIN annotate_references k ON k.question = r.question ORDER BY r.id"
)
_ADD = text(
    "INSERT INTO annotate_tasks"
    " (id, kind, subject, question, response, family, person, role, pool, place, apart, passes, unasked)"
    " VALUES (:id, :kind, :subject, :question, :response, :family, :person, :role, :pool, :place, :apart, :passes,"
    " :unasked)"
)
