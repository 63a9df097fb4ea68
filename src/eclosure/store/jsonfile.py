"""A file of JSON objects, read one object at a time, whatever its layout.

Knows bytes, compression, encodings and JSON; knows nothing of what the objects mean. Reads JSON Lines, a JSON
array, an object that wraps an array (``{"results": [...]}``), and Parquet. Memory does not grow with the file.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

from eclosure.errors import RecordError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

JsonObject: TypeAlias = dict[str, Any]

LINE_LIMIT = 64 * 2**20
"""Longest line or first record read into memory, in bytes: no single record is near it."""

_BOM = b"\xef\xbb\xbf"
_WRAPPERS = ("results", "data", "examples")


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One object of a file, or why there is none at this place."""

    where: str
    """``line 412`` of JSON Lines, ``record 412`` of an array, ``row 412`` of a table."""
    value: JsonObject | None = None
    error: RecordError | None = None


def read_objects(path: Path | str) -> Iterator[RawRecord]:
    """Every object of the file in order.

    A line of JSON Lines that cannot be read becomes a ``RawRecord`` with an error, and reading goes on. An array
    that breaks off cannot be read past the break: that raises.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file. Check the path.")
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    return _json_objects(path)


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes, unpacked when it is gzip, whatever its name."""
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.open(path, "rb")) if packed else path.open("rb")


def _json_objects(path: Path) -> Iterator[RawRecord]:
    try:
        with open_bytes(path) as stream:
            head = _first_line(stream, path)
            if not head:
                return
            rest = _Rejoined(head, stream)
            if head.lstrip()[:1] == b"[":
                yield from _array_items(rest, "item", path)
            elif wrapper := _wrapper(head):
                yield from _array_items(rest, f"{wrapper}.item", path)
            else:
                yield from _lines(io.BufferedReader(rest), path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as broken:
        raise UserError(
            f"{path}: the compressed file is damaged or cut off ({broken}). Fetch or pack it again."
        ) from broken


def _first_line(stream: BinaryIO, path: Path) -> bytes:
    """The first line that says anything, without a byte order mark; empty for an empty file."""
    blank = b""
    line = stream.readline(LINE_LIMIT).removeprefix(_BOM)
    while line and not line.strip():
        blank += line
        line = stream.readline(LINE_LIMIT)
    if line[:2] in {b"\xff\xfe", b"\xfe\xff"} or line[:1] == b"\x00" or line[1:2] == b"\x00":
        raise UserError(f"{path}: this looks like UTF-16. Save it as UTF-8.")
    return blank + line


def _wrapper(head: bytes) -> str | None:
    """The key of the array inside a wrapping object; None for JSON Lines."""
    try:
        first = json.loads(head)
    except (ValueError, RecursionError):
        # A pretty-printed object opens with a lone brace; a broken line of JSON Lines says more than that.
        if head.strip() != b"{":
            return next((key for key in _WRAPPERS if head.split(b":")[0].strip(b' {"\t') == key.encode()), None)
        return _WRAPPERS[0]
    if not isinstance(first, dict):
        return None
    return next((key for key in _WRAPPERS if list(first) == [key] and isinstance(first[key], list)), None)


class _Rejoined(io.RawIOBase):
    """A stream with its already read beginning put back."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._head or size == 0:
            return self._rest.read(size)
        taken = self._head if size < 0 else self._head[:size]
        self._head = b"" if size < 0 else self._head[size:]
        return taken + self._rest.read() if size < 0 else taken

    def readinto(self, buffer: Any) -> int:
        taken = self.read(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)


def _lines(stream: io.BufferedReader, path: Path) -> Iterator[RawRecord]:
    number = 0
    while line := stream.readline(LINE_LIMIT):
        number += 1
        if not line.strip():
            continue
        where = f"line {number}"
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            raise RecordError(
                f"is longer than {LINE_LIMIT} bytes. Put one record on each line.", path=path, record=where
            )
        try:
            yield RawRecord(where, value=parse_object(line))
        except RecordError as error:
            yield RawRecord(where, error=error.at(path, where))


def parse_object(line: bytes) -> JsonObject:
    """One JSON object, or an error that says what is wrong with the text."""
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RecordError(f"byte {error.start + 1} is not UTF-8 ({error.reason}). Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        cut = " The line seems cut off." if error.pos >= len(error.doc.rstrip()) else ""
        raise RecordError(f"is not JSON: {error.msg} at column {error.pos + 1}.{cut}") from error
    except RecursionError as error:
        raise RecordError("is nested too deeply to be a record.") from error
    except ValueError as error:
        raise RecordError(f"is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RecordError(f"is a JSON {_name(value)}, not an object. Put one {{...}} on each line.")
    return value


def _unique_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RecordError(f"has the key {twice!r} twice in one object. Keep one of them.")
    return value


def _no_constant(name: str) -> None:
    raise RecordError(f"holds {name}, which is not JSON. Use null.")


def _name(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _array_items(stream: io.RawIOBase, prefix: str, path: Path) -> Iterator[RawRecord]:
    import ijson  # noqa: PLC0415 - only arrays need it

    number = 0
    try:
        for item in ijson.items(stream, prefix, use_float=True):
            number += 1
            where = f"record {number}"
            if isinstance(item, dict):
                yield RawRecord(where, value=item)
            else:
                problem = f"is a JSON {_name(item)}, not an object."
                yield RawRecord(where, error=RecordError(problem, path=path, record=where))
    except (ijson.JSONError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: the JSON array breaks off after record {number} ({reason}). "
            "Nothing behind that place can be read: fetch or write the file again."
        ) from error


def _parquet_rows(path: Path) -> Iterator[RawRecord]:
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as missing:
        raise UserError(f"{path}: reading Parquet needs pyarrow. Run: pip install 'eclosure[parquet]'") from missing
    try:
        table = parquet.ParquetFile(path)
        number = 0
        for batch in table.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield RawRecord(f"row {number}", value=row)
    except arrow.ArrowException as error:
        raise UserError(f"{path}: this is not a readable Parquet file ({error}).") from error
