"""Bounds of a rate that hold at every moment of a run that grows, and the evidence of an alarm.

Evidence against "the rate is at most ``limit``" is the wealth of a gambler who bets on values between 0 and 1 at fair
odds (Waudby-Smith and Ramdas 2024). Each bet risks a fixed fraction ``c`` of the wealth, which a value ``x`` multiplies
by ``1 - c + c * x / limit``. Where every value has a mean of at most the limit given all values before it, wealth is a
supermartingale that starts at 1. By Ville's inequality it ever reaches 20 in at most 5 % of lives, of any length.

Wealth that has been lost over a long good past would have to be won back before a change shows. So it is divided
beforehand among gamblers who start at the beginning of each window, of whom the ``j``-th has ``f(j) - f(j + 1)`` with
``f(j) = 1 / (1 + log(j))``. These shares sum to one, so that the sum of all wealth starts at 1 and is a supermartingale
again: the 5 % hold over the whole life, and a change in window ``j`` costs about ``log(j)`` of evidence, not the past.

The unit that is bet on is one value. Responses to one question are alike, so a caller passes their mean within a
window as one value, and evidence is taken at the ends of windows, when these means are complete. Whatever order the
values of a window have, the evidence at its end is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from eclose.stats.arrays import Floats, Indices

ALARM_LEVEL = 0.05
"""Largest share of lives with a false alarm."""
_STAKES = 2.0 ** -np.arange(1, 7)
"""Fractions of the wealth that are risked, each by a gambler of its own: large ones for large changes."""
_GRID = np.arange(1001) / 1000
"""Rates of which the bounds consist."""


def measure_log_evidence(values: Floats, window: Indices, limits: Floats, *, restarts: bool = True) -> Floats:
    """Return the logarithm of the evidence that the rate has been above each limit, at the end of each window.

    Args:
        values: Values between 0 and 1.
        window: Number of the window of each value, counted from 0.
        limits: Rates between 0 and 1.
        restarts: Whether gamblers start at every window; otherwise all wealth is bet from the first value on.

    Returns:
        Windows by limits. An alarm is due where it reaches ``log(1 / level)``, for the first time or ever since.
    """
    distinct, position = np.unique(values, return_inverse=True)
    windows = int(window.max(initial=-1)) + 1
    counts = np.bincount(window * len(distinct) + position, minlength=windows * len(distinct))
    counts = counts.reshape(windows, len(distinct))
    wealth = np.full((len(limits), len(_STAKES)), -np.inf)
    # At a limit of 0 a single hit is proof; a tiny limit keeps its growth finite.
    odds = distinct[:, None, None] / np.maximum(limits, 1e-12)[:, None]
    growth = np.log1p(_STAKES * (odds - 1)).reshape(len(distinct), wealth.size)
    starts = 1 / (1 + np.log(np.arange(1, windows + 2))) if restarts else np.append(1.0, np.zeros(windows))
    with np.errstate(divide="ignore"):
        shares, waiting = np.log(starts[:-1] - starts[1:]), np.log(starts[1:])
    evidence = np.empty((windows, len(limits)))
    for number in range(windows):
        wealth = np.logaddexp(wealth, shares[number]) + (counts[number] @ growth).reshape(wealth.shape)
        betting = np.logaddexp.reduce(wealth, axis=1) - np.log(len(_STAKES))
        evidence[number] = np.logaddexp(betting, waiting[number])
    return evidence


def bound_from_below(values: Floats, window: Indices, level: float = ALARM_LEVEL) -> Floats:
    """Return, for the end of each window, the greatest rate that the run has been above, to a tenth of a percent.

    In at most ``level`` of lives, this ever exceeds the greatest rate that the run had. A bound never falls again.
    For a bound from above, pass ``1 - values`` and subtract the result from 1.
    """
    evidence = np.maximum.accumulate(measure_log_evidence(values, window, _GRID), axis=0)
    # Evidence falls as the limit grows, so the limits that are exceeded come first.
    exceeded = np.count_nonzero(evidence >= -np.log(level), axis=1)
    bounds: Floats = _GRID[np.maximum(exceeded - 1, 0)]
    return bounds


def find_alarm(values: Floats, window: Indices, limit: float, level: float = ALARM_LEVEL) -> int | None:
    """Return the first window at whose end it is shown that the rate was above the limit; None without one."""
    evidence = measure_log_evidence(values, window, np.array([limit]))[:, 0]
    alarms = np.flatnonzero(evidence >= -np.log(level))
    return int(alarms[0]) if len(alarms) else None
