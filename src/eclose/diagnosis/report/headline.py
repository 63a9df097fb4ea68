"""The findings in the largest type: how many responses are reliable, in the gap, unsound and undecided.

A figure is never an artefact of missing labels: where some are missing it is given as bounds, and where too many are,
as too little judged. Decision 0030 has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.diagnosis.report.format import (
    FAILURE_WORDS,
    TOO_LITTLE,
    UNDEFINED,
    RateStatus,
    complement,
    percent,
    percent_between,
    percent_range,
    plural,
    rate_status,
    widened,
)
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import ReportContext
    from eclose.metrics.summary import GroupSummary
    from eclose.stats.intervals import Interval


class RateText(NamedTuple):
    """A percentage with its interval, in words."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        """``46.3 % [40.9, 51.9]``."""
        return f"{self.value} {self.interval}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineItem:
    """One finding: how many, how certain, and what it means."""

    kind: str
    """What the finding is of; pages colour by it."""
    count: int
    lead: str
    figure: RateText
    """The figure in the largest type: corrected where labels of people correct it, else as the judge sees it."""
    meaning: str
    beside: str = ""
    """The judge's own figure, beside a corrected one."""
    detail: str = ""
    """What the figure rests on where labels are missing."""
    whose: str = ""
    """Whose figure it is, in plain words."""
    show: str = ""
    """The explorer's filter that shows these responses."""
    least: bool = False
    """Whether the count is only a lower bound, as labels are missing."""
    parts: tuple[HeadlineItem, ...] = ()

    @property
    def counted(self) -> str:
        """``14 responses``, or ``at least 14 responses``."""
        return ("at least " if self.least else "") + plural(self.count, "response")


CORRECTED = "corrected by people's labels"
JUDGED = "the judge's own figure"
HEADLINE_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE)
"""The rates of the headline. They are parts of one whole, so all of them are corrected or none."""


def headline_items(diagnosis: Diagnosis, notes: ReportContext) -> tuple[HeadlineItem, ...]:
    """Return the statements on reliable, gap, unsound and undecided responses."""
    statements = [_reliable(diagnosis, notes), _gap(diagnosis, notes), _unsound(diagnosis, notes)]
    if undecided := diagnosis.overall.composition.groups.get(None, 0):
        statements.append(
            HeadlineItem(
                kind="undecided",
                count=undecided,
                lead="is undecided" if undecided == 1 else "are undecided",
                figure=RateText(f"{percent(undecided / diagnosis.overall.responses)} %"),
                meaning="A label that would tell which of these is missing. The figures above show what is left open.",
                show="outcome=undecided",
            )
        )
    return tuple(statements)


def headline_corrections(notes: ReportContext) -> Mapping[Metric, Estimate]:
    """Return the corrected rates of the headline: all of them, or none where one is missing."""
    corrected = notes.corrected or {}
    return {metric: corrected[metric] for metric in HEADLINE_METRICS if set(HEADLINE_METRICS) <= set(corrected)}


class _Share(NamedTuple):
    """A rate of the headline: counts, the judge's estimate, and the corrected one."""

    rate: Rate
    judged: Estimate
    corrected: Estimate | None

    @classmethod
    def of(cls, diagnosis: Diagnosis, notes: ReportContext, metric: Metric) -> _Share:
        overall = diagnosis.overall
        return cls(overall.rates[metric], overall.estimates[metric], headline_corrections(notes).get(metric))

    @property
    def complement(self) -> _Share:
        """The share of all other responses."""
        rate = Rate(self.rate.n - self.rate.hits, self.rate.n, self.rate.unjudged)
        return _Share(rate, _opposite(self.judged), self.corrected and _opposite(self.corrected))

    def statement(
        self, kind: str, notes: ReportContext, lead: tuple[str, str], meaning: str, **more: Any
    ) -> HeadlineItem:
        """Return the statement; ``lead`` is for one response and for several."""
        rate, figure = self.rate, rate_text(self.rate, self.judged.interval)
        too_little = rate_status(rate) is RateStatus.TOO_LITTLE
        corrected = corrected_rate_text(rate, self.corrected)
        return HeadlineItem(
            kind=kind,
            count=rate.hits,
            lead=f"to tell how many {lead[1]}" if too_little else lead[0 if rate.hits == 1 else 1],
            figure=corrected or figure,
            meaning=meaning,
            beside="" if corrected is None else f"The judge alone says {figure}",
            detail=_detail(rate, self.judged),
            whose="" if too_little else _whose(notes, corrected=corrected is not None),
            least=bool(rate.unjudged),
            **more,
        )


