"""Verdicts to rates: Acc, LSR, GSR, TRR, LGG, LggShare, LggRisk, LggSound, and what the failures are.

A metric is a label of a verdict, asked of some of the responses. What was not judged is left out of a rate and
counted beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product, starmap
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from eclose.core.three_valued import Label, negation
from eclose.core.verdict import FailureClass, TraceGroup, Verdict
from eclose.stats.arrays import Floats, codes
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")


class Metric(StrEnum):
    """The rates of the paper; the value is the head of its column."""

    ACCURACY = "Acc"
    LOCAL_SOUNDNESS_RATE = "LSR"
    ALIGNMENT_RATE = "A"
    CLOSURE_RATE = "C"
    COMPLETENESS_RATE = "K"
    GLOBAL_SUFFICIENCY_RATE = "GSR"
    TRACE_RELIABILITY_RATE = "TRR"
    GAP_RATE = "LGG"
    GAP_SHARE = "LggShare"
    """The gap's share of globally insufficient responses."""
    GAP_RISK = "LggRisk"
    """The gap's share of wrong answers."""
    GAP_AMONG_SOUND = "LggSound"
    """The gap's share of locally sound responses."""


MAIN_METRICS = (
    Metric.ACCURACY,
    Metric.LOCAL_SOUNDNESS_RATE,
    Metric.GLOBAL_SUFFICIENCY_RATE,
    Metric.TRACE_RELIABILITY_RATE,
    Metric.GAP_RATE,
)
"""The five columns of the main results."""

CONDITIONAL_METRICS = (Metric.GAP_SHARE, Metric.GAP_RISK, Metric.GAP_AMONG_SOUND)
"""Rates whose denominator is a matter of judgement."""


@dataclass(frozen=True, slots=True)
class _Definition:
    hit: Callable[[Verdict], Label]
    among: Callable[[Verdict], Label] = lambda _: True
    """Who is in the denominator."""


_DEFINITIONS = {
    Metric.ACCURACY: _Definition(lambda v: v.correct),
    Metric.LOCAL_SOUNDNESS_RATE: _Definition(lambda v: v.locally_sound),
    Metric.ALIGNMENT_RATE: _Definition(lambda v: v.aligned),
    Metric.CLOSURE_RATE: _Definition(lambda v: v.closed),
    Metric.COMPLETENESS_RATE: _Definition(lambda v: v.complete),
    Metric.GLOBAL_SUFFICIENCY_RATE: _Definition(lambda v: v.globally_sufficient),
    Metric.TRACE_RELIABILITY_RATE: _Definition(lambda v: v.reliable),
    Metric.GAP_RATE: _Definition(lambda v: v.in_gap),
    Metric.GAP_SHARE: _Definition(lambda v: v.in_gap, among=lambda v: negation(v.globally_sufficient)),
    Metric.GAP_RISK: _Definition(lambda v: v.in_gap, among=lambda v: negation(v.correct)),
    Metric.GAP_AMONG_SOUND: _Definition(lambda v: v.in_gap, among=lambda v: v.locally_sound),
}


class _Share(NamedTuple):
    """What one verdict adds to a rate."""

    hit: bool
    counted: bool
    unjudged: bool
    never_hit: bool = False
    """Unjudged, and a hit in no completion of its labels; the next is the same of a miss."""
    never_miss: bool = False


def _share(metric: Metric, verdict: Verdict) -> _Share:
    definition = _DEFINITIONS[metric]
    among, hit = definition.among(verdict), definition.hit(verdict)
    if among is False:
        return _Share(hit=False, counted=False, unjudged=False)
    if among is True and hit is not None:
        return _Share(hit=hit, counted=True, unjudged=False)
    # Whether it is a case and whether it is a hit may hang together, so every completion is looked at.
    outcomes = {definition.hit(one) for one in _completions(verdict) if definition.among(one)}
    never_hit, never_miss = True not in outcomes, False not in outcomes
    return _Share(hit=False, counted=False, unjudged=True, never_hit=never_hit, never_miss=never_miss)


def _completions(verdict: Verdict) -> Iterator[Verdict]:
    """Every way in which the unknown labels could turn out: 32 at most."""
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    return starmap(Verdict, product(*((True, False) if label is None else (label,) for label in labels)))


