"""A whole file looked through: what is wrong in it, and where every record went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import RecordError, UserError
from eclose.store.records.counts import Counts, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.instance import Instance
    from eclose.store.records.jsonl import ReadRecord


@dataclass(frozen=True, slots=True)
class Examination:
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


def examine(records: Iterable[ReadRecord[Instance]], *, limit: int) -> Examination:
    """Look at every record and keep the first problems."""
    tally = Tally()
    problems: list[RecordError] = []
    stopped: UserError | None = None
    try:
        for record in records:
            tally.note(record)
            if record.error is not None and len(problems) < limit:
                problems.append(record.error)
    except UserError as error:
        stopped = error
    return Examination(tally.counts(), tuple(problems), stopped)
