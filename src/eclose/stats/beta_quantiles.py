"""Upper quantiles of the beta distribution, for limits of a proportion (Clopper and Pearson).

All functions take floats or arrays. The same operators serve both, and a float takes a tenth of the time of an array of
length one.
"""

from __future__ import annotations

from math import lgamma
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from eclose.stats.arrays import Floats

Number = TypeVar("Number", float, Floats)

_LOG_GAMMA = np.frompyfunc(lgamma, 1, 1)
_NEGLIGIBLE = 1e-13
"""A factor this close to 1 ends the continued fraction."""
_PRECISION = 1e-12
"""A Newton step this small ends the search for a quantile."""
_MAX_TERMS, _STRIDE = 4_000, 8
"""Most terms of the continued fraction, and terms between two checks for convergence."""
_NEWTON_STEPS = 50


def beta_survival(x: Number, a: Number, b: Number) -> Number:
    """Return the probability of a value above ``x``; ``x`` lies between the mean and 1.

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


def beta_upper_quantile(a: Number, b: Number, tail: float) -> Number:
    """Return the value exceeded with probability ``tail``; ``a`` is at least 1, so the value lies above the mean."""
    x: Any = _first_guess(a, b, tail)
    mean = a / (a + b)
    for _ in range(_NEWTON_STEPS):
        survival, upper_part = beta_survival(x, a, b), 1 - x
        # Newton's step for log(survival) as a function of log(1 - x), which is nearly linear in the tail.
        step = survival / (_density(x, a, b) * upper_part) * np.log(survival / tail)
        # Stay below 1, and never go more than halfway back towards the mean.
        update = np.maximum(1 - np.maximum(upper_part * np.exp(-step), _NEGLIGIBLE), (mean + x) / 2)
        converged = np.max(np.abs(update - x)) <= _PRECISION
        x = update if np.ndim(update) else float(update)
        if converged:
            break
    else:
        raise ArithmeticError(f"the quantile of the beta distribution did not converge in {_NEWTON_STEPS} steps")
    upper: Number = x
    return upper


def _first_guess(a: Number, b: Number, tail: float) -> Any:
    """Return an approximate quantile (Abramowitz and Stegun 26.5.22), above the mean and below 1."""
    z = NormalDist().inv_cdf(1 - tail)
    inverse_a, inverse_b = 1 / np.maximum(2 * a - 1, 0.5), 1 / np.maximum(2 * b - 1, 0.5)
    spread, skew = 2 / (inverse_a + inverse_b), (z * z - 3) / 6
    exponent = z * np.sqrt(spread + skew) / spread + (inverse_b - inverse_a) * (skew + 5 / 6 - 2 / (3 * spread))
    mean = a / (a + b)
    deviation = np.sqrt(mean * (1 - mean) / (a + b + 1))
    guess = np.clip(a / (a + b * np.exp(-2 * exponent)), mean + deviation / 10, 1 - 1e-3 * (1 - mean))
    return guess if np.ndim(guess) else float(guess)


def _density(x: Number, a: Number, b: Number) -> Number:
    log_a, log_b, log_sum = (_log_gamma(part) for part in (a, b, a + b))
    density: Number = np.exp(log_sum - log_a - log_b + (a - 1) * np.log(x) + (b - 1) * np.log1p(-x))
    return density


def _log_gamma(value: Any) -> Any:
    """Return the logarithm of the gamma function of a float or an array."""
    return lgamma(value) if isinstance(value, float) else np.asarray(_LOG_GAMMA(value), float)
