"""A whole file looked through: what is wrong in it, and where every record went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import RecordError, UserError
from eclose.store.records.counts import Counts, RecordCounter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.instance import Instance
    from eclose.store.records.jsonl import ReadRecord


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What was found in a file."""

    counts: Counts
    problems: tuple[RecordError, ...]
    """The first wrong records, as many as were asked for."""
    stopped: UserError | None = None
    """Why the file could not be read to its end; None when it could."""

    @property
    def fine(self) -> bool:
        """Whether every record can be used or was set aside on purpose."""
        return self.stopped is None and not self.counts.quarantined


def check_file(records: Iterable[ReadRecord[Instance]], *, limit: int) -> FileCheck:
    """Look at every record and keep the first problems."""
    tally = RecordCounter()
    problems: list[RecordError] = []
    stopped: UserError | None = None
    try:
        for record in records:
            tally.add(record)
            if record.error is not None and len(problems) < limit:
                problems.append(record.error)
    except UserError as error:
        stopped = error
    return FileCheck(tally.counts(), tuple(problems), stopped)
