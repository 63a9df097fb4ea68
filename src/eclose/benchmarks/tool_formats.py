"""Other tools' tables of questions, retrieved passages and responses: RAGAS, DeepEval and RAGChecker.

What differs between them is the names of the columns, and that is all this module knows of them. How a trace is told
from an answer is in ``core.reading``, what agents leave behind in ``agents``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclose.benchmarks import agent_traces, conversion
from eclose.benchmarks.layouts import RecordLayout
from eclose.core import parse_trace
from eclose.core.instance import Instance, Passage
from eclose.errors import RecordError
from eclose.store.records.json_reader import JsonObject
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from eclose.benchmarks.conversion import ConvertedRecord


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Which column holds what; the first name that is there counts."""

    question: tuple[str, ...]
    passages: tuple[str, ...]
    reference: tuple[str, ...]
    response: tuple[str, ...]
    id: tuple[str, ...] = ("id", "query_id")
    calls: tuple[str, ...] = ()
    """What an agent asked of its tools."""


TRACE_COLUMNS = (
    "trace",
    "reasoning",
    "reasoning_content",
    "reasoning_steps",
    "steps",
    "rationale",
    "chain_of_thought",
    "thoughts",
)
"""What people call the column of the trace; whatever the tool, it is a column of their own."""


LAYOUT_COLUMNS = {
    RecordLayout.RAGAS: ColumnNames(
        question=("user_input", "question"),
        passages=("retrieved_contexts", "contexts"),
        reference=("reference", "ground_truth"),
        response=("response", "answer"),
    ),
    RecordLayout.DEEPEVAL: ColumnNames(
        question=("input",),
        passages=("retrieval_context", "retrievalContext"),
        reference=("expected_output", "expectedOutput"),
        response=("actual_output", "actualOutput"),
        calls=("tools_called", "toolsCalled"),
    ),
    RecordLayout.RAGCHECKER: ColumnNames(
        question=("query",),
        passages=("retrieved_context",),
        reference=("gt_answer",),
        response=("response",),
    ),
}


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """A retrieved passage with the id of its document."""

    text: str
    doc_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A record under our names for its columns."""

    question: str
    passages: list[RetrievedChunk] = field(metadata={"shape": "a text or {doc_id, text} for each passage"})
    reference: str | None = None
    response: str | None = None


# Where a message names one of our fields: at its beginning, or at the beginning of the next problem.
_FIELD = re.compile(r"(?<![^;] )\b(question|passages|reference|response)(?=[:\[.])")


@dataclass(frozen=True, slots=True)
class SystemOutput:
    """What a system wrote: its response, and what it thought and was told before."""

    response: str | None
    trace: Any = None
    """The trace's own column: a text or a list."""
    name: str = "trace"
    """What the file calls that column."""
    items: list[JsonObject] | None = None
    """What an agent said and was told, one by one; None where nobody says that there was one."""


def convert_record(record: JsonObject, layout: RecordLayout) -> ConvertedRecord:
    """One record as an instance, with its response if it has one."""
    repairs: list[str] = []
    record, said = _said(record, LAYOUT_COLUMNS[layout])
    row = _row(record, LAYOUT_COLUMNS[layout])
    found = _reading(replace(said, response=row.response))
    instance = Instance(
        id=conversion.read_id(conversion.first_present(record, LAYOUT_COLUMNS[layout].id), repairs),
        question=row.question,
        evidence=conversion.drop_blank_passages(_passages(row.passages, repairs), None, repairs),
        reference_answer=conversion.read_answer(row.reference, repairs),
    )
    if found is not None and (seen := parse_trace.add_observations(instance, found.observations)) is not instance:
        instance = seen
        repairs.append(parse_trace.OBSERVATIONS_ADDED)
    converted = conversion.finish_conversion(instance, repairs, layout)
    if found is None or not (found.trace.steps or found.answer_lines or found.answer):
        return converted
    # Several trajectories may end in one answer, so a response is named after all that was said.
    texts = (said.items or None, said.trace, row.response)
    response = parse_trace.build_response(found, converted.instance.id, *texts)
    return replace(converted, response=response, notes=found.notes)


def _said(record: JsonObject, columns: ColumnNames) -> tuple[JsonObject, SystemOutput]:
    """The trace of a record and what an agent did for it, and the record as one question beside it."""
    question = next((name for name in columns.question if record.get(name) is not None), columns.question[0])
    calls = next((name for name in columns.calls if record.get(name)), None)
    items: list[JsonObject] | None = None
    if agent_traces.is_conversation(record.get(question)):
        given = conversion.first_present(record, columns.response)
        conversation = agent_traces.read_conversation(record[question], question, given)
        items = conversation.items
        record = {**record, question: conversation.question, columns.response[0]: conversation.last}
    elif calls is not None:
        items = agent_traces.read_tool_calls(record[calls], calls)
    if items is not None and conversion.first_present(record, columns.passages) is None:
        record = {**record, columns.passages[0]: []}
    _refuse_several(record, columns)
    name = _trace_column(record)
    return record, SystemOutput(None, record.get(name), name, items)


def _refuse_several(record: JsonObject, columns: ColumnNames) -> None:
    """RAGAS may hold several responses in one record, which would have one name."""
    if record.get("multi_responses") and conversion.first_present(record, columns.response) is None:
        raise RecordError(
            f"multi_responses: holds several responses. Write a record for each, with its text under "
            f"{columns.response[0]}"
        )


def _trace_column(record: JsonObject) -> str:
    """The column that holds the trace. A number is none: steps may well be a count."""
    there = [name for name in TRACE_COLUMNS if isinstance(record.get(name), str | list | dict) and record[name]]
    if len(there) > 1 and any(record[name] != record[there[0]] for name in there):
        raise RecordError(f"{' and '.join(there)}: each could be the trace. Keep one of them, or rename the others")
    return there[0] if there else TRACE_COLUMNS[0]


def _reading(said: SystemOutput) -> parse_trace.ParsedResponse | None:
    """The response taken apart; None when there is none. An error calls the trace what the file calls it."""
    answer = said.response if said.response is not None and said.response.strip() else None
    traced = isinstance(said.trace, str | list) and bool(said.trace)
    if isinstance(said.trace, dict):
        raise RecordError(f"{said.name}: should be a text, or a list of texts or of objects with a text")
    if said.items and traced and any(item.get("thought") or item.get("content") for item in said.items):
        raise RecordError(f"{said.name}: there is a trace here, and another in what the agent said. Keep one of them.")
    try:
        if traced:
            found = parse_trace.parse(said.trace, answer)
            told = parse_trace.parse_trajectory(said.items or [], None).observations
            return replace(found, observations=(*told, *found.observations))
        if said.items is not None:
            return parse_trace.parse_trajectory(said.items, answer)
    except RecordError as error:
        raise RecordError(re.sub(r"^trace\b", said.name, error.problem)) from error
    return None if answer is None else parse_trace.parse_text(answer)


def _row(record: JsonObject, columns: ColumnNames) -> ToolRow:
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
        return parse_record(ToolRow, ours)
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


def _passages(chunks: list[RetrievedChunk], repairs: list[str]) -> list[Passage]:
    """Passages by the id of their document where that is unique, else by their place."""
    ids = [chunk.doc_id for chunk in chunks if chunk.doc_id]
    named = len(ids) == len(chunks) and len(set(ids)) == len(ids)
    if len(set(ids)) < len(ids):
        repairs.append(conversion.DOC_ID_REPEATED)
    return [Passage(ids[place] if named else str(place), "", chunk.text) for place, chunk in enumerate(chunks)]
