"""Parquet files, written one row group at a time in constant memory, and where they are. Needs pyarrow, an extra."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def is_path_pattern(path: Path | str) -> bool:
    """Return whether a path has wildcards, ``*`` and in a local path ``?`` and ``[``, and is no file itself."""
    # A question mark in an address begins its options.
    if (url := get_remote_url(path)) is not None:
        return "*" in url
    return re.search(r"[*?[]", str(path)) is not None and not Path(path).exists()


def split_path_pattern(path: Path | str) -> tuple[str, list[str]]:
    """Return the folder of a pattern, and the parts of its path from the first wildcard on; none of any other path."""
    url = get_remote_url(path)
    if not is_path_pattern(path):
        return url or str(path), []
    text, mark, options = url.partition("?") if url else (Path(path).as_posix(), "", "")
    parts = text.split("/")
    first = next(number for number, part in enumerate(parts) if re.search(r"[*?[]", part))
    return ("/".join(parts[:first]) or ("/" if text.startswith("/") else ".")) + mark + options, parts[first:]


class ParquetFiles(NamedTuple):
    """The files of a table."""

    filesystem: Any
    folder: str
    """Folder below which they are, or the file."""
    paths: list[str]


def find_parquet_files(path: Path | str) -> ParquetFiles:
    """Return the files of a table, in the order of their names: a file, those of a folder, or those of a pattern.

    Files and folders whose names begin with a dot or an underscore are left out: engines keep unfinished work there.

    Raises:
        UserError: The place cannot be opened, or is a table of Delta, Iceberg or Hudi.
    """
    from pyarrow import fs  # noqa: PLC0415 - an extra

    fixed, pattern = split_path_pattern(path)
    filesystem, folder = open_filesystem(fixed)
    matches = sorted(_match_pattern(filesystem, folder, pattern)) if pattern else [folder]
    paths = []
    for match in matches:
        if filesystem.get_file_info([match])[0].type is fs.FileType.Directory:
            paths += _list_folder(filesystem, match)
        else:
            paths.append(match)
    return ParquetFiles(filesystem, folder, paths)


def _match_pattern(filesystem: Any, folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that match the parts of a pattern; ``**`` is any number of folders."""
    from pyarrow import fs  # noqa: PLC0415 - an extra

    first, *rest = pattern
    if first == "**" and rest:
        yield from _match_pattern(filesystem, folder, rest)
    for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        if _is_hidden(info.base_name) or not fnmatchcase(info.base_name, first):
            continue
        if not rest:
            yield info.path
        elif info.type is fs.FileType.Directory:
            yield from _match_pattern(filesystem, info.path, pattern if first == "**" else rest)


def _list_folder(filesystem: Any, folder: str) -> list[str]:
    """Return the Parquet files of a folder and all below it."""
    from pyarrow import fs  # noqa: PLC0415 - an extra

    entries = [info.path for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True))]
    names = [path.removeprefix(folder).strip("/") for path in entries]
    if any(re.search(r"(^|/)(_delta_log|\.hoodie)(/|$)|\.metadata\.json$", name) for name in names):
        raise UserError(
            f"{folder}: is a table of Delta, Iceberg or Hudi, whose folder keeps files that were replaced. "
            "Write its rows to a folder of plain Parquet files."
        )
    return sorted(
        path
        for path, name in zip(entries, names, strict=True)
        if name.endswith(".parquet") and not any(map(_is_hidden, name.split("/")))
    )


def _is_hidden(name: str) -> bool:
    # A column may begin with an underscore: `_day=1` is a folder of its rows.
    return name.startswith((".", "_")) and "=" not in name


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
