"""The interval of a rate whose cases come in questions: one for reports, gate, files and tests.

With one case a question these are the exact limits of Clopper and Pearson. Where questions have several cases, cases of
one question may share their fate, and how far they do is read off the data: a limit is a quantile of the beta
distribution whose mean and variance are those of the rate, after one imaginary question was added in which every case
is of the kind in question. How many cases that question has shrinks as cases are seen to be scattered (compare Fay and
Feuer, 1997, for sums of weighted events). Decision 0027 has the formula, the reasons and the alternatives.

The interval is computed, not drawn: the same cases have the same interval everywhere. Turning a hit into a miss never
raises an end of it, so that more failures never help to keep a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eclose.stats.arrays import Floats, Indices, sum_by
from eclose.stats.beta_quantiles import beta_survival, beta_upper
from eclose.stats.intervals import Estimate, Interval

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class QuestionCounts:
    """Hits and misses question by question; questions with the same counts are listed once."""

    rows: tuple[tuple[int, int, int], ...]
    """Hits, misses, and how many questions have so many of them."""

    @classmethod
    def of(cls, hits: Floats, misses: Floats) -> QuestionCounts:
        """Count questions, given the hits and misses of each; those without a case are left out."""
        # Pairs as single numbers: sorting rows of an array takes twenty times as long.
        base = int(misses.max(initial=0)) + 1
        distinct, times = np.unique((hits * base + misses).astype(int), return_counts=True)
        rows = ((*divmod(int(code), base), int(count)) for code, count in zip(distinct, times, strict=True) if code)
        return cls(tuple(rows))

    @property
    def questions(self) -> int:
        """Questions with a case."""
        return sum(times for _, _, times in self.rows)

    @property
    def hits(self) -> int:
        """Hits of all questions."""
        return sum(hits * times for hits, _, times in self.rows)

    @property
    def cases(self) -> int:
        """Cases of all questions."""
        return sum((hits + misses) * times for hits, misses, times in self.rows)

    @property
    def value(self) -> float | None:
        """The rate of hits; None without a case."""
        return self.hits / self.cases if self.rows else None

    def interval(self, level: float = LEVEL) -> Interval | None:
        """Return the interval of the rate of hits; None without a case."""
        if not self.rows:
            return None
        hits, misses, times = np.array(self.rows, float).T
        tail = (1 - level) / 2
        return Interval(1 - _limit(misses, hits + misses, times, tail), _limit(hits, hits + misses, times, tail))

    def estimate(self, level: float = LEVEL) -> Estimate:
        """Return the rate with its interval."""
        return Estimate(self.value, self.interval(level))

    def with_single(self, *, hits: int = 0, misses: int = 0) -> QuestionCounts:
        """Return the counts with so many hits and misses more, each a question of its own."""
        more = ((1, 0, hits), (0, 1, misses))
        return QuestionCounts((*self.rows, *(row for row in more if row[2])))

    def repeated(self, times: float, level: float = LEVEL) -> Interval | None:
        """Return about the interval that so many times as many questions like these would have."""
        if not self.rows:
            return None
        hits, misses, questions = np.array(self.rows, float).T
        sizes, tail = hits + misses, (1 - level) / 2
        low, high = (_Sums.of(kind, sizes, times * questions).limit(tail) for kind in (misses, hits))
        return Interval(1 - low, high)


def clustered_rate(hit: Indices, question: Indices, *, level: float = LEVEL) -> Estimate:
    """Return the rate of hits among the known cases, with its interval.

    Args:
        hit: 1 for a hit, 0 for none and ``MISSING`` where it is not known, one for each case.
        question: The number of each case's question.
        level: How often the interval is to hold the true rate.
    """
    cases = (hit[:, np.newaxis] == np.array([1, 0])).astype(float)
    sums = sum_by(question, cases, int(question.max(initial=-1)) + 1)
    return QuestionCounts.of(sums[:, 0], sums[:, 1]).estimate(level)


class _Beta(NamedTuple):
    """A beta distribution, or an array of them, by mean and weight: the parameters' sum."""

    mean: Any
    weight: Any

    @property
    def parameters(self) -> tuple[Any, Any]:
        return self.mean * self.weight, (1 - self.mean) * self.weight

    @property
    def variance(self) -> Any:
        return self.mean * (1 - self.mean) / (self.weight + 1)


