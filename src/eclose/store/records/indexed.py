"""Random access to the records of a JSON Lines file that is too large for memory (a million families: tens of GB).

The index holds the id, the offset and a digest of every line. A record is read from the file whenever it is needed;
a line that changed since it was indexed raises.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import parse_json_object, require_regular_file
from eclose.store.records.jsonl import (
    DUPLICATE,
    ID_REUSED,
    NOT_JSON,
    WRONG_RECORD,
    ReadRecord,
    decode_core_value,
    encode_json_line,
)
from eclose.store.records.outcome_counts import RecordCounter
from eclose.store.records.seen_ids import SeenIds, hash64

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


# An index of JSON Lines files in a temporary database on disk, to join files that are too large for memory.


Record = TypeVar("Record")

_CACHE_KIB = 16_384
"""Memory of the database; the rest of it is on disk."""


class IndexedRecord(NamedTuple):
    """An entry of the index."""

    offset: int
    """Start of the record's line in bytes."""
    number: int
    """Number of the line."""
    data: bytes


class RecordIndex:
    """Ids of the records of several files, each with its offset and a few bytes of data. A context manager.

    The database is an unnamed temporary file that the system removes; memory holds 16 MB of it.
    """

    def __enter__(self) -> Self:
        # An empty name is a private database on disk, removed when it is closed.
        self._connection = sqlite3.connect("", isolation_level=None)
        # No journal: the database is rebuilt from the files whenever it is needed.
        for pragma in (f"cache_size = -{_CACHE_KIB}", "journal_mode = OFF", "synchronous = OFF", "temp_store = FILE"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("BEGIN")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def create(self, table: str) -> None:
        """Add an empty table of records."""
        self._connection.execute(
            f"CREATE TABLE {table} (id BLOB PRIMARY KEY, start INTEGER, number INTEGER, data BLOB) WITHOUT ROWID"
        )

    def add(self, table: str, id_: str, record: IndexedRecord) -> IndexedRecord | None:
        """Add a record; return the earlier one where the id is taken."""
        key = _encode_id(id_)
        # One statement: a lookup before each insertion would double the work.
        cursor = self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?)", (key, *record))
        return self.get(table, id_) if not cursor.rowcount else None

    def get(self, table: str, id_: str) -> IndexedRecord | None:
        """Return the record of an id; None where there is none."""
        query = f"SELECT start, number, data FROM {table} WHERE id = ?"
        row = self._connection.execute(query, (_encode_id(id_),)).fetchone()
        return None if row is None else IndexedRecord(*row)

    def ids_without_partner(self, table: str, other: str) -> Iterator[str]:
        """Yield the ids of a table that another table does not have, in the order of their file."""
        query = f"SELECT id FROM {table} WHERE id NOT IN (SELECT id FROM {other}) ORDER BY start"
        for (key,) in self._connection.execute(query):
            yield key.decode("utf-8", "surrogatepass")


def _encode_id(id_: str) -> bytes:
    """Return the bytes of an id; lone surrogates occur in users' files, and SQLite refuses them as text."""
    return id_.encode("utf-8", "surrogatepass")


class UniqueScan(Generic[Record]):
    """The records of a JSON Lines file, each id once, read in one pass and entered into an index.

    Iterate once; ``rejected`` and ``lost`` are complete afterwards. A repeated record counts as a duplicate. Different
    records under one id raise RecordError unless ``first``, and so does a file without a readable record.
    """

    def __init__(
        self,
        index: RecordIndex,
        path: Path,
        kind: type[Record],
        id_of: Callable[[Record], str],
        *,
        data_of: Callable[[Record], bytes] = lambda _: b"",
        first: bool = False,
        reused: Callable[[str, str, str], RecordError],
    ) -> None:
        require_regular_file(path)
        self.rejected: Counter[str] = Counter()
        self.lost: list[tuple[str, str]] = []
        """Location and kind of error of each unreadable record; id and ``ID_REUSED`` of each repeated id."""
        self._index, self._path, self._kind, self._id_of, self._data_of = index, path, kind, id_of, data_of
        self._first, self._reused = first, reused
        self._table = kind.__name__.lower()
        index.create(self._table)

    def __iter__(self) -> Iterator[tuple[Record, int]]:
        """Yield every record that is used, with the offset of its line."""
        first_error: RecordError | None = None
        used = False
        for number, offset, line in scan_lines(self._path):
            where = f"line {number}"
            try:
                value = self._decode(line)
            except _UnreadableLineError as unreadable:
                first_error = first_error or unreadable.error.at(self._path, where)
                self.rejected[unreadable.kind] += 1
                self.lost.append((where, unreadable.kind))
                continue
            id_ = self._id_of(value)
            earlier = self._index.add(self._table, id_, IndexedRecord(offset, number, self._data_of(value)))
            if earlier is None:
                used = True
                yield value, offset
            elif self.read(earlier.offset) == value:
                self.rejected[DUPLICATE] += 1
            elif self._first:
                self.rejected[ID_REUSED] += 1
                self.lost.append((id_, ID_REUSED))
            else:
                raise self._reused(id_, f"line {earlier.number}", where)
        if first_error is not None and not used:
            raise first_error

    def get(self, id_: str) -> IndexedRecord | None:
        """Return the index entry of an id; None where there is none."""
        return self._index.get(self._table, id_)

    def read(self, offset: int) -> Record:
        """Return the record at an offset of the file."""
        return self._decode(self.read_line(offset))

    def read_line(self, offset: int) -> bytes:
        """Return the line of the record at an offset of the file."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.readline()

    def _decode(self, line: bytes) -> Record:
        try:
            parsed = parse_json_object(line)
        except RecordError as error:
            raise _UnreadableLineError(NOT_JSON, error) from error
        try:
            return decode_core_value(self._kind, parsed)
        except RecordError as error:
            raise _UnreadableLineError(WRONG_RECORD, error) from error


class _UnreadableLineError(Exception):
    """A line that holds no record, with the kind of error that it is counted under."""

    def __init__(self, kind: str, error: RecordError) -> None:
        super().__init__(str(error))
        self.kind, self.error = kind, error
