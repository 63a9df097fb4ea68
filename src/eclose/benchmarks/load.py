"""A file of questions in any known layout, read one instance at a time.

Puts the pieces together: bytes from ``store``, one converter per layout, the rules every instance must keep, and
a memory of ids. Memory grows by a few dozen bytes a record.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from eclose.benchmarks import hotpot, musique, tool_formats, two_wiki
from eclose.benchmarks.conversion import Converted
from eclose.benchmarks.layouts import Format, detect
from eclose.core.instance import Instance
from eclose.core.response import Response
from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import read_objects
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, NOT_JSON, WRONG_RECORD, ReadRecord, check, encode, parse
from eclose.store.records.seen_ids import SeenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from eclose.store.records.json_reader import JsonObject

Aliases: TypeAlias = "Mapping[str, tuple[str, ...]]"
Converter: TypeAlias = "Callable[[JsonObject], Converted]"
Value = TypeVar("Value", Instance, Response)

NO_RESPONSE = "no response"


def scan_instances(
    path: Path,
    *,
    format: Format = Format.AUTO,  # noqa: A002 - the flag's name
    aliases: Aliases | None = None,
) -> Iterator[ReadRecord[Instance]]:
    """Every record of the file as an instance, a reason, or an error.

    A record that repeats an earlier one under the same id is rejected as a duplicate; other content under a known
    id is an error. What is wrong with the file as a whole raises.
    """
    seen = SeenIds()
    for record in _scan(path, format, aliases):
        if record.value is None:
            # A reason or an error is the same for records of every kind; so below.
            yield cast("ReadRecord[Instance]", record)
        else:
            yield _settle(path, record, record.value.instance, seen)


def scan_responses(
    path: Path,
    *,
    format: Format = Format.AUTO,  # noqa: A002 - the flag's name
) -> Iterator[ReadRecord[Response]]:
    """Every response that stands beside its question, for the layouts that have responses."""
    instances, responses = SeenIds(), SeenIds()
    for record in _scan(path, format, None):
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


def detect_file(path: Path) -> Format:
    """The layout of a file, by its first readable record."""
    empty = True
    for raw in read_objects(path):
        empty = False
        if raw.value is None:
            continue
        try:
            return detect(raw.value)
        except RecordError as error:
            raise error.at(path, raw.where) from error
    if empty:
        raise UserError(f"{path}: holds no records. Check that this is the file you meant.")
    # Nothing in it can be read, so any layout will do to say so record by record.
    return Format.ECLOSE


def converter(layout: Format, aliases: Aliases | None = None) -> Converter:
    """The function that turns a raw record of this layout into an instance."""
    if layout in tool_formats.COLUMNS:
        return partial(tool_formats.to_instance, layout=layout)
    converters: dict[Format, Converter] = {
        Format.HOTPOT: hotpot.to_instance,
        Format.TWO_WIKI: partial(two_wiki.to_instance, aliases=aliases),
        Format.MUSIQUE: musique.to_instance,
        Format.ECLOSE: lambda record: Converted(parse(Instance, record)),
    }
    return converters[layout]


def _scan(path: Path, layout: Format, aliases: Aliases | None) -> Iterator[ReadRecord[Converted]]:
    """Records converted one by one, without regard to each other."""
    convert = converter(detect_file(path) if layout is Format.AUTO else layout, aliases)
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


def _settle(path: Path, record: ReadRecord[Converted], value: Value, seen: SeenIds) -> ReadRecord[Value]:
    """The value if it keeps the rules and its id is new, a rejection if it merely repeats, else an error."""
    try:
        check(value)
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
