"""Reading of JSON objects from JSON Lines, a JSON array, an object around an array, or Parquet, one at a time.

An object around an array is ``{"results": [...]}`` and the like, or any object with a single array, if it is written
over several lines: in one line it may be a record of JSON Lines, which is up to the caller. Gzip is recognised by
content. Memory does not grow with the file.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from eclose.errors import RecordError, UserError
from eclose.files.parquet import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO


# Strict parsing of JSON: repeated keys, NaN and infinities are errors, and a record must be an object.
#
# Parses one text, or the values of an array that is too large for memory, through a sliding window.


JsonObject: TypeAlias = dict[str, Any]

RECORD_LIMIT = 64 * 2**20
"""Longest record that is read, in bytes of a line or characters of an array item; real records are far shorter."""

_CHUNK = 2**16
_DELIMITERS = frozenset(" \t\r\n,]}:")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


def parse_json_object(line: bytes) -> JsonObject:
    """Return the JSON object of a line; raise a RecordError that describes the defect of the text."""
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"byte {error.start + 1} is not UTF-8 ({error.reason}). Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        # A parser that fails at the very end of the text ran out of input.
        cut = " The line seems cut off." if error.pos >= len(error.doc.rstrip()) else ""
        raise RecordError(f"is not JSON: {error.msg} at column {error.pos + 1}.{cut}") from error
    except RecursionError as error:
        raise RecordError("is nested too deeply to be a record.") from error
    return require_json_object(value)


def require_json_object(value: object) -> JsonObject:
    """Return the value if it is an object, a bare list of chat messages as ``{"messages": [...]}``; raise otherwise."""
    if is_conversation(value):
        return {"messages": value}
    if not isinstance(value, dict):
        names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
        name = names.get(type(value), "null")
        raise RecordError(f"is a JSON {name}, not an object. A record is written as {{...}}.")
    return value


def is_conversation(value: object) -> bool:
    """Return whether a value is a list of messages with roles, as chat APIs take it."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in value)
    )


class JsonStreamWindow:
    """A section of text that moves along a stream, so that a large array is never in memory as a whole.

    Bytes that are not UTF-8 raise with the value that contains them; the values around it stay readable.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        # surrogateescape carries foreign bytes along until the value that contains them is read.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._start = 0
        self._value_text = ""

    def peek(self) -> str:
        """Return the next character that is not blank; empty at the end."""
        while not (match := _NOT_BLANK.search(self._text, self._start)):
            self._start = len(self._text)
            if not self._read_more():
                return ""
        self._start = match.start()
        return match[0]

    def skip(self, character: str) -> bool:
        """Skip the character if it comes next; return whether it did."""
        if self.peek() != character:
            return False
        self._start += 1
        return True

    def read_value(self) -> Any:
        """Return the next value. Raise a RecordError where it is not strict JSON, after skipping it."""
        self.peek()
        try:
            value = self._decode(_STRICT)
        except RecordError:
            self._decode(_LENIENT)
            raise
        _refuse_foreign_bytes(self._value_text)
        return value

    def skip_value(self) -> None:
        """Skip the next value, strict JSON or not."""
        self.peek()
        self._decode(_LENIENT)

    def _decode(self, decoder: json.JSONDecoder) -> Any:
        """Return the value at the start of the window; extend the window until the value is complete."""
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._start)
            except json.JSONDecodeError:
                if len(self._text) - self._start > RECORD_LIMIT or not self._read_more():
                    raise
                continue
            # A number may continue beyond the window: the "1" of "1.5" parses as a value, too.
            closed = self._text[end - 1] in '}]"' or self._text[end : end + 1] in _DELIMITERS
            if not closed and self._read_more():
                continue
            self._value_text, self._start = self._text[self._start : end], end
            return value

    def _read_more(self) -> bool:
        """Double the window, so that a long value is parsed few times; return False at the end."""
        data = self._stream.read(max(_CHUNK, len(self._text) - self._start))
        self._text = self._text[self._start :] + self._decoder.decode(data, final=not data)
        self._start = 0
        return bool(data)


def _refuse_foreign_bytes(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise RecordError(f"holds the byte 0x{byte:02x}, which is not UTF-8. Save the file as UTF-8.") from error


def _unique_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
        raise RecordError(f"has the key {twice!r} twice in one object. Keep one of them.")
    return value


def _no_constant(name: str) -> NoReturn:
    raise RecordError(f"holds {name}, which is not JSON. Use null.")


def _short_integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise RecordError(f"holds a number of {len(digits)} digits. Write it as a text.") from error


_STRICT = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_int=_short_integer)
# Finds the end of a value that the strict decoder refused.
_LENIENT = json.JSONDecoder(parse_int=str)


# Common files that are not JSON get a message of their own instead of a parse error at byte 1.
_TABLES = (".csv", ".tsv")
_GZIP = b"\x1f\x8b"
_OTHER_LAYOUTS = {
    b"PK\x03\x04": "is a zip archive. Unpack it and name a file from it.",
    b"\x28\xb5\x2f\xfd": "is packed with zstd. Unpack it first: zstd -d FILE.",
    b"PAR1": "is Parquet under another name. Let its name end in .parquet.",
}
_BY_ROWS = "Write it by rows as JSON Lines; with pandas: df.to_json('file.jsonl', orient='records', lines=True)."
_BOM = b"\xef\xbb\xbf"
# Longest first line that may be a conversation, in bytes; a longer one is an array of records.
_CONVERSATION_LIMIT = 2**22
_WRAPPERS = ("results", "data", "examples")
_ARRAY = re.compile(rb"\s*\[")
# Either the wrapping key comes first, or the object starts with a line break, which no line of JSON Lines does.
_WRAPPED = re.compile(rb'\s*\{\s*"(?:%s)"\s*:\s*\[|\s*\{\s*\n' % "|".join(_WRAPPERS).encode())


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One object of a file, or the error that took its place."""

    where: str
    """Location in the file: ``line 412`` of JSON Lines, ``record 412`` of an array, ``row 412`` of a table."""
    value: JsonObject | None = None
    error: RecordError | None = None


