"""Where the marks of a plot stand, in percent of its width. The page draws them and says what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.diagnosis.report.format import (
    CODE_WORDS,
    DASH,
    FAILURE_WORDS,
    METRIC_WORDS,
    TOO_LITTLE,
    RateStatus,
    group_name,
    percent,
    percent_range,
    percent_span,
    rate_status,
    signed,
    signed_range,
    widened,
)
from eclose.diagnosis.report.table import SHOWN_METRICS, levels
from eclose.metrics.rates import MAIN_METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.diagnosis.compare import RateDifference, RunComparison
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import ReportContext
    from eclose.diagnosis.report.summary import FlowPart, FlowStage
    from eclose.metrics.summary import GroupSummary
    from eclose.stats.intervals import Estimate, Interval
    from eclose.stats.rates import Rate

PLOTTED = (Metric.ACCURACY, Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
_SCALES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A stretch of a bar."""

    kind: str
    name: str
    count: int
    start: float
    width: float
    show: str = ""

    @property
    def share(self) -> str:
        """In percent of the bar's whole."""
        return percent(self.width / 100)


@dataclass(frozen=True, slots=True)
class FlowRow:
    """One test of the chain as a bar: those that go on, then those that are lost."""

    asked: str
    total: int
    kept: BarSegment
    lost: tuple[BarSegment, ...]
    reach: float
    """How far those come that are asked."""


def flow_rows(stages: Sequence[FlowStage]) -> tuple[FlowRow, ...]:
    """Bars on one scale: all responses are a full width."""
    whole = max(stages[0].total, 1)
    return tuple(_flow_row(stage, whole) for stage in stages)


def _flow_row(stage: FlowStage, whole: int) -> FlowRow:
    start, segments = 0.0, []
    for part in (stage.kept, *stage.lost):
        segments.append(_segment(part, start, whole))
        start += segments[-1].width
    return FlowRow(stage.asked, stage.total, segments[0], tuple(segments[1:]), _place(stage.total / whole))


def _segment(part: FlowPart, start: float, whole: int) -> BarSegment:
    return BarSegment(part.kind, part.name, part.count, _place(start / 100), _place(part.count / whole), part.show)


@dataclass(frozen=True, slots=True)
class Dot:
    """A rate on its axis, with the whisker of its interval and the band of its bounds."""

    label: str
    interval: str
    n: int
    value: float | None
    whisker: tuple[float, float] | None
    band: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Axis:
    """What is drawn in one column, and where its scale ends."""

    letter: str
    name: str
    scale: float

    @property
    def end(self) -> str:
        """Where the scale ends, in words."""
        return f"{100 * self.scale:g} %"

    @property
    def middle(self) -> str:
        """Halfway there."""
        return f"{50 * self.scale:g}"


RateRow: TypeAlias = tuple[str, int, tuple[Dot, ...]]
"""The name of a group, its responses, and a dot for each metric."""


@dataclass(frozen=True, slots=True)
class RatePlot:
    """Rates of every group, one column for each metric."""

    axes: tuple[Axis, ...]
    sections: tuple[tuple[str, tuple[RateRow, ...]], ...]
    """All responses under no name, then each kind of groups under its own."""

    @property
    def rows(self) -> tuple[RateRow, ...]:
        """All of them."""
        return tuple(row for _, rows in self.sections for row in rows)

    @property
    def title(self) -> str:
        """Whose rates there are."""
        return "Rates, all together and by group" if len(self.sections) > 1 else "Rates"


def rate_plot(diagnosis: Diagnosis, notes: ReportContext) -> RatePlot:
    """Dots and whiskers. A single group says what all together say, so it is not drawn twice."""
    kinds = levels(diagnosis) if len(diagnosis.groups) > 2 else ()
    groups = [diagnosis.overall, *(group for _, some in kinds for group in some)]
    corrected = {metric: estimate for metric, estimate in (notes.corrected or {}).items() if metric in PLOTTED}
    scales = {metric: _scale(groups, metric, corrected.get(metric)) for metric in PLOTTED}

    def row(name: str, group: GroupSummary) -> RateRow:
        return name, group.responses, tuple(_dot(group, metric, scales[metric]) for metric in PLOTTED)

    first = [row("all, the judge alone" if corrected else "all responses", diagnosis.overall)]
    if corrected:
        rates = diagnosis.overall.rates
        dots = tuple(_corrected_dot(corrected.get(metric), rates[metric], scales[metric]) for metric in PLOTTED)
        first.insert(0, ("all, corrected", diagnosis.overall.responses, dots))
    axes = tuple(Axis(metric.value, METRIC_WORDS[metric][0], scales[metric]) for metric in PLOTTED)
    sections = [(name, tuple(row(group_name(group.group), group) for group in some)) for name, some in kinds]
    return RatePlot(axes, (("", tuple(first)), *sections))


def _scale(groups: Sequence[GroupSummary], metric: Metric, corrected: Estimate | None) -> float:
    """The gap is small, and small things need a scale of their own; the others share the full one."""
    if metric is not Metric.GAP_RATE:
        return 1.0
    spans = [span for group in groups for span in (group.estimates[metric].interval, group.rates[metric].bounds)]
    tops = [span.high for span in (*spans, corrected.interval if corrected else None) if span]
    return next(scale for scale in _SCALES if scale >= min(max(tops, default=0.0), 1.0))


