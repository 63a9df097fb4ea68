"""Reading of question files in any known layout, one instance at a time.

Every record is converted, checked against the rules for instances, and checked for repeated ids. Memory grows by a few
dozen bytes a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from eclose.benchmarks import hotpot, musique, rag_eval_formats, two_wiki
from eclose.benchmarks.conversion import ConvertedRecord
from eclose.benchmarks.layouts import RecordLayout, detect_record_layout
from eclose.core.instance import Instance
from eclose.core.response import Response
from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import read_json_objects
from eclose.store.records.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    check_core_rules,
    encode_json_line,
    parse_dataclass,
)
from eclose.store.records.outcome_counts import RecordCounter, RecordCounts
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from eclose.store.records.json_reader import JsonObject

AnswerAliases: TypeAlias = "Mapping[str, tuple[str, ...]]"
RecordConverter: TypeAlias = "Callable[[JsonObject], ConvertedRecord]"
Value = TypeVar("Value", Instance, Response)

NO_RESPONSE = "no response"


@dataclass(frozen=True, slots=True)
class QuestionFileCheck:
    """The result of reading a whole file of questions."""

    counts: RecordCounts
    problems: tuple[RecordError, ...]
    """Errors of the first unusable records, up to the limit."""
    stopped: UserError | None = None
    """Why reading stopped before the end of the file; None where the end was reached."""

    @property
    def passed(self) -> bool:
        """Whether the file was read to its end without an unusable record."""
        return self.stopped is None and not self.counts.quarantined


def scan_instances(
    path: Path,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    aliases: AnswerAliases | None = None,
) -> Iterator[ReadRecord[Instance]]:
    """Yield every record of the file as an instance, a reason for its rejection, or an error.

    A record that repeats an earlier one with the same id is rejected as a duplicate; other content under a used id is
    an error. Raises where the file as a whole cannot be read.
    """
    instance_ids = SeenIds()
    for record in _scan(path, layout, aliases):
        if record.value is None:
            # Without a value the type parameter is void: a reason or an error fits records of every kind.
            yield cast("ReadRecord[Instance]", record)
        else:
            yield _check_value(path, record, record.value.instance, instance_ids)


def scan_recorded_responses(
    path: Path,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
) -> Iterator[ReadRecord[Response]]:
    """Yield every response recorded together with its question, in the layouts that have responses."""
    instance_ids, response_ids = SeenIds(), SeenIds()
    for record in _scan(path, layout, None):
        if record.value is None:
            yield cast("ReadRecord[Response]", record)
            continue
        # A question may repeat with another response; two questions under one id make the response ambiguous.
        question = _check_value(path, record, record.value.instance, instance_ids)
        if question.error is not None:
            yield cast("ReadRecord[Response]", question)
        elif record.value.response is None:
            yield ReadRecord(record.where, rejected=NO_RESPONSE)
        else:
            repaired = replace(record, repairs=(*record.repairs, *record.value.notes))
            yield _check_value(path, repaired, record.value.response, response_ids)


def detect_file_layout(path: Path) -> RecordLayout:
    """Return the layout of a file by its first readable record."""
    empty = True
    # Unreadable records at the start of a file do not decide its layout.
    for raw in read_json_objects(path):
        empty = False
        if raw.value is None:
            continue
        try:
            return detect_record_layout(raw.value)
        except RecordError as error:
            raise error.at(path, raw.where) from error
    if empty:
        raise UserError(f"{path}: holds no records. Check that this is the file you meant.")
    # No record is readable; with any layout the scan then reports the error of each record.
    return RecordLayout.ECLOSE


def check_question_file(records: Iterable[ReadRecord[Instance]], *, limit: int) -> QuestionFileCheck:
    """Read all records of a file; return their counts and the first ``limit`` problems."""
    counter = RecordCounter()
    problems: list[RecordError] = []
    stopped: UserError | None = None
    try:
        for record in records:
            counter.add(record)
            if record.error is not None and len(problems) < limit:
                problems.append(record.error)
    except UserError as error:
        stopped = error
    return QuestionFileCheck(counter.counts(), tuple(problems), stopped)


def _get_record_converter(layout: RecordLayout, aliases: AnswerAliases | None = None) -> RecordConverter:
    """Return the function that converts a raw record of this layout."""
    if layout in rag_eval_formats.LAYOUT_COLUMNS:
        return partial(rag_eval_formats.convert_tool_record, layout=layout)
    converters: dict[RecordLayout, RecordConverter] = {
        RecordLayout.HOTPOT: hotpot.convert_hotpot_record,
        RecordLayout.TWO_WIKI: partial(two_wiki.convert_two_wiki_record, aliases=aliases),
        RecordLayout.MUSIQUE: musique.convert_musique_record,
        RecordLayout.ECLOSE: lambda record: ConvertedRecord(parse_dataclass(Instance, record)),
    }
    return converters[layout]


def _scan(path: Path, layout: RecordLayout, aliases: AnswerAliases | None) -> Iterator[ReadRecord[ConvertedRecord]]:
    """Yield the converted records, before ids are compared."""
    convert = _get_record_converter(detect_file_layout(path) if layout is RecordLayout.AUTO else layout, aliases)
    for raw in read_json_objects(path):
        if raw.value is None:
            yield ReadRecord(raw.where, error=raw.error, error_kind=NOT_JSON)
            continue
        try:
            converted = convert(raw.value)
        except RecordError as error:
            yield ReadRecord(raw.where, error=error.at(path, raw.where), error_kind=WRONG_RECORD)
            continue
        if converted.rejected is not None:
            yield ReadRecord(raw.where, rejected=converted.rejected)
        else:
            yield ReadRecord(raw.where, value=converted, repairs=converted.repairs)


def _check_value(path: Path, record: ReadRecord[ConvertedRecord], value: Value, seen_ids: SeenIds) -> ReadRecord[Value]:
    """Return the value if it keeps the rules and its id is new, a rejection if it is a duplicate, else an error."""
    try:
        check_core_rules(value)
    except RecordError as error:
        return ReadRecord(record.where, error=error.at(path, record.where), error_kind=WRONG_RECORD)
    unit, number = record.where.split(" ")  # "line 412", "record 412" or "row 412"
    earlier = seen_ids.add(value.id, encode_json_line(value), int(number))
    if earlier is None:
        return ReadRecord(record.where, value=value, repairs=record.repairs)
    first_number, is_same = earlier
    if is_same:
        return ReadRecord(record.where, rejected=DUPLICATE)
    problem = f"the id {value.id!r} was used in {unit} {first_number} for other content. Give every record its own id."
    return ReadRecord(record.where, error=RecordError(problem, path=path, record=record.where), error_kind=ID_REUSED)
