"""Positions of the marks of a plot, in percent of its width. The page and the figures draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.diagnosis.number_format import (
    DASH,
    format_percent,
    format_percent_interval,
    format_signed_interval,
    format_signed_percent,
)
from eclose.diagnosis.shown_rate import TOO_LITTLE_TEXT, RateStatus, ShownRate, is_too_little_judged
from eclose.metrics.rates import MAIN_METRICS, Metric
from eclose.report.document import TABLE_METRICS, list_group_kinds
from eclose.report.wording import CODE_WORDS, FAILURE_WORDS, METRIC_WORDS, name_response_group
from eclose.values.verdict import FailureClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.compare import RateDifference, RunComparison
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import ReportContext
    from eclose.stats.intervals import Estimate, Interval

PLOTTED_METRICS = (Metric.ACCURACY, Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
"""Metrics of the rate plot."""
_SCALES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
"""Possible ends of an axis, as rates."""


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a bar."""

    kind: str
    name: str
    count: int
    start: float
    width: float
    show: str = ""
    responses: int | None = None
    """Responses behind a count of something else, such as steps; None where the count is one of responses."""

    @property
    def share(self) -> str:
        """Its width in percent of the full bar, as text."""
        return format_percent(self.width / 100)


@dataclass(frozen=True, slots=True)
class FlowBar:
    """One test of the chain as a bar: the responses that pass, then those that are lost."""

    question: str
    total: int
    passed: BarSegment
    lost: tuple[BarSegment, ...]
    reach: float
    """Share of all responses that reach this test, in percent."""


def build_response_flow(diagnosis: Diagnosis) -> tuple[FlowBar, ...]:
    """Return the tests from all responses to the reliable ones, with every loss named, on one scale."""
    joint = diagnosis.joint
    gap = diagnosis.overall.composition.gap_failures

    def count(*prefix: bool | None) -> int:
        # Responses whose labels L, A and C begin with these.
        # Abstentions are lost in the first test; those with an unsound step are unsound.
        return sum(
            n - diagnosis.abstained_joint.get(labels, 0)
            for labels, n in joint.items()
            if labels[: len(prefix)] == prefix
        )

    # Each test starts with the responses that passed the test before.
    everyone, sound, aligned = sum(joint.values()), count(True), count(True, True)
    reliable = count(True, True, True)

    def bar(question: str, total: int, passed: tuple[str, str, int], lost: dict[str, int]) -> FlowBar:
        parts = [(*passed, ""), *(_name_loss(outcome, count) for outcome, count in lost.items() if count)]
        # Segments follow each other: passed first, then each loss.
        start, segments = 0.0, []
        for kind, name, number, show in parts:
            width = _position(number / max(everyone, 1))
            segments.append(
                BarSegment(kind=kind, name=name, count=number, start=_position(start / 100), width=width, show=show)
            )
            start += width
        return FlowBar(question, total, segments[0], tuple(segments[1:]), _position(total / max(everyone, 1)))

    return (
        bar(
            "Does every step hold?",
            everyone,
            ("sound", "holds step by step" if sound == 1 else "hold step by step", sound),
            {"unsound": count(False), "abstained": sum(diagnosis.abstained_joint.values()), "undecided_L": count(None)},
        ),
        bar(
            "Does the reasoning pursue the question?",
            sound,
            ("sound", "pursues it as well" if aligned == 1 else "pursue it as well", aligned),
            {
                f"gap_{FailureClass.PATH_DEVIATION}": count(True, False),
                f"gap_{FailureClass.UNDETERMINED}": count(True, None, False),
                "undecided_A": count(True, None) - count(True, None, False),
            },
        ),
        bar(
            "Does it establish the submitted answer?",
            aligned,
            ("reliable", "is reliable" if reliable == 1 else "are reliable", reliable),
            {f"gap_{failure}": gap.get(failure, 0) for failure in _CLOSING_FAILURES}
            | {"undecided_C": count(True, True, None)},
        ),
    )


_CLOSING_FAILURES = (FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING, FailureClass.CLOSURE_FAILURE)
"""Failure classes of responses that pursue the question and do not establish their answer."""


def _name_loss(outcome: str, count: int) -> tuple[str, str, int, str]:
    """Return kind, name, count and link of the responses that are lost with an outcome."""
    kind, _, detail = outcome.partition("_")
    show = f"outcome={outcome}"
    if kind == "gap":
        return detail, FAILURE_WORDS[FailureClass(detail)][0], count, show
    words = {"unsound": "an unsound step", "abstained": "no answer found"}
    return kind, words.get(kind, "not judged"), count, show


