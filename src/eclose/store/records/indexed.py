"""Records of a file by their place, without holding them in memory: a million families are tens of gigabytes.

A record is read again from the file whenever it is needed, and must then have the bytes it had when it was indexed.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from eclose.errors import RecordError, UserError
from eclose.store.records.counts import RecordCounter
from eclose.store.records.json_reader import parse_object, require_file
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, NOT_JSON, WRONG_RECORD, ReadRecord, decode, encode
from eclose.store.records.seen_ids import SeenIds, hash64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_BOM = b"\xef\xbb\xbf"
_CHANGED = "is no longer where it was: the file was changed while it was in use. Start again."


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_HasId)


class IndexedFile(Generic[T]):
    """The accepted records of a JSON Lines file, read again from the file each time they are asked for."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind
        self._offsets = array("Q")
        self._digests = array("Q")
        self.ids: list[str] = []

    @classmethod
    def restored(cls, path: Path, kind: type[T], rows: Iterable[tuple[str, int, int]]) -> IndexedFile[T]:
        """Return an index made of the rows of another index of the same file."""
        index = cls(path, kind)
        for record_id, offset, line_digest in rows:
            index.ids.append(record_id)
            index._offsets.append(offset)
            index._digests.append(line_digest)
        return index

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Yield the id of each accepted record, its position in the file in bytes, and the digest of its line."""
        return zip(self.ids, self._offsets, self._digests, strict=True)

    def __len__(self) -> int:
        """How many records were accepted."""
        return len(self._offsets)

    def __getitem__(self, index: int) -> T:
        """The record at a place."""
        # Opened anew each time: a loader's workers must not share a position in the file.
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            line = file.readline()
        if hash64(line) != self._digests[index]:
            raise RecordError(_CHANGED, path=self.path, record=repr(self.ids[index]))
        return decode(self._kind, parse_object(line))

    def _accept(self, value: T, offset: int, line: bytes) -> None:
        self._offsets.append(offset)
        self._digests.append(hash64(line))
        self.ids.append(value.id)


def index_file(
    path: Path, kind: type[T], refuse: Callable[[T], str | None] = lambda _: None
) -> tuple[IndexedFile[T], RecordCounter, list[ReadRecord[T]]]:
    """Read a file once: its index, the counts, and every record that was not accepted.

    ``refuse`` gives the reason to set a readable record aside, or None. A record that repeats another is set aside, one
    that takes another's id for different content cannot be used.
    """
    require_file(path)
    index, tally, seen = IndexedFile(path, kind), RecordCounter(), SeenIds()
    left_out: list[ReadRecord[T]] = []
    for number, offset, line in _lines(path):
        record = _judged(path, kind, number, line, refuse, seen)
        tally.add(record)
        if record.error is None and record.rejected is None and record.value is not None:
            index._accept(record.value, offset, line)
        else:
            left_out.append(replace(record, value=None))
    return index, tally, left_out


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Line number, place in the file, bytes; blank lines are none."""
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise UserError(f"{path}: is packed, and places in it cannot be found again. Unpack it first.")
        file.seek(0)
        offset = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
        file.seek(offset)
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _judged(
    path: Path, kind: type[T], number: int, line: bytes, refuse: Callable[[T], str | None], seen: SeenIds
) -> ReadRecord[T]:
    where = f"line {number}"
    try:
        parsed = parse_object(line)
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=NOT_JSON)
    try:
        value = decode(kind, parsed)
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=WRONG_RECORD)
    if first := seen.add(value.id, encode(value), number):
        if first[1]:
            return ReadRecord(where, value=value, rejected=DUPLICATE)
        problem = RecordError(f"the id {value.id!r} was used in line {first[0]} for something else; give it another")
        return ReadRecord(where, error=problem.at(path, where), error_kind=ID_REUSED)
    return ReadRecord(where, value=value, rejected=refuse(value))
