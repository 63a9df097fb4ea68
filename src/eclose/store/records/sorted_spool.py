"""Records of any file in the order of their ids, without holding them in memory."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from eclose.store.records.jsonl import ReadRecord, decode, encode
from eclose.store.records.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_HasId)


class SortedSpool(Generic[T]):
    """What a scan found: first whatever has no value, as it came, then the values by id. Use it in a ``with``.

    Values wait in a file without a name, which is gone when the process is; memory holds their ids and places.
    """

    def __init__(self, kind: type[T], records: Iterable[ReadRecord[T]], *, limit: int | None = None) -> None:
        self._kind = kind
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the spool
        self._others: list[ReadRecord[T]] = []
        places: list[tuple[str, int]] = []
        end = 0
        for record in records:
            if record.value is None:
                self._others.append(record)
                continue
            places.append((record.value.id, end))
            end += self._file.write(encode(record.value) + b"\n")
        # By code points, as the UTF-8 bytes of the ledger sort.
        self._places = sorted(places)[:limit]

    def __len__(self) -> int:
        """How many records there are, with and without a value."""
        return len(self._others) + len(self._places)

    def __iter__(self) -> Iterator[ReadRecord[T]]:
        """The records; may be gone through again."""
        yield from self._others
        for record_id, place in self._places:
            self._file.seek(place)
            yield ReadRecord(repr(record_id), value=decode(self._kind, parse_object(self._file.readline())))

    def __enter__(self) -> Self:
        """The spool."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the file."""
        self._file.close()
