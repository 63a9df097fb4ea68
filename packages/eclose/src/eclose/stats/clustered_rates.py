"""The interval of a rate whose cases are grouped by question. Reports, gate, files and tests use this one.

These are the limits of Korn and Graubard (1998): those of Clopper and Pearson for the effective number of cases, which
is the number of cases divided by the design effect. The design effect is the variance of the rate between questions
over that of independent cases. It is taken at the limit itself, as in a score test, and one imaginary question of the
counted kind is added. With one case per question the limits are exactly those of Clopper and Pearson. Decision 0027 has
the formula, the reasons and the alternatives.

The interval is computed, not drawn: the same cases have the same interval everywhere. Turning a hit into a miss never
raises either end, so a run cannot pass a limit by failing more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, lgamma, log, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from eclose.stats.arrays import Floats, Indices, sum_by_group
from eclose.stats.intervals import Estimate, Interval

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class QuestionHitCounts:
    """Hits and misses by question; questions with the same counts may be listed once."""

    rows: tuple[tuple[float, float, int], ...]
    """Hits, misses, and the number of questions with these counts; a value between 0 and 1 is a part of either."""

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
    def hits(self) -> float:
        """Hits of all questions."""
        return sum(hits * times for hits, _, times in self.rows)

    @property
    def cases(self) -> float:
        """Number of cases of all questions."""
        return sum((hits + misses) * times for hits, misses, times in self.rows)

    @property
    def value(self) -> float | None:
        """Rate of hits; None without a case."""
        return self.hits / self.cases if self.rows else None

    def interval(self, level: float = CONFIDENCE_LEVEL) -> Interval | None:
        """Return the interval of the rate of hits; None without a case."""
        return self._ends(1, level, monotone=True)

    def estimate(self, level: float = CONFIDENCE_LEVEL) -> Estimate:
        """Return the rate with its interval."""
        return Estimate(self.value, self.interval(level))

    def with_single(self, *, hits: int = 0, misses: int = 0) -> QuestionHitCounts:
        """Return the counts with further hits and misses, each a question of its own."""
        extra = ((1, 0, hits), (0, 1, misses))
        return QuestionHitCounts((*self.rows, *(row for row in extra if row[2])))

    def repeated(self, times: float, level: float = CONFIDENCE_LEVEL) -> Interval | None:
        """Return the interval for ``times`` as many questions like these, without what keeps it monotone."""
        return self._ends(times, level, monotone=False)

    def _ends(self, times: float, level: float, *, monotone: bool) -> Interval | None:
        if not self.rows:
            return None
        hits, misses, questions = np.array(self.rows, float).T
        tail = (1 - level) / 2
        kinds = (_Kind.of(kind, hits + misses, times * questions) for kind in (misses, hits))
        low, high = (kind.limit(tail, monotone=monotone) for kind in kinds)
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


class _Kind(NamedTuple):
    """Cases of one kind by question, whose greatest compatible rate is the limit."""

    kind: Floats
    """Cases of the kind in each row's questions."""
    sizes: Floats
    """All cases of each row's questions."""
    times: Floats
    """Number of questions of each row."""
    total: float
    """Cases of the kind."""
    cases: float
    squares: float
    """Sum over questions of the squared number of all cases."""

    @classmethod
    def of(cls, kind: Floats, sizes: Floats, times: Floats) -> _Kind:
        sums = (float(times @ column) for column in (kind, sizes, sizes**2))
        return cls(kind, sizes, times, *sums)

    def limit(self, tail: float, *, monotone: bool = True) -> float:
        """Return the greatest rate that is compatible with the cases of the kind, and with any subset if ``monotone``.

        A further case of the kind may make questions more alike: without subsets the limit would then be smaller.
        """
        if self.total >= self.cases:
            return 1.0
        size = self.squares / self.cases
        mean = (self.total + size) / (self.cases + size)
        limit = _root(partial(self.survival, total=self.total, step=1), mean, tail)
        # With one case per question the limit is monotone as it is.
        if not monotone or self.squares == self.cases:
            return limit
        # The step depends on the cases alone, so that further cases of the kind only add subsets.
        step = max(self.cases // SUBSETS, 1)
        subsets = np.append(np.arange(0, self.total, step), self.total)
        while limit < 1 and (survival := self.survival(limit, subsets, step)).max() > tail * (1 + 1e-9):
            subset = float(subsets[survival.argmax()])
            limit = _root(partial(self.survival, total=subset, step=step), limit, tail)
        return limit

    def survival(self, rate: float, total: Any, step: float) -> Any:
        """Return the probability of a rate above ``rate``, given the subset with so many cases of the kind.

        Of the subsets from one step below this size to it, the spread is that of the one with the greatest.
        """
        # The cases of a question raise the spread by ``gain`` each if all of them are in the subset, and by less if
        # only some are. So the questions with the greatest gain come first. The spread rises and then falls.
        gain = self.kind - 2 * rate * self.sizes
        order = np.argsort(-gain)
        count = (self.times * self.kind)[order]
        totals = np.concatenate([[0.0], np.cumsum(count)])
        spreads = rate**2 * self.squares + np.concatenate([[0.0], np.cumsum(count * gain[order])])
        spread = np.interp(np.clip(totals[spreads.argmax()], total - step + 1, total), totals, spreads)
        return rate_survival(rate, total, spread, self.cases, self.squares)


def rate_survival(rate: Any, total: Any, spread: Any, cases: float, squares: float) -> Any:
    """Return the probability of a rate above ``rate``, a float or an array; a limit is where it equals the tail.

    Args:
        rate: A rate above the observed one.
        total: Cases of the kind.
        spread: Sum over questions of the squared deviation of these cases from ``rate`` times all cases.
        cases: All cases.
        squares: Sum over questions of their squared number.
    """
    # The design effect: the squared deviations of questions from the rate over those of single cases.
    effect = np.maximum(spread / (total * (1 - rate) ** 2 + (cases - total) * rate**2), 1)
    effect = effect if np.ndim(effect) else float(effect)
    # The imaginary question has the mean size of the question that a case is in, and all its cases are of the kind.
    return beta_survival(rate, (total + squares / cases) / effect, (cases - total) / effect)


SUBSETS = 256
"""Number of subsets that are evaluated where there are more cases; at most twice as many."""
_DIGITS = 12
_TINY = 1e-300
"""Stands for a probability too small for a float."""


def _root(survival: Callable[[float], float], low: float, tail: float) -> float:
    """Return the rate above ``low`` that is exceeded with probability ``tail``, by false position (Illinois)."""

    def height(probability: float) -> float:
        # Nearly linear in the rate, as it is for a normal distribution.
        return sqrt(-log(max(probability, _TINY))) - sqrt(-log(tail))

    high, below, above = 1.0, height(survival(low)), height(_TINY)
    rate, value, last = low, below, 0.0
    while high - low > 10**-_DIGITS / 2 and abs(value) > 10**-_DIGITS:
        rate, last = (low * above - high * below) / (above - below), value
        value = height(survival(rate))
        # An end that stays twice has its height halved, or the other end would approach the root slowly.
        if value < 0:
            low, below, above = rate, value, above / 2 if last < 0 else above
        else:
            high, above, below = rate, value, below / 2 if last > 0 else below
    # Rounded up, so that equal limits are equal, and that the limit always lies above ``low``.
    return float(min(ceil(rate * 10**_DIGITS) / 10**_DIGITS, 1.0))


Number = TypeVar("Number", float, Floats)
_LOG_GAMMA = np.frompyfunc(lgamma, 1, 1)
_NEGLIGIBLE = 1e-13
"""A factor this close to 1 ends the continued fraction."""
_MAX_TERMS, _STRIDE = 4_000, 8
"""Most terms of the continued fraction, and terms between two checks for convergence."""


def beta_survival(x: Number, a: Number, b: Number) -> Number:
    """Return the probability that a beta variable lies above ``x``, which lies between its mean and 1.

    The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method. Above the mean it converges
    in a number of terms proportional to the square root of ``a + b``.
    """
    upper = 1 - x
    total = a + b
    inverse: Any = 1 / (1 - total * upper / (b + 1))
    fraction: Any = inverse
    ratio: Any = 1.0
    for step in range(1, _MAX_TERMS):
        index = b + 2 * step
        # Each step takes two coefficients of the fraction, the even one and the odd one after it.
        even = step * (a - step) * upper / ((index - 1) * index)
        odd = -(b + step) * (total + step) * upper / (index * (index + 1))
        inverse, ratio = 1 / (1 + even * inverse), 1 + even / ratio
        factor = inverse * ratio
        inverse, ratio = 1 / (1 + odd * inverse), 1 + odd / ratio
        factor = factor * inverse * ratio
        fraction = fraction * factor
        if step % _STRIDE == 0 and np.max(np.abs(factor - 1)) < _NEGLIGIBLE:
            break
    else:
        raise ArithmeticError(f"the incomplete beta function did not converge in {_MAX_TERMS} terms")
    survival: Number = _density(x, a, b) * x * upper / b * fraction
    return survival


def _density(x: Number, a: Number, b: Number) -> Number:
    log_a, log_b, log_sum = (_log_gamma(part) for part in (a, b, a + b))
    density: Number = np.exp(log_sum - log_a - log_b + (a - 1) * np.log(x) + (b - 1) * np.log1p(-x))
    return density


def _log_gamma(value: Any) -> Any:
    """Return the logarithm of the gamma function of a float or an array."""
    return lgamma(value) if isinstance(value, float) else np.asarray(_LOG_GAMMA(value), float)
