"""Parquet files, written one row group at a time in constant memory, and where they are. Needs pyarrow, an extra."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMOTE = re.compile(r"(s3|gs|gcs|abfs|abfss):/+(.+)")


def get_remote_url(path: Path | str) -> str | None:
    """Return an address in object storage; None for a path.

    A ``Path`` of an address has lost one of its slashes, which is put back.
    """
    # "s3://bucket/run" as a Path is "s3:/bucket/run".
    match = _REMOTE.fullmatch(str(path))
    return None if match is None else f"{match[1]}://{match[2].rstrip('/')}"


def open_filesystem(path: Path | str) -> tuple[Any, str]:
    """Return pyarrow's file system of a path or an address, and the path in it."""
    import_pyarrow(f"{path}: Parquet")
    from pyarrow import fs  # noqa: PLC0415 - an extra

    if (url := get_remote_url(path)) is None:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        filesystem, inside = fs.FileSystem.from_uri(url)
    except (OSError, ValueError) as error:
        raise UserError(f"{url}: cannot be opened ({error}).") from error
    return filesystem, inside


def import_pyarrow(purpose: str = "writing Parquet") -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``; raise with the install command where they are missing."""
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as missing:
        raise UserError(f"{purpose} needs pyarrow. Run: pip install 'eclose[parquet]'") from missing
    return arrow, parquet


def list_arrow_fields(types: Mapping[str, type]) -> list[Any]:
    """Return the fields of columns that hold bool, int, float or str."""
    arrow, _ = import_pyarrow()
    kinds = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    return [arrow.field(name, kinds[kind]) for name, kind in types.items()]


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
