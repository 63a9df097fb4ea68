"""Conversion of tables and logs of other tools: questions, retrieved passages and responses.

The tools differ in the names of their columns. Traces and answers are told apart by ``core.parse_trace``, the records
of agents are read by ``agent_traces``, those of chat APIs and pipelines are flattened by ``frameworks``.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.files.json_reader import JsonObject
from eclose.files.jsonl import parse_dataclass
from eclose.readers import agent_logs, conversion, pipelines
from eclose.readers.conversion import ToolColumnNames
from eclose.readers.layouts import RecordLayout
from eclose.readers.spans.documents import RetrievedChunk, read_documents
from eclose.values import parse_trace
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.response import ResponseSource

if TYPE_CHECKING:
    from eclose.readers.conversion import ConvertedRecord


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
"""Names of a column with the trace. None of the tools defines one, so users add their own."""

LAYOUT_COLUMNS = {
    RecordLayout.RAGAS: ToolColumnNames(
        question=("user_input", "question"),
        passages=("retrieved_contexts", "contexts"),
        reference=("reference", "ground_truth"),
        response=("response", "answer"),
    ),
    RecordLayout.DEEPEVAL: ToolColumnNames(
        question=("input",),
        passages=("retrieval_context", "retrievalContext"),
        reference=("expected_output", "expectedOutput"),
        response=("actual_output", "actualOutput"),
        calls=("tools_called", "toolsCalled"),
    ),
    RecordLayout.RAGCHECKER: ToolColumnNames(
        question=("query",),
        passages=("retrieved_context",),
        reference=("gt_answer",),
        response=("response",),
    ),
    RecordLayout.LANGCHAIN: ToolColumnNames(
        question=("input", "query", "question"),
        passages=("source_documents", "context", "documents"),
        reference=pipelines.REFERENCE_COLUMNS,
        response=("answer", "output", "result", "output_text", "response"),
        steps=("intermediate_steps",),
        documents=True,
    ),
    RecordLayout.LLAMA_INDEX: ToolColumnNames(
        question=pipelines.QUESTION_COLUMNS,
        passages=("source_nodes",),
        reference=pipelines.REFERENCE_COLUMNS,
        response=("response", "answer"),
        documents=True,
    ),
}
TOOL_LAYOUTS = frozenset({*LAYOUT_COLUMNS, RecordLayout.MESSAGES, RecordLayout.HAYSTACK})
"""Layouts of other tools, whose records hold responses."""


@dataclass(frozen=True, slots=True)
class RagToolRecord:
    """A record with its columns renamed to the fields of an instance and its response."""

    question: str
    passages: list[RetrievedChunk] = field(metadata={"shape": "a text or {doc_id, text} for each passage"})
    reference: str | None = None
    response: str | None = None


# A field name at the start of a message, or at the start of its next problem: "question: ...; response: ...".
_FIELD = re.compile(r"(?<![^;] )\b(question|passages|reference|response)(?=[:\[.])")


@dataclass(frozen=True, slots=True)
class SystemOutput:
    """The output of a system: its response, and the trace or tool calls before it."""

    response: str | None
    trace: Any = None
    """The content of the trace's column: a text or a list."""
    name: str = "trace"
    """The name of that column in the file."""
    items: list[JsonObject] | None = None
    """An agent's messages and observations in order; None where the record is not of an agent."""


def convert_tool_record(record: JsonObject, layout: RecordLayout) -> ConvertedRecord:
    """Return a tool's record as an instance, with its response if it has one."""
    if layout is RecordLayout.MESSAGES:
        return convert_columns(*pipelines.flatten_conversation(record), layout)
    if layout is RecordLayout.HAYSTACK:
        return convert_columns(*pipelines.flatten_pipeline_output(record), layout)
    return convert_columns(record, LAYOUT_COLUMNS[layout], layout)