def rate(metric: Metric, verdicts: Iterable[Verdict]) -> Rate:
    """One metric of a set of verdicts.

    >>> from eclose import Verdict
    >>> moonstruck = Verdict(locally_sound=True, aligned=True, closed=False, complete=True, correct=False)
    >>> rate(Metric.GAP_SHARE, [moonstruck])
    Rate(hits=1, n=1, unjudged=0)
    """
    return _rate(metric, Counter(verdicts))


def _rate(metric: Metric, verdicts: Counter[Verdict]) -> Rate:
    # There are 243 different verdicts at most, however many responses: each is looked at once.
    total: Counter[str] = Counter()
    for verdict, count in verdicts.items():
        total.update({name: count for name, holds in _share(metric, verdict)._asdict().items() if holds})
    return Rate(total["hit"], total["counted"], total["unjudged"], total["never_hit"], total["never_miss"])


def rates(verdicts: Sequence[Verdict], metrics: Iterable[Metric] = tuple(Metric)) -> dict[Metric, Rate]:
    """Several metrics of a set of verdicts."""
    counted = Counter(verdicts)
    return {metric: _rate(metric, counted) for metric in metrics}


class Indicators(NamedTuple):
    """Responses by metrics: which is a hit, and which is counted at all."""

    hits: Floats
    counted: Floats


class Completed(NamedTuple):
    """Indicators of the judged responses, and with the unjudged labels completed in the two extreme ways."""

    judged: Indicators
    least: Indicators
    """Every unjudged response is a miss where it can be one, and else none of the cases: the least rate."""
    greatest: Indicators


def indicators(verdicts: Sequence[Verdict], metrics: Sequence[Metric] = MAIN_METRICS) -> Indicators:
    """Return the table behind the rates."""
    return completed_indicators(verdicts, metrics).judged


def completed_indicators(verdicts: Sequence[Verdict], metrics: Sequence[Metric] = MAIN_METRICS) -> Completed:
    """Return the table behind the rates and those behind the ends of their bounds."""
    which, distinct = codes(verdicts)
    shares = [_share(metric, verdict) for verdict in distinct for metric in metrics]
    columns = np.array(shares, float).reshape(len(distinct), len(metrics), len(_Share._fields))
    hit, counted, unjudged, never_hit, never_miss = np.moveaxis(columns, 2, 0)
    miss, more = unjudged * (1 - never_miss), unjudged * (1 - never_hit)
    tables = Indicators(hit, counted), Indicators(hit, counted + miss), Indicators(hit + more, counted + more)
    return Completed(*(Indicators(table.hits[which], table.counted[which]) for table in tables))


@dataclass(frozen=True, slots=True)
class Composition:
    """Where the responses went: each is in one group, each insufficient one in one failure class.

    In the order of the definitions, without what did not occur.
    """

    groups: dict[TraceGroup | None, int]
    """None: the labels do not decide it."""
    failures: dict[FailureClass, int]
    """Globally insufficient responses by their first broken link."""
    gap_failures: dict[FailureClass, int]
    """The same, within the gap."""
    inconsistent: int
    """Reliable by every label and yet wrong: worth another look."""


def composition(verdicts: Iterable[Verdict]) -> Composition:
    """Count trace groups and failure classes."""
    total = Counter(verdicts)
    groups: Counter[TraceGroup | None] = Counter()
    failures: Counter[FailureClass] = Counter()
    gap: Counter[FailureClass] = Counter()
    for verdict, count in total.items():
        groups[verdict.trace_group] += count
        if (failure := verdict.failure_class) is not None:
            failures[failure] += count
            if verdict.in_gap:
                gap[failure] += count
    inconsistent = sum(count for verdict, count in total.items() if verdict.inconsistent)
    return Composition(
        _in_order((*TraceGroup, None), groups),
        _in_order(FailureClass, failures),
        _in_order(FailureClass, gap),
        inconsistent,
    )


def _in_order(kinds: Iterable[T], counts: Counter[T]) -> dict[T, int]:
    """Counts in the order of the kinds, whatever order the data had."""
    return {kind: counts[kind] for kind in kinds if counts[kind]}
