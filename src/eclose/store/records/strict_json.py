"""Strict parsing of JSON: repeated keys, NaN and infinities are errors, and a record must be an object.

Parses one text, or the values of an array that is too large for memory, through a sliding window.
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
        raise RecordError(f"is a JSON {_name(value)}, not an object. A record is written as {{...}}.")
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


def _name(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
