"""Writing of Parquet files, one row group at a time, in constant memory. Needs pyarrow, an extra."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from eclose.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def import_pyarrow(purpose: str = "writing Parquet") -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``; raise with the install command where they are missing."""
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as missing:
        raise UserError(f"{purpose} needs pyarrow. Run: pip install 'eclose[parquet]'") from missing
    return arrow, parquet


class ParquetWriter:
    """A Parquet file that is being written; compressed with zstd, synced to the disk when it is closed."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path = path
        self._schema = schema

    def __enter__(self) -> Self:
        self._arrow, parquet = import_pyarrow()
        self._file = self._path.open("wb")
        try:
            # An open file and not a path: its size is read while it grows, and it is synced before it is renamed.
            self._writer = parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Write the footer, and sync the file before it is renamed into place."""
        with self._file:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())

    @property
    def size(self) -> int:
        """Number of bytes written so far."""
        return self._file.tell()

    def write(self, table: Any) -> None:
        """Write an Arrow table as a row group."""
        self._writer.write_table(table)

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Write rows as a row group."""
        self.write(self._arrow.Table.from_pylist(rows, self._schema))
