"""Rates that carry their denominator, and means that admit to having none."""

from __future__ import annotations

from math import fsum, sqrt
from typing import TYPE_CHECKING, NamedTuple

from eclosure.stats.intervals import Interval, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rate(NamedTuple):
    """A proportion with what it was counted on."""

    hits: int
    n: int
    """Judged cases in the denominator."""
    unjudged: int = 0
    """Cases that may belong in the denominator, but no judgement says so or says whether they are hits."""

    @property
    def value(self) -> float | None:
        """The proportion, or None when there was nothing to count."""
        return self.hits / self.n if self.n else None

    @property
    def wilson(self) -> Interval | None:
        """The 95 % interval, taking cases as independent."""
        return wilson(self.hits, self.n)

    @property
    def bounds(self) -> Interval | None:
        """The value stays within these, whatever the unjudged cases turn out to be.

        Both ends can be reached where every case is in the denominator. Where it is itself a matter of judgement
        they may be wider than needed: an unjudged case may prove to be no case at all, or only ever a miss.
        """
        total = self.n + self.unjudged
        return Interval(self.hits / total, (self.hits + self.unjudged) / total) if total else None

    @classmethod
    def of(cls, labels: Iterable[bool | None]) -> Rate:
        """The rate of true labels among those that are known."""
        known = {True: 0, False: 0, None: 0}
        for label in labels:
            known[label] += 1
        return cls(known[True], known[True] + known[False], known[None])


def mean(values: Iterable[float | None]) -> float | None:
    """The arithmetic mean; None for no values, and for values one of which is undefined."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return fsum(known) / len(known) if known and len(known) == len(listed) else None


def sample_sd(values: Iterable[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values."""
    listed = list(values)
    if len(listed) < 2:
        return None
    centre = fsum(listed) / len(listed)
    return sqrt(fsum((value - centre) ** 2 for value in listed) / (len(listed) - 1))
