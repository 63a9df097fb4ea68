"""Questions of a scan sorted by id, kept in a temporary file instead of memory."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from eclose.core.instance import Instance
from eclose.store.records.jsonl import ReadRecord, decode_core_value, encode_json_line
from eclose.store.records.strict_json import parse_json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, and thereby remove, the temporary file."""
        self._file.close()
