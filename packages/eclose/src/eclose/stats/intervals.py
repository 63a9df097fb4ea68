"""Intervals of an estimate: Wilson's for a proportion, percentiles for resampled values."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from eclose.stats.arrays import Floats

Z_95 = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with its interval; None where undefined."""

    value: float | None
    interval: Interval | None
    undefined: int = 0
    """Number of resamples without a value; they are not part of the interval."""


def wilson_interval(successes: int, trials: int, z: float = Z_95) -> Interval | None:
    """Return the Wilson score interval of a proportion; None without trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"need 0 <= successes <= trials, got {successes}/{trials}")
    if trials == 0:
        return None
    p, zz = successes / trials, z * z
    centre = p + zz / (2 * trials)
    spread = z * sqrt(p * (1 - p) / trials + zz / (4 * trials * trials))
    # At 0 and 1 the ends are exact; rounding must not push them past.
    low = 0.0 if successes == 0 else (centre - spread) / (1 + zz / trials)
    high = 1.0 if successes == trials else (centre + spread) / (1 + zz / trials)
    return Interval(low, high)


def percentile_interval(draws: Floats, level: float = 0.95) -> Interval | None:
    """Return the percentile interval of the defined values; NaN values are skipped, None when all are NaN."""
    defined = draws[~np.isnan(draws)]
    if defined.size == 0:
        return None
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))


def adjust_level_for_few_units(level: float, freedom: int, inflation: float) -> float:
    """Return the level at which to read percentiles, so that few units give an interval as wide as Student's.

    Resampled values vary less than the estimate does, and their variance is as uncertain as that of so few units
    (Hesterberg's expanded percentiles).

    Args:
        level: Nominal level of the interval.
        freedom: Degrees of freedom of the variance: units minus strata.
        inflation: Variance of the estimate divided by that of the resampled values.
    """
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2)
    # Student's quantile by two terms of its expansion around the normal one; off by less than 0.004 from 10 degrees on.
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return 2 * normal.cdf(student * sqrt(inflation)) - 1
