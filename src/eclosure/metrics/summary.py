"""A file of verdicts in one page: rates with intervals, by group where asked, and what the failures are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eclosure.errors import SettingError
from eclosure.metrics.rates import Composition, Metric, composition, indicators, rates
from eclosure.metrics.settings import method_of
from eclosure.stats.arrays import codes, sum_by
from eclosure.stats.bootstrap import bootstrap_rates
from eclosure.stats.intervals import Estimate, wilson
from eclosure.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from eclosure.core.verdict import SettledVerdict

UNKNOWN = "unknown"

GROUPINGS: dict[str, Callable[[SettledVerdict], str]] = {
    "benchmark": lambda row: row.benchmark or UNKNOWN,
    "model": lambda row: row.source.model if row.source else UNKNOWN,
    "method": method_of,
    "seed": lambda row: str(row.source.seed) if row.source and row.source.seed is not None else UNKNOWN,
}
"""What verdicts can be grouped by."""


class IntervalMethod(StrEnum):
    """How an interval was made."""

    BOOTSTRAP = "percentile bootstrap over questions"
    WILSON = "Wilson over questions"
    """Where all are hits or none is: every resample says the same, and the bootstrap would promise certainty."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The rates of one group of responses."""

    group: tuple[str, ...]
    """Its value of each grouping; empty for all responses together."""
    responses: int
    questions: int
    rates: dict[Metric, Rate]
    estimates: dict[Metric, Estimate]
    methods: dict[Metric, IntervalMethod | None]
    """None where there is no interval."""
    composition: Composition


def summarize(
    rows: Sequence[SettledVerdict],
    by: Sequence[str] = (),
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
) -> list[GroupSummary]:
    """All responses together, then each group; intervals resample questions, not responses."""
    if unknown := [name for name in by if name not in GROUPINGS]:
        raise SettingError(f"cannot group by {unknown[0]!r}. Choose from: {', '.join(GROUPINGS)}.")
    groups: dict[tuple[str, ...], list[SettledVerdict]] = {(): list(rows)} if rows else {}
    for row in rows if by else ():
        groups.setdefault(tuple(GROUPINGS[name](row) for name in by), []).append(row)
    return [_summary(group, members, rng, resamples) for group, members in sorted(groups.items())]


def _summary(
    group: tuple[str, ...], rows: Sequence[SettledVerdict], rng: np.random.Generator, resamples: int
) -> GroupSummary:
    verdicts = [row.verdict for row in rows]
    marks = indicators(verdicts, tuple(Metric))
    question, questions = codes([(row.benchmark, row.instance_id) for row in rows])
    replicates = bootstrap_rates(marks.hits, marks.counted, question, rng=rng, resamples=resamples)
    # For each metric, how many questions have a response that counts.
    asked = (sum_by(question, marks.counted, len(questions)) > 0).sum(axis=0)
    results = [_result(one, int(n)) for one, n in zip(replicates.estimates(), asked, strict=True)]
    return GroupSummary(
        group,
        responses=len(rows),
        questions=len(questions),
        rates=rates(verdicts),
        estimates={metric: estimate for metric, (estimate, _) in zip(Metric, results, strict=True)},
        methods={metric: method for metric, (_, method) in zip(Metric, results, strict=True)},
        composition=composition(verdicts),
    )


def _result(estimate: Estimate, questions: int) -> tuple[Estimate, IntervalMethod | None]:
    """An estimate with an interval that can be believed, and how that was made."""
    if estimate.value in (0, 1):
        interval = wilson(round(estimate.value) * questions, questions)
        return estimate._replace(interval=interval), IntervalMethod.WILSON
    return estimate, IntervalMethod.BOOTSTRAP if estimate.interval else None