class _Sums(NamedTuple):
    """What a limit depends on. ``kind`` and ``kind_squares`` may be arrays."""

    kind: Any
    """Cases of the kind whose greatest rate is sought."""
    kind_squares: Any
    """The sum over questions of the square of the number of such cases."""
    cases: float
    squares: float
    """The same for all cases."""

    @classmethod
    def of(cls, kind: Floats, sizes: Floats, times: Floats) -> _Sums:
        return cls(*(float(times @ column) for column in (kind, kind**2, sizes, sizes**2)))

    def beta(self) -> _Beta:
        """Return the distribution whose upper quantile is the limit."""
        kind, kind_squares, cases, squares = self
        size = squares / cases  # of the question that a case is in, on average: the size, where all have the same
        questions = cases / size
        # The imaginary question, all of one kind: of full size where no such case was seen, else of the size that a
        # case of the kind finds in its question, with a question of full size among those seen.
        imaginary = (kind_squares + size**2) / (kind + size)
        total = cases + imaginary
        mean = (kind + imaginary) / total
        # Squared deviations of questions from the mean, the imaginary one's last. Never less than independent cases
        # would have, and never more than questions would that are of one kind throughout.
        spread = kind_squares - 2 * mean * kind * size + mean**2 * squares + (imaginary * (1 - mean)) ** 2
        independent = total * mean * (1 - mean)
        weight = independent * total / np.maximum(spread, independent) * (questions + 2) / (questions + 1) - 1
        return _Beta(mean, np.maximum(weight, questions + 1))

    def limit(self, tail: float) -> float:
        """Return the limit that follows from these sums alone."""
        if self.kind >= self.cases:
            return 1.0
        a, b = self.beta().parameters
        return beta_upper(float(a), float(b), tail)


_CANTELLI = 6.25
"""No distribution has a 40th part beyond so many standard deviations above its mean."""


def _limit(kind: Floats, sizes: Floats, times: Floats, tail: float) -> float:
    """Return the greatest rate of a kind of cases that is compatible with those seen.

    It is the greatest limit that follows from the cases of the kind or from any part of them, so that one more of them
    never gives a smaller limit. Of all parts of the same size, the one that holds the fullest questions whole has the
    greatest sum of squares, and so the greatest limit: for each size it is the only one to look at.
    """
    sums = _Sums.of(kind, sizes, times)
    limit = sums.limit(tail)
    if sums.squares == sums.cases or limit == 1:  # one case a question: the limit grows with each by itself
        return limit
    fewer = _fewer(kind, times, sums)
    mine, others = sums.beta(), fewer.beta()
    # A part whose mean and variance are both no greater has no greater quantile, nor has one that lies too far below.
    reach = others.mean + _CANTELLI * np.sqrt(others.variance)
    near = (reach > limit) & ((others.mean > mine.mean) | (others.variance > mine.variance))
    candidates = _Beta(others.mean[near], others.weight[near])
    above = _exceeds(candidates, limit, tail)
    if not above.any():
        return limit
    a, b = candidates.parameters
    return float(beta_upper(a[above], b[above], tail).max())


def _fewer(kind: Floats, times: Floats, sums: _Sums) -> _Sums:
    """Return the sums for every smaller number of cases of the kind, each with the greatest sum of squares."""
    order = np.argsort(-kind)
    counts = np.repeat(kind[order], times[order].astype(int))
    before, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (counts, counts**2))
    number = np.arange(sums.kind)
    whole = np.searchsorted(before, number, side="right") - 1
    return sums._replace(kind=number, kind_squares=squares[whole] + (number - before[whole]) ** 2)


def _exceeds(candidates: _Beta, limit: float, tail: float) -> Any:
    """Tell which distributions have a greater quantile than the limit."""
    a, b = candidates.parameters
    exceeds = candidates.mean >= limit
    below = ~exceeds
    if below.any():
        exceeds[below] = beta_survival(np.full(int(below.sum()), limit), a[below], b[below]) > tail * (1 + 1e-9)
    return exceeds
