"""Rates that carry their denominator, and means that are None where a value is undefined."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import TYPE_CHECKING

from eclose.stats.intervals import Interval, wilson_interval

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Rate:
    """A proportion with the counts behind it."""

    hits: int
    n: int
    """Judged cases in the denominator."""
    unjudged: int = 0
    """Cases whose place in the denominator, or whose hit, is not judged."""
    never_hits: int = field(default=0, repr=False)
    """Unjudged cases that are a miss or not in the denominator. Only for rates whose denominator is itself judged."""
    never_misses: int = field(default=0, repr=False)
    """Unjudged cases that are a hit or not in the denominator."""

    @property
    def value(self) -> float | None:
        """The proportion; None without a judged case."""
        return self.hits / self.n if self.n else None

    @property
    def wilson(self) -> Interval | None:
        """The 95 % Wilson interval, which treats cases as independent."""
        return wilson_interval(self.hits, self.n)

    @property
    def bounds(self) -> Interval | None:
        """The least and the greatest value over all completions of the unjudged cases.

        Each hit raises a proportion and each miss lowers it. So the greatest value counts every possible hit and no
        avoidable miss, and the least value the reverse. Both are attained.
        """
        hits, misses = self.unjudged - self.never_hits, self.unjudged - self.never_misses
        if not self.n + self.unjudged:
            return None
        # Without a judged case there is a rate only if an unjudged case counts. If all of them can only hit, even the
        # least rate is 1; if all can only miss, even the greatest is 0.
        low = self.hits / (self.n + misses) if self.n + misses else 1.0
        high = (self.hits + hits) / (self.n + hits) if self.n + hits else 0.0
        return Interval(low, high)

    @classmethod
    def of(cls, labels: Iterable[bool | None]) -> Rate:
        """Count the rate of true labels among the known ones."""
        counts = {True: 0, False: 0, None: 0}
        for label in labels:
            counts[label] += 1
        return cls(counts[True], counts[True] + counts[False], counts[None])


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the arithmetic mean; None for no values, or where one of them is undefined."""
    numbers = list(values)
    defined = [value for value in numbers if value is not None]
    return fsum(defined) / len(defined) if defined and len(defined) == len(numbers) else None


def sample_sd_or_none(values: Iterable[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for fewer than two values."""
    numbers = list(values)
    if len(numbers) < 2:
        return None
    centre = fsum(numbers) / len(numbers)
    return sqrt(fsum((value - centre) ** 2 for value in numbers) / (len(numbers) - 1))
