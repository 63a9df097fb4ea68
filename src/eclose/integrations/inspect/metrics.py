"""Rates of labels for Inspect: over what was judged, with the number of cases, a standard error and an interval.

Epochs are not averaged first: every response counts once, and intervals are over questions, as in our own reports.
What does not exist (a rate over nothing, the error of a single question) is NaN, never 0.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from inspect_ai.scorer import Metric, SampleScore, Value, metric

from eclose.core.verdict import SettledVerdict
from eclose.integrations.inspect.cases import verdict_of
from eclose.metrics import rates
from eclose.metrics.summary import summarize
from eclose.stats.arrays import codes, sum_by
from eclose.stats.clustered_rates import clustered_rate
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

CONDITIONAL = (rates.Metric.GAP_SHARE, rates.Metric.GAP_RISK)
"""Rates whose denominator is a matter of judgement, so that they cannot be had from one label."""


@metric(scores="unreduced")
def judged() -> Metric:
    """The rate of one label among the responses that have it."""

    def compute(scores: list[SampleScore]) -> Value:
        hits = [bool(score.score.as_float()) for score in scores]
        questions = [str(score.sample_id) for score in scores]
        interval = clustered_rate(np.array(hits, np.intp), codes(questions)[0]).interval
        return {
            "rate": sum(hits) / len(hits) if hits else nan,
            "stderr": _stderr(hits, questions),
            "low": nan if interval is None else interval.low,
            "high": nan if interval is None else interval.high,
            "n": len(hits),
        }

    return compute


@metric(scores="unreduced")
def gap() -> Metric:
    """The gap's share of insufficient responses and of wrong answers, and how many responses there are."""

    def compute(scores: list[SampleScore]) -> Value:
        rows = [
            SettledVerdict(str(place), str(score.sample_id), verdict_of(score.score.value))
            for place, score in enumerate(scores)
        ]
        told: dict[str, float] = {"responses": len(rows)}
        told["undecided"] = sum(row.verdict.trace_group is None for row in rows)
        for group in summarize(rows):
            for which in CONDITIONAL:
                told |= _told(which, group.rates[which], group.estimates[which].interval)
        return told

    return compute


def _told(which: str, rate: Rate, interval: Interval | None) -> dict[str, float]:
    return {
        which: nan if rate.value is None else rate.value,
        f"{which}_low": nan if interval is None else interval.low,
        f"{which}_high": nan if interval is None else interval.high,
        f"{which}_n": rate.n,
        f"{which}_unjudged": rate.unjudged,
    }


def _stderr(hits: Sequence[bool], questions: Sequence[Hashable]) -> float:
    """Of the mean, by question: responses to one question err together."""
    which, distinct = codes(questions)
    if len(distinct) < 2:
        return nan
    values = np.array(hits, float)
    sums = sum_by(which, values - values.mean(), len(distinct))
    return sqrt(float((sums**2).sum()) * len(distinct) / (len(distinct) - 1)) / len(values)