def read_json_objects(path: Path | str) -> Iterator[RawRecord]:
    """Return an iterator over the objects of the file, in order.

    A record that cannot be read becomes a ``RawRecord`` with an error, and reading continues. Raises where the brackets
    or commas of an array are broken, since the items after the break cannot be found.
    """
    path = Path(path)
    require_regular_file(path)
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    if path.suffix.lower() in _TABLES:
        raise UserError(
            f"{path}: is a table of texts, in which lists cannot be told from texts. {_BY_ROWS} References in a table "
            "are joined to responses by their question: "
            "rows = responses.merge(pandas.read_csv('golden.csv'), on='question'); eclose.evaluate(rows, judge=...)."
        )
    return _json_objects(path)


def require_regular_file(path: Path) -> None:
    """Raise unless the path is a regular file; the message says what it is instead."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is a pipe or a device, and files are read more than once. Save it to a file first.")
    if not path.exists():
        raise UserError(f"{path}: there is no such file. Check the path.")


def raise_file_problems(path: Path, problems: Sequence[str], most: int = 10) -> None:
    """Raise a UserError that lists the problems of a file, at most the first ``most``; return where there are none."""
    if problems:
        listed = [problem.removeprefix(f"{path} ") for problem in problems[:most]]
        if len(problems) > most:
            listed.append(f"and {len(problems) - most} more")
        raise UserError(f"{path}: cannot be used as it is. {'; '.join(listed)}.")


def open_bytes(path: Path) -> io.BufferedIOBase:
    """Open a file for reading bytes; gzip is unpacked, under any name."""
    try:
        file = path.open("rb")
        head = file.peek(4)[:4]
        if not head.startswith(_GZIP) and head not in _OTHER_LAYOUTS:
            return file
        file.close()
        if head in _OTHER_LAYOUTS:
            raise UserError(f"{path}: {_OTHER_LAYOUTS[head]}")
        return gzip.open(path, "rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error


def is_plain_json_lines(path: Path) -> bool:
    """Return whether a file is JSON Lines as it is: not packed, not Parquet, and not one array or object."""
    if path.suffix == ".parquet" or path.suffix.lower() in _TABLES:
        return False
    with path.open("rb") as file:
        head = file.read(2**16).removeprefix(_BOM)
    if head.startswith((_GZIP, *_OTHER_LAYOUTS)) or b"\x00" in head[:2] or head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return False
    return not _ARRAY.match(head) and not _WRAPPED.match(head)


def _json_objects(path: Path, wrappers: Sequence[str] = _WRAPPERS) -> Iterator[RawRecord]:
    try:
        with open_bytes(path) as file:
            stream: io.BufferedReader = io.BufferedReader(file, 2**16)
            head = _skip_byte_order_mark(stream, path)
            if _ARRAY.match(head) and not (b'"role"' in head and _begins_with_conversation(path)):
                window = JsonStreamWindow(stream)
                yield from _bracketed(window, path)
                if window.peek():
                    raise UserError(
                        f"{path}: something follows the end of the JSON array. Put all records into one array."
                    )
            elif _WRAPPED.match(head):
                yield from _wrapped_items(JsonStreamWindow(stream), path, wrappers)
            else:
                yield from _lines(stream, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as broken:
        raise UserError(
            f"{path}: the compressed file is damaged or cut off ({broken}). Fetch or pack it again."
        ) from broken
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error


def _begins_with_conversation(path: Path) -> bool:
    """Return whether the first line is a list of messages: a record of JSON Lines, and no array of records."""
    with open_bytes(path) as file:
        line = file.readline(_CONVERSATION_LIMIT).removeprefix(_BOM)
    try:
        return is_conversation(json.loads(line))
    except ValueError:
        return False


def _skip_byte_order_mark(stream: io.BufferedReader, path: Path) -> bytes:
    """Skip a byte order mark; return the start of the file without consuming it."""
    head = stream.peek()
    if head.startswith(_BOM):
        stream.read(len(_BOM))
        head = head.removeprefix(_BOM)
    # UTF-16 has a mark of its own, or, for ASCII characters, a zero in the first two bytes.
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\x00" in head[:2]:
        raise UserError(f"{path}: this looks like UTF-16. Save it as UTF-8.")
    return head


def read_lines(stream: BinaryIO | io.BufferedReader, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of every line that is not blank; a byte order mark is no part of the first."""
    number = offset = 0
    while read := stream.readline(RECORD_LIMIT):
        number += 1
        line = read.removeprefix(_BOM) if number == 1 else read
        # A file without line breaks (one huge object) would otherwise be read into memory as a single line.
        if len(read) == RECORD_LIMIT and not read.endswith(b"\n"):
            problem = f"is longer than {RECORD_LIMIT:,} bytes. Put one record on each line."
            raise RecordError(problem, path=path, record=f"line {number}")
        if line and not line.isspace():
            yield number, offset + len(read) - len(line), line
        offset += len(read)


