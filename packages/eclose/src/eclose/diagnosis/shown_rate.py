"""A rate as all formats print it: a value with its interval, bounds, or words, given its unjudged responses.

Decision 0030 has the reasons: a printed rate must not be an artefact of missing labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from eclose.diagnosis.number_format import (
    format_percent,
    format_percent_between,
    format_percent_interval,
    format_percent_span,
)
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate
from eclose.values.judgment import MAX_UNJUDGED_SHARE

if TYPE_CHECKING:
    from eclose.metrics.rates import Metric
    from eclose.metrics.summary import GroupRates


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


def is_too_little_judged(*rates: Rate) -> bool:
    """Return whether too few responses of one of the rates are judged to print or to compare it."""
    return any(classify_rate_status(rate) is RateStatus.TOO_LITTLE for rate in rates)


class RateText(NamedTuple):
    """A percentage with its interval, as text."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        """Return ``46.3 % [40.9, 51.9]``."""
        return f"{self.value} {self.interval}".rstrip()


def format_rate_value(value: float | None, interval: Interval | None) -> RateText:
    """Return a value with its interval, without a check for missing labels."""
    if value is None:
        return RateText(UNDEFINED_TEXT)
    return RateText(f"{format_percent(value)} %", format_percent_interval(interval))


@dataclass(frozen=True, slots=True)
class ShownRate:
    """A rate as reports show it: the judge's own, or corrected by labels of people."""

    rate: Rate
    """Counts of the judge's labels."""
    estimate: Estimate
    """Value and interval: of the judged responses, or corrected."""
    corrected: bool = False

    @classmethod
    def of_group(cls, group: GroupRates, metric: Metric) -> ShownRate:
        """Return the judge's own rate of a group."""
        return cls(group.rates[metric], group.estimates[metric])

    @classmethod
    def of_people(cls, rate: Rate, corrected: Estimate | None) -> ShownRate | None:
        """Return a corrected rate; None where there is no correction."""
        return None if corrected is None or corrected.value is None else cls(rate, corrected, corrected=True)

    @property
    def status(self) -> RateStatus:
        """How the rate may be printed."""
        return classify_rate_status(self.rate)

    @property
    def printed(self) -> bool:
        """Whether a value or bounds are printed, not words."""
        return self.status in (RateStatus.RATE, RateStatus.BOUNDS)

    @property
    def value(self) -> float | None:
        """The rate of the judged responses, or the corrected one."""
        return self.estimate.value if self.corrected else self.rate.value

    @property
    def span(self) -> Interval | None:
        """Where the rate lies, whatever the unjudged responses are; None where it is not defined."""
        if self.rate.unjudged and not self.corrected:
            return self.rate.bounds
        return None if self.value is None else self.widen(Interval(self.value, self.value))

    @property
    def interval(self) -> Interval | None:
        """The interval of the value; that of a corrected rate is widened by the unjudged responses."""
        interval = self.estimate.interval
        # They may be hits or misses, whatever the sample of people says.
        return self.widen(interval) if self.corrected and interval is not None else interval

    @property
    def figure(self) -> RateText:
        """``46.3 % [40.9, 51.9]``, ``between 45.1 % and 47.0 %``, or why there is no figure."""
        if self.status is RateStatus.BOUNDS and self.span is not None:
            # The interval of the judge's own rate is one of the judged responses only.
            interval = format_percent_interval(self.interval) if self.corrected else ""
            return RateText(format_percent_between(self.span), interval)
        if self.status is RateStatus.TOO_LITTLE:
            return RateText(TOO_LITTLE_TEXT)
        return format_rate_value(self.value, self.interval)

    @property
    def number(self) -> str:
        """``70.6``, or ``70.5 to 70.6`` with missing labels; a dash where the rate is not defined."""
        return format_percent_span(self.span)

    @property
    def of_judged(self) -> str:
        """What stands beneath the number: the interval; with missing labels, the rate of the judged with it."""
        interval = format_percent_interval(self.estimate.interval)
        if self.status is RateStatus.BOUNDS:
            return f"{format_percent(self.rate.value)} {interval}".rstrip()
        return TOO_LITTLE_TEXT if self.status is RateStatus.TOO_LITTLE else interval

    @property
    def complement(self) -> ShownRate:
        """The share of all other responses."""
        value, interval, undefined = self.estimate
        opposite = None if interval is None else Interval(1 - interval.high, 1 - interval.low)
        # Misses become hits; the denominator and the unjudged stay.
        rate = Rate(self.rate.n - self.rate.hits, self.rate.n, self.rate.unjudged)
        return ShownRate(rate, Estimate(None if value is None else 1 - value, opposite, undefined), self.corrected)

    def widen(self, interval: Interval) -> Interval:
        """Return an interval of the judged responses, widened by those without a label."""
        if not self.rate.unjudged:
            return interval
        share = self.rate.unjudged / (self.rate.n + self.rate.unjudged)
        # The unjudged responses are all misses at the lower end and all hits at the upper end.
        return Interval((1 - share) * interval.low, (1 - share) * interval.high + share)
