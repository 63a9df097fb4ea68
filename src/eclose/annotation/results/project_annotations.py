"""What people said in a project, and what they said it of, out of its database.

People are A1, A2, … and S1, S2, … in the order in which they came, adjudicators among them, unless their names are
asked for. Who comes later gets a later number, so that two exports call one person alike.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from eclose.annotation.accounts.people import Pool, people
from eclose.annotation.collect import responses, screenings
from eclose.annotation.form_labels import judgment_of
from eclose.annotation.results.annotations import Annotation, ScreeningAnnotation, Told, ToldQuestion, ToldResponse, by
from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, Source, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from eclose.annotation.collect import Labelled, Said, Screened
    from eclose.core.judgment import Screening

_LETTERS = {Pool.RESPONSES: "A", Pool.QUESTIONS: "S"}


def told(connection: Connection, *, names: bool = False) -> Told:
    """Everything that was finished, and what is still open."""
    called = _called(connection, names=names)
    return Told(
        tuple(_response(one, called) for one in responses(connection)),
        tuple(_question(one, called) for one in screenings(connection)),
    )


def _called(connection: Connection, *, names: bool) -> dict[str, str]:
    counts: Counter[str] = Counter()
    called = {}
    for one in people(connection):
        letter = _LETTERS.get(one.pool, "P")
        counts[letter] += 1
        called[one.name] = one.name if names else f"{letter}{counts[letter]}"
    return called


def _response(one: Labelled, called: Mapping[str, str]) -> ToldResponse:
    said = sorted((_annotation(one, each, called) for each in one.said), key=lambda row: row.annotator or "")
    last = None if one.adjudicated is None else _annotation(one, one.adjudicated, called, adjudicates=True)
    return ToldResponse(
        one.response_id, one.question_id, one.kind, one.wanted, tuple(said), last, _benchmark(one), _source(one.origin)
    )


def _annotation(one: Labelled, said: Said, called: Mapping[str, str], *, adjudicates: bool = False) -> Annotation:
    name = called[said.person]
    return Annotation(
        one.response_id,
        one.question_id,
        one.kind,
        one.wanted,
        name,
        judgment_of(one.response_id, name, one.kind, said.filled),
        judgment_of(one.response_id, name, one.kind, said.final) if said.amended else None,
        adjudicates=adjudicates,
        reference_seen_before=said.reference_seen_before,
        benchmark=_benchmark(one),
        source=_source(one.origin),
    )


def _benchmark(one: Labelled | Screened) -> str | None:
    found: str | None = one.origin.get("benchmark")
    return found


def _source(origin: Mapping[str, Any]) -> Source | None:
    model = origin.get("model")
    return None if model is None else Source(model, origin.get("method"), origin.get("seed"))


def _question(one: Screened, called: Mapping[str, str]) -> ToldQuestion:
    def row(first: Screening, final: Screening, *, adjudicates: bool = False) -> ScreeningAnnotation:
        name = called[first.judge]
        amended = None if final == first else by(name, final)
        return ScreeningAnnotation(
            one.question_id, one.wanted, name, by(name, first), amended, adjudicates, _benchmark(one)
        )

    said = sorted(map(row, one.first, one.said), key=lambda each: each.annotator or "")
    last = None if one.adjudicated is None else row(one.adjudicated, one.adjudicated, adjudicates=True)
    return ToldQuestion(one.question_id, one.wanted, tuple(said), last, _benchmark(one))


class Material(NamedTuple):
    """Questions and responses, as other commands read them."""

    instances: Mapping[str, Instance]
    responses: Mapping[str, Response]


def material(connection: Connection) -> Material:
    """What the project was given. Passages are numbered: a project does not keep their ids, nor raw completions."""
    instances = {one.id: one for one in _instances(connection)}
    found = (_read_response(row) for row in connection.execute(_RESPONSES))
    return Material(instances, {one.id: one for one in found})


def _instances(connection: Connection) -> Iterator[Instance]:
    for row in connection.execute(_QUESTIONS):
        passages = enumerate(json.loads(row.evidence), start=1)
        yield Instance(
            json.loads(row.key),
            json.loads(row.question),
            tuple(Passage(str(number), *passage) for number, passage in passages),
            None if row.reference is None else json.loads(row.reference),
            () if row.aliases is None else tuple(json.loads(row.aliases)),
            json.loads(row.origin).get("benchmark"),
        )


def _read_response(row: Any) -> Response:
    answer = None if row.answer is None else json.loads(row.answer)
    return Response(
        json.loads(row.key),
        json.loads(row.question),
        Trace.of(*json.loads(row.steps)),
        answer,
        _source(json.loads(row.origin)),
        answer_lines=int(answer is not None),
    )


_QUESTIONS = text(
    "SELECT q.key, q.question, q.evidence, k.reference, k.aliases, o.origin FROM annotate_questions q"
    " JOIN annotate_question_origins o ON o.question = q.id"
    " LEFT JOIN annotate_references k ON k.question = q.id ORDER BY q.id"
)
_RESPONSES = text(
    "SELECT r.key, q.key AS question, r.steps, a.answer, o.origin FROM annotate_responses r"
    " JOIN annotate_questions q ON q.id = r.question JOIN annotate_response_origins o ON o.response = r.id"
    " LEFT JOIN annotate_answers a ON a.response = r.id ORDER BY r.id"
)
