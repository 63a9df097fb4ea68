"""What a report says beside the figures: what it is called, how far its judge can be trusted, what is not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eclose.diagnosis.compare import RunComparison
from eclose.diagnosis.report.filters import NO_PARTNER, class_name
from eclose.metrics.judge_agreement import LabelRow
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.diagnosis.diagnose import Case
    from eclose.judging.rate_correction import Correction

NOT_VALIDATED = "This judge has not been validated against people on your data"


@dataclass(frozen=True, slots=True)
class BaseComparison:
    """The other run's name, the comparison with it, and what to bear in mind."""

    name: str
    comparison: RunComparison
    cautions: tuple[str, ...] = ()

    def before(self, cases: Sequence[Case]) -> dict[str, str]:
        """What the partner of each response of the run is, by its id."""
        known = {pair.run.response_id: class_name(pair.kinds[0]) for pair in self.comparison.pairs}
        return {case.response.id: known.get(case.response.id, NO_PARTNER) for case in cases}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    """All of it optional; without a validation every format says that there is none."""

    title: str = "Which responses are unreliable, and why"
    corrected: Mapping[Metric, Estimate] | None = None
    """Rates of all responses as labels of people correct them."""
    validation: str | None = None
    """How the judge was held against people, in a sentence."""
    validated: bool = False
    """Whether people labelled enough responses to call the judge validated."""
    agreement: Sequence[LabelRow] = ()
    """How far it agrees with them, label by label."""
    left_out: Sequence[tuple[str, str]] = ()
    """Responses that could not be diagnosed, by id, with the reason."""
    stale: Sequence[str] = ()
    """Files that are not those that were judged, a sentence each; shown first in every format."""
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Records of the input files that were not used, by file and reason."""
    checked: bool | None = None
    """Whether manifests say what the judgments were made from; None for cases that come from no folder."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Where the figures come from: a run, a date, a version."""
    against: BaseComparison | None = None
    """Another run that this one is held against."""

    @property
    def trust(self) -> str:
        """What to tell of the judge."""
        return self.validation or f"{NOT_VALIDATED}: label a hundred responses to learn how far it can be trusted."

    @property
    def stale_told(self) -> tuple[str, ...]:
        """The warning about stale judgments; nothing where they belong to their files."""
        if not self.stale:
            return ()
        return ("Stale judgments: the figures may be of other responses than those shown.", *self.stale)

    @property
    def left_out_by_reason(self) -> dict[str, int]:
        """How many are missing, and why."""
        return dict(sorted(Counter(reason for _, reason in self.left_out).items()))


def add_correction(notes: ReportContext, correction: Correction) -> ReportContext:
    """Return the notes with the corrected rates of a run and a sentence on the labels behind them."""
    from eclose.judging.rate_correction import MIN_LABELS  # noqa: PLC0415 - the judge's modules are slow to import

    known = correction.validation
    if known is None:
        return notes
    labelled = f"{known.labelled:,} of {known.judged:,} responses"
    if not correction.enough:
        sentence = (
            f"People labelled {labelled}: too few to validate the judge or to correct its rates ({MIN_LABELS} do)."
        )
    elif correction.carried_over:
        sentence = (
            f"Validated against people on {labelled} of another run; "
            "the correction is carried over, as if it erred alike here."
        )
    else:
        sentence = f"Validated against people on {labelled}."
    if known.stratified:
        sentence += " These were drawn by what the judge said; how far it agrees is told of them alone."
    return replace(
        notes,
        corrected={metric: Estimate(rate.value, rate.interval) for metric, rate in correction.rates.items()} or None,
        validation=sentence,
        validated=correction.enough,
        agreement=tuple(known.overall.rows.values()),
    )
