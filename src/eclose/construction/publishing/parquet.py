"""Families as a table: Parquet that readers of columns load as it is, and the same families back from it.

The columns are the fields of a family, nested as they are there. What has no shape of its own, such as the reply of a
verifier, is a text of JSON, since a column has one shape. Needs pyarrow, an extra.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from eclose.core.family import Family
from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import parse_object, read_objects
from eclose.store.records.jsonl import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROUP_BYTES = 32 * 2**20
"""A row group is written when it has grown to this, and is what a reader holds at a time."""
SHARD_BYTES = 256 * 2**20
"""A file is closed when it has grown to this; a split has as many as it takes."""
_ROWS = 64
"""Families turned into columns at once."""
_PLAIN = {str: "string", int: "int64", float: "float64", bool: "bool_"}


def write_families_parquet(
    folder: Path | str,
    split: str,
    families: Iterable[Family],
    *,
    group_bytes: int = GROUP_BYTES,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write ``train-00000.parquet`` and so on; no file where there is no family. Memory does not grow with them."""
    arrow, parquet = _pyarrow()
    schema = _schema()
    written: list[Path] = []
    with ExitStack() as stack:
        sink: Any = None
        writer: Any = None
        for group in _groups(families, schema, group_bytes):
            if sink is None or sink.tell() >= shard_bytes:
                stack.close()
                written.append(Path(folder) / f"{split}-{len(written):05}.parquet")
                sink = stack.enter_context(written[-1].open("wb"))
                writer = stack.enter_context(parquet.ParquetWriter(sink, schema, compression="zstd"))
            writer.write_table(arrow.Table.from_batches(group))
    return written


def read_families_parquet(*paths: Path | str) -> Iterator[Family]:
    """Every family of the files, one after the other; the first that cannot be read raises."""
    for path in paths:
        for raw in read_objects(path):
            if raw.error is not None:
                raise raw.error
            try:
                yield decode(Family, _told(Family, raw.value))
            except RecordError as error:
                raise error.at(path, raw.where) from error


def _groups(families: Iterable[Family], schema: Any, most: int) -> Iterator[list[Any]]:
    """Batches of columns, as many as make a row group."""
    arrow, _ = _pyarrow()
    group: list[Any] = []
    rest = iter(families)
    while rows := [_cell(family) for family in islice(rest, _ROWS)]:
        try:
            group.append(arrow.RecordBatch.from_pylist(rows, schema=schema))
        except (arrow.ArrowException, OverflowError) as error:
            among = f"{rows[0]['id']!r} to {rows[-1]['id']!r}"
            raise UserError(f"a family from {among} holds what a table cannot ({error}).") from error
        if sum(batch.nbytes for batch in group) >= most:
            yield group
            group = []
    if group:
        yield group


def _cell(value: Any) -> Any:
    """A value as a cell: structures by their fields, what has no fixed shape as a text of JSON."""
    kind: Any = type(value)
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, tuple):
        return [_cell(one) for one in value]
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if _structured(kind):
        return {name: _cell(getattr(value, name)) for name in _kinds(kind)}
    return value


def _told(kind: Any, cell: Any) -> Any:
    """A cell as a record of JSON Lines has it."""
    if cell is None:
        return None
    kind = _given(kind)
    if get_origin(kind) is tuple:
        return [_told(get_args(kind)[0], one) for one in cell]
    if _structured(kind):
        kinds = _kinds(kind)
        # A name that is no field is left for the door to refuse.
        return {name: _told(kinds.get(name), one) for name, one in cell.items()}
    return parse_object(cell.encode()) if _shapeless(kind) and isinstance(cell, str) else cell


@cache
def _schema() -> Any:
    arrow, _ = _pyarrow()
    return arrow.schema(list(_column(Family)))


def _column(kind: Any) -> Any:
    """The type of a column that holds values of a kind."""
    arrow, _ = _pyarrow()
    kind = _given(kind)
    if get_origin(kind) is tuple:
        return arrow.list_(_column(get_args(kind)[0]))
    if _shapeless(kind) or issubclass(kind, str):
        return arrow.string()
    if _structured(kind):
        return arrow.struct([arrow.field(name, _column(one)) for name, one in _kinds(kind).items()])
    return getattr(arrow, _PLAIN[kind])()


def _given(kind: Any) -> Any:
    """``X`` for ``X | None``."""
    if NoneType not in get_args(kind):
        return kind
    (given,) = (one for one in get_args(kind) if one is not NoneType)
    return given


def _structured(kind: Any) -> bool:
    return is_dataclass(kind)


def _shapeless(kind: Any) -> bool:
    return get_origin(kind) is Mapping


@cache
def _kinds(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as missing:
        raise UserError("writing Parquet needs pyarrow. Run: pip install 'eclose[parquet]'") from missing
    return arrow, parquet
