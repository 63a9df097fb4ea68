"""Conversion of tables and logs of other tools: questions, retrieved passages and responses.

The tools differ in the names of their columns. Responses are read by ``reading``; records of chat APIs and
pipelines are flattened by ``pipelines``.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.files.json_reader import JsonObject
from eclose.files.jsonl import parse_dataclass
from eclose.readers import conversion, pipelines
from eclose.readers.conversion import ToolColumnNames
from eclose.readers.layouts import RecordLayout
from eclose.readers.spans.documents import RetrievedChunk, read_documents
from eclose.reading import recorded
from eclose.reading.channels import holds_results
from eclose.reading.messages import is_message_list
from eclose.reading.response import DEFAULT_SETTINGS, Reading, ReadSettings
from eclose.reading.text import ReadingStatus
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.response import Response, ResponseSource

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
    """The output of a system: its response, and the trace, the messages or the calls before it."""

    response: Any = None
    """The content of the response's column where it is no text."""
    trace: Any = None
    """The content of the trace's column: a text or a list."""
    name: str = "trace"
    """The name of that column in the file."""
    before: JsonObject | None = None
    """An agent's messages, calls or steps under the key by which they are known; None where it is of no agent."""


def convert_tool_record(
    record: JsonObject,
    layout: RecordLayout,
    reading: ReadSettings = DEFAULT_SETTINGS,
    *,
    instance_only: bool = False,
) -> ConvertedRecord:
    """Return a tool's record as an instance, with its response if it has one."""
    if layout is RecordLayout.MESSAGES:
        flat, own = pipelines.flatten_conversation(record), pipelines.drop_conversation(record)
        return convert_columns(*flat, layout, reading, own=own, instance_only=instance_only)
    if layout is RecordLayout.HAYSTACK:
        flat, own = pipelines.flatten_pipeline_output(record), pipelines.drop_components(record)
        return convert_columns(*flat, layout, reading, own=own, instance_only=instance_only)
    return convert_columns(record, LAYOUT_COLUMNS[layout], layout, reading, instance_only=instance_only)


def convert_columns(
    record: JsonObject,
    columns: ToolColumnNames,
    prefix: str,
    settings: ReadSettings = DEFAULT_SETTINGS,
    *,
    own: JsonObject | None = None,
    instance_only: bool = False,
) -> ConvertedRecord:
    """Return a record with the given columns as an instance, with its response if it has one.

    Args:
        record: The record; only its named columns are read.
        columns: Names of the columns.
        prefix: Beginning of ids that are derived from the content.
        settings: How the response is read.
        own: Columns of the original record, of which those that no field was read from are kept with the response; by
            default the record's.
        instance_only: Whether a response that holds no evidence may be left unread.
    """
    repairs: list[str] = []
    output = _extract_output(record, columns)
    used = _list_used_columns(record, columns, output)
    own = record if own is None else own
    if instance_only and settings.reader is None and _is_plain(output, record, columns):
        record, reading = _add_passages(record, columns, output), None
    else:
        record, reading = _read_output(record, columns, output, settings)
    row = _parse_row(record, columns)
    instance = _build_instance(record, columns, row, repairs)
    if reading is not None:
        with_observations = conversion.add_tool_outputs(instance, reading)
        if with_observations is not instance:
            instance = with_observations
            repairs.append(conversion.OBSERVATIONS_ADDED)
    if columns.documents and not instance.evidence:
        raise RecordError(
            f"{columns.passages[0]}: there are no documents, neither in such a column nor in the output of a tool. "
            "Name their path with --map documents=PATH (and the others: question=PATH,answer=PATH)"
        )
    converted = conversion.finish_record_conversion(instance, repairs, prefix)
    if reading is None or reading.status is ReadingStatus.NOT_A_RESPONSE:
        return converted
    # Several trajectories may end in the same answer, so the id of a response is derived from all its texts.
    originals = recorded.list_texts(reading) if output.before or output.response is not None else row.response
    response = recorded.build_response(reading, converted.instance.id, output.trace, originals)
    response = _add_model(response, _read_name(record, columns.model))
    own, notes = conversion.pick_own_columns(own, used)
    return replace(converted, response=replace(response, columns=own), notes=(*recorded.list_notes(reading), *notes))


def _build_instance(record: JsonObject, columns: ToolColumnNames, row: RagToolRecord, repairs: list[str]) -> Instance:
    reference = conversion.read_reference_answer(row.reference, repairs)
    aliases = conversion.first_present_column(record, columns.aliases) or ()
    return Instance(
        id=conversion.read_record_id(conversion.first_present_column(record, columns.id), repairs),
        question=row.question,
        evidence=conversion.drop_blank_passages(conversion.build_passages(row.passages, repairs), None, repairs),
        reference_answer=reference,
        aliases=conversion.clean_answer_aliases(reference, aliases),
        benchmark=_read_name(record, columns.dataset),
        kind=_read_name(record, columns.kind),
        hops=_read_whole_number(record, columns.hops),
    )


