"""Records of a file that are read once in order, and then some of them again, so that they need not fit into memory.

``RecordFile`` yields records and reads some of them again by position; files in other formats than JSON Lines are held.
``IndexedFile`` holds the id, the offset and a digest of every line of a file that is too large for memory (a million
families: tens of GB); a line that changed since it was indexed raises.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from eclose.errors import RecordError, UserError
from eclose.files.id_set import SeenIds, hash64
from eclose.files.json_reader import is_plain_json_lines, parse_json_object, read_lines, require_regular_file
from eclose.files.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    decode_core_line,
    decode_core_value,
    encode_json_line,
    scan_records,
    validate_line,
)
from eclose.files.outcome_counts import RecordCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

T = TypeVar("T")


def hash_ids(ids: Sequence[str]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each id."""
    # Lone surrogates occur in users' files.
    hashes = (hash64(id_.encode("utf-8", "surrogatepass")) for id_ in ids)
    return np.fromiter(hashes, np.uint64, len(ids))


class UnusedRecord(NamedTuple):
    """A record that is not used."""

    position: int
    where: str
    """Location in the file, such as ``line 412``."""
    kind: str
    """Kind of error, ``DUPLICATE`` or ``ID_REUSED``."""


class RecordFile(Generic[T]):
    """The records of a file.

    Args:
        path: The file.
        kind: Type of its records.
        id_of: Returns the id of a record.
        vouched: Whether a step read this very file and found no fault, so that it is not checked again.
        part: Type with some of the fields, which is decoded in place of the record from a file that is vouched for.
    """

    def __init__(
        self,
        path: Path,
        kind: type[T],
        id_of: Callable[[T], str],
        *,
        vouched: bool = False,
        part: type[Any] | None = None,
    ) -> None:
        require_regular_file(path)
        self.path, self.kind, self.id_of = path, kind, id_of
        self.unused: list[UnusedRecord] = []
        """In the order of the file, once all records were read and repeats were dropped."""
        self._vouched, self._part = vouched, None if part is None else TypeAdapter(part)
        self._lines = _is_readable_json_lines(path)
        self._held: list[T] = []
        self._where: list[str] = []
        self._first_error: RecordError | None = None

    def scan(self) -> Iterator[tuple[int, T]]:
        """Yield position and value of every record that can be read; iterate once."""
        yield from self._scan_lines() if self._lines else self._scan_held()

    def _scan_held(self) -> Iterator[tuple[int, T]]:
        for record in scan_records(self.path, self.kind):
            if record.error is not None:
                self._note(UnusedRecord(len(self._held), record.where, record.error_kind), record.error)
            elif record.value is not None:
                self._held.append(record.value)
                self._where.append(record.where)
                yield len(self._held) - 1, record.value

    def _scan_lines(self) -> Iterator[tuple[int, T]]:
        decode = self._decode_vouched if self._vouched else partial(_decode_line, self.kind)
        try:
            with self.path.open("rb") as file:
                for number, position, line in read_lines(file, self.path):
                    try:
                        value = decode(line)
                    except _UnreadableLineError as unreadable:
                        where = f"line {number}"
                        error = unreadable.error.at(self.path, where)
                        self._note(UnusedRecord(position, where, unreadable.kind), error)
                    else:
                        yield position, value
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}).") from error

    def _note(self, unused: UnusedRecord, error: RecordError) -> None:
        self._first_error = self._first_error or error
        self.unused.append(unused)

    def read(self, position: int) -> T:
        """Return the whole record at a position that was used."""
        return next(self.read_several([position]))

    def read_several(self, positions: Iterable[int]) -> Iterator[T]:
        """Yield the whole records at some positions that were used."""
        if not self._lines:
            yield from (self._held[position] for position in positions)
            return
        with self.path.open("rb") as file:
            for position in positions:
                file.seek(position)
                line = file.readline()
                if (value := validate_line(self.kind, line)) is not None:
                    yield value
                    continue
                try:
                    yield _decode_line(self.kind, line)
                except _UnreadableLineError as unreadable:
                    # The file changed since, or was vouched for wrongly.
                    raise unreadable.error.at(self.path, self.locate(position)) from unreadable

    def drop_repeats(
        self,
        ids: NDArray[np.uint64],
        positions: Sequence[int] | NDArray[np.int64],
        describe: Callable[[str, str, str], RecordError],
        *,
        first: bool = False,
    ) -> NDArray[np.bool_]:
        """Return which of the readable records are used, the first of each id; the others become ``unused``.

        Args:
            ids: Hash of the id of each record.
            positions: Their positions.
            describe: Returns the error for two different records, given their id and both locations.
            first: Whether the first of different records is used, rather than none.

        Raises:
            RecordError: No record can be read, or two different ones have one id.
        """
        if self._first_error is not None and not len(ids):
            raise self._first_error
        _, first_rows, number = np.unique(ids, return_index=True, return_inverse=True)
        earlier = first_rows[number]
        used: NDArray[np.bool_] = earlier == np.arange(len(ids))
        for row in np.flatnonzero(~used).tolist():
            before, position = int(positions[earlier[row]]), int(positions[row])
            record = self.read(position)
            if self.read(before) == record:
                self.unused.append(UnusedRecord(position, "", DUPLICATE))
            elif first:
                self.unused.append(UnusedRecord(position, "", ID_REUSED))
            else:
                raise describe(self.id_of(record), self.locate(before), self.locate(position))
        # Stable, since a record of a format that is held may have the position of an unreadable one before it.
        self.unused.sort(key=lambda unused: unused.position)
        return used

    @property
    def rejected(self) -> Counter[str]:
        """Number of records that are not used, by reason."""
        return Counter(unused.kind for unused in self.unused)

    def locate(self, position: int) -> str:
        """Return the location of a record, such as ``line 412``."""
        if not self._lines:
            return self._where[position]
        with self.path.open("rb") as file:
            lines = file.read(position).count(b"\n")
        return f"line {lines + 1}"

    def _decode_vouched(self, line: bytes) -> T:
        if self._part is None:
            value = validate_line(self.kind, line)
            return _decode_line(self.kind, line) if value is None else value
        try:
            # A part has the fields of the record that its user reads.
            part: T = self._part.validate_json(line, strict=True, extra="ignore")
        except ValidationError:
            return _decode_line(self.kind, line)
        return part