def _corrected_dot(estimate: Estimate | None, rate: Rate, scale: float) -> Dot:
    if estimate is None or estimate.value is None or estimate.interval is None:
        return Dot(DASH, "", 0, None, None, None)
    if rate_status(rate) is RateStatus.TOO_LITTLE:
        return Dot(TOO_LITTLE, "", 0, None, None, None)
    if not rate.unjudged:
        label, interval, band = percent(estimate.value), estimate.interval, None
        words = percent_range(interval)
    else:
        span, interval = widened(rate, estimate.value, estimate.value), widened(rate, *estimate.interval)
        label, words, band = percent_span(span), "", _span(span, scale)
    return Dot(label, words, 0, _place(estimate.value / scale), _span(interval, scale), band)


def _span(interval: Interval | None, scale: float) -> tuple[float, float] | None:
    return None if interval is None else (_place(interval.low / scale), _place(interval.high / scale))


def _dot(group: GroupSummary, metric: Metric, scale: float) -> Dot:
    rate, estimate = group.rates[metric], group.estimates[metric]
    if rate.bounds is None or not rate.unjudged:
        label, band = percent(rate.value), None
    else:
        label, band = percent_span(rate.bounds), _span(rate.bounds, scale)
    if rate_status(rate) is RateStatus.TOO_LITTLE:
        return Dot(TOO_LITTLE, "", rate.n, None, None, band)
    return Dot(
        label,
        "" if band else percent_range(estimate.interval),
        rate.n,
        None if rate.value is None else _place(rate.value / scale),
        _span(estimate.interval, scale),
        band,
    )


PANEL_METRICS = (*MAIN_METRICS, Metric.GAP_SHARE, Metric.GAP_RISK)
"""The metrics of the paper's Figure 2."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Every metric of one dataset, or of all together: a bar for each model."""

    name: str
    models: tuple[tuple[str, tuple[Dot, ...]], ...]
    """Each model with a dot for each metric, on a scale that ends at 100 %."""


def metric_panels(diagnosis: Diagnosis) -> tuple[Panel, ...]:
    """Return a panel for each dataset, and behind them one pooled over datasets where there are several."""
    datasets = sorted({pair.group[0] for pair in diagnosis.pairs})
    panels = [
        Panel(name, tuple(_model_dots(pair, pair.group[1]) for pair in diagnosis.pairs if pair.group[0] == name))
        for name in datasets
    ]
    if len(datasets) > 1:
        pooled = {group.group[0]: group for group in diagnosis.by_model}
        models = sorted({pair.group[1] for pair in diagnosis.pairs})
        if not pooled:  # one model over all datasets, or every model on a dataset of its own
            alone = {pair.group[1]: pair for pair in diagnosis.pairs}
            pooled = {models[0]: diagnosis.overall} if len(models) == 1 else alone
        panels.append(Panel("all datasets", tuple(_model_dots(pooled[model], model) for model in models)))
    return tuple(panels)


def _model_dots(group: GroupSummary, model: str) -> tuple[str, tuple[Dot, ...]]:
    return model, tuple(_dot(group, metric, 1.0) for metric in PANEL_METRICS)


@dataclass(frozen=True, slots=True)
class DifferencePlot:
    """Differences of two runs around no change, all on one scale."""

    end: str
    """How many points the scale reaches to either side."""
    rows: tuple[tuple[str, str, Dot], ...]


def difference_plot(comparison: RunComparison) -> DifferencePlot:
    """Dots and whiskers; in the middle nothing changed."""
    found = {metric: comparison.overall.differences[metric].estimate for metric in SHOWN_METRICS}
    ends = [abs(end) for estimate in found.values() if estimate.interval for end in estimate.interval]
    scale = next(scale for scale in _SCALES if scale >= min(max(ends, default=0.0), 1.0))
    rows = tuple(
        (metric.value, METRIC_WORDS[metric][0], _difference_dot(comparison.overall.differences[metric], scale))
        for metric in SHOWN_METRICS
    )
    return DifferencePlot(f"{100 * scale:.0f}", rows)


def _difference_dot(difference: RateDifference, scale: float) -> Dot:
    estimate = difference.estimate
    if estimate.value is None or estimate.interval is None:
        return Dot("undefined", "", 0, None, None, None)
    if RateStatus.TOO_LITTLE in (rate_status(difference.run), rate_status(difference.base)):
        return Dot(TOO_LITTLE, "", 0, None, None, None)
    places = [_place((1 + end / scale) / 2) for end in (estimate.value, *estimate.interval)]
    whisker = places[1], places[2]
    return Dot(signed(estimate.value), signed_range(estimate.interval), difference.run.n, places[0], whisker, None)


def _place(share: float) -> float:
    return round(100 * min(share, 1.0), 3)


@dataclass(frozen=True, slots=True)
class BarChart:
    """How a whole is made up, as one bar for each part."""

    title: str
    total: int
    bars: tuple[BarSegment, ...]


def composition_bars(diagnosis: Diagnosis) -> tuple[BarChart, ...]:
    """The failure classes of the gap, and the codes of unsound steps."""
    gap = diagnosis.overall.composition.gap_failures
    failures = {(str(one), FAILURE_WORDS[one][0], f"outcome=gap_{one}"): count for one, count in gap.items()}
    codes = {
        ("unsound", f"{code.value} {CODE_WORDS[code][0]}", f"code={code.value}"): count
        for code, count in diagnosis.local_failures.items()
    }
    made = (_bars("Failures of the whole, within the gap", failures), _bars("Unsound steps, by reason", codes))
    return tuple(bars for bars in made if bars.bars)


def _bars(title: str, counts: Mapping[tuple[str, str, str], int]) -> BarChart:
    total = sum(counts.values())
    made = (
        BarSegment(kind, name, count, 0.0, _place(count / total), show) for (kind, name, show), count in counts.items()
    )
    return BarChart(title, total, tuple(made))
