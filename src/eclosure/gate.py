"""Rates -> pass or fail, with reasons. For CI: a build breaks when responses got less reliable.

A limit is held against the bound of the interval, not against the estimate: with few responses a good rate may be luck,
and then the gate says so. What was not judged counts against whoever wants to pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclosure.core.judgment import NEVER_ASKED, Criterion
from eclosure.errors import SettingError
from eclosure.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclosure.metrics.summary import GroupSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a set of responses must keep to. Rates lie between 0 and 1."""

    at_least: Mapping[Metric, float] = field(default_factory=dict)
    at_most: Mapping[Metric, float] = field(default_factory=dict)
    unjudged: float | None = None
    """The largest share of responses that may lack a label."""

    def __post_init__(self) -> None:
        """Refuse limits that hold nothing, or are no rates."""
        given = [*self.at_least.values(), *self.at_most.values(), *([] if self.unjudged is None else [self.unjudged])]
        if not given:
            raise SettingError("a gate without limits lets everything pass. Give at least one, such as --min-trr 0.85.")
        if not all(0 <= limit <= 1 for limit in given):
            raise SettingError("limits are rates between 0 and 1: 0.85, not 85.")

    @classmethod
    def of(
        cls,
        *,
        min_trr: float | None = None,
        min_accuracy: float | None = None,
        min_lsr: float | None = None,
        max_lgg: float | None = None,
        max_unjudged: float | None = None,
    ) -> Limits:
        """By the names that commands and tests give them; None for no limit."""
        least = {
            Metric.TRACE_RELIABILITY_RATE: min_trr,
            Metric.ACCURACY: min_accuracy,
            Metric.LOCAL_SOUNDNESS_RATE: min_lsr,
        }
        return cls(
            at_least={metric: limit for metric, limit in least.items() if limit is not None},
            at_most={} if max_lgg is None else {Metric.GAP_RATE: max_lgg},
            unjudged=max_unjudged,
        )


def gate(
    summary: GroupSummary,
    unjudged: Mapping[Criterion, Mapping[str, int]],
    limits: Limits,
    left_out: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Why the responses do not pass; nothing when they do.

    ``unjudged`` counts missing labels by reason; ``left_out`` names responses without any judgment, with the reason.
    """
    return [
        *_rates(summary, limits),
        *_unjudged(summary.responses, unjudged, limits),
        *_left_out(summary.responses, left_out, limits),
    ]


def _rates(summary: GroupSummary, limits: Limits) -> Iterator[str]:
    for metric, limit in limits.at_least.items():
        low = _bounds(summary, metric)[0]
        if low is None:
            yield f"{metric} is undefined: no response counts for it."
        elif low < limit:
            found = f"may be as low as {_percent(low)} (estimate {_estimate(summary, metric)})"
            yield f"{metric} {found}: not at least {_percent(limit)}."
    for metric, limit in limits.at_most.items():
        high = _bounds(summary, metric)[1]
        if high is None:
            yield f"{metric} is undefined: no response counts for it."
        elif high > limit:
            found = f"may be as high as {_percent(high)} (estimate {_estimate(summary, metric)})"
            yield f"{metric} {found}: not at most {_percent(limit)}."


def _bounds(summary: GroupSummary, metric: Metric) -> tuple[float | None, float | None]:
    """The interval, widened by what was not judged."""
    interval, rate = summary.estimates[metric].interval, summary.rates[metric]
    if interval is None or rate.bounds is None or rate.value is None:
        return None, None
    return (
        max(0.0, interval.low - (rate.value - rate.bounds[0])),
        min(1.0, interval.high + (rate.bounds[1] - rate.value)),
    )


def _unjudged(total: int, unjudged: Mapping[Criterion, Mapping[str, int]], limits: Limits) -> Iterator[str]:
    if limits.unjudged is None:
        return
    for criterion in Criterion:
        reasons = unjudged.get(criterion, {})
        missing = sum(count for reason, count in reasons.items() if reason not in NEVER_ASKED)
        if missing > limits.unjudged * total:
            limit = _percent(limits.unjudged)
            yield f"{criterion} was not judged in {missing:,} of {total:,} responses: not at most {limit}."


def _left_out(judged: int, left: Sequence[tuple[str, str]], limits: Limits) -> Iterator[str]:
    """Responses without any judgment are in no rate, but they were not judged either."""
    total = judged + len(left)
    if limits.unjudged is not None and len(left) > limits.unjudged * total:
        told = f"{len(left):,} of {total:,} responses have no judgment at all, such as {left[0][0]} ({left[0][1]})"
        yield f"{told}: not at most {_percent(limits.unjudged)}."


def _estimate(summary: GroupSummary, metric: Metric) -> str:
    rate = summary.rates[metric]
    return f"{_percent(rate.value or 0.0)}, n = {rate.n:,}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