def _opposite(estimate: Estimate) -> Estimate:
    """The estimate of one minus a rate."""
    value, interval, undefined = estimate
    return Estimate(None if value is None else 1 - value, complement(interval), undefined)


def _whose(notes: ReportContext, *, corrected: bool) -> str:
    if corrected:
        return CORRECTED
    return f"{JUDGED}, {'not corrected' if notes.validated else 'not validated'}"


def _reliable(diagnosis: Diagnosis, notes: ReportContext) -> HeadlineItem:
    share = _Share.of(diagnosis, notes, Metric.TRACE_RELIABILITY_RATE)
    meaning = "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted."
    return share.statement("reliable", notes, ("is reliable", "are reliable"), meaning, show="outcome=reliable")


def _gap(diagnosis: Diagnosis, notes: ReportContext) -> HeadlineItem:
    share = _Share.of(diagnosis, notes, Metric.GAP_RATE)
    rate = share.rate
    if rate.hits:
        meaning = "No check of single steps finds these."
    elif rate.unjudged:
        total = plural(diagnosis.overall.responses, "response")
        meaning = f"Whether a response is in the local-global gap is open for {rate.unjudged:,} of {total}."
    else:
        meaning = "No response is in the local-global gap."
    parts = tuple(
        HeadlineItem(
            kind=str(failure),
            count=count,
            lead=FAILURE_WORDS[failure][0],
            figure=RateText(f"{percent(count / rate.hits)} % of them"),
            meaning=FAILURE_WORDS[failure][1],
            show=f"outcome=gap_{failure}",
        )
        for failure, count in diagnosis.overall.composition.gap_failures.items()
    )
    lead = "looks right step by step, and fails as a whole", "look right step by step, and fail as a whole"
    return share.statement("gap", notes, lead, meaning, show="outcome=gap", parts=parts)


def _unsound(diagnosis: Diagnosis, notes: ReportContext) -> HeadlineItem:
    share = _Share.of(diagnosis, notes, Metric.LOCAL_SOUNDNESS_RATE).complement
    meaning = "At least one step is not supported by the passages, or does not follow."
    lead = "contains an unsound step", "contain an unsound step"
    return share.statement("unsound", notes, lead, meaning, show="outcome=unsound")


def rate_text(rate: Rate, interval: Interval | None) -> RateText:
    """Return a rate as it may be told: with its interval, as bounds, as too little judged, or as not defined."""
    match rate_status(rate):
        case RateStatus.RATE:
            return value_text(rate.value, interval)
        case RateStatus.BOUNDS:
            assert rate.bounds is not None
            return RateText(percent_between(rate.bounds))
        case RateStatus.TOO_LITTLE:
            return RateText(TOO_LITTLE)
    return RateText(UNDEFINED)


def value_text(value: float | None, interval: Interval | None) -> RateText:
    """Return a value with its interval, whatever it rests on."""
    return RateText(UNDEFINED) if value is None else RateText(f"{percent(value)} %", percent_range(interval))


def group_rate_text(group: GroupSummary, metric: Metric) -> RateText:
    """Return a rate of a group as it may be told."""
    return rate_text(group.rates[metric], group.estimates[metric].interval)


def corrected_rate_text(rate: Rate, corrected: Estimate | None) -> RateText | None:
    """Return the corrected figure; where labels are missing, its bounds with the interval widened by them."""
    if corrected is None or corrected.value is None or rate_status(rate) not in (RateStatus.RATE, RateStatus.BOUNDS):
        return None
    if not rate.unjudged:
        return value_text(*corrected[:2])
    interval = None if corrected.interval is None else widened(rate, *corrected.interval)
    return RateText(percent_between(widened(rate, corrected.value, corrected.value)), percent_range(interval))


def _detail(rate: Rate, judged: Estimate) -> str:
    if rate.bounds is None or not rate.unjudged:
        return ""
    counts = f"{rate.n:,} of {rate.n + rate.unjudged:,}"
    if rate_status(rate) is RateStatus.TOO_LITTLE:
        return f"{counts} judged: {percent_between(rate.bounds)}, whatever the others are"
    return f"Of the {counts} that are judged: {value_text(*judged[:2])}"
