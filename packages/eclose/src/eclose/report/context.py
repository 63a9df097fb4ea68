"""What a report prints beside the figures: title, trust in the judge, omitted responses, and a base run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eclose.diagnosis.compare import ResponseClass, RunComparison
from eclose.diagnosis.number_format import format_count
from eclose.metrics.judge_against_people import LabelAgreementRow
from eclose.metrics.rates import Metric
from eclose.report.explorer import NO_PARTNER, name_response_class
from eclose.report.scores import ScoreColumn
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.diagnosis.diagnose import JudgedCase
    from eclose.judging.correct_rates import RateCorrection

PEOPLE_LABELS = "The labels were settled by people."
_PEOPLE_AGREEMENT = "How far the annotators agreed before that: eclose annotate agree FOLDER."
NOT_VALIDATED = "This judge has not been validated against people on your data"


@dataclass(frozen=True, slots=True)
class BaseComparison:
    """A comparison with a base run."""

    name: str
    """Name of the base run."""
    comparison: RunComparison
    cautions: tuple[str, ...] = ()
    """Sentences to read before the differences."""
    partners: Mapping[str, ResponseClass] = field(default_factory=dict)
    """Class of the partner in the base run by response id; by the id in this run, whose responses the page shows."""

    def before(self, cases: Sequence[JudgedCase]) -> dict[str, str]:
        """Return the class of each response's partner in the base run, by response id."""
        partners = self.partners
        return {
            id_: name_response_class(partners[id_]) if id_ in partners else NO_PARTNER
            for id_ in (case.response.id for case in cases)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """Optional additions to a diagnosis. Without a validation every format says that there is none."""

    title: str = "Which responses are unreliable, and why"
    corrected: Mapping[Metric, Estimate] | None = None
    """Rates of all responses, corrected by labels of people."""
    uncorrected: Mapping[Metric, str] = field(default_factory=dict)
    """Why a rate has no correction, for each rate without one where others are corrected."""
    validation: str | None = None
    """How the judge was validated, in a sentence."""
    validated: bool = False
    """Whether people labelled enough responses to call the judge validated."""
    settled_by_people: bool = False
    """Whether people settled every label, so that there is no judge to validate."""
    agreement: Sequence[LabelAgreementRow] = ()
    """Agreement of the judge with people, by label."""
    stratified: bool = False
    """Whether the compared responses were sampled by the judge's labels, so that misses are those of the sample."""
    left_out: Sequence[tuple[str, str]] = ()
    """Ids of responses that could not be diagnosed, with the reason."""
    stale: Sequence[str] = ()
    """A sentence for each file that changed after it was judged; every format prints them first."""
    selected: Sequence[str] = ()
    """A sentence for each run of which only chosen responses were judged."""
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Unused records of the input files, by file and reason."""
    checked: bool | None = None
    """Whether manifests record the files that were judged; None for cases that are not from a run folder."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Origin of the figures: a run, a date, a version."""
    base: BaseComparison | None = None
    """Comparison with a base run."""
    systems: tuple[str, str, RunComparison] | None = None
    """Names of the two systems of the run with their comparison, the base first, where it has two and no base run."""
    scores: Sequence[ScoreColumn] = ()
    """Scores of detectors, which the page shows beside the judgments."""
    score_notices: Sequence[str] = ()
    """A sentence for each file of scores that was made from other responses."""

    @property
    def trust(self) -> str:
        """The sentence on how far the judge can be trusted, or that people settled the labels."""
        if self.settled_by_people:
            return f"{PEOPLE_LABELS} {_PEOPLE_AGREEMENT}"
        return self.validation or f"{NOT_VALIDATED}: label a hundred responses to learn how far it can be trusted."

    @property
    def stale_warnings(self) -> tuple[str, ...]:
        """The warning about stale judgments; empty where the files are those that were judged."""
        if not self.stale:
            return ()
        return ("Stale judgments: the figures may be of other responses than those shown.", *self.stale)

    @property
    def left_out_by_reason(self) -> dict[str, int]:
        """Number of omitted responses by reason."""
        return dict(sorted(Counter(reason for _, reason in self.left_out).items()))


def describe_uncorrected_rates(context: ReportContext, metrics: Iterable[Metric]) -> tuple[str, ...]:
    """Return which of the rates have no correction, and why; empty where all have one or none has."""
    by_reason: dict[str, list[str]] = {}
    for metric in metrics:
        if metric in context.uncorrected:
            by_reason.setdefault(context.uncorrected[metric], []).append(str(metric))
    if not by_reason:
        return ()
    parts = (f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    return (f"Not corrected: {'; '.join(parts)}.", "These are the judge's own figures, with its errors.")


def add_corrected_rates(context: ReportContext, correction: RateCorrection) -> ReportContext:
    """Return the context with corrected rates and a sentence on the labels behind them."""
    from eclose.judging.correct_rates import MIN_PEOPLE_LABELS  # noqa: PLC0415 - the judge's modules are slow to import

    validation = correction.validation
    if validation is None:
        return context
    # The labelled responses carry the correction; their number says how far to trust it.
    labelled = f"{validation.labelled:,} of {format_count(validation.judged, 'response')}"
    if not correction.enough:
        sentence = (
            f"People labelled {labelled}: too few to validate the judge or to correct its rates "
            f"({MIN_PEOPLE_LABELS} do)."
        )
    elif correction.carried_over:
        sentence = (
            f"Validated against people on {labelled} of another run; the correction assumes that it errs as often here."
        )
    else:
        sentence = f"Validated against people on {labelled}."
    if validation.stratified:
        sentence += " These were sampled by the judge's labels; agreement and misses are those of the sample."
    return replace(
        context,
        corrected={metric: Estimate(rate.value, rate.interval) for metric, rate in correction.rates.items()} or None,
        uncorrected=correction.reasons if correction.rates else {},
        validation=sentence,
        validated=correction.enough,
        agreement=tuple(validation.overall.rows.values()),
        stratified=validation.stratified,
    )
