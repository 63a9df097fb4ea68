"""Whether a rate may be printed as a value, as bounds, or not at all, given its unjudged responses.

Decision 0030 has the reasons: a printed rate must not be an artefact of missing labels.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.judgment import MAX_UNJUDGED_SHARE
from eclose.stats.intervals import Interval

if TYPE_CHECKING:
    from eclose.stats.rates import Rate


class RateStatus(StrEnum):
    """How a rate may be printed; the value is the ``reading`` of a rate in diagnosis.json."""

    RATE = "rate"
    """Every response has a label: print the rate with its interval."""
    BOUNDS = "bounds"
    """Some have none: print the least and the greatest possible value."""
    TOO_LITTLE = "too_little_judged"
    """More than ``MAX_UNJUDGED_SHARE`` have none: print no value, and the bounds in small print."""
    UNDEFINED = "undefined"
    """No response is in the denominator."""


TOO_LITTLE_TEXT = "too little judged"


UNDEFINED_TEXT = "not defined"


def classify_rate_status(rate: Rate) -> RateStatus:
    """Return how a rate may be printed."""
    # The unjudged may all lie outside the denominator, so bounds exist as soon as there is one case.
    if not rate.n + rate.unjudged:
        return RateStatus.UNDEFINED
    if not rate.unjudged:
        return RateStatus.RATE
    share = rate.unjudged / (rate.n + rate.unjudged)
    return RateStatus.TOO_LITTLE if share > MAX_UNJUDGED_SHARE else RateStatus.BOUNDS


def widen_interval_by_unjudged(rate: Rate, low: float, high: float) -> Interval:
    """Return the interval of a corrected rate, widened by the responses without a label of the judge."""
    share = rate.unjudged / (rate.n + rate.unjudged)
    # The unjudged responses are all misses at the lower end and all hits at the upper end.
    return Interval((1 - share) * low, (1 - share) * high + share)


def complement_interval(interval: Interval | None) -> Interval | None:
    """Return the interval of one minus a rate."""
    return None if interval is None else Interval(1 - interval.high, 1 - interval.low)