def _lines(stream: io.BufferedReader, path: Path) -> Iterator[RawRecord]:
    for number, _, line in read_lines(stream, path):
        where = f"line {number}"
        try:
            yield RawRecord(where, value=parse_json_object(line))
        except RecordError as error:
            yield RawRecord(where, error=error.at(path, where))


def _wrapped_items(window: JsonStreamWindow, path: Path, names: Sequence[str]) -> Iterator[RawRecord]:
    """Yield the items of the arrays under the wrapping keys, or of the only array where there are none.

    Other keys, such as overall scores, are skipped.
    """
    keys: list[str] = []
    lists: list[str] = []
    window.skip("{")
    try:
        while window.peek() == '"':
            key = window.read_value()
            if not window.skip(":"):
                break
            (lists if window.peek() == "[" else keys).append(key)
            if key in names and window.peek() == "[":
                yield from _bracketed(window, path)
            else:
                _skip_by_item(window)
            if not window.skip(","):
                break
    except (json.JSONDecodeError, RecordError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON ({_reason(error)}). Fetch or write the file again.") from error
    if not window.skip("}") or window.peek():
        raise UserError(
            f"{path}: is one object that is broken or cut off, or something follows it. Put one record on each line, "
            "or all of them into one array."
        )
    if not set(names).intersection(lists):
        # The name is known only now, and what was read is gone: the file is read a second time.
        yield from _json_objects(path, (_choose_list(path, keys, lists),))


def _skip_by_item(window: JsonStreamWindow) -> None:
    """Skip a value; an array item by item, since it may be too large for memory."""
    if not window.skip("["):
        window.skip_value()
        return
    while window.peek() not in {"]", ""}:
        window.skip_value()
        if not window.skip(","):
            break
    # Where the bracket is missing, the next key is, too, and the caller says so.
    window.skip("]")


def _choose_list(path: Path, keys: Sequence[str], lists: Sequence[str]) -> str:
    """Return the key of the only array of an object; raise where there is none, or more than one."""
    if len(lists) == 1:
        return lists[0]
    listed = ", ".join(repr(key) for key in (lists or keys)[:20]) or "none"
    problem = (
        f"is one object with lists called {listed}, so it is open which holds the records. Call that one data"
        if lists
        else f"is one object without a list of records. Its keys: {listed}. Put all records into one array"
    )
    raise UserError(
        f"{path}: {problem}, or put one record on each line. Is it a table written column by column? {_BY_ROWS}"
    )


def _bracketed(window: JsonStreamWindow, path: Path) -> Iterator[RawRecord]:
    window.skip("[")
    number = 0
    # After a comma another item must follow: the end of ``[{...},]`` is read as an item, and refused.
    while window.peek() != "]" or number:
        where = f"record {number + 1}"
        try:
            yield RawRecord(where, value=require_json_object(window.read_value()))
        except RecordError as error:
            yield RawRecord(where, error=error.at(path, where))
        except (json.JSONDecodeError, RecursionError) as error:
            raise _broken(path, number, error) from error
        number += 1
        if not window.skip(","):
            break
    if not window.skip("]"):
        raise _broken(path, number, None)


def _broken(path: Path, number: int, error: Exception | None) -> UserError:
    reason = "its end is missing" if error is None else _reason(error)
    return UserError(
        f"{path}: the JSON array breaks off after record {number} ({reason}). "
        "Later records cannot be read: fetch or write the file again."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _parquet_rows(path: Path) -> Iterator[RawRecord]:
    arrow, parquet = import_pyarrow(f"{path}: reading Parquet")
    try:
        with parquet.ParquetFile(path) as table:
            number = 0
            # A batch is converted to Python objects as a whole; 256 rows of long passages stay below 100 MB.
            for batch in table.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield RawRecord(f"row {number}", value=row)
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: this is not a readable Parquet file ({error}).") from error
