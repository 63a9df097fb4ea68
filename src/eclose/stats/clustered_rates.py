"""The interval of a rate whose cases are grouped by question. Reports, gate, files and tests use this one.

With one case per question it is the exact Clopper-Pearson interval. With several, cases of one question may be
correlated, and the correlation is estimated from the data. A limit is a quantile of the beta distribution with the mean
and the variance of the rate, after adding one imaginary question in which every case is of the counted kind. The more
the observed cases are scattered over questions, the smaller this question is (compare Fay and Feuer, 1997, for sums of
weighted events). Decision 0027 has the formula, the reasons and the alternatives.

The interval is computed, not drawn: the same cases have the same interval everywhere. Turning a hit into a miss never
raises either end, so a run cannot pass a limit by failing more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eclose.stats.arrays import Floats, Indices, sum_by_group
from eclose.stats.beta_quantiles import beta_survival, beta_upper_quantile
from eclose.stats.intervals import Estimate, Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class QuestionHitCounts:
    """Hits and misses by question; questions with the same counts are listed once."""

    rows: tuple[tuple[int, int, int], ...]
    """Hits, misses, and the number of questions with these counts."""

    @classmethod
    def of(cls, hits: Floats, misses: Floats) -> QuestionHitCounts:
        """Count questions, given the hits and misses of each; questions without a case are dropped."""
        # Pairs are encoded as single numbers: sorting the rows of an array takes twenty times as long.
        base = int(misses.max(initial=0)) + 1
        distinct, times = np.unique((hits * base + misses).astype(int), return_counts=True)
        rows = ((*divmod(int(code), base), int(count)) for code, count in zip(distinct, times, strict=True) if code)
        return cls(tuple(rows))

    @property
    def questions(self) -> int:
        """Number of questions with a case."""
        return sum(times for _, _, times in self.rows)

    @property
    def hits(self) -> int:
        """Hits of all questions."""
        return sum(hits * times for hits, _, times in self.rows)

    @property
    def cases(self) -> int:
        """Number of cases of all questions."""
        return sum((hits + misses) * times for hits, misses, times in self.rows)

    @property
    def value(self) -> float | None:
        """Rate of hits; None without a case."""
        return self.hits / self.cases if self.rows else None

    def interval(self, level: float = CONFIDENCE_LEVEL) -> Interval | None:
        """Return the interval of the rate of hits; None without a case."""
        if not self.rows:
            return None
        hits, misses, times = np.array(self.rows, float).T
        tail = (1 - level) / 2
        return Interval(1 - _limit(misses, hits + misses, times, tail), _limit(hits, hits + misses, times, tail))

    def estimate(self, level: float = CONFIDENCE_LEVEL) -> Estimate:
        """Return the rate with its interval."""
        return Estimate(self.value, self.interval(level))

    def with_single(self, *, hits: int = 0, misses: int = 0) -> QuestionHitCounts:
        """Return the counts with further hits and misses, each a question of its own."""
        extra = ((1, 0, hits), (0, 1, misses))
        return QuestionHitCounts((*self.rows, *(row for row in extra if row[2])))

    def repeated(self, times: float, level: float = CONFIDENCE_LEVEL) -> Interval | None:
        """Return the approximate interval for ``times`` as many questions like these."""
        if not self.rows:
            return None
        hits, misses, questions = np.array(self.rows, float).T
        sizes, tail = hits + misses, (1 - level) / 2
        low, high = (_Sums.of(kind, sizes, times * questions).limit(tail) for kind in (misses, hits))
        return Interval(1 - low, high)


def clustered_rate(hit: Indices, question: Indices, *, level: float = CONFIDENCE_LEVEL) -> Estimate:
    """Return the rate of hits among the known cases, with its interval.

    Args:
        hit: 1 for a hit, 0 for none and ``MISSING`` where unknown, one per case.
        question: The number of each case's question.
        level: Nominal level of the interval.
    """
    cases = (hit[:, np.newaxis] == np.array([1, 0])).astype(float)
    sums = sum_by_group(question, cases, int(question.max(initial=-1)) + 1)
    return QuestionHitCounts.of(sums[:, 0], sums[:, 1]).estimate(level)


class _Beta(NamedTuple):
    """A beta distribution, or an array of them, by mean and weight (the sum of the parameters)."""

    mean: Any
    weight: Any

    @property
    def parameters(self) -> tuple[Any, Any]:
        return self.mean * self.weight, (1 - self.mean) * self.weight

    @property
    def variance(self) -> Any:
        return self.mean * (1 - self.mean) / (self.weight + 1)


class _Sums(NamedTuple):
    """The sums that determine a limit. ``kind`` and ``kind_squares`` may be arrays."""

    kind: Any
    """Cases of the kind whose greatest rate is sought."""
    kind_squares: Any
    """Sum over questions of the squared number of such cases."""
    cases: float
    squares: float
    """Sum over questions of the squared number of all cases."""

    @classmethod
    def of(cls, kind: Floats, sizes: Floats, times: Floats) -> _Sums:
        return cls(*(float(times @ column) for column in (kind, kind**2, sizes, sizes**2)))

    def beta(self) -> _Beta:
        """Return the distribution whose upper quantile is the limit."""
        kind, kind_squares, cases, squares = self
        # Mean size of the question that a case is in; the size itself where all questions have the same.
        size = squares / cases
        questions = cases / size
        # The imaginary question consists of cases of the kind: a full question where no such case was seen, else the
        # mean number of such cases around a case of the kind, one full question included.
        imaginary = (kind_squares + size**2) / (kind + size)
        total = cases + imaginary
        mean = (kind + imaginary) / total
        # Squared deviations of questions from the mean, the imaginary question last. The variance is at least that of
        # independent cases and at most that of questions whose cases are all of one kind.
        spread = kind_squares - 2 * mean * kind * size + mean**2 * squares + (imaginary * (1 - mean)) ** 2
        independent = total * mean * (1 - mean)
        weight = independent * total / np.maximum(spread, independent) * (questions + 2) / (questions + 1) - 1
        return _Beta(mean, np.maximum(weight, questions + 1))

    def limit(self, tail: float) -> float:
        """Return the limit that follows from these sums."""
        if self.kind >= self.cases:
            return 1.0
        a, b = self.beta().parameters
        return beta_upper_quantile(float(a), float(b), tail)


_CANTELLI = 6.25
"""Standard deviations above the mean of any distribution beyond which at most 1/40 of it lies (Cantelli's inequality).

1/40 is the tail of a level of 95 %; the bound does not hold for the smaller tails of higher levels.
"""


def _limit(kind: Floats, sizes: Floats, times: Floats, tail: float) -> float:
    """Return the greatest rate of a kind of cases that is compatible with the observed ones.

    It is the greatest limit over the cases of the kind and all subsets of them, so that one more case never gives a
    smaller limit. Among subsets of one size, the subset that keeps the fullest questions whole has the greatest sum of
    squares and so the greatest limit; it is the only one computed.
    """
    sums = _Sums.of(kind, sizes, times)
    limit = sums.limit(tail)
    if sums.squares == sums.cases or limit == 1:  # with one case per question the limit is monotone
        return limit
    full = sums.beta()
    blocks = _subset_sums(kind, times, sums)
    return max((_largest_above(subsets, full, limit, tail) for subsets in blocks), default=limit)


def _largest_above(subsets: _Sums, full: _Beta, limit: float, tail: float) -> float:
    """Return the greatest limit of some subsets; ``limit`` itself where none exceeds it."""
    smaller = subsets.beta()
    # A subset with smaller mean and variance has a smaller quantile, and so has one that lies too far below.
    reach = smaller.mean + _CANTELLI * np.sqrt(smaller.variance)
    possible = (reach > limit) & ((smaller.mean > full.mean) | (smaller.variance > full.variance))
    candidates = _Beta(smaller.mean[possible], smaller.weight[possible])
    above = _exceeds(candidates, limit, tail)
    if not above.any():
        return limit
    a, b = candidates.parameters
    return float(beta_upper_quantile(a[above], b[above], tail).max())


SUBSET_BLOCK = 2**16
"""Subsets evaluated at once: a million cases of a kind have a million subsets, each with a dozen numbers."""


def _subset_sums(kind: Floats, times: Floats, sums: _Sums) -> Iterator[_Sums]:
    """Yield blocks of the sums for every smaller number of cases, each with the greatest sum of squares."""
    order = np.argsort(-kind)
    counts = np.repeat(kind[order], times[order].astype(int))
    before, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (counts, counts**2))
    for start in range(0, int(sums.kind), SUBSET_BLOCK):
        number = np.arange(start, min(start + SUBSET_BLOCK, int(sums.kind)))
        # Number of questions that a subset of each size holds completely.
        full = np.searchsorted(before, number, side="right") - 1
        yield sums._replace(kind=number, kind_squares=squares[full] + (number - before[full]) ** 2)


def _exceeds(candidates: _Beta, limit: float, tail: float) -> Any:
    """Return which distributions have a greater quantile than the limit."""
    a, b = candidates.parameters
    exceeds = candidates.mean >= limit
    below = ~exceeds
    if below.any():
        exceeds[below] = beta_survival(np.full(int(below.sum()), limit), a[below], b[below]) > tail * (1 + 1e-9)
    return exceeds
