"""Other tools' tables of questions, retrieved passages and responses: RAGAS, DeepEval and RAGChecker.

What differs between them is the names of the columns, and that is all this module knows of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclosure.benchmarks import conversion
from eclosure.benchmarks.formats import Format
from eclosure.core.identity import content_hash
from eclosure.core.instance import Instance, Passage
from eclosure.core.response import Response, Trace, parse_completion
from eclosure.errors import RecordError
from eclosure.store.records import parse

if TYPE_CHECKING:
    from eclosure.benchmarks.conversion import Converted
    from eclosure.store.jsonfile import JsonObject


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column holds what; the first name that is there counts."""

    question: tuple[str, ...]
    passages: tuple[str, ...]
    reference: tuple[str, ...]
    response: tuple[str, ...]
    id: tuple[str, ...] = ("id", "query_id")


COLUMNS = {
    Format.RAGAS: Columns(
        question=("user_input", "question"),
        passages=("retrieved_contexts", "contexts"),
        reference=("reference", "ground_truth"),
        response=("response", "answer"),
    ),
    Format.DEEPEVAL: Columns(
        question=("input",),
        passages=("retrieval_context",),
        reference=("expected_output",),
        response=("actual_output",),
    ),
    Format.RAGCHECKER: Columns(
        question=("query",),
        passages=("retrieved_context",),
        reference=("gt_answer",),
        response=("response",),
    ),
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrieved passage with the id of its document."""

    text: str
    doc_id: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A record under our names for its columns."""

    question: str
    passages: list[Chunk] = field(metadata={"shape": "a text or {doc_id, text} for each passage"})
    reference: str | None = None
    response: str | None = None


# Where a message names one of our fields: at its beginning, or at the beginning of the next problem.
_FIELD = re.compile(r"(?<![^;] )\b(question|passages|reference|response)(?=[:\[.])")


def to_instance(record: JsonObject, layout: Format) -> Converted:
    """One record as an instance, with its response if it has one."""
    repairs: list[str] = []
    row = _row(record, COLUMNS[layout])
    instance = Instance(
        id=conversion.read_id(conversion.first_present(record, COLUMNS[layout].id), repairs),
        question=row.question,
        evidence=conversion.without_blank(_passages(row.passages, repairs), None, repairs),
        reference_answer=conversion.read_answer(row.reference, repairs),
    )
    converted = conversion.finish(instance, repairs, layout)
    return replace(converted, response=_response(converted.instance.id, row.response))


def _row(record: JsonObject, columns: Columns) -> Row:
    """The record's columns under our names; an error calls them what the file calls them."""
    theirs = {
        ours: next((name for name in names if record.get(name) is not None), names[0])
        for ours, names in (
            ("question", columns.question),
            ("passages", columns.passages),
            ("reference", columns.reference),
            ("response", columns.response),
        )
    }
    ours = {name: record[theirs[name]] for name in theirs if theirs[name] in record}
    _refuse_tables(ours, theirs)
    if isinstance(ours.get("passages"), list):
        ours["passages"] = [_chunk(passage) for passage in ours["passages"]]
    try:
        return parse(Row, ours)
    except RecordError as error:
        problem = _FIELD.sub(lambda field: theirs[field[0]], error.problem)
        raise RecordError(problem) from error


def _refuse_tables(ours: JsonObject, theirs: dict[str, str]) -> None:
    """What pandas makes of a table when nobody stops it: a record of whole columns, or lists written as texts."""
    question = ours.get("question")
    if isinstance(question, dict) or (isinstance(question, list) and all(isinstance(one, str) for one in question)):
        raise RecordError(
            f"{theirs['question']}: holds a whole column, so the file is written column by column. Write it by rows; "
            "with pandas: df.to_json('file.jsonl', orient='records', lines=True)"
        )
    passages = ours.get("passages")
    if isinstance(passages, str) and passages.lstrip().startswith("["):
        raise RecordError(
            f"{theirs['passages']}: is one text that looks like a list, as CSV files have it. Write a JSON array; "
            "in Python: ast.literal_eval(text)"
        )


def _chunk(passage: Any) -> Any:
    """A bare text as a chunk; RAGChecker's document ids may be numbers."""
    if isinstance(passage, str):
        return {"text": passage}
    if isinstance(passage, dict) and type(passage.get("doc_id")) is int:
        return {**passage, "doc_id": str(passage["doc_id"])}
    return passage


def _passages(chunks: list[Chunk], repairs: list[str]) -> list[Passage]:
    """Passages by the id of their document where that is unique, else by their place."""
    ids = [chunk.doc_id for chunk in chunks if chunk.doc_id]
    named = len(ids) == len(chunks) and len(set(ids)) == len(ids)
    if len(set(ids)) < len(ids):
        repairs.append(conversion.DOC_ID_REPEATED)
    return [Passage(ids[place] if named else str(place), "", chunk.text) for place, chunk in enumerate(chunks)]


def _response(instance_id: str, text: str | None) -> Response | None:
    """The response, named after its text so that several responses to one question stay apart.

    A text with a ``Final answer:`` line is read as a completion. A text without one is all answer: what the system
    thought is not known, so the trace is empty rather than guessed.
    """
    if text is None or not text.strip():
        return None
    id_ = f"{instance_id}-{content_hash(text).removeprefix('sha256:')[:8]}"
    if parse_completion(text).answer_lines:
        return Response.from_completion(id_, instance_id, text)
    return Response(id_, instance_id, Trace(()), text.strip(), answer_lines=0)
