"""What is read from the database to show a pass, and no more: one query for each, none of which names a later field.

A page is made of the value that comes out of here. Ids, origins and what others decided are in none of the queries.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import TextClause, text

from eclose.protocol.annotation import WholeTrace, WithAnswer, WithReference
from eclose.protocol.auditing import ShownFamily
from eclose.protocol.disclosure import Eligibility, Soundness
from eclose.protocol.material_json import ShownPassage, ShownStep
from eclose.store.records.jsonl import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, Row

    from eclose.protocol.annotation import Shown

_TRACE = (
    "SELECT q.question, q.evidence, r.steps FROM annotate_tasks t"
    " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
)
_QUERIES = {
    "S": (
        "SELECT q.question, q.evidence, k.reference, k.aliases FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_references k ON k.question = t.question"
    ),
    "A": _TRACE,
    "B": _TRACE,
    "C": (
        "SELECT q.question, q.evidence, r.steps, a.answer FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
        " LEFT JOIN annotate_answers a ON a.response = t.response"
    ),
    "D": (
        "SELECT q.question, q.evidence, r.steps, a.answer, k.reference, k.aliases FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
        " LEFT JOIN annotate_answers a ON a.response = t.response"
        " JOIN annotate_references k ON k.question = t.question"
    ),
    "F": "SELECT f.shown FROM annotate_tasks t JOIN annotate_families f ON f.id = t.family",
}
QUERIES: Mapping[str, TextClause] = {name: text(f"{query} WHERE t.id = :task") for name, query in _QUERIES.items()}
"""By pass. Whoever may open the pass is decided before."""


def steps(connection: Connection, task: str) -> int:
    """How many steps there are to decide on."""
    row = connection.execute(QUERIES["A"], {"task": task}).one()
    return len(json.loads(row.steps))


def see(connection: Connection, task: str, name: str, *, hide_evidence: bool = False) -> Shown:
    """What a pass shows of a task. Evidence goes out of sight after the first pass where a project wants it so."""
    row = connection.execute(QUERIES[name], {"task": task}).one()
    return _SHOWN[name](row, () if hide_evidence and name in "BCD" else _evidence(row))


def _evidence(row: Row[Any]) -> tuple[ShownPassage, ...]:
    if not hasattr(row, "evidence"):
        return ()
    return tuple(ShownPassage(index, *passage) for index, passage in enumerate(json.loads(row.evidence)))


def _screening(row: Row[Any], evidence: tuple[ShownPassage, ...]) -> Eligibility:
    return Eligibility(json.loads(row.question), evidence, json.loads(row.reference), tuple(json.loads(row.aliases)))


def _steps(row: Row[Any], evidence: tuple[ShownPassage, ...]) -> Soundness:
    steps = tuple(ShownStep(number, step) for number, step in enumerate(json.loads(row.steps), start=1))
    return Soundness(json.loads(row.question), evidence, steps)


def _whole(row: Row[Any], evidence: tuple[ShownPassage, ...]) -> WholeTrace:
    return WholeTrace(json.loads(row.question), evidence, _block(row))


def _answered(row: Row[Any], evidence: tuple[ShownPassage, ...]) -> WithAnswer:
    return WithAnswer(json.loads(row.question), evidence, _block(row), _answer(row))


def _referenced(row: Row[Any], evidence: tuple[ShownPassage, ...]) -> WithReference:
    reference, aliases = json.loads(row.reference), tuple(json.loads(row.aliases))
    return WithReference(json.loads(row.question), evidence, _block(row), _answer(row), reference, aliases)


def _family(row: Row[Any], _evidence: tuple[ShownPassage, ...]) -> ShownFamily:
    return parse(ShownFamily, json.loads(row.shown))


def _block(row: Row[Any]) -> str:
    """Without numbers: nothing here is decided step by step."""
    return "\n".join(json.loads(row.steps))


def _answer(row: Row[Any]) -> str | None:
    return None if row.answer is None else json.loads(row.answer)


_SHOWN: Mapping[str, Callable[[Row[Any], tuple[ShownPassage, ...]], Shown]] = {
    "S": _screening,
    "A": _steps,
    "B": _whole,
    "C": _answered,
    "D": _referenced,
    "F": _family,
}
