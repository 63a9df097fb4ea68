"""A flat table as Parquet. Needs pyarrow, an extra."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any

from eclose.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.annotation.results.flat_tables import FlatTable

_AT_ONCE = 10_000
_TYPES = {str: "string", int: "int64", bool: "bool_"}


def write_parquet(path: Path, table: FlatTable) -> None:
    """Write a table; memory does not grow with it."""
    arrow, parquet = _pyarrow()
    schema = arrow.schema([(name, getattr(arrow, _TYPES[kind])()) for name, kind in table.columns.items()])
    rows = table.rows()
    # On the disk before the folder takes its place, as all other files.
    with path.open("wb") as file:
        writer = parquet.ParquetWriter(file, schema, compression="zstd")
        while some := list(islice(rows, _AT_ONCE)):
            writer.write_table(arrow.Table.from_pylist(some, schema))
        writer.close()
        file.flush()
        os.fsync(file.fileno())


def require_pyarrow() -> None:
    """Raise where Parquet cannot be written, before anything is."""
    _pyarrow()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as missing:
        raise UserError("writing Parquet needs pyarrow. Run: pip install 'eclose[parquet]'") from missing
    return arrow, parquet