@dataclass(frozen=True, slots=True)
class RateDot:
    """A rate on its axis, with the whisker of its interval and the band of its bounds, in percent of the width."""

    label: str
    interval: str = ""
    n: int = 0
    value: float | None = None
    whisker: tuple[float, float] | None = None
    band: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class PlotAxis:
    """Heading and scale of one column."""

    letter: str
    name: str
    scale: float

    @property
    def end(self) -> str:
        """The end of the scale as text."""
        return f"{100 * self.scale:g} %"

    @property
    def middle(self) -> str:
        """The middle of the scale as text."""
        return f"{50 * self.scale:g}"


RateRow: TypeAlias = tuple[str, int, tuple[RateDot, ...]]
"""Name of a group, number of responses, and a dot for each metric."""


@dataclass(frozen=True, slots=True)
class RatePlot:
    """Rates of every group, one column per metric."""

    axes: tuple[PlotAxis, ...]
    sections: tuple[tuple[str, tuple[RateRow, ...]], ...]
    """All responses under an empty name, then each kind of groups under its name."""

    @property
    def rows(self) -> tuple[RateRow, ...]:
        """Rows of all sections."""
        return tuple(row for _, rows in self.sections for row in rows)

    @property
    def title(self) -> str:
        """Title of the plot."""
        return "Rates, all together and by group" if len(self.sections) > 1 else "Rates"


def layout_rate_plot(diagnosis: Diagnosis, context: ReportContext) -> RatePlot:
    """Return dots and whiskers of all groups. A single group equals all responses and is not repeated."""
    sections_of_groups = list_group_kinds(diagnosis) if len(diagnosis.groups) > 2 else ()
    groups = [diagnosis.overall, *(group for _, members in sections_of_groups for group in members)]
    corrected = {
        metric: estimate for metric, estimate in (context.corrected or {}).items() if metric in PLOTTED_METRICS
    }
    scales = {metric: _scale(groups, metric, corrected.get(metric)) for metric in PLOTTED_METRICS}

    def row(name: str, group: GroupRates) -> RateRow:
        rates = ((ShownRate.of_group(group, metric), scales[metric]) for metric in PLOTTED_METRICS)
        return name, group.responses, tuple(_dot(shown_rate, scale) for shown_rate, scale in rates)

    overall_rows = [row("all, the judge alone" if corrected else "all responses", diagnosis.overall)]
    if corrected:
        rates = diagnosis.overall.rates
        dots = tuple(
            RateDot(DASH) if shown_rate is None else _dot(shown_rate, scales[metric])
            for metric in PLOTTED_METRICS
            for shown_rate in (ShownRate.of_people(rates[metric], corrected.get(metric)),)
        )
        # The corrected row comes first, above the judge's own.
        overall_rows.insert(0, ("all, corrected", diagnosis.overall.responses, dots))
    axes = tuple(PlotAxis(metric.value, METRIC_WORDS[metric][0], scales[metric]) for metric in PLOTTED_METRICS)
    sections = [
        (name, tuple(row(name_response_group(group.group), group) for group in members))
        for name, members in sections_of_groups
    ]
    return RatePlot(axes, (("", tuple(overall_rows)), *sections))


def _scale(groups: Sequence[GroupRates], metric: Metric, corrected: Estimate | None) -> float:
    """Return the end of an axis. The gap is small and gets its own scale; other rates have the full one."""
    if metric is not Metric.GAP_RATE:
        return 1.0
    spans = [span for group in groups for span in (group.estimates[metric].interval, group.rates[metric].bounds)]
    tops = [span.high for span in (*spans, corrected.interval if corrected else None) if span]
    # The smallest scale that holds every interval and band.
    return next(scale for scale in _SCALES if scale >= min(max(tops, default=0.0), 1.0))


def _span(interval: Interval | None, scale: float) -> tuple[float, float] | None:
    return None if interval is None else (_position(interval.low / scale), _position(interval.high / scale))


def _dot(shown_rate: ShownRate, scale: float) -> RateDot:
    """Return the dot of a rate, with the band of its bounds where labels are missing."""
    rate = shown_rate.rate
    band = _span(shown_rate.span, scale) if rate.unjudged else None
    if shown_rate.status is RateStatus.TOO_LITTLE:
        # Bounds are those of the judge's own rate.
        return RateDot(TOO_LITTLE_TEXT, n=rate.n, band=None if shown_rate.corrected else band)
    return RateDot(
        label=shown_rate.number,
        interval="" if band else format_percent_interval(shown_rate.interval),
        n=rate.n,
        value=None if shown_rate.value is None else _position(shown_rate.value / scale),
        whisker=_span(shown_rate.interval, scale),
        band=band,
    )


