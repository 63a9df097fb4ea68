"""A compact set of record ids that detects repeated ids: a million ids take about 30 MB."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from typing import TYPE_CHECKING

from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import ReadRecord, decode_core_value, encode_json_line
from eclose.values.identity import canonical_bytes
from eclose.values.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self


_START = 1 << 10


def hash64(data: bytes) -> int:
    """Return a 64-bit digest, never zero: zero marks an empty slot. A million ids collide with probability 3e-8."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


class SeenIds:
    """An open-addressing table with the digests of id and content, and the number of the record that used the id first.

    A Python set of strings takes more than 150 bytes an id; this takes 16 bytes a slot at a load of at most two
    thirds.
    """

    def __init__(self) -> None:
        self._count = 0
        self._allocate(_START)

    def __len__(self) -> int:
        return self._count

    def add(self, id_: str, content: object, number: int) -> tuple[int, bool] | None:
        """Add the id of a record; return None where it is new.

        Otherwise return the number of the record that used it first, and whether the content is the same. Content is
        bytes, or any JSON value.
        """
        spelled = content if isinstance(content, bytes) else canonical_bytes(content)
        # Lone surrogates occur in users' files. Half a digest is enough to compare two contents under one id.
        key, body = hash64(id_.encode("utf-8", "surrogatepass")), hash64(spelled) & 0xFFFFFFFF
        slot = self._slot(key)
        if self._ids[slot]:
            return self._numbers[slot], self._contents[slot] == body
        self._put(slot, key, body, number)
        self._count += 1
        # At most two thirds full: the fuller an open-addressing table, the longer its runs of occupied slots.
        if self._count * 3 > len(self._ids) * 2:
            old = zip(self._ids, self._contents, self._numbers, strict=True)
            self._allocate(2 * len(self._ids))
            for old_key, old_body, old_number in old:
                if old_key:
                    self._put(self._slot(old_key), old_key, old_body, old_number)
        return None

    def _allocate(self, size: int) -> None:
        self._ids = array("Q", [0]) * size
        self._contents = array("I", [0]) * size
        self._numbers = array("I", [0]) * size

    def _slot(self, key: int) -> int:
        mask = len(self._ids) - 1  # the size is a power of two
        slot = key & mask
        while self._ids[slot] and self._ids[slot] != key:
            slot = (slot + 1) & mask
        return slot

    def _put(self, slot: int, key: int, body: int, number: int) -> None:
        self._ids[slot], self._contents[slot], self._numbers[slot] = key, body, number


# Questions of a scan sorted by id, kept in a temporary file instead of memory.


class SortedSpool:
    """The questions of a scan: first records without a value in file order, then questions by id. A context manager.

    The questions are kept in an unnamed file, which the system removes with the process; memory holds ids and offsets.
    """

    def __init__(self, records: Iterable[ReadRecord[Instance]], *, limit: int | None = None) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the spool
        self._others: list[ReadRecord[Instance]] = []
        try:
            # Python sorts texts by code points, which is the order of the ledger's UTF-8 bytes.
            self._offsets = sorted(self._spool(records))[:limit]
        except BaseException:
            # A scan that raises leaves no spool behind, so nothing else would close the file.
            self._file.close()
            raise

    def _spool(self, records: Iterable[ReadRecord[Instance]]) -> Iterator[tuple[str, int]]:
        """Write the values to the file; yield the id and offset of each."""
        end = 0
        for record in records:
            if record.value is None:
                self._others.append(record)
                continue
            yield record.value.id, end
            end += self._file.write(encode_json_line(record.value) + b"\n")

    def __len__(self) -> int:
        """Return the number of records, with and without a value."""
        return len(self._others) + len(self._offsets)

    def __iter__(self) -> Iterator[ReadRecord[Instance]]:
        """Yield the records; may be repeated."""
        yield from self._others
        # The id stands for the location: the line number of the input says nothing about a sorted record.
        for record_id, offset in self._offsets:
            self._file.seek(offset)
            yield ReadRecord(
                repr(record_id), value=decode_core_value(Instance, parse_json_object(self._file.readline()))
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close, and thereby remove, the temporary file."""
        self._file.close()