def _decode_line(kind: type[T], line: bytes) -> T:
    try:
        parsed = parse_json_object(line)
    except RecordError as error:
        raise _UnreadableLineError(NOT_JSON, error) from error
    try:
        return decode_core_line(kind, line, parsed)
    except RecordError as error:
        raise _UnreadableLineError(WRONG_RECORD, error) from error


def _is_readable_json_lines(path: Path) -> bool:
    try:
        return is_plain_json_lines(path)
    except OSError:
        # The reader of other formats says what is wrong with the file.
        return False


class _UnreadableLineError(Exception):
    """A line that holds no record, with the kind of error that it is counted under."""

    def __init__(self, kind: str, error: RecordError) -> None:
        super().__init__(str(error))
        self.kind, self.error = kind, error


_CHANGED = "was changed in the file while the file was in use. Run the command again."


class HasId(Protocol):
    """A record with an id."""

    @property
    def id(self) -> str:
        """The id, unique in a run."""
        ...


R = TypeVar("R", bound=HasId)


class IndexedFile(Generic[R]):
    """The accepted records of a JSON Lines file, by index; every access reads the file."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self.path = path
        self._kind = kind
        # Arrays take 8 bytes a number, lists of Python integers about 40.
        self._offsets = array("Q")
        self._digests = array("Q")
        self.ids: list[str] = []

    @classmethod
    def from_rows(cls, path: Path, kind: type[R], rows: Iterable[tuple[str, int, int]]) -> IndexedFile[R]:
        """Return an index from the ``rows`` of an earlier index of the same file."""
        index = cls(path, kind)
        for row in rows:
            index.add(*row)
        return index

    def rows(self) -> Iterator[tuple[str, int, int]]:
        """Yield the id of each accepted record, its offset in the file in bytes, and the digest of its line."""
        return zip(self.ids, self._offsets, self._digests, strict=True)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> R:
        # Opened for every access: the worker processes of a data loader must not share a file position.
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            line = file.readline()
        if hash64(line) != self._digests[index]:
            raise RecordError(_CHANGED, path=self.path, record=repr(self.ids[index]))
        return decode_core_value(self._kind, parse_json_object(line))

    def add(self, record_id: str, offset: int, digest: int) -> None:
        """Add a record by its id, the offset of its line in bytes and the digest of the line."""
        self.ids.append(record_id)
        self._offsets.append(offset)
        self._digests.append(digest)


def index_jsonl_file(
    path: Path, kind: type[R], refuse: Callable[[R], str | None] = lambda _: None
) -> tuple[IndexedFile[R], RecordCounter, list[ReadRecord[R]]]:
    """Read a file once; return its index, the counts, and every record that was not accepted.

    ``refuse`` returns the reason to reject a readable record, or None. A record that repeats an earlier one is
    rejected; other content under a used id is an error.
    """
    require_regular_file(path)
    index, counter, seen_ids = IndexedFile(path, kind), RecordCounter(), SeenIds()
    left_out: list[ReadRecord[R]] = []
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise UserError(f"{path}: is packed with gzip, which allows no random access. Unpack it first.")
        file.seek(0)
        for number, offset, line in read_lines(file, path):
            record = _check_line(path, kind, number, line, refuse, seen_ids)
            counter.add(record)
            if record.error is None and record.rejected is None and record.value is not None:
                index.add(record.value.id, offset, hash64(line))
            else:
                # Without their values, rejected records take little memory however many there are.
                left_out.append(replace(record, value=None))
    return index, counter, left_out


def _check_line(
    path: Path, kind: type[R], number: int, line: bytes, refuse: Callable[[R], str | None], seen_ids: SeenIds
) -> ReadRecord[R]:
    where = f"line {number}"
    try:
        value = _decode_line(kind, line)
    except _UnreadableLineError as unreadable:
        return ReadRecord(where, error=unreadable.error.at(path, where), error_kind=unreadable.kind)
    if earlier := seen_ids.add(value.id, encode_json_line(value), number):
        first_line, is_same = earlier
        if is_same:
            return ReadRecord(where, value=value, rejected=DUPLICATE)
        problem = RecordError(
            f"the id {value.id!r} was used in line {first_line} for other content. Give it another id."
        )
        return ReadRecord(where, error=problem.at(path, where), error_kind=ID_REUSED)
    return ReadRecord(where, value=value, rejected=refuse(value))
