"""Reading of families from JSON Lines, Parquet tables or values, checked against the gates and for repeated ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from eclose.errors import RecordError, UserError
from eclose.files.id_set import SeenIds
from eclose.files.json_reader import parse_json_object, read_json_objects
from eclose.files.jsonl import DUPLICATE, WRONG_RECORD, ReadRecord, decode_core_value, encode_json_line, scan_records
from eclose.files.parquet import ParquetWriter, import_pyarrow
from eclose.values.family import Family
from eclose.values.family_rules import check_family

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class FamilySource:
    """Where families are read from, as often as needed: files, or rows in memory."""

    name: str
    """What messages and manifests call it: a path, an address on a hub, or the type of the rows."""
    files: tuple[Path, ...] = ()
    rows: Iterable[Family | Mapping[str, Any]] = ()
    """Families, or rows of a table such as ``datasets.Dataset``; read only where there are no files."""

    @property
    def json_file(self) -> Path | None:
        """The file itself, where the families are one file of JSON; None for tables, several files and rows."""
        return self.files[0] if len(self.files) == 1 and self.files[0].suffix != ".parquet" else None

    def scan(self) -> Iterator[ReadRecord[Family]]:
        """Yield every record as a family or an error, unchecked by gates."""
        if not self.files:
            for number, row in enumerate(self.rows, start=1):
                where = f"record {number}"
                yield ReadRecord(where, value=row) if isinstance(row, Family) else _decode(self.name, where, row)
        for file in self.files:
            records = scan_records(file, Family)
            if file.suffix == ".parquet":
                records = (_decode(file, raw.where, raw.value or {}) for raw in read_json_objects(file))
            # Row numbers start anew in every file.
            prefix = f"{file.name} " if len(self.files) > 1 else ""
            for record in records:
                yield replace(record, where=prefix + record.where) if prefix else record


def _decode(path: Path | str, where: str, row: Mapping[str, Any]) -> ReadRecord[Family]:
    try:
        return ReadRecord(where, value=decode_family_row(row))
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=WRONG_RECORD)


def scan_families(families: Path | FamilySource) -> Iterator[ReadRecord[Family]]:
    """Yield every record of a file or source as a family, a reason for its rejection, or an error.

    A family that fails a gate or repeats an earlier one is rejected; other content under a used id is an error.
    """
    source = families if isinstance(families, FamilySource) else FamilySource(str(families), (families,))
    seen_ids = SeenIds()
    for number, record in enumerate(source.scan(), start=1):
        yield record if record.value is None else _check_family(source.name, record, record.value, seen_ids, number)


def _check_family(
    path: str, record: ReadRecord[Family], family: Family, seen_ids: SeenIds, number: int
) -> ReadRecord[Family]:
    # Ids are compared before the gates, so that a duplicate is counted as one whether or not it passes them.
    if earlier := seen_ids.add(family.id, encode_json_line(family), number):
        first_number, is_same = earlier
        if is_same:
            return ReadRecord(record.where, rejected=DUPLICATE)
        problem = f"the id {family.id!r} was used by record {first_number} for other content. Give it another id."
        return ReadRecord(
            record.where, error=RecordError(problem, path=path, record=record.where), error_kind=WRONG_RECORD
        )
    reason = find_failed_gate(family)
    return ReadRecord(record.where, rejected=reason) if reason else record


def find_failed_gate(family: Family) -> str | None:
    """Return the first gate that a family fails, as a reason for its rejection; None where it passes all."""
    failures = check_family(family)
    return f"fails {failures[0].gate.value}" if failures else None


# Families as Parquet tables, and back.
#
# The columns are the fields of a family, nested like them. Mappings without fixed keys, such as the reply of a
# verifier, are written as JSON text, because a column has a fixed type. Needs pyarrow, an extra.


GROUP_BYTES = 32 * 2**20
"""Size at which a row group is written; readers hold one row group at a time."""
SHARD_BYTES = 256 * 2**20
"""Size at which a file is closed and the next one begins."""
_BATCH_FAMILIES = 64
"""Families converted to columns at a time."""
_ARROW_TYPES = {str: "string", int: "int64", float: "float64", bool: "bool_"}


def write_families_parquet(
    folder: Path | str,
    split: str,
    families: Iterable[Family],
    *,
    group_bytes: int = GROUP_BYTES,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write families as ``train-00000.parquet`` and so on, in constant memory; without a family, no file.

    Args:
        folder: Folder of the files.
        split: First part of the file names.
        families: Families, read once.
        group_bytes: Size of a row group.
        shard_bytes: Size of a file.

    Returns:
        The files.
    """
    arrow, _ = import_pyarrow()
    schema = _schema()
    paths: list[Path] = []
    with ExitStack() as stack:
        file: ParquetWriter | None = None
        for group in _groups(families, schema, group_bytes):
            if file is None or file.size >= shard_bytes:
                # Closes the previous shard, which writes its footer, before the next one is opened.
                stack.close()
                paths.append(Path(folder) / f"{split}-{len(paths):05}.parquet")
                file = stack.enter_context(ParquetWriter(paths[-1], schema))
            file.write(arrow.Table.from_batches(group))
    return paths


