"""Counts of records by outcome: every record read is accepted, rejected or quarantined, with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eclose.files.jsonl import ReadRecord


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Numbers of records by outcome: received = accepted + rejected + quarantined."""

    received: int
    accepted: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Records set aside on purpose, by reason."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Records that could not be processed, by kind of error."""
    repaired: Mapping[str, int] = field(default_factory=dict)
    """Accepted records that needed a documented repair, by repair."""

    @property
    def conserved(self) -> bool:
        """Whether the counts add up: no record was lost or counted twice."""
        set_aside = sum(self.rejected.values()) + sum(self.quarantined.values())
        return self.received == self.accepted + set_aside

    def __str__(self) -> str:
        """Return the counts as an equation: ``5 received = 3 accepted + 1 rejected (duplicate 1) + 1 quarantined``."""
        return self.format_equation()

    def format_equation(self, accepted: str = "accepted") -> str:
        """Return the counts as an equation, with another word for the accepted records."""
        parts = [f"{self.received} received = {self.accepted} {accepted}"]
        for name in ("rejected", "quarantined"):
            reasons: Mapping[str, int] = getattr(self, name)
            listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
            parts.append(f"{sum(reasons.values())} {name}" + (f" ({listed})" if listed else ""))
        repairs = ", ".join(f"{repair} {count}" for repair, count in sorted(self.repaired.items()))
        return " + ".join(parts) + (f"; repaired: {repairs}" if repairs else "")


@dataclass(slots=True)
class RecordCounter:
    """Counts records one by one."""

    received: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)

    def add(self, record: ReadRecord[Any]) -> None:
        """Count one record under its outcome."""
        self.received += 1
        if record.error is not None:
            self.quarantined[record.error_kind] += 1
        elif record.rejected is not None:
            self.rejected[record.rejected] += 1
        else:
            # A record may need several repairs, so these need not add up to the accepted ones.
            self.accepted += 1
            self.repaired.update(record.repairs)

    def counts(self) -> RecordCounts:
        """Return the counts so far."""
        return RecordCounts(
            self.received, self.accepted, dict(self.rejected), dict(self.quarantined), dict(self.repaired)
        )
