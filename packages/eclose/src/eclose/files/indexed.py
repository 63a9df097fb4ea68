"""Random access to the records of a JSON Lines file that is too large for memory (a million families: tens of GB).

The index holds the id, the offset and a digest of every line. A record is read from the file whenever it is needed;
a line that changed since it was indexed raises.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from eclose.errors import RecordError, UserError
from eclose.files.id_set import SeenIds, hash64
from eclose.files.json_reader import parse_json_object, require_regular_file
from eclose.files.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    decode_core_value,
    encode_json_line,
)
from eclose.files.outcome_counts import RecordCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


_BOM = b"\xef\xbb\xbf"
_CHANGED = "was changed in the file while the file was in use. Run the command again."


class HasId(Protocol):
    """A record with an id."""

    @property
    def id(self) -> str:
        """The id, unique in a run."""
        ...


T = TypeVar("T", bound=HasId)


class IndexedFile(Generic[T]):
    """The accepted records of a JSON Lines file, by index; every access reads the file."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind
        # Arrays take 8 bytes a number, lists of Python integers about 40.
        self._offsets = array("Q")
        self._digests = array("Q")
        self.ids: list[str] = []

    @classmethod
    def from_rows(cls, path: Path, kind: type[T], rows: Iterable[tuple[str, int, int]]) -> IndexedFile[T]:
        """Return an index from the ``rows`` of an earlier index of the same file."""
        index = cls(path, kind)
        for record_id, offset, line_digest in rows:
            index.ids.append(record_id)
            index._offsets.append(offset)
            index._digests.append(line_digest)
        return index

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Yield the id of each accepted record, its offset in the file in bytes, and the digest of its line."""
        return zip(self.ids, self._offsets, self._digests, strict=True)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> T:
        # Opened for every access: the worker processes of a data loader must not share a file position.
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            line = file.readline()
        if hash64(line) != self._digests[index]:
            raise RecordError(_CHANGED, path=self.path, record=repr(self.ids[index]))
        return decode_core_value(self._kind, parse_json_object(line))

    def _accept(self, value: T, offset: int, line: bytes) -> None:
        self._offsets.append(offset)
        self._digests.append(hash64(line))
        self.ids.append(value.id)


def index_jsonl_file(
    path: Path, kind: type[T], refuse: Callable[[T], str | None] = lambda _: None
) -> tuple[IndexedFile[T], RecordCounter, list[ReadRecord[T]]]:
    """Read a file once; return its index, the counts, and every record that was not accepted.

    ``refuse`` returns the reason to reject a readable record, or None. A record that repeats an earlier one is
    rejected; other content under a used id is an error.
    """
    require_regular_file(path)
    index, counter, seen_ids = IndexedFile(path, kind), RecordCounter(), SeenIds()
    left_out: list[ReadRecord[T]] = []
    for number, offset, line in scan_lines(path):
        record = _check_line(path, kind, number, line, refuse, seen_ids)
        counter.add(record)
        if record.error is None and record.rejected is None and record.value is not None:
            index._accept(record.value, offset, line)
        else:
            # Without their values, rejected records take little memory however many there are.
            left_out.append(replace(record, value=None))
    return index, counter, left_out


def scan_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, offset and bytes of every line that is not blank."""
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise UserError(f"{path}: is packed with gzip, which allows no random access. Unpack it first.")
        file.seek(0)
        offset = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
        file.seek(offset)
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _check_line(
    path: Path, kind: type[T], number: int, line: bytes, refuse: Callable[[T], str | None], seen_ids: SeenIds
) -> ReadRecord[T]:
    where = f"line {number}"
    try:
        parsed = parse_json_object(line)
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=NOT_JSON)
    try:
        value = decode_core_value(kind, parsed)
    except RecordError as error:
        return ReadRecord(where, error=error.at(path, where), error_kind=WRONG_RECORD)
    if earlier := seen_ids.add(value.id, encode_json_line(value), number):
        first_line, is_same = earlier
        if is_same:
            return ReadRecord(where, value=value, rejected=DUPLICATE)
        problem = RecordError(
            f"the id {value.id!r} was used in line {first_line} for other content. Give it another id."
        )
        return ReadRecord(where, error=problem.at(path, where), error_kind=ID_REUSED)
    return ReadRecord(where, value=value, rejected=refuse(value))
