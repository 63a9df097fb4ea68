"""Rates that carry their denominator, and means that admit to having none."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import TYPE_CHECKING

from eclose.stats.intervals import Interval, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Rate:
    """A proportion with what it was counted on."""

    hits: int
    n: int
    """Judged cases in the denominator."""
    unjudged: int = 0
    """Cases that may belong in the denominator, but no judgement says so or says whether they are hits."""
    never_hits: int = field(default=0, repr=False)
    """Of the unjudged: a miss or no case at all. Occurs only where the denominator is a matter of judgement."""
    never_misses: int = field(default=0, repr=False)
    """Of the unjudged: a hit or no case at all."""

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
        """The least and the greatest value, over all that the unjudged cases could turn out to be.

        Every hit raises a proportion and every miss lowers it, so the greatest value has all hits that can be and no
        avoidable miss, and the least the other way round. Both are reached.
        """
        hits, misses = self.unjudged - self.never_hits, self.unjudged - self.never_misses
        if not self.n + self.unjudged:
            return None
        # With nothing in the denominator there is no value: one case must count, and there is one way it can.
        low = self.hits / (self.n + misses) if self.n + misses else 1.0
        high = (self.hits + hits) / (self.n + hits) if self.n + hits else 0.0
        return Interval(low, high)

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
