"""The headline of a report: how many responses are reliable, in the gap, unsound and undecided.

A figure with missing labels is given as bounds, and as too little judged where too many are missing. Decision 0030 has
the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.diagnosis.report.number_format import (
    format_count,
    format_percent,
    format_percent_about,
    format_percent_between,
    format_percent_interval,
)
from eclose.diagnosis.report.rate_status import (
    TOO_LITTLE_TEXT,
    UNDEFINED_TEXT,
    RateStatus,
    classify_rate_status,
    complement_interval,
    widen_interval_by_unjudged,
)
from eclose.diagnosis.report.wording import FAILURE_WORDS
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import ReportContext
    from eclose.metrics.summary import GroupRates


class RateText(NamedTuple):
    """A percentage with its interval, as text."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        """Return ``46.3 % [40.9, 51.9]``."""
        return f"{self.value} {self.interval}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineStatement:
    """One statement of the headline: how many responses, how certain, and what it means."""

    kind: str
    """Name of the statement; pages colour by it."""
    count: int
    lead: str
    figure: RateText
    """The figure in large type: corrected by labels of people where possible, else the judge's own."""
    meaning: str
    card: RateText | None = None
    """The figure as a card of the page prints it, with the interval in words; None to print ``figure``."""
    beside: str = ""
    """The judge's own figure beside a corrected one."""
    detail: str = ""
    """The basis of the figure where labels are missing."""
    whose: str = ""
    """Whether the figure is settled by people, corrected, or the judge's own."""
    show: str = ""
    """Filter of the explorer that selects these responses."""
    least: bool = False
    """Whether the count is only a lower bound, since labels are missing."""
    unknown: bool = False
    """Whether no response at all is judged for it; pages leave such cards out."""
    parts: tuple[HeadlineStatement, ...] = ()

    @property
    def counted(self) -> str:
        """``14 responses``, or ``at least 14 responses``."""
        return ("at least " if self.least else "") + format_count(self.count, "response")


CORRECTED_FIGURE = "corrected by people's labels"
PEOPLE_FIGURE = "settled by people"
JUDGE_FIGURE = "the judge's own figure"
HEADLINE_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE)
"""Rates of the headline. They are parts of one total, so all of them are corrected or none."""


def build_report_headline(diagnosis: Diagnosis, context: ReportContext) -> tuple[HeadlineStatement, ...]:
    """Return the statements on reliable, gap, unsound and undecided responses."""
    statements = [_reliable(diagnosis, context), _gap(diagnosis, context), _unsound(diagnosis, context)]
    # The four statements add up to all responses.
    if undecided := diagnosis.overall.composition.groups.get(None, 0):
        statements.append(
            HeadlineStatement(
                kind="undecided",
                count=undecided,
                lead="is undecided" if undecided == 1 else "are undecided",
                figure=RateText(f"{format_percent(undecided / diagnosis.overall.responses)} %"),
                meaning="Labels that decide between these are missing. The figures above show the possible range.",
                show="outcome=undecided",
                unknown=undecided == diagnosis.overall.responses,
            )
        )
    return tuple(statements)


def _select_headline_corrections(context: ReportContext) -> Mapping[Metric, Estimate]:
    """Return the corrected rates of the headline: all of them, or none where one is missing."""
    corrected = context.corrected or {}
    # A mix of corrected and uncorrected parts would not add up.
    return {metric: corrected[metric] for metric in HEADLINE_METRICS if set(HEADLINE_METRICS) <= set(corrected)}


class _Share(NamedTuple):
    """A rate of the headline: counts, the judge's estimate and the corrected one."""

    rate: Rate
    judged: Estimate
    corrected: Estimate | None

    @classmethod
    def of(cls, diagnosis: Diagnosis, context: ReportContext, metric: Metric) -> _Share:
        """Take the rate from a diagnosis and its context."""
        overall = diagnosis.overall
        return cls(overall.rates[metric], overall.estimates[metric], _select_headline_corrections(context).get(metric))

    @property
    def complement(self) -> _Share:
        """The share of all other responses."""
        # Misses become hits; the denominator and the unjudged stay.
        rate = Rate(self.rate.n - self.rate.hits, self.rate.n, self.rate.unjudged)
        return _Share(rate, _opposite(self.judged), self.corrected and _opposite(self.corrected))

    def statement(
        self, kind: str, context: ReportContext, lead: tuple[str, str], meaning: str, **fields: Any
    ) -> HeadlineStatement:
        """Return the statement; ``lead`` is its text for one response and for several."""
        rate, figure = self.rate, _format_rate(self.rate, self.judged.interval)
        too_little = classify_rate_status(rate) is RateStatus.TOO_LITTLE
        corrected = format_corrected_rate(rate, self.corrected)
        return HeadlineStatement(
            kind=kind,
            count=rate.hits,
            # Completes the figure 'too little judged'.
            lead=f"to tell how many {lead[1]}" if too_little else lead[0 if rate.hits == 1 else 1],
            figure=corrected or figure,
            meaning=meaning,
            beside="" if corrected is None else f"The judge alone says {figure}",
            detail=_detail(rate, self.judged),
            whose="" if too_little else _whose(context, corrected=corrected is not None),
            card=None if too_little else _format_card(rate, self.judged if corrected is None else self.corrected),
            least=bool(rate.unjudged),
            unknown=bool(rate.unjudged and not rate.n),
            **fields,
        )


def _opposite(estimate: Estimate) -> Estimate:
    value, interval, undefined = estimate
    return Estimate(None if value is None else 1 - value, complement_interval(interval), undefined)


