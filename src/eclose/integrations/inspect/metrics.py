"""Metrics for Inspect: rates over the judged responses, with counts, standard errors and intervals.

Epochs are not averaged: every response counts once, and intervals are over questions, as in the reports of eclose.
Undefined values (a rate over no responses, the standard error of a single question) are NaN.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from inspect_ai.scorer import Metric, SampleScore, Value, metric

from eclose.core.verdict import SettledVerdict
from eclose.integrations.inspect.convert_samples import parse_score_labels
from eclose.metrics import rates
from eclose.metrics.summary import summarize_verdicts
from eclose.stats.arrays import number_distinct_labels, sum_by_group
from eclose.stats.clustered_rates import clustered_rate
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

CONDITIONAL = (rates.Metric.GAP_SHARE, rates.Metric.GAP_RISK)
"""Rates whose denominator depends on labels, so that no single label gives them."""


@metric(name="judged", scores="unreduced")
def label_rate_metric() -> Metric:
    """Return the metric of one label: its rate among the responses that have it."""

    def compute(scores: list[SampleScore]) -> Value:
        hits = [bool(score.score.as_float()) for score in scores]
        questions = [str(score.sample_id) for score in scores]
        # hits and question codes: one entry per response; the question is the cluster.
        interval = clustered_rate(np.array(hits, np.intp), number_distinct_labels(questions)[0]).interval
        return {
            "rate": sum(hits) / len(hits) if hits else nan,
            "stderr": _stderr(hits, questions),
            "low": nan if interval is None else interval.low,
            "high": nan if interval is None else interval.high,
            "n": len(hits),
        }

    return compute


@metric(name="gap", scores="unreduced")
def gap_metric() -> Metric:
    """Return the metric of the gap: its share of insufficient responses and of wrong answers, with counts."""

    def compute(scores: list[SampleScore]) -> Value:
        rows = [
            SettledVerdict(str(number), str(score.sample_id), parse_score_labels(score.score.value))
            for number, score in enumerate(scores)
        ]
        values: dict[str, float] = {"responses": len(rows)}
        values["undecided"] = sum(row.verdict.trace_group is None for row in rows)
        for group in summarize_verdicts(rows):
            for name in CONDITIONAL:
                values |= _flatten(name, group.rates[name], group.estimates[name].interval)
        return values

    return compute


def _flatten(name: str, rate: Rate, interval: Interval | None) -> dict[str, float]:
    # Inspect shows a metric of several values only as a flat dictionary of numbers.
    return {
        name: nan if rate.value is None else rate.value,
        f"{name}_low": nan if interval is None else interval.low,
        f"{name}_high": nan if interval is None else interval.high,
        f"{name}_n": rate.n,
        f"{name}_unjudged": rate.unjudged,
    }


def _stderr(hits: Sequence[bool], questions: Sequence[Hashable]) -> float:
    """Return the cluster-robust standard error of the mean, with questions as clusters."""
    cluster, distinct = number_distinct_labels(questions)
    if len(distinct) < 2:
        return nan
    values = np.array(hits, float)
    # Residuals summed by question, because responses to one question err together; g / (g - 1) corrects the bias.
    sums = sum_by_group(cluster, values - values.mean(), len(distinct))
    return sqrt(float((sums**2).sum()) * len(distinct) / (len(distinct) - 1)) / len(values)
