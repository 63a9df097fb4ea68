"""What is labelled, put into the database: every part into the table that only those who may see it are shown from."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, TextClause

    from eclose.core.instance import Instance
    from eclose.core.response import Response

_AT_ONCE = 1_000


def add_questions(connection: Connection, instances: Iterable[Instance]) -> int:
    """Put questions in, with their evidence, references and origins; how many."""
    return _add(connection, _QUESTION, map(_question, instances), "question")


def add_responses(connection: Connection, responses: Iterable[Response]) -> int:
    """Put responses in; how many. Their questions must be there."""
    known: dict[str, int] = {json.loads(row.key): row.id for row in connection.execute(_QUESTION_IDS)}

    def rows() -> Iterator[dict[str, Any]]:
        for response in responses:
            if response.instance_id not in known:
                raise UserError(
                    f"response {response.id!r} answers {response.instance_id!r}, which is no question here."
                )
            yield _response(response, known[response.instance_id])

    return _add(connection, _RESPONSE, rows(), "response")


def _question(instance: Instance) -> dict[str, Any]:
    return {
        "key": json.dumps(instance.id),
        "question": json.dumps(instance.question),
        "evidence": json.dumps([[passage.title, passage.text] for passage in instance.evidence]),
        "reference": None if instance.reference_answer is None else json.dumps(instance.reference_answer),
        "aliases": json.dumps(instance.aliases),
        "origin": json.dumps({"benchmark": instance.benchmark}),
    }


def _response(response: Response, question: int) -> dict[str, Any]:
    source = response.source
    origin = {} if source is None else {"model": source.model, "method": source.method, "seed": source.seed}
    return {
        "key": json.dumps(response.id),
        "question": question,
        "steps": json.dumps(response.trace.texts),
        "answer": None if response.answer is None else json.dumps(response.answer),
        "origin": json.dumps(origin),
    }


def _add(connection: Connection, statements: Sequence[TextClause], rows: Iterator[dict[str, Any]], noun: str) -> int:
    """Insert rows by the first statement, and their parts by the others, which find them by their key."""
    count = 0
    while some := list(islice(rows, _AT_ONCE)):
        connection.execute(statements[0], some)
        for statement, part in zip(statements[1:], _PARTS[noun], strict=True):
            if held := [row for row in some if row[part] is not None]:
                connection.execute(statement, held)
        count += len(some)
    return count


_PARTS = {"question": ("reference", "origin"), "response": ("answer", "origin")}

_QUESTION_IDS = text("SELECT id, key FROM annotate_questions")
_OF_QUESTION = "SELECT id FROM annotate_questions WHERE key = :key"
_OF_RESPONSE = "SELECT id FROM annotate_responses WHERE key = :key"
_QUESTION = (
    text("INSERT INTO annotate_questions (key, question, evidence) VALUES (:key, :question, :evidence)"),
    text(
        "INSERT INTO annotate_references (question, reference, aliases)"
        f" VALUES (({_OF_QUESTION}), :reference, :aliases)"
    ),
    text(f"INSERT INTO annotate_question_origins (question, origin) VALUES (({_OF_QUESTION}), :origin)"),
)
_RESPONSE = (
    text("INSERT INTO annotate_responses (key, question, steps) VALUES (:key, :question, :steps)"),
    text(f"INSERT INTO annotate_answers (response, answer) VALUES (({_OF_RESPONSE}), :answer)"),
    text(f"INSERT INTO annotate_response_origins (response, origin) VALUES (({_OF_RESPONSE}), :origin)"),
)