def _whose(context: ReportContext, *, corrected: bool) -> str:
    """Return whether a figure is settled by people, corrected, not corrected or not validated."""
    if context.settled_by_people:
        return PEOPLE_FIGURE
    if corrected:
        return CORRECTED_FIGURE
    return f"{JUDGE_FIGURE}, {'not corrected' if context.validated else 'not validated'}"


def _reliable(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    share = _Share.of(diagnosis, context, Metric.TRACE_RELIABILITY_RATE)
    meaning = "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted."
    if diagnosis.prose_traces:
        meaning += (
            f" Closure holds by construction in {format_count(diagnosis.prose_traces, 'response')} of "
            f"{diagnosis.overall.responses:,}, whose steps are the sentences of the answer (--trace prose)."
        )
    return share.statement("reliable", context, ("is reliable", "are reliable"), meaning, show="outcome=reliable")


def _gap(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    """Return the statement on the gap, with a part for each failure class."""
    share = _Share.of(diagnosis, context, Metric.GAP_RATE)
    rate = share.rate
    if rate.hits or classify_rate_status(rate) is RateStatus.TOO_LITTLE:
        # The reason why the gap needs a check of the whole response.
        meaning = "No check of single steps finds these."
    elif rate.unjudged:
        total = format_count(diagnosis.overall.responses, "response")
        meaning = f"Whether a response is in the local-global gap is open for {rate.unjudged:,} of {total}."
    else:
        meaning = "No response is in the local-global gap."
    parts = tuple(
        HeadlineStatement(
            kind=str(failure),
            count=count,
            lead=FAILURE_WORDS[failure][0],
            # Shares of the gap, not of all responses.
            figure=RateText(f"{format_percent(count / rate.hits)} % of them"),
            meaning=FAILURE_WORDS[failure][1],
            show=f"outcome=gap_{failure}",
        )
        for failure, count in diagnosis.overall.composition.gap_failures.items()
    )
    lead = "looks right step by step, and fails as a whole", "look right step by step, and fail as a whole"
    return share.statement("gap", context, lead, meaning, show="outcome=gap", parts=parts)


def _unsound(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    share = _Share.of(diagnosis, context, Metric.LOCAL_SOUNDNESS_RATE).complement
    meaning = "At least one step is not supported by the passages, or does not follow."
    lead = "contains an unsound step", "contain an unsound step"
    return share.statement("unsound", context, lead, meaning, show="outcome=unsound")


def _format_rate(rate: Rate, interval: Interval | None) -> RateText:
    """Return a rate with its interval, as bounds, as too little judged, or as not defined."""
    match classify_rate_status(rate):
        case RateStatus.RATE:
            return format_rate_value(rate.value, interval)
        case RateStatus.BOUNDS:
            assert rate.bounds is not None
            return RateText(format_percent_between(rate.bounds))
        case RateStatus.TOO_LITTLE:
            return RateText(TOO_LITTLE_TEXT)
    return RateText(UNDEFINED_TEXT)


def _format_card(rate: Rate, estimate: Estimate | None) -> RateText | None:
    if estimate is None or estimate.value is None:
        return None
    value, interval = Interval(estimate.value, estimate.value), estimate.interval
    if rate.unjudged:
        value = widen_interval_by_unjudged(rate, *value)
        interval = None if interval is None else widen_interval_by_unjudged(rate, *interval)
    words = "" if interval is None else f"likely {format_percent_between(interval)}"
    return RateText(format_percent_about(value), words)


def format_rate_value(value: float | None, interval: Interval | None) -> RateText:
    """Return a value with its interval, without a check for missing labels."""
    return (
        RateText(UNDEFINED_TEXT)
        if value is None
        else RateText(f"{format_percent(value)} %", format_percent_interval(interval))
    )


def format_group_rate(group: GroupRates, metric: Metric) -> RateText:
    """Return a rate of a group, as ``_format_rate`` prints it."""
    return _format_rate(group.rates[metric], group.estimates[metric].interval)


def format_corrected_rate(rate: Rate, corrected: Estimate | None) -> RateText | None:
    """Return the corrected figure; with missing labels, its bounds and the interval widened by them."""
    if (
        corrected is None
        or corrected.value is None
        or classify_rate_status(rate) not in (RateStatus.RATE, RateStatus.BOUNDS)
    ):
        return None
    if not rate.unjudged:
        return format_rate_value(*corrected[:2])
    # The unjudged responses may be hits or misses, whatever the sample of people says.
    interval = None if corrected.interval is None else widen_interval_by_unjudged(rate, *corrected.interval)
    return RateText(
        format_percent_between(widen_interval_by_unjudged(rate, corrected.value, corrected.value)),
        format_percent_interval(interval),
    )


def _detail(rate: Rate, judged: Estimate) -> str:
    """Return the figure of the judged responses where labels are missing."""
    if rate.bounds is None or not rate.unjudged:
        return ""
    total = f"{rate.n + rate.unjudged:,}"
    if not rate.n:
        return f"This is open for all {format_count(rate.unjudged, 'response')}"
    counts = f"{rate.n:,} of {total}"
    if classify_rate_status(rate) is RateStatus.TOO_LITTLE:
        bounds = format_percent_between(rate.bounds)
        return f"This is open for {rate.unjudged:,} of {total} responses: the share lies {bounds}, whatever they are"
    return f"Of the {counts} that are judged: {format_rate_value(*judged[:2])}"
