"""Rates of the paper (Acc, LSR, GSR, TRR, LGG and their conditional forms) and the composition of failures.

A rate counts a label of a verdict among some of the responses. Unjudged responses are left out of the rate and counted
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from eclose.stats.rates import Rate
from eclose.values.three_valued import Label, three_valued_not
from eclose.values.verdict import FailureClass, TraceGroup, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from eclose.stats.arrays import Floats, Indices

T = TypeVar("T")


class Metric(StrEnum):
    """The rates of the paper; the value is the heading of its column."""

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

    def hit(self, verdict: Verdict) -> Label:
        """Return whether a response is a hit of this rate; None where the labels do not decide it."""
        return _DEFINITIONS[self].hit(verdict)


MAIN_METRICS = (
    Metric.ACCURACY,
    Metric.LOCAL_SOUNDNESS_RATE,
    Metric.GLOBAL_SUFFICIENCY_RATE,
    Metric.TRACE_RELIABILITY_RATE,
    Metric.GAP_RATE,
)
"""The five columns of the main results."""

CONDITIONAL_METRICS = (Metric.GAP_SHARE, Metric.GAP_RISK, Metric.GAP_AMONG_SOUND)
"""Rates whose denominator depends on judged labels."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """The numerator and the denominator of a rate."""

    hit: Callable[[Verdict], Label]
    among: Callable[[Verdict], Label] = lambda _: True
    """Whether a response is in the denominator."""


_DEFINITIONS = {
    Metric.ACCURACY: _Definition(lambda v: v.correct),
    Metric.LOCAL_SOUNDNESS_RATE: _Definition(lambda v: v.locally_sound),
    Metric.ALIGNMENT_RATE: _Definition(lambda v: v.aligned),
    Metric.CLOSURE_RATE: _Definition(lambda v: v.closed),
    Metric.COMPLETENESS_RATE: _Definition(lambda v: v.complete),
    Metric.GLOBAL_SUFFICIENCY_RATE: _Definition(lambda v: v.globally_sufficient),
    Metric.TRACE_RELIABILITY_RATE: _Definition(lambda v: v.reliable),
    Metric.GAP_RATE: _Definition(lambda v: v.in_gap),
    Metric.GAP_SHARE: _Definition(lambda v: v.in_gap, among=lambda v: three_valued_not(v.globally_sufficient)),
    Metric.GAP_RISK: _Definition(lambda v: v.in_gap, among=lambda v: three_valued_not(v.correct)),
    Metric.GAP_AMONG_SOUND: _Definition(lambda v: v.in_gap, among=lambda v: v.locally_sound),
}


class _Share(NamedTuple):
    """The contribution of one verdict to a rate."""

    hit: bool
    counted: bool
    unjudged: bool
    never_hit: bool = False
    """Unjudged, and not a hit in any completion of its labels."""
    never_miss: bool = False
    """Unjudged, and not a miss in any completion of its labels."""


def _share(metric: Metric, verdict: Verdict) -> _Share:
    definition = _DEFINITIONS[metric]
    among, hit = definition.among(verdict), definition.hit(verdict)
    # Certainly outside the denominator.
    if among is False:
        return _Share(hit=False, counted=False, unjudged=False)
    # Fully judged for this rate.
    if among is True and hit is not None:
        return _Share(hit=hit, counted=True, unjudged=False)
    # The denominator and the hit may depend on the same unknown label, so every completion is evaluated.
    outcomes = {definition.hit(complete) for complete in _completions(verdict) if definition.among(complete)}
    never_hit, never_miss = True not in outcomes, False not in outcomes
    return _Share(hit=False, counted=False, unjudged=True, never_hit=never_hit, never_miss=never_miss)


def _completions(verdict: Verdict) -> Iterator[Verdict]:
    """Yield every assignment of the unknown labels: at most 32."""
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    choices = ((True, False) if label is None else (label,) for label in labels)
    return (Verdict(*complete, abstained=verdict.abstained) for complete in product(*choices))


def compute_metric_rate(metric: Metric, verdicts: Iterable[Verdict]) -> Rate:
    """Return one metric of a set of verdicts.

    >>> from eclose import Verdict
    >>> moonstruck = Verdict(locally_sound=True, aligned=True, closed=False, complete=True, correct=False)
    >>> compute_metric_rate(Metric.GAP_SHARE, [moonstruck])
    Rate(hits=1, n=1, unjudged=0)
    """
    return compute_metric_rates(Counter(verdicts), [metric])[metric]


def compute_metric_rates(
    verdicts: Sequence[Verdict] | Counter[Verdict], metrics: Iterable[Metric] = tuple(Metric)
) -> dict[Metric, Rate]:
    """Return several metrics of a set of verdicts, or of the number of responses by verdict."""
    counted = Counter(verdicts)
    times = np.fromiter(counted.values(), np.int64, len(counted))
    totals = np.tensordot(times, _tabulate_shares()[encode_verdicts(list(counted))], 1)
    return {metric: Rate(*totals[_POSITIONS[metric]].tolist()) for metric in metrics}


ABSTAINED_CODES = 3**5
"""Position in ``VERDICTS`` from which on the response abstains."""
VERDICTS = tuple(
    Verdict(*labels, abstained=abstained)
    for abstained in (False, True)
    for labels in product((None, False, True), repeat=5)
)
"""Every verdict that exists."""
_VERDICT_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}
_POSITIONS = {metric: position for position, metric in enumerate(Metric)}


def encode_verdicts(verdicts: Sequence[Verdict]) -> Indices:
    """Return the position of each verdict in ``VERDICTS``."""
    return np.fromiter((_VERDICT_CODES[verdict] for verdict in verdicts), np.intp, len(verdicts))


@cache
def _tabulate_shares() -> NDArray[np.int64]:
    """Return the share of every verdict in every metric: verdicts by metrics by fields of ``_Share``; read-only."""
    shares = [[_share(metric, verdict) for metric in Metric] for verdict in VERDICTS]
    table = np.array(shares, np.int64)
    table.flags.writeable = False
    return table


class MetricIndicators(NamedTuple):
    """Responses by metrics: 1 where a response is a hit, and 1 where it is in the denominator."""

    hits: Floats
    counted: Floats


class IndicatorBounds(NamedTuple):
    """Indicators of the judged responses, and with the unjudged labels completed in the two extreme ways."""

    judged: MetricIndicators
    least: MetricIndicators
    """Every unjudged response is a miss where it can be one, else outside the denominator: the least rate."""
    greatest: MetricIndicators
    """Every unjudged response is a hit where it can be one, else outside the denominator: the greatest rate."""


def make_metric_indicators(verdicts: Sequence[Verdict], metrics: Sequence[Metric] = MAIN_METRICS) -> MetricIndicators:
    """Return the indicators that the rates are computed from."""
    return make_indicator_bounds(verdicts, metrics).judged


def make_indicator_bounds(verdicts: Sequence[Verdict], metrics: Sequence[Metric] = MAIN_METRICS) -> IndicatorBounds:
    """Return the indicators behind the rates and behind both ends of their bounds."""
    which, columns = encode_verdicts(verdicts), [_POSITIONS[metric] for metric in metrics]
    tables = tabulate_indicator_bounds()
    return IndicatorBounds(*(MetricIndicators(*(part[:, columns][which] for part in table)) for table in tables))


@cache
def tabulate_indicator_bounds() -> IndicatorBounds:
    """Return the indicators of all ``VERDICTS`` for all metrics, as read-only arrays."""
    hit, counted, unjudged, never_hit, never_miss = np.moveaxis(_tabulate_shares().astype(float), 2, 0)
    misses, extra_hits = unjudged * (1 - never_miss), unjudged * (1 - never_hit)
    tables = IndicatorBounds(
        judged=MetricIndicators(hit, counted),
        least=MetricIndicators(hit, counted + misses),
        greatest=MetricIndicators(hit + extra_hits, counted + extra_hits),
    )
    for table in tables:
        for part in table:
            part.flags.writeable = False
    return tables


@dataclass(frozen=True, slots=True)
class ResponseComposition:
    """Counts of responses by trace group and by failure class.

    Each response is in one group, and each insufficient response in one failure class. In the order of the definitions;
    classes without a response are omitted.
    """

    groups: dict[TraceGroup | None, int]
    """Responses by trace group; None where the labels do not decide it."""
    failures: dict[FailureClass, int]
    """Globally insufficient responses by their first broken link."""
    gap_failures: dict[FailureClass, int]
    """The same among responses in the gap."""
    inconsistent: int
    """Responses that are reliable by every label, with a wrong answer."""


def count_response_composition(verdicts: Iterable[Verdict] | Counter[Verdict]) -> ResponseComposition:
    """Count trace groups and failure classes of verdicts, or of the number of responses by verdict."""
    total = Counter(verdicts)
    groups: Counter[TraceGroup | None] = Counter()
    failures: Counter[FailureClass] = Counter()
    gap: Counter[FailureClass] = Counter()
    for verdict, count in total.items():
        # None: the labels do not decide the group.
        groups[verdict.trace_group] += count
        if (failure := verdict.failure_class) is not None:
            failures[failure] += count
            if verdict.in_gap:
                gap[failure] += count
    inconsistent = sum(count for verdict, count in total.items() if verdict.inconsistent)
    return ResponseComposition(
        _in_order((*TraceGroup, None), groups),
        _in_order(FailureClass, failures),
        _in_order(FailureClass, gap),
        inconsistent,
    )


def _in_order(kinds: Iterable[T], counts: Counter[T]) -> dict[T, int]:
    return {kind: counts[kind] for kind in kinds if counts[kind]}