def convert_columns(record: JsonObject, columns: ToolColumnNames, prefix: str) -> ConvertedRecord:
    """Return a record with the given columns as an instance, with its response if it has one.

    Args:
        record: The record; only its named columns are read.
        columns: Names of the columns.
        prefix: Beginning of ids that are derived from the content.
    """
    repairs: list[str] = []
    record, output = _extract_output(record, columns)
    row = _parse_row(record, columns)
    parsed = _parse_output(replace(output, response=row.response))
    reference = conversion.read_reference_answer(row.reference, repairs)
    aliases = conversion.first_present_column(record, columns.aliases) or ()
    instance = Instance(
        id=conversion.read_record_id(conversion.first_present_column(record, columns.id), repairs),
        question=row.question,
        evidence=conversion.drop_blank_passages(conversion.build_passages(row.passages, repairs), None, repairs),
        reference_answer=reference,
        aliases=conversion.clean_answer_aliases(reference, aliases),
        benchmark=_read_name(record, columns.dataset),
        kind=_read_name(record, columns.kind),
        hops=_read_whole_number(record, columns.hops),
    )
    if parsed is not None:
        titles = {item["observation"].strip(): item["title"] for item in output.items or () if item.get("title")}
        with_observations = parse_trace.add_observation_passages(instance, parsed.observations, titles)
        if with_observations is not instance:
            instance = with_observations
            repairs.append(parse_trace.OBSERVATIONS_ADDED_NOTE)
    if columns.documents and not instance.evidence:
        raise RecordError(
            f"{columns.passages[0]}: there are no documents, neither in such a column nor in the output of a tool. "
            "Name their path with --map documents=PATH (and the others: question=PATH,answer=PATH)"
        )
    converted = conversion.finish_record_conversion(instance, repairs, prefix)
    if parsed is None or not (parsed.trace.steps or parsed.answer_lines or parsed.answer):
        return converted
    model = _read_name(record, columns.model)
    # Several trajectories may end in the same answer, so the id of a response is derived from all its texts.
    response = parse_trace.build_response(
        parsed,
        converted.instance.id,
        output.items or None,
        output.trace,
        row.response,
    )
    if model is not None:
        # Two models may give the same response, and each counts.
        digest = content_hash(model).removeprefix("sha256:")[:8]
        response = replace(response, id=f"{response.id}-{digest}", source=ResponseSource(model))
    return replace(converted, response=response, notes=parsed.notes)


def _read_name(record: JsonObject, names: tuple[str, ...]) -> str | None:
    """Return the name of a model, dataset or type of question; None where the record has none."""
    value = conversion.first_present_column(record, names)
    if not isinstance(value, str | None):
        raise RecordError(f"{names[0]}: should be a text")
    return value or None


def _read_whole_number(record: JsonObject, names: tuple[str, ...]) -> int | None:
    """Return the whole number of a column, such as 2 or 2.0; None where the record has none."""
    value = conversion.first_present_column(record, names)
    if value is None or type(value) is int:
        return value
    # Tables with gaps store whole numbers as 2.0.
    if not (isinstance(value, float) and value.is_integer()):
        raise RecordError(f"{names[0]}: should be a whole number")
    return int(value)


def _extract_output(record: JsonObject, columns: ToolColumnNames) -> tuple[JsonObject, SystemOutput]:
    """Return the record with a single question and response, and the system's output before the response."""
    question = next((name for name in columns.question if record.get(name) is not None), columns.question[0])
    calls = next((name for name in columns.calls if record.get(name)), None)
    steps = next((name for name in columns.steps if record.get(name) is not None), None)
    items: list[JsonObject] | None = None
    if agent_logs.is_message_list(record.get(question)):
        response = conversion.first_present_column(record, columns.response)
        conversation = agent_logs.parse_agent_conversation(record[question], question, response)
        items = conversation.items
        record = {**record, question: conversation.question, columns.response[0]: conversation.last}
    elif calls is not None:
        items = agent_logs.parse_deepeval_tool_calls(record[calls], calls)
    elif steps is not None:
        items = agent_logs.parse_intermediate_steps(record[steps], steps)
    # An agent gathers its evidence itself, so its record may lack a column of passages. Where none is found elsewhere
    # either, ``convert_columns`` says so.
    if (items is not None or columns.documents) and conversion.first_present_column(record, columns.passages) is None:
        record = {**record, columns.passages[0]: []}
    _refuse_several(record, columns)
    name = _trace_column(record, columns.trace or TRACE_COLUMNS)
    return record, SystemOutput(None, record.get(name), name, items)


def _refuse_several(record: JsonObject, columns: ToolColumnNames) -> None:
    """Raise where a RAGAS record holds several responses: they would share one id."""
    if record.get("multi_responses") and conversion.first_present_column(record, columns.response) is None:
        raise RecordError(
            f"multi_responses: holds several responses. Write a record for each, with its text under "
            f"{columns.response[0]}"
        )


