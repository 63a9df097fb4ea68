"""The headline of a report: how many responses are reliable, in the gap, unsound and undecided.

A figure with missing labels is given as bounds, and as too little judged where too many are missing. Decision 0030 has
the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.diagnosis.label_table import TraceStratum
from eclose.diagnosis.number_format import format_count, format_percent, format_percent_about, format_percent_between
from eclose.diagnosis.shown_rate import RateStatus, RateText, ShownRate, format_rate_value, is_too_little_judged
from eclose.metrics.rates import Metric
from eclose.report.wording import FAILURE_WORDS, describe_abstentions
from eclose.stats.intervals import Interval
from eclose.values.verdict import TraceGroup

if TYPE_CHECKING:
    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.report.context import ReportContext


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
    # The statements add up to all responses.
    if abstained := diagnosis.overall.composition.groups.get(TraceGroup.ABSTAINED, 0):
        statements.append(_abstained(diagnosis, abstained))
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


def _abstained(diagnosis: Diagnosis, count: int) -> HeadlineStatement:
    """Return the statement on abstentions; those with an unsound step are among the unsound responses."""
    (meaning,) = describe_abstentions(diagnosis)
    if unsound := sum(diagnosis.abstentions.values()) - count:
        meaning += f" {unsound:,} of them {'contains' if unsound == 1 else 'contain'} an unsound step and count there."
    return HeadlineStatement(
        kind="abstained",
        count=count,
        lead="says that it found no answer" if count == 1 else "say that they found no answer",
        figure=RateText(f"{format_percent(count / diagnosis.overall.responses)} %"),
        meaning=meaning,
        show="outcome=abstained",
    )


def _rate_twice(diagnosis: Diagnosis, context: ReportContext, metric: Metric) -> tuple[ShownRate, ShownRate | None]:
    """Return the judge's own rate, and the corrected one where the whole headline is corrected."""
    judged = ShownRate.of_group(diagnosis.overall, metric)
    corrected = context.corrected or {}
    # A mix of corrected and uncorrected parts would not add up.
    if not judged.printed or not set(HEADLINE_METRICS) <= set(corrected):
        return judged, None
    return judged, ShownRate.of_people(judged.rate, corrected[metric])


def _state(
    kind: str,
    shares: tuple[ShownRate, ShownRate | None],
    context: ReportContext,
    lead: tuple[str, str],
    meaning: str,
    parts: tuple[HeadlineStatement, ...] = (),
) -> HeadlineStatement:
    """Return the statement; ``lead`` is its text for one response and for several."""
    judged, corrected = shares
    shown_rate, rate = corrected or judged, judged.rate
    too_little = judged.status is RateStatus.TOO_LITTLE
    return HeadlineStatement(
        kind=kind,
        count=rate.hits,
        # Completes the figure 'too little judged'.
        lead=f"to tell how many {lead[1]}" if too_little else lead[0 if rate.hits == 1 else 1],
        figure=shown_rate.figure,
        meaning=meaning,
        beside="" if corrected is None else f"The judge alone says {judged.figure}",
        detail=_detail(judged),
        whose="" if too_little else _whose(context, corrected=corrected is not None),
        card=None if too_little else _format_card(shown_rate),
        least=bool(rate.unjudged),
        unknown=bool(rate.unjudged and not rate.n),
        show=f"outcome={kind}",
        parts=parts,
    )


def _whose(context: ReportContext, *, corrected: bool) -> str:
    """Return whether a figure is settled by people, corrected, not corrected or not validated."""
    if context.settled_by_people:
        return PEOPLE_FIGURE
    if corrected:
        return CORRECTED_FIGURE
    return f"{JUDGE_FIGURE}, {'not corrected' if context.validated else 'not validated'}"


def _reliable(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    shares = _rate_twice(diagnosis, context, Metric.TRACE_RELIABILITY_RATE)
    meaning = "Every step holds, the reasoning pursues the question, and it establishes the answer that was submitted."
    if diagnosis.stratum is TraceStratum.PROSE:
        meaning += (
            " The steps are sentences of the reply itself, whose closure is not comparable with that of stated steps."
        )
    return _state("reliable", shares, context, ("is reliable", "are reliable"), meaning)


def _gap(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    """Return the statement on the gap, with a part for each failure class."""
    shares = _rate_twice(diagnosis, context, Metric.GAP_RATE)
    rate = shares[0].rate
    if rate.hits or is_too_little_judged(rate):
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
    return _state("gap", shares, context, lead, meaning, parts)


def _unsound(diagnosis: Diagnosis, context: ReportContext) -> HeadlineStatement:
    judged, corrected = _rate_twice(diagnosis, context, Metric.LOCAL_SOUNDNESS_RATE)
    meaning = "At least one step is not supported by the passages, or does not follow."
    lead = "contains an unsound step", "contain an unsound step"
    return _state("unsound", (judged.complement, corrected and corrected.complement), context, lead, meaning)


def _format_card(shown_rate: ShownRate) -> RateText | None:
    value, interval, _ = shown_rate.estimate
    if value is None:
        return None
    words = "" if interval is None else f"likely {format_percent_between(shown_rate.widen(interval))}"
    return RateText(format_percent_about(shown_rate.widen(Interval(value, value))), words)


def _detail(judged: ShownRate) -> str:
    """Return the figure of the judged responses where labels are missing."""
    rate = judged.rate
    if rate.bounds is None or not rate.unjudged:
        return ""
    total = f"{rate.n + rate.unjudged:,}"
    if not rate.n:
        return f"This is open for all {format_count(rate.unjudged, 'response')}"
    if judged.status is RateStatus.TOO_LITTLE:
        bounds = format_percent_between(rate.bounds)
        return f"This is open for {rate.unjudged:,} of {total} responses: the share lies {bounds}, whatever they are"
    return f"Of the {rate.n:,} of {total} that are judged: {format_rate_value(*judged.estimate[:2])}"