def decode_family_row(row: Mapping[str, Any]) -> Family:
    """Return the family of a row of a table, such as ``datasets`` yields; raise a RecordError that lists every defect.

    A JSON object of a family is a row as well.
    """
    return decode_core_value(Family, _from_cell(Family, row))


def _groups(families: Iterable[Family], schema: Any, most: int) -> Iterator[list[Any]]:
    arrow, _ = import_pyarrow()
    group: list[Any] = []
    families = iter(families)
    while rows := [_to_cell(family) for family in islice(families, _BATCH_FAMILIES)]:
        try:
            group.append(arrow.RecordBatch.from_pylist(rows, schema=schema))
        except (arrow.ArrowException, OverflowError) as error:
            ids = f"{rows[0]['id']!r} to {rows[-1]['id']!r}"
            raise UserError(f"a family from {ids} does not fit into a table ({error}).") from error
        # By bytes rather than rows: families differ widely in length.
        if sum(batch.nbytes for batch in group) >= most:
            yield group
            group = []
    if group:
        yield group


def _to_cell(value: Any) -> Any:
    """Return a value as a cell: dataclasses by their fields, mappings as JSON text."""
    kind: Any = type(value)
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, tuple):
        return [_to_cell(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if _has_fields(kind):
        return {name: _to_cell(getattr(value, name)) for name in _field_types(kind)}
    return value


def _from_cell(kind: Any, cell: Any) -> Any:
    if cell is None:
        return None
    kind = _without_none(kind)
    if get_origin(kind) is tuple and isinstance(cell, list):
        return [_from_cell(get_args(kind)[0], item) for item in cell]
    if _has_fields(kind) and isinstance(cell, Mapping):
        types, optional = _field_types(kind), _optional_fields(kind)
        # Unknown names are passed on, so that decoding refuses them as it does for JSON Lines. A table made from JSON
        # Lines has a null wherever a line omits a default.
        return {
            name: _from_cell(types.get(name), item)
            for name, item in cell.items()
            if item is not None or name not in optional
        }
    return parse_json_object(cell.encode()) if get_origin(kind) is Mapping and isinstance(cell, str) else cell


@cache
def _schema() -> Any:
    arrow, _ = import_pyarrow()
    return arrow.schema(list(_column_type(Family)))


def _column_type(kind: Any) -> Any:
    """Return the Arrow type of a column that holds values of a Python type."""
    arrow, _ = import_pyarrow()
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        return arrow.list_(_column_type(get_args(kind)[0]))
    if get_origin(kind) is Mapping or issubclass(kind, str):
        return arrow.string()
    if _has_fields(kind):
        return arrow.struct([arrow.field(name, _column_type(hint)) for name, hint in _field_types(kind).items()])
    return getattr(arrow, _ARROW_TYPES[kind])()


def _without_none(kind: Any) -> Any:
    if NoneType not in get_args(kind):
        return kind
    (member,) = (member for member in get_args(kind) if member is not NoneType)
    return member


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind)


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _optional_fields(kind: Any) -> frozenset[str]:
    return frozenset(
        field.name for field in fields(kind) if field.default is not MISSING or field.default_factory is not MISSING
    )
