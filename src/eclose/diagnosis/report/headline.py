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
    Reading,
    between,
    complement,
    percent,
    percent_range,
    plural,
    reading,
    widened,
)
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import Notes
    from eclose.metrics.summary import GroupSummary
    from eclose.stats.intervals import Interval


class Figure(NamedTuple):
    """A percentage with its interval, in words."""

    value: str
    interval: str = ""

    def __str__(self) -> str:
        """``46.3 % [40.9, 51.9]``."""
        return f"{self.value} {self.interval}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One finding: how many, how certain, and what it means."""

    kind: str
    """What the finding is of; pages colour by it."""
    count: int
    lead: str
    figure: Figure
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
    parts: tuple[Statement, ...] = ()

    @property
    def counted(self) -> str:
        """``14 responses``, or ``at least 14 responses``."""
        return ("at least " if self.least else "") + plural(self.count, "response")


CORRECTED = "corrected by people's labels"
JUDGED = "the judge's own figure"
HEADLINE_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE, Metric.LOCAL_SOUNDNESS_RATE)
"""The rates of the headline. They are parts of one whole, so all of them are corrected or none."""


def headline(diagnosis: Diagnosis, notes: Notes) -> tuple[Statement, ...]:
    """Return the statements on reliable, gap, unsound and undecided responses."""
    statements = [_reliable(diagnosis, notes), _gap(diagnosis, notes), _unsound(diagnosis, notes)]
    if undecided := diagnosis.overall.composition.groups.get(None, 0):
        statements.append(
            Statement(
                kind="undecided",
                count=undecided,
                lead="is undecided" if undecided == 1 else "are undecided",
                figure=Figure(f"{percent(undecided / diagnosis.overall.responses)} %"),
                meaning="A label that would tell which of these is missing. The figures above show what is left open.",
                show="outcome=undecided",
            )
        )
    return tuple(statements)


def headline_corrections(notes: Notes) -> Mapping[Metric, Estimate]:
    """Return the corrected rates of the headline: all of them, or none where one is missing."""
    corrected = notes.corrected or {}
    return {metric: corrected[metric] for metric in HEADLINE_METRICS if set(HEADLINE_METRICS) <= set(corrected)}


class _Share(NamedTuple):
    """A rate of the headline: counts, the judge's estimate, and the corrected one."""

    rate: Rate
    judged: Estimate
    corrected: Estimate | None

    @classmethod
    def of(cls, diagnosis: Diagnosis, notes: Notes, metric: Metric) -> _Share:
        overall = diagnosis.overall
        return cls(overall.rates[metric], overall.estimates[metric], headline_corrections(notes).get(metric))

    @property
    def complement(self) -> _Share:
        """The share of all other responses."""
        rate = Rate(self.rate.n - self.rate.hits, self.rate.n, self.rate.unjudged)
        return _Share(rate, _opposite(self.judged), self.corrected and _opposite(self.corrected))

    def statement(self, kind: str, notes: Notes, lead: tuple[str, str], meaning: str, **more: Any) -> Statement:
        """Return the statement; ``lead`` is for one response and for several."""
        rate, figure = self.rate, figure_of(self.rate, self.judged.interval)
        too_little = reading(rate) is Reading.TOO_LITTLE
        corrected = corrected_figure(rate, self.corrected)
        return Statement(
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


def _whose(notes: Notes, *, corrected: bool) -> str:
    if corrected:
        return CORRECTED
    return f"{JUDGED}, {'not corrected' if notes.validated else 'not validated'}"


def _reliable(diagnosis: Diagnosis, notes: Notes) -> Statement:
    share = _Share.of(diagnosis, notes, Metric.TRACE_RELIABILITY_RATE)
    meaning = "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted."
    return share.statement("reliable", notes, ("is reliable", "are reliable"), meaning, show="outcome=reliable")


def _gap(diagnosis: Diagnosis, notes: Notes) -> Statement:
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
        Statement(
            kind=str(failure),
            count=count,
            lead=FAILURE_WORDS[failure][0],
            figure=Figure(f"{percent(count / rate.hits)} % of them"),
            meaning=FAILURE_WORDS[failure][1],
            show=f"outcome=gap_{failure}",
        )
        for failure, count in diagnosis.overall.composition.gap_failures.items()
    )
    lead = "looks right step by step, and fails as a whole", "look right step by step, and fail as a whole"
    return share.statement("gap", notes, lead, meaning, show="outcome=gap", parts=parts)


def _unsound(diagnosis: Diagnosis, notes: Notes) -> Statement:
    share = _Share.of(diagnosis, notes, Metric.LOCAL_SOUNDNESS_RATE).complement
    meaning = "At least one step is not supported by the passages, or does not follow."
    lead = "contains an unsound step", "contain an unsound step"
    return share.statement("unsound", notes, lead, meaning, show="outcome=unsound")


def figure_of(rate: Rate, interval: Interval | None) -> Figure:
    """Return a rate as it may be told: with its interval, as bounds, as too little judged, or as not defined."""
    match reading(rate):
        case Reading.RATE:
            return plain_figure(rate.value, interval)
        case Reading.BOUNDS:
            assert rate.bounds is not None
            return Figure(between(rate.bounds))
        case Reading.TOO_LITTLE:
            return Figure(TOO_LITTLE)
    return Figure(UNDEFINED)


def plain_figure(value: float | None, interval: Interval | None) -> Figure:
    """Return a value with its interval, whatever it rests on."""
    return Figure(UNDEFINED) if value is None else Figure(f"{percent(value)} %", percent_range(interval))


def group_figure(group: GroupSummary, metric: Metric) -> Figure:
    """Return a rate of a group as it may be told."""
    return figure_of(group.rates[metric], group.estimates[metric].interval)


def corrected_figure(rate: Rate, corrected: Estimate | None) -> Figure | None:
    """Return the corrected figure; where labels are missing, its bounds with the interval widened by them."""
    if corrected is None or corrected.value is None or reading(rate) not in (Reading.RATE, Reading.BOUNDS):
        return None
    if not rate.unjudged:
        return plain_figure(*corrected[:2])
    interval = None if corrected.interval is None else widened(rate, *corrected.interval)
    return Figure(between(widened(rate, corrected.value, corrected.value)), percent_range(interval))


def _detail(rate: Rate, judged: Estimate) -> str:
    if rate.bounds is None or not rate.unjudged:
        return ""
    counts = f"{rate.n:,} of {rate.n + rate.unjudged:,}"
    if reading(rate) is Reading.TOO_LITTLE:
        return f"{counts} judged: {between(rate.bounds)}, whatever the others are"
    return f"Of the {counts} that are judged: {plain_figure(*judged[:2])}"
