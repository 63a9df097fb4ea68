"""Conversion steps shared by all record layouts: ids, answers, passages, and the permitted repairs.

A repair fixes a defect that published files are known to contain. Repairs are counted per file and listed in the data
guide; every other defect is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.spans.documents import list_tool_documents
from eclose.reading.recorded import build_response
from eclose.values.identity import content_hash
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.files.json_reader import JsonObject
    from eclose.readers.spans.documents import RetrievedChunk
    from eclose.reading.response import Reading

ID_DERIVED = "id derived from content"
ID_WAS_NUMBER = "number taken as id"
ANSWER_BLANK = "blank answer taken as none"
PASSAGE_BLANK = "passage without text left out"
SUPPORT_ABSENT = "supporting fact of an absent passage left out"
SUPPORT_SHARED = "supporting title shared by several passages"
SENTENCE_ABSENT = "supporting sentence beyond its passage"
DOC_ID_REPEATED = "repeated doc_id replaced by position"
COLUMN_LONG = "long column of the user's own left out"
OBSERVATIONS_ADDED = "observations of an agent taken as evidence"


ID_COLUMNS = ("id", "query_id", "question_id", "request_id", "custom_id", "trace_id")
"""Columns with the id of a record, in order of preference."""


TIME_COLUMNS = ("timestamp", "created_at", "createdAt", "created", "time", "start_time", "startTime")
"""Columns with the time of a response, in order of preference."""
MAX_COLUMN_LENGTH = 2_000
"""Longest value of a user's own column that is kept, in characters of JSON: every table and list repeats it."""


@dataclass(frozen=True, slots=True)
class ToolColumnNames:
    """Names of the columns of a tool, in order of preference: the first that is present counts."""

    question: tuple[str, ...]
    passages: tuple[str, ...]
    reference: tuple[str, ...]
    response: tuple[str, ...]
    id: tuple[str, ...] = ID_COLUMNS
    calls: tuple[str, ...] = ()
    """The columns with an agent's tool calls."""
    steps: tuple[str, ...] = ()
    """The columns with pairs of action and observation."""
    model: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """The columns with a list of further accepted answers."""
    kind: tuple[str, ...] = ()
    hops: tuple[str, ...] = ()
    trace: tuple[str, ...] | None = None
    """The columns with the trace; None for the usual names."""
    documents: bool = False
    """Whether passages may have the shapes of other tools' documents."""


@dataclass(frozen=True, slots=True)
class ConvertedRecord:
    """An instance converted from a benchmark's or a tool's record, with the repairs it needed."""

    instance: Instance
    repairs: tuple[str, ...] = ()
    response: Response | None = None
    """The response in the same record, if any."""
    rejected: str | None = None
    """Why the instance is excluded, such as ``unanswerable``."""
    notes: tuple[str, ...] = ()
    """Decisions about the response; counted as repairs of the response, not of the instance."""


