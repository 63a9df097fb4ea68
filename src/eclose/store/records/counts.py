"""Counts of records: every record read is accepted, rejected or quarantined, with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eclose.store.records.jsonl import ReadRecord


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records by outcome: received = accepted + rejected + quarantined."""

    received: int
    accepted: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Set aside on purpose, by reason."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Could not be processed, by error."""
    repaired: Mapping[str, int] = field(default_factory=dict)
    """Accepted after a documented repair; part of the accepted."""

    @property
    def conserved(self) -> bool:
        """Whether nothing was lost and nothing counted twice."""
        lost = sum(self.rejected.values()) + sum(self.quarantined.values())
        return self.received == self.accepted + lost

    def __str__(self) -> str:
        """The conservation law in numbers."""
        parts = [f"{self.received} received = {self.accepted} accepted"]
        for name in ("rejected", "quarantined"):
            reasons: Mapping[str, int] = getattr(self, name)
            listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
            parts.append(f"{sum(reasons.values())} {name}" + (f" ({listed})" if listed else ""))
        mended = ", ".join(f"{repair} {count}" for repair, count in sorted(self.repaired.items()))
        return " + ".join(parts) + (f"; repaired: {mended}" if mended else "")


@dataclass(slots=True)
class RecordCounter:
    """A running count of records."""

    received: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)

    def add(self, record: ReadRecord[Any]) -> None:
        """Count one record where it belongs."""
        self.received += 1
        if record.error is not None:
            self.quarantined[record.error_kind] += 1
        elif record.rejected is not None:
            self.rejected[record.rejected] += 1
        else:
            self.accepted += 1
            self.repaired.update(record.repairs)

    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(self.received, self.accepted, dict(self.rejected), dict(self.quarantined), dict(self.repaired))
