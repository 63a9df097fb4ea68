"""Summaries of verdicts: rates with intervals for all responses and by group, and the composition of failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eclose.errors import SettingError
from eclose.metrics.rates import (
    VERDICTS,
    Metric,
    MetricIndicators,
    ResponseComposition,
    compute_metric_rates,
    count_response_composition,
    encode_verdicts,
    tabulate_indicator_bounds,
)
from eclose.stats.arrays import Codes, Flags, Indices, number_distinct_labels
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate
from eclose.values.response import UNTUNED_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.values.verdict import SettledVerdict, Verdict

UNKNOWN_GROUP = "unknown"
"""The name of a group whose property is missing."""


def get_response_method(row: SettledVerdict) -> str:
    """Return the method that produced the response."""
    return (row.source.method if row.source else None) or UNTUNED_METHOD


VERDICT_GROUPINGS: dict[str, Callable[[SettledVerdict], str]] = {
    "benchmark": lambda row: row.benchmark or UNKNOWN_GROUP,
    "model": lambda row: row.source.model if row.source else UNKNOWN_GROUP,
    "method": get_response_method,
    "seed": lambda row: str(row.source.seed) if row.source and row.source.seed is not None else UNKNOWN_GROUP,
}
"""The properties that verdicts can be grouped by."""


INTERVAL_METHOD = "Clopper-Pearson, clustered by question"
"""The name of the interval in files; see ``stats.clustered_rates``."""


@dataclass(frozen=True, slots=True)
class GroupRates:
    """The rates of one group of responses."""

    group: tuple[str, ...]
    """The value of each grouping; empty for all responses together."""
    responses: int
    questions: int
    rates: dict[Metric, Rate]
    """Counts; ``Rate.wilson`` is the paper's interval of LggShare and LggRisk, which treats responses as independent.
    """
    estimates: dict[Metric, Estimate]
    """Rates of the judged responses with the interval over questions; None where no response counts."""
    composition: ResponseComposition
    counts: dict[Metric, QuestionHitCounts]
    """Hits and misses by question, from which the intervals are computed."""
    least: dict[Metric, QuestionHitCounts]
    """The same with the unjudged labels completed so that the rate is least."""
    greatest: dict[Metric, QuestionHitCounts]
    """The same with the unjudged labels completed so that the rate is greatest."""

    def widest(self, metric: Metric, left_out: int = 0) -> Interval | None:
        """Return the interval over all completions of the unjudged responses.

        Args:
            metric: The rate.
            left_out: Responses without any judgment, which are not in this summary: misses for the lower end and hits
                for the upper end, each a question of its own.
        """
        judged = self.estimates[metric].interval
        # The judged interval is included: a completion may narrow it.
        low = self.least[metric].with_single(misses=left_out).interval()
        high = self.greatest[metric].with_single(hits=left_out).interval()
        spans = [span for span in (judged, low, high) if span is not None]
        return Interval(min(span.low for span in spans), max(span.high for span in spans)) if spans else None


def summarize_verdicts(rows: Sequence[SettledVerdict], by: Sequence[str] = ()) -> list[GroupRates]:
    """Return the rates of all responses together, then of each group; intervals are over questions."""
    if unknown := [name for name in by if name not in VERDICT_GROUPINGS]:
        raise SettingError(f"cannot group by {unknown[0]!r}. Choose from: {', '.join(VERDICT_GROUPINGS)}.")
    # The empty key sorts first, so all responses together come before the groups.
    groups: dict[tuple[str, ...], list[SettledVerdict]] = {(): list(rows)} if rows else {}
    for row in rows if by else ():
        groups.setdefault(tuple(VERDICT_GROUPINGS[name](row) for name in by), []).append(row)
    return [summarize_verdict_counts(group, VerdictCounts.of(members)) for group, members in sorted(groups.items())]


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Question and verdict of each response: everything that rates and their intervals are computed from."""

    question: Indices
    """Number of the question of each response, counted from 0; some numbers may be missing."""
    verdict: Codes
    """Position in ``VERDICTS`` of each response."""

    @classmethod
    def of(cls, rows: Sequence[SettledVerdict]) -> VerdictCounts:
        """Return the counts of verdicts."""
        # Question ids are unique within a benchmark only.
        question, _ = number_distinct_labels([(row.benchmark, row.instance_id) for row in rows])
        return cls(question, encode_verdicts([row.verdict for row in rows]))

    def select(self, rows: Flags | Indices) -> VerdictCounts:
        """Return some of the responses."""
        return VerdictCounts(self.question[rows], self.verdict[rows])

    def by_verdict(self) -> Counter[Verdict]:
        """Return the number of responses by verdict."""
        totals = np.bincount(self.verdict, minlength=len(VERDICTS))
        return Counter({verdict: int(total) for verdict, total in zip(VERDICTS, totals, strict=True) if total})


def summarize_verdict_counts(group: tuple[str, ...], counts: VerdictCounts) -> GroupRates:
    """Return the rates of one group of responses."""
    # Questions of the group are numbered without gaps; sorting them would take four times the memory.
    present = np.zeros(counts.question.max(initial=-1) + 1, bool)
    present[counts.question] = True
    numbers = np.cumsum(present) - 1
    questions = int(present.sum())
    numbered = replace(counts, question=numbers[counts.question])
    tables = tabulate_indicator_bounds()
    judged, least, greatest = (_count_by_question(table, numbered, questions) for table in tables)
    verdicts = counts.by_verdict()
    return GroupRates(
        group,
        responses=verdicts.total(),
        questions=questions,
        rates=compute_metric_rates(verdicts),
        estimates={metric: hits.estimate() for metric, hits in judged.items()},
        composition=count_response_composition(verdicts),
        counts=judged,
        least=least,
        greatest=greatest,
    )


def _count_by_question(
    table: MetricIndicators, counts: VerdictCounts, questions: int
) -> dict[Metric, QuestionHitCounts]:
    by_metric = {}
    # One metric at a time: all of them together would take a hundred numbers for each row.
    for metric, hit, counted in zip(Metric, table.hits.T, table.counted.T, strict=True):
        # A question with several responses is one cluster of the interval.
        hits, cases = (
            np.bincount(counts.question, column[counts.verdict], minlength=questions).astype(np.float64)
            for column in (hit, counted)
        )
        by_metric[metric] = QuestionHitCounts.of(hits, cases - hits)
    return by_metric
