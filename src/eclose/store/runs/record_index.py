"""An index of JSON Lines files in a temporary database on disk, to join files that are too large for memory."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from eclose.errors import RecordError
from eclose.store.records.indexed import scan_lines
from eclose.store.records.json_reader import parse_json_object, require_regular_file
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, NOT_JSON, WRONG_RECORD, decode_core_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

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


class UniqueScan(Generic[T]):
    """The records of a JSON Lines file, each id once, read in one pass and entered into an index.

    Iterate once; ``rejected`` and ``lost`` are complete afterwards. A repeated record counts as a duplicate. Different
    records under one id raise RecordError unless ``first``, and so does a file without a readable record.
    """

    def __init__(
        self,
        index: RecordIndex,
        path: Path,
        kind: type[T],
        id_of: Callable[[T], str],
        *,
        data_of: Callable[[T], bytes] = lambda _: b"",
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

    def __iter__(self) -> Iterator[tuple[T, int]]:
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

    def read(self, offset: int) -> T:
        """Return the record at an offset of the file."""
        return self._decode(self.read_line(offset))

    def read_line(self, offset: int) -> bytes:
        """Return the line of the record at an offset of the file."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.readline()

    def _decode(self, line: bytes) -> T:
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
