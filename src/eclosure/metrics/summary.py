"""A file of verdicts in one page: rates with intervals, by group where asked, and what the failures are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclosure.errors import SettingError
from eclosure.metrics.rates import Composition, Metric, composition, indicators, rates
from eclosure.metrics.settings import method_of
from eclosure.stats.arrays import codes
from eclosure.stats.bootstrap import bootstrap_rates
from eclosure.stats.intervals import Estimate
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


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The rates of one group of responses."""

    group: tuple[str, ...]
    """Its value of each grouping; empty for all responses together."""
    responses: int
    questions: int
    rates: dict[Metric, Rate]
    estimates: dict[Metric, Estimate]
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
    return GroupSummary(
        group,
        responses=len(rows),
        questions=len(questions),
        rates=rates(verdicts),
        estimates=dict(zip(Metric, replicates.estimates(), strict=True)),
        composition=composition(verdicts),
    )