PANEL_METRICS = (*MAIN_METRICS, Metric.GAP_SHARE, Metric.GAP_RISK)
"""The metrics of the paper's Figure 2."""


DatasetPanel: TypeAlias = tuple[str, list[tuple[str, tuple[RateDot, ...]]]]
"""Name of a dataset with its models, each with a dot for each metric on a scale that ends at 100 %."""


def layout_dataset_panels(diagnosis: Diagnosis) -> list[DatasetPanel]:
    """Return a panel for each dataset, and a last one pooled over datasets where there are several."""
    # Groups are (dataset, model) pairs.
    datasets = sorted({pair.group[0] for pair in diagnosis.pairs})
    panels = [
        (name, [_model_dots(pair, pair.group[1]) for pair in diagnosis.pairs if pair.group[0] == name])
        for name in datasets
    ]
    if len(datasets) > 1:
        pooled = {group.group[0]: group for group in diagnosis.by_model}
        models = sorted({pair.group[1] for pair in diagnosis.pairs})
        # Empty for one model over all datasets, or for models that each have their own dataset.
        if not pooled:
            by_model_name = {pair.group[1]: pair for pair in diagnosis.pairs}
            pooled = {models[0]: diagnosis.overall} if len(models) == 1 else by_model_name
        panels.append(("all datasets", [_model_dots(pooled[model], model) for model in models]))
    return panels


def _model_dots(group: GroupRates, model: str) -> tuple[str, tuple[RateDot, ...]]:
    return model, tuple(_dot(ShownRate.of_group(group, metric), 1.0) for metric in PANEL_METRICS)


def layout_difference_plot(comparison: RunComparison) -> tuple[str, list[tuple[str, str, RateDot]]]:
    """Return the points from the middle to either end of the scale, and a row for each rate with its name and dot.

    The middle means no change.
    """
    estimates = {metric: comparison.overall.differences[metric].estimate for metric in TABLE_METRICS}
    ends = [abs(end) for estimate in estimates.values() if estimate.interval for end in estimate.interval]
    # One scale for all rates, so that bars of different rates can be compared.
    scale = next(scale for scale in _SCALES if scale >= min(max(ends, default=0.0), 1.0))
    rows = [
        (metric.value, METRIC_WORDS[metric][0], _difference_dot(comparison.overall.differences[metric], scale))
        for metric in TABLE_METRICS
    ]
    return f"{100 * scale:.0f}", rows


def _difference_dot(difference: RateDifference, scale: float) -> RateDot:
    estimate = difference.estimate
    if estimate.value is None or estimate.interval is None:
        return RateDot("undefined")
    if is_too_little_judged(difference.run, difference.base):
        return RateDot(TOO_LITTLE_TEXT)
    # Map [-scale, scale] to the width, so that 0 is in the middle.
    value, low, high = (_position((1 + end / scale) / 2) for end in (estimate.value, *estimate.interval))
    return RateDot(
        label=format_signed_percent(estimate.value),
        interval=format_signed_interval(estimate.interval),
        n=difference.run.n,
        value=value,
        whisker=(low, high),
    )


def _position(share: float) -> float:
    """Return a position in percent of the width, at most 100."""
    return round(100 * min(share, 1.0), 3)


CompositionChart: TypeAlias = tuple[str, int, tuple[BarSegment, ...]]
"""Title, total, and a bar for each of its parts."""


def layout_composition_charts(diagnosis: Diagnosis) -> tuple[CompositionChart, ...]:
    """Return the failure classes of the gap and the codes of unsound steps as charts."""
    failures = [
        (str(failure), FAILURE_WORDS[failure][0], count, f"outcome=gap_{failure}", None)
        for failure, count in diagnosis.overall.composition.gap_failures.items()
    ]
    # Steps are counted and responses are listed, so both numbers are printed.
    codes = [
        ("unsound", f"{code.value} {CODE_WORDS[code][0]}", count, f"code={code.value}", responses)
        for (code, count), responses in zip(
            diagnosis.local_failures.items(), diagnosis.local_failure_responses.values(), strict=True
        )
    ]
    charts = (_bars("Failures of the whole, within the gap", failures), _bars("Unsound steps, by reason", codes))
    return tuple(chart for chart in charts if chart[-1])


def _bars(title: str, parts: Sequence[tuple[str, str, int, str, int | None]]) -> CompositionChart:
    """Return a chart of parts: kind, name, count, link, and the responses behind the count."""
    total = sum(count for _, _, count, _, _ in parts)
    segments = (
        BarSegment(
            kind=kind, name=name, count=count, start=0.0, width=_position(count / total), show=show, responses=responses
        )
        for kind, name, count, show, responses in parts
    )
    return title, total, tuple(segments)
