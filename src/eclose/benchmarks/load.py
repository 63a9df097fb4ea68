"""A file of questions in any known layout, read one instance at a time.

Puts the pieces together: bytes from ``store``, one converter per layout, the rules every instance must keep, and
a memory of ids. Memory grows by a few dozen bytes a record.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from eclose.benchmarks import hotpot, musique, tool_formats, two_wiki
from eclose.benchmarks.conversion import ConvertedRecord
from eclose.benchmarks.layouts import RecordLayout, detect_record_layout
from eclose.core.instance import Instance
from eclose.core.response import Response
from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import read_objects
from eclose.store.records.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    check_rules,
    encode,
    parse_record,
)
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from eclose.store.records.json_reader import JsonObject

Aliases: TypeAlias = "Mapping[str, tuple[str, ...]]"
Converter: TypeAlias = "Callable[[JsonObject], ConvertedRecord]"
Value = TypeVar("Value", Instance, Response)

NO_RESPONSE = "no response"


def scan_instances(
    path: Path,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    aliases: Aliases | None = None,
) -> Iterator[ReadRecord[Instance]]:
    """Every record of the file as an instance, a reason, or an error.

    A record that repeats an earlier one under the same id is rejected as a duplicate; other content under a known
    id is an error. What is wrong with the file as a whole raises.
    """
    seen = SeenIds()
    for record in _scan(path, layout, aliases):
        if record.value is None:
            # A reason or an error is the same for records of every kind; so below.
            yield cast("ReadRecord[Instance]", record)
        else:
            yield _settle(path, record, record.value.instance, seen)


def scan_responses(
    path: Path,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
) -> Iterator[ReadRecord[Response]]:
    """Every response that stands beside its question, for the layouts that have responses."""
    instances, responses = SeenIds(), SeenIds()
    for record in _scan(path, layout, None):
        if record.value is None:
            yield cast("ReadRecord[Response]", record)
            continue
        # A question may be asked twice, but two different questions under one id leave the response homeless.
        question = _settle(path, record, record.value.instance, instances)
        if question.error is not None:
            yield cast("ReadRecord[Response]", question)
        elif record.value.response is None:
            yield ReadRecord(record.where, rejected=NO_RESPONSE)
        else:
            noted = replace(record, repairs=(*record.repairs, *record.value.notes))
            yield _settle(path, noted, record.value.response, responses)


def detect_layout(path: Path) -> RecordLayout:
    """The layout of a file, by its first readable record."""
    empty = True
    for raw in read_objects(path):
        empty = False
        if raw.value is None:
            continue
        try:
            return detect_record_layout(raw.value)
        except RecordError as error:
            raise error.at(path, raw.where) from error
    if empty:
        raise UserError(f"{path}: holds no records. Check that this is the file you meant.")
    # Nothing in it can be read, so any layout will do to say so record by record.
    return RecordLayout.ECLOSE


def get_converter(layout: RecordLayout, aliases: Aliases | None = None) -> Converter:
    """The function that turns a raw record of this layout into an instance."""
    if layout in tool_formats.LAYOUT_COLUMNS:
        return partial(tool_formats.convert_record, layout=layout)
    converters: dict[RecordLayout, Converter] = {
        RecordLayout.HOTPOT: hotpot.convert_record,
        RecordLayout.TWO_WIKI: partial(two_wiki.convert_record, aliases=aliases),
        RecordLayout.MUSIQUE: musique.convert_record,
        RecordLayout.ECLOSE: lambda record: ConvertedRecord(parse_record(Instance, record)),
    }
    return converters[layout]


def _scan(path: Path, layout: RecordLayout, aliases: Aliases | None) -> Iterator[ReadRecord[ConvertedRecord]]:
    """Records converted one by one, without regard to each other."""
    convert = get_converter(detect_layout(path) if layout is RecordLayout.AUTO else layout, aliases)
    for raw in read_objects(path):
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


def _settle(path: Path, record: ReadRecord[ConvertedRecord], value: Value, seen: SeenIds) -> ReadRecord[Value]:
    """The value if it keeps the rules and its id is new, a rejection if it merely repeats, else an error."""
    try:
        check_rules(value)
    except RecordError as error:
        return ReadRecord(record.where, error=error.at(path, record.where), error_kind=WRONG_RECORD)
    unit, number = record.where.split(" ")
    earlier = seen.add(value.id, encode(value), int(number))
    if earlier is None:
        return ReadRecord(record.where, value=value, repairs=record.repairs)
    place, same = earlier
    if same:
        return ReadRecord(record.where, rejected=DUPLICATE)
    problem = f"the id {value.id!r} was used in {unit} {place} for other content. Give every record its own id."
    return ReadRecord(record.where, error=RecordError(problem, path=path, record=record.where), error_kind=ID_REUSED)