def _add_model(response: Response, model: str | None) -> Response:
    if model is None:
        return response
    # Two models may give the same response, and each counts.
    digest = content_hash(model).removeprefix("sha256:")[:8]
    return replace(response, id=f"{response.id}-{digest}", source=ResponseSource(model))


def _list_used_columns(record: JsonObject, columns: ToolColumnNames, output: SystemOutput) -> set[str]:
    """Return the names of the columns that fields are read from: of several for a field the first that has a value."""
    fields = (columns.question, columns.passages, columns.reference, columns.response, columns.id, columns.calls,
              columns.steps, columns.model, columns.dataset, columns.aliases, columns.kind, columns.hops)  # fmt: skip
    used = {next((name for name in names if record.get(name) is not None), "") for names in fields}
    # The trace may stand in the row under two names, as providers of chat models repeat it.
    traces = columns.trace or TRACE_COLUMNS
    return used | {name for name in traces if output.trace is not None and record.get(name) == output.trace}


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


def _extract_output(record: JsonObject, columns: ToolColumnNames) -> SystemOutput:
    """Return what the system put out, as the columns hold it."""
    question = next((name for name in columns.question if record.get(name) is not None), columns.question[0])
    calls = next((name for name in columns.calls if record.get(name)), None)
    steps = next((name for name in columns.steps if record.get(name) is not None), None)
    before: JsonObject | None = None
    if is_message_list(record.get(question)):
        before = {"messages": record[question]}
    elif calls is not None:
        before = {"tools_called": _check_list(record[calls], calls, "objects with a name, and an output")}
    elif steps is not None:
        before = {"intermediate_steps": _check_pairs(record[steps], steps)}
    _refuse_several(record, columns)
    name = _trace_column(record, columns.trace or TRACE_COLUMNS)
    trace = record.get(name)
    if isinstance(trace, dict) and trace:
        raise RecordError(f"{name}: should be a text, or a list of texts or of objects with a text")
    response = conversion.first_present_column(record, columns.response)
    unread = response if isinstance(response, dict | list) else None
    return SystemOutput(unread, trace if isinstance(trace, str | list) and trace else None, name, before)


def _is_plain(output: SystemOutput, record: JsonObject, columns: ToolColumnNames) -> bool:
    """Return whether a response is a text in which no tool returned anything."""
    if output.before is not None or output.trace is not None or output.response is not None:
        return False
    response = conversion.first_present_column(record, columns.response)
    return response is None or (isinstance(response, str) and not holds_results(response))


def _check_list(calls: Any, column: str, items: str) -> list[JsonObject]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RecordError(f"{column}: should be a list of {items} where there was one")
    return calls


def _check_pairs(steps: Any, column: str) -> list[Any]:
    if not isinstance(steps, list):
        raise RecordError(f"{column}: should be a list of pairs of an action and its observation")
    for number, step in enumerate(steps):
        if not isinstance(step, list) or len(step) != 2:
            raise RecordError(f"{column}[{number}]: should be a pair of an action and its observation")
    return steps


def _read_output(
    record: JsonObject, columns: ToolColumnNames, output: SystemOutput, settings: ReadSettings
) -> tuple[JsonObject, Reading | None]:
    """Return the record with a single question and response, and the reading of the response if there is one."""
    response = conversion.first_present_column(record, columns.response)
    question = conversion.first_present_column(record, columns.question)
    text = question if isinstance(question, str) else ""
    has_response = bool(response.strip()) if isinstance(response, str) else isinstance(response, dict | list)
    reading = None
    if output.before is not None or output.trace is not None or has_response:
        try:
            reading = recorded.read_columns(
                response if has_response else None, output.trace, output.before, text, settings
            )
        except RecordError as error:
            (key, value), *_ = [*(output.before or {}).items(), ("trace", None)]
            name = next(
                (name for name, content in record.items() if value is not None and content is value), output.name
            )
            problem = re.sub(r"^trace\b", output.name, error.problem)
            raise RecordError(re.sub(rf"^{key}\b", name, problem)) from error
    if is_message_list(question) and reading is not None:
        name = next(name for name in columns.question if record.get(name) is question)
        if reading.question is None:
            raise RecordError(f"{name}: holds 0 messages of a person. The question is the last one that has text")
        record = {**record, name: reading.question}
    if isinstance(response, dict | list):
        record = {**record, **{name: None for name in columns.response if record.get(name) is response}}
    return _add_passages(record, columns, output), reading


def _add_passages(record: JsonObject, columns: ToolColumnNames, output: SystemOutput) -> JsonObject:
    """Return the record with a column of passages, which the record of an agent may lack: it gathers its evidence."""
    # Where none is found elsewhere either, ``convert_columns`` says so.
    if (output.before is not None or columns.documents) and conversion.first_present_column(
        record, columns.passages
    ) is None:
        record = {**record, columns.passages[0]: []}
    return record


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