def first_present_column(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first non-null value among several columns; None where all are missing or null."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def pick_own_columns(record: JsonObject, used: Iterable[str]) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the columns that no field was read from, without empty and long values; and notes on the long ones."""
    names = set(used)
    columns = {name: value for name, value in record.items() if name not in names and value is not None}
    long = [name for name, value in columns.items() if _is_long(value)]
    return {name: columns[name] for name in columns if name not in long}, (COLUMN_LONG,) * bool(long)


def _is_long(value: object) -> bool:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return isinstance(value, str) and len(value) > MAX_COLUMN_LENGTH


def read_record_id(value: object, repairs: list[str]) -> str:
    """Return the id as a text; empty where there is none."""
    # bool is a subclass of int, and True is not an id.
    if isinstance(value, int) and not isinstance(value, bool):
        repairs.append(ID_WAS_NUMBER)
        return str(value)
    if value is not None and not isinstance(value, str):
        raise RecordError("id: should be a text")
    if value is not None and not value.strip():
        raise RecordError("id: is empty; leave the key out and an id will be derived")
    return value or ""


def read_reference_answer(answer: str | None, repairs: list[str]) -> str | None:
    """Return the reference answer; None where a test split omits it or leaves it blank."""
    if answer is not None and not answer.strip():
        repairs.append(ANSWER_BLANK)
        return None
    return answer


def clean_answer_aliases(answer: str | None, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the aliases in order, without blanks, repeats and the answer itself."""
    if answer is None:
        return ()
    return tuple(dict.fromkeys(alias for alias in candidates if alias.strip() and alias != answer))


def columns_to_rows(record: JsonObject, key: str, columns: tuple[str, ...]) -> JsonObject:
    """Return the record with parallel lists, as in Hugging Face tables, turned into a list of rows."""
    table = record.get(key)
    if not isinstance(table, dict):
        return record
    lists = [table.get(column) for column in columns]
    for column, values in zip(columns, lists, strict=True):
        if not isinstance(values, list):
            raise RecordError(f"{key}.{column}: should be a list")
    lengths = {column: len(values) for column, values in zip(columns, lists, strict=True) if values is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{column} {length}" for column, length in lengths.items())
        raise RecordError(f"{key}: its lists differ in length ({listed})")
    return {**record, key: [list(row) for row in zip(*(values or [] for values in lists), strict=True)]}


def drop_blank_passages(
    passages: Iterable[Passage], support: tuple[str, ...] | None, repairs: list[str]
) -> tuple[Passage, ...]:
    """Return the passages with text."""
    passages = tuple(passages)
    # A blank passage that is marked as supporting stays: check_core_rules then rejects the record instead of hiding it.
    with_text = tuple(passage for passage in passages if passage.text.strip() or passage.id in (support or ()))
    if len(with_text) < len(passages):
        repairs.append(PASSAGE_BLANK)
    return with_text


def build_passages(chunks: Sequence[RetrievedChunk], repairs: list[str]) -> list[Passage]:
    """Return passages with the id of their document where all are unique, else with their index."""
    ids = [chunk.doc_id for chunk in chunks if chunk.doc_id]
    is_unique = len(ids) == len(chunks) and len(set(ids)) == len(ids)
    # Several chunks of one document share its doc_id, which would merge them into one passage.
    if len(set(ids)) < len(ids):
        repairs.append(DOC_ID_REPEATED)
    return [
        Passage(ids[index] if is_unique else str(index), chunk.title, chunk.text) for index, chunk in enumerate(chunks)
    ]


def finish_record_conversion(
    instance: Instance, repairs: list[str], prefix: str, *, rejected: str | None = None
) -> ConvertedRecord:
    """Return the converted record; derive a missing id from question and evidence."""
    if not instance.id:
        # A content hash gives the same id in every run and on every machine, whatever the order of the file.
        texts = [[passage.title, passage.text] for passage in instance.evidence]
        digest = content_hash([instance.question, texts]).removeprefix("sha256:")[:16]
        instance = replace(instance, id=f"{prefix}-{digest}")
        repairs.append(ID_DERIVED)
    return ConvertedRecord(instance, tuple(dict.fromkeys(repairs)), rejected=rejected)


def build_case(
    instance: Instance,
    reading: Reading,
    *texts: object,
    id: str | None = None,  # noqa: A002
) -> tuple[Instance, Response]:
    """Return the question with what tools returned as passages, and the response; texts are those it was read from."""
    complete = add_tool_outputs(instance, reading)
    return complete, build_response(reading, complete.id, *texts, id=id)


def add_tool_outputs(instance: Instance, reading: Reading) -> Instance:
    """Return the question with what tools returned: one passage for each document, else one for all of it.

    Other evidence makes another question, so a hash of the new passages is appended to the id. Output that repeats a
    passage is dropped; that of a repeated search becomes one passage.
    """
    if not reading.evidence:
        return instance
    passages_before = {_collapse_blanks(passage.text) for passage in instance.evidence}
    new: dict[str, tuple[str, str]] = {}
    for output in reading.evidence:
        for chunk in list_tool_documents(output.value):
            text = chunk.text.strip()
            if (collapsed := _collapse_blanks(text)) not in passages_before:
                new.setdefault(collapsed, (chunk.title or output.name, text))
    if not new:
        return instance
    passages = (
        Passage(f"observation-{number}", title or f"Observation {number} of the agent", text)
        for number, (title, text) in enumerate(new.values(), start=1)
    )
    digest = content_hash([text for _, text in new.values()]).removeprefix("sha256:")[:8]
    return replace(instance, id=instance.id and f"{instance.id}-{digest}", evidence=(*instance.evidence, *passages))


def _collapse_blanks(text: str) -> str:
    return " ".join(text.split())
