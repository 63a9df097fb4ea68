"""Questions and responses of a project: stored by disclosure level, and read back.

Every part is stored in the table of its disclosure level (``schema``).
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.errors import UserError
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Row, TextClause

_BATCH = 1_000
"""Rows per insert statement."""


class AnnotationMaterial(NamedTuple):
    """The annotated questions and responses, by id."""

    instances: Mapping[str, Instance]
    responses: Mapping[str, Response]


def add_questions(connection: Connection, instances: Iterable[Instance]) -> int:
    """Add questions with evidence, references and origins; return their number."""
    return _add(connection, _QUESTION, map(_question, instances))


def add_responses(connection: Connection, responses: Iterable[Response]) -> int:
    """Add responses and return their number; raise where a question was not added before."""
    question_ids: dict[str, int] = {json.loads(row.key): row.id for row in connection.execute(_QUESTION_IDS)}

    def rows() -> Iterator[dict[str, Any]]:
        for response in responses:
            if response.instance_id not in question_ids:
                raise UserError(
                    f"response {response.id!r} answers {response.instance_id!r}, which is not among the questions."
                )
            yield _response(response, question_ids[response.instance_id])

    return _add(connection, _RESPONSE, rows())


def _question(instance: Instance) -> dict[str, Any]:
    return {
        # JSON in ASCII: ids and texts of users may hold NUL or lone surrogates, which the databases cannot store.
        "key": json.dumps(instance.id),
        "question": json.dumps(instance.question),
        "evidence": json.dumps([[passage.title, passage.text] for passage in instance.evidence]),
        "reference": None if instance.reference_answer is None else json.dumps(instance.reference_answer),
        "aliases": json.dumps(instance.aliases),
        "origin": json.dumps({"benchmark": instance.benchmark}),
    }


def _response(response: Response, question: int) -> dict[str, Any]:
    # Shown to no annotator: stored apart from the response.
    source = response.source
    origin = {} if source is None else {"model": source.model, "method": source.method, "seed": source.seed}
    return {
        "key": json.dumps(response.id),
        "question": question,
        "steps": json.dumps(response.trace.texts),
        "answer": None if response.answer is None else json.dumps(response.answer),
        "origin": json.dumps(origin),
    }


def _add(connection: Connection, statements: Mapping[str, TextClause], rows: Iterator[dict[str, Any]]) -> int:
    """Insert rows with the statement of their key, and each part that is present with its own."""
    count = 0
    while batch := list(islice(rows, _BATCH)):
        for part, statement in statements.items():
            if present := [row for row in batch if row[part] is not None]:
                connection.execute(statement, present)
        count += len(batch)
    return count


def read_stored_material(connection: Connection) -> AnnotationMaterial:
    """Read questions and responses back. Passages get numbers as ids: their ids are not stored."""
    instances = {instance.id: instance for instance in _read_instances(connection)}
    responses = (_read_response(row) for row in connection.execute(_READ_RESPONSES))
    return AnnotationMaterial(instances, {response.id: response for response in responses})


def _read_instances(connection: Connection) -> Iterator[Instance]:
    for row in connection.execute(_READ_QUESTIONS):
        passages = enumerate(json.loads(row.evidence), start=1)
        yield Instance(
            id=json.loads(row.key),
            question=json.loads(row.question),
            evidence=tuple(Passage(str(number), *passage) for number, passage in passages),
            reference_answer=None if row.reference is None else json.loads(row.reference),
            aliases=() if row.aliases is None else tuple(json.loads(row.aliases)),
            benchmark=json.loads(row.origin).get("benchmark"),
        )


def _read_response(row: Row[Any]) -> Response:
    answer = None if row.answer is None else json.loads(row.answer)
    return Response(
        json.loads(row.key),
        json.loads(row.question),
        Trace.of(*json.loads(row.steps)),
        answer,
        decode_response_source(json.loads(row.origin)),
        answer_lines=int(answer is not None),
    )


def decode_response_source(origin: Mapping[str, Any]) -> ResponseSource | None:
    """Return the source of a response from its stored origin; None where the model is unknown."""
    model = origin.get("model")
    return None if model is None else ResponseSource(model, origin.get("method"), origin.get("seed"))


def describe_system(origin: str) -> str:
    """Return the system that generated a response, over which assignments are balanced, from its stored origin."""
    fields = json.loads(origin)
    return f"{fields.get('model')} / {fields.get('method')}"


_QUESTION_IDS = text("SELECT id, key FROM annotate_questions")
# Parts refer to their row by its key, since a batch insert returns no ids.
_OF_QUESTION = "SELECT id FROM annotate_questions WHERE key = :key"
_OF_RESPONSE = "SELECT id FROM annotate_responses WHERE key = :key"
_QUESTION = {
    "key": text("INSERT INTO annotate_questions (key, question, evidence) VALUES (:key, :question, :evidence)"),
    "reference": text(
        "INSERT INTO annotate_references (question, reference, aliases)"
        f" VALUES (({_OF_QUESTION}), :reference, :aliases)"
    ),
    "origin": text(f"INSERT INTO annotate_question_origins (question, origin) VALUES (({_OF_QUESTION}), :origin)"),
}
_RESPONSE = {
    "key": text("INSERT INTO annotate_responses (key, question, steps) VALUES (:key, :question, :steps)"),
    "answer": text(f"INSERT INTO annotate_answers (response, answer) VALUES (({_OF_RESPONSE}), :answer)"),
    "origin": text(f"INSERT INTO annotate_response_origins (response, origin) VALUES (({_OF_RESPONSE}), :origin)"),
}
_READ_QUESTIONS = text(
    "SELECT q.key, q.question, q.evidence, k.reference, k.aliases, o.origin FROM annotate_questions q"
    " JOIN annotate_question_origins o ON o.question = q.id"
    " LEFT JOIN annotate_references k ON k.question = q.id ORDER BY q.id"
)
_READ_RESPONSES = text(
    "SELECT r.key, q.key AS question, r.steps, a.answer, o.origin FROM annotate_responses r"
    " JOIN annotate_questions q ON q.id = r.question JOIN annotate_response_origins o ON o.response = r.id"
    " LEFT JOIN annotate_answers a ON a.response = r.id ORDER BY r.id"
)