def _trace_column(record: JsonObject, columns: tuple[str, ...]) -> str:
    """Return the name of the column with the trace; raise where several differ."""
    # Numbers do not qualify: a column "steps" may hold a count.
    names = [name for name in columns if isinstance(record.get(name), str | list | dict) and record[name]]
    if len(names) > 1 and any(record[name] != record[names[0]] for name in names):
        raise RecordError(f"{' and '.join(names)}: each could be the trace. Keep one of them, or rename the others")
    return names[0] if names else columns[0]


def _parse_output(output: SystemOutput) -> parse_trace.ParsedResponse | None:
    answer = output.response if output.response is not None and output.response.strip() else None
    has_trace = isinstance(output.trace, str | list) and bool(output.trace)
    if isinstance(output.trace, dict):
        raise RecordError(f"{output.name}: should be a text, or a list of texts or of objects with a text")
    if output.items and has_trace and any(item.get("thought") or item.get("content") for item in output.items):
        raise RecordError(f"{output.name}: holds a trace, and the agent's messages hold another. Keep one of them.")
    try:
        if has_trace:
            parsed = parse_trace.parse_trace_and_answer(output.trace, answer)
            # The items have no thoughts here, so they add their observations alone.
            observations = parse_trace.parse_agent_trajectory(output.items or [], None).observations
            return replace(parsed, observations=(*observations, *parsed.observations))
        if output.items is not None:
            return parse_trace.parse_agent_trajectory(output.items, answer)
    except RecordError as error:
        raise RecordError(re.sub(r"^trace\b", output.name, error.problem)) from error
    return None if answer is None else parse_trace.parse_response_text(answer)


def _parse_row(record: JsonObject, columns: ToolColumnNames) -> RagToolRecord:
    """Return the record's columns as a row; errors name the columns as the file does."""
    columns_by_field = {
        field_name: next((name for name in names if record.get(name) is not None), names[0])
        for field_name, names in (
            ("question", columns.question),
            ("passages", columns.passages),
            ("reference", columns.reference),
            ("response", columns.response),
        )
    }
    values = {name: record[column] for name, column in columns_by_field.items() if column in record}
    _refuse_tables(values, columns_by_field)
    if columns.documents and values.get("passages") is not None:
        chunks = read_documents(values["passages"], columns_by_field["passages"])
        values["passages"] = [asdict(chunk) for chunk in chunks]
    elif isinstance(values.get("passages"), str):
        raise RecordError(f"{columns_by_field['passages']}: should be a valid array, and is one text. Write [text].")
    elif isinstance(values.get("passages"), list):
        values["passages"] = [_normalise_chunk(passage) for passage in values["passages"]]
    try:
        # The row is validated under the field names, so that one dataclass serves all three tools.
        return parse_dataclass(RagToolRecord, values)
    except RecordError as error:
        problem = _FIELD.sub(lambda match: columns_by_field[match[0]], error.problem)
        raise RecordError(problem) from error


def _refuse_tables(values: JsonObject, columns_by_field: dict[str, str]) -> None:
    """Raise on two results of a careless export from pandas: a record of whole columns, and lists written as texts."""
    question = values.get("question")
    if isinstance(question, dict) or (isinstance(question, list) and all(isinstance(text, str) for text in question)):
        raise RecordError(
            f"{columns_by_field['question']}: holds a whole column, so the file is written column by column. "
            "Write it by rows; with pandas: df.to_json('file.jsonl', orient='records', lines=True)"
        )
    passages = values.get("passages")
    if isinstance(passages, str) and passages.lstrip().startswith("["):
        raise RecordError(
            f"{columns_by_field['passages']}: is one text that looks like a list, as CSV files have it. "
            "Write a JSON array; in Python: ast.literal_eval(text)"
        )


def _normalise_chunk(passage: Any) -> Any:
    """Return a bare text as a chunk, and RAGChecker's numeric document ids as texts."""
    if isinstance(passage, str):
        return {"text": passage}
    if isinstance(passage, dict) and type(passage.get("doc_id")) is int:
        return {**passage, "doc_id": str(passage["doc_id"])}
    return passage
