"""A file of verdicts in one page: rates with intervals, by group where asked, and what the failures are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.errors import SettingError
from eclose.metrics.experiment import method_of
from eclose.metrics.rates import Composition, Indicators, Metric, completed_indicators, composition, rates
from eclose.stats.arrays import codes, sum_by
from eclose.stats.clustered_rates import QuestionCounts
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.core.verdict import SettledVerdict
    from eclose.stats.arrays import Indices

UNKNOWN = "unknown"

GROUPINGS: dict[str, Callable[[SettledVerdict], str]] = {
    "benchmark": lambda row: row.benchmark or UNKNOWN,
    "model": lambda row: row.source.model if row.source else UNKNOWN,
    "method": method_of,
    "seed": lambda row: str(row.source.seed) if row.source and row.source.seed is not None else UNKNOWN,
}
"""What verdicts can be grouped by."""


INTERVAL_METHOD = "Clopper-Pearson, clustered by question"
"""The name of the interval in files; see ``stats.clustered``."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The rates of one group of responses."""

    group: tuple[str, ...]
    """Its value of each grouping; empty for all responses together."""
    responses: int
    questions: int
    rates: dict[Metric, Rate]
    """Counts; ``Rate.wilson`` is the paper's interval of LggShare and LggRisk, which takes responses as independent."""
    estimates: dict[Metric, Estimate]
    """Rates of the judged responses with the interval over questions; None where no response counts."""
    composition: Composition
    counts: dict[Metric, QuestionCounts]
    """Hits and misses by question: what the intervals are computed from."""
    least: dict[Metric, QuestionCounts]
    """The same with the unjudged labels completed so that the rate is least; the next: so that it is greatest."""
    greatest: dict[Metric, QuestionCounts]

    def widest(self, metric: Metric, left_out: int = 0) -> Interval | None:
        """Return the interval over everything that unjudged responses could turn out to be.

        Args:
            metric: The rate.
            left_out: Responses without any judgment, which are not in this summary: misses for the lower end and
                hits for the upper one, each a question of its own.
        """
        judged = self.estimates[metric].interval
        low = self.least[metric].with_single(misses=left_out).interval()
        high = self.greatest[metric].with_single(hits=left_out).interval()
        ends = [ends for ends in (judged, low, high) if ends is not None]
        return Interval(min(each.low for each in ends), max(each.high for each in ends)) if ends else None


def summarize(rows: Sequence[SettledVerdict], by: Sequence[str] = ()) -> list[GroupSummary]:
    """Return the rates of all responses together, then of each group; intervals are over questions."""
    if unknown := [name for name in by if name not in GROUPINGS]:
        raise SettingError(f"cannot group by {unknown[0]!r}. Choose from: {', '.join(GROUPINGS)}.")
    groups: dict[tuple[str, ...], list[SettledVerdict]] = {(): list(rows)} if rows else {}
    for row in rows if by else ():
        groups.setdefault(tuple(GROUPINGS[name](row) for name in by), []).append(row)
    return [_summary(group, members) for group, members in sorted(groups.items())]


def _summary(group: tuple[str, ...], rows: Sequence[SettledVerdict]) -> GroupSummary:
    verdicts = [row.verdict for row in rows]
    question, questions = codes([(row.benchmark, row.instance_id) for row in rows])
    tables = completed_indicators(verdicts, tuple(Metric))
    judged, least, greatest = (_counts(table, question, len(questions)) for table in tables)
    return GroupSummary(
        group,
        responses=len(rows),
        questions=len(questions),
        rates=rates(verdicts),
        estimates={metric: counts.estimate() for metric, counts in judged.items()},
        composition=composition(verdicts),
        counts=judged,
        least=least,
        greatest=greatest,
    )


def _counts(table: Indicators, question: Indices, questions: int) -> dict[Metric, QuestionCounts]:
    hits, counted = (sum_by(question, part, questions) for part in table)
    columns = zip(Metric, hits.T, counted.T, strict=True)
    return {metric: QuestionCounts.of(hit, total - hit) for metric, hit, total in columns}
