"""JSON text taken strictly: no repeated keys, no NaN, nothing but objects where objects are due.

Knows one text, or a window that slides along an array too large for memory. Knows nothing of files.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from eclose.errors import RecordError

if TYPE_CHECKING:
    from typing import BinaryIO

JsonObject: TypeAlias = dict[str, Any]

RECORD_LIMIT = 64 * 2**20
"""Longest record read into memory, in bytes of a line or characters of an array: no real record is near it."""

_CHUNK = 2**16
_DELIMITERS = frozenset(" \t\r\n,]}:")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


def parse_object(line: bytes) -> JsonObject:
    """One JSON object, or an error that says what is wrong with the text."""
    try:
        value = _STRICT.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"byte {error.start + 1} is not UTF-8 ({error.reason}). Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        cut = " The line seems cut off." if error.pos >= len(error.doc.rstrip()) else ""
        raise RecordError(f"is not JSON: {error.msg} at column {error.pos + 1}.{cut}") from error
    except RecursionError as error:
        raise RecordError("is nested too deeply to be a record.") from error
    return as_object(value)


def as_object(value: object) -> JsonObject:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        raise RecordError(f"is a JSON {_name(value)}, not an object. A record is written as {{...}}.")
    return value


class JsonWindow:
    """A stretch of text that slides along a stream, so that a large array never lies in memory whole.

    Bytes that are not UTF-8 are carried along and refused where they occur: one bad record spoils no other.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._start = 0
        self._taken = ""

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while not (found := _NOT_BLANK.search(self._text, self._start)):
            self._start = len(self._text)
            if not self._read_on():
                return ""
        self._start = found.start()
        return found[0]

    def skip(self, character: str) -> bool:
        """Step over the character if it comes next."""
        if self.peek() != character:
            return False
        self._start += 1
        return True

    def take(self) -> Any:
        """The next value. A value that is refused is passed over before the error is raised."""
        self.peek()
        try:
            value = self._decode(_STRICT)
        except RecordError:
            self._decode(_LENIENT)
            raise
        _refuse_foreign_bytes(self._taken)
        return value

    def pass_over(self) -> None:
        """Step over the next value, whatever it holds."""
        self.peek()
        self._decode(_LENIENT)

    def _decode(self, decoder: json.JSONDecoder) -> Any:
        """A value from where the window starts; the window grows until the value is whole."""
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._start)
            except json.JSONDecodeError:
                if len(self._text) - self._start > RECORD_LIMIT or not self._read_on():
                    raise
                continue
            # A number may go on behind the window: "1" of "1.5" is a value too.
            closed = self._text[end - 1] in '}]"' or self._text[end : end + 1] in _DELIMITERS
            if not closed and self._read_on():
                continue
            self._taken, self._start = self._text[self._start : end], end
            return value

    def _read_on(self) -> bool:
        """Read as much again as there is, so that a long value is tried few times; False at the end."""
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
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
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
# Only good for finding where a refused value ends.
_LENIENT = json.JSONDecoder(parse_int=str)


def _name(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
