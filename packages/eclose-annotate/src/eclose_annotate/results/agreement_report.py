"""Agreement of people before adjudication, and statistics of adjudication (appendix A.3.3).

The statistics of adjudication are how many subjects, for which reasons, and which labels changed. They contain no names
and no individual labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from eclose.metrics.agreement import (
    AnnotatedResponse,
    AnnotatorAgreementRow,
    ScreenedQuestion,
    ScreeningAgreement,
    measure_annotator_agreement,
    measure_screening_agreement,
)
from eclose.metrics.summary import UNKNOWN_GROUP
from eclose.values.judgment import Criterion, Ineligibility
from eclose_annotate.adjudication import AdjudicationTrigger
from eclose_annotate.forms import AnnotationTaskKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.stats.intervals import Estimate
    from eclose.values.judgment import Judgment, StepJudgment
    from eclose_annotate.annotations import AnnotationSet, QuestionAnnotations, ResponseAnnotations

# Alpha divides by the disagreement expected by chance, which is close to 0 where nearly all labels are equal.
UNINFORMATIVE_ALPHA_SHARE = 0.95
"""Share of the commonest label from which alpha is uninformative, and AC1 is reported beside it."""
UNDEFINED_UNANIMOUS = "undefined, unanimous"
UNDEFINED_NOTHING_TO_COMPARE = "undefined, nothing to compare"
DERIVED_ROWS = ("Local soundness L", "Global sufficiency G", "LGG indicator")
"""Rows of derived labels, which people do not decide directly."""


@dataclass(frozen=True, slots=True)
class OverruledLabels:
    """Labels of annotators that the adjudicator changed."""

    responses: int
    """Adjudicated responses with at least one changed label."""
    labels: int
    """Changed labels."""
    of: int
    """All labels that annotators gave to adjudicated responses, as far as the adjudicator gave one too."""


@dataclass(frozen=True, slots=True)
class AdjudicationCounts:
    """Counts of adjudicated responses, or questions."""

    asked: int
    """Responses, or questions, assigned to people."""
    complete: int
    """Those finished by all assigned people; by one person only where inconsistent labels go to an adjudicator."""
    to_adjudicate: int
    """Those that need adjudication, or were taken by an adjudicator before a difference was undone."""
    disagreements: int
    """Of these, those on which people differ."""
    flag_only: int
    """Of these, those on which people agree on an inconsistent judgment."""
    amended_only: int
    """Of these, those whose difference was undone after an adjudicator had taken the case."""
    triggers: Mapping[AdjudicationTrigger, int]
    """Counts by reason; a subject may have several."""
    adjudicated: int
    reference_seen_before: int = 0
    """Those whose adjudicator knew the reference from another response to the question."""
    changed: Mapping[str, OverruledLabels] = field(default_factory=dict)
    """Changed labels by criterion, and by step label where steps were judged one by one."""

    @property
    def waiting(self) -> int:
        """Those whose adjudication is not finished."""
        return self.to_adjudicate - self.adjudicated


@dataclass(frozen=True, slots=True)
class AgreementOnResponses:
    """Agreement on responses."""

    responses: int
    """All assigned responses, without those to ineligible questions."""
    compared: int
    """Responses that at least two people have finished."""
    questions: int
    people: int
    """Largest number of people who judged one response."""
    rows: tuple[AnnotatorAgreementRow, ...]
    adjudication: AdjudicationCounts
    ineligible: int = 0
    """Assigned responses to ineligible questions, which no figure here includes."""
    knew_reference: int = 0
    """Annotations by a person who knew the reference from another response to the question."""


@dataclass(frozen=True, slots=True)
class ScreeningOutcomes:
    """Final outcomes of screening: eligible + ineligible + open = questions."""

    questions: int
    eligible: int
    reasons: Mapping[str, int]
    """Ineligible questions by reason, N1 to N5."""

    @property
    def ineligible(self) -> int:
        """Number of ineligible questions."""
        return sum(self.reasons.values())

    @property
    def open(self) -> int:
        """Number of questions whose screening is not settled."""
        return self.questions - self.eligible - self.ineligible


@dataclass(frozen=True, slots=True)
class EligibilityAgreement:
    """Agreement on the eligibility of questions."""

    questions: int
    compared: int
    people: int
    overall: ScreeningAgreement
    datasets: Mapping[str, ScreeningAgreement]
    adjudication: AdjudicationCounts
    outcomes: ScreeningOutcomes


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """Agreement and adjudication of a project or of imported files."""

    seed: int
    resamples: int
    responses: AgreementOnResponses | None
    """None where no response was assigned."""
    screening: EligibilityAgreement | None


def build_agreement_report(annotations: AnnotationSet, *, seed: int = 42, resamples: int = 2_000) -> AgreementReport:
    """Compute the report; the same seed gives the same bootstrap intervals."""
    return AgreementReport(
        seed,
        resamples,
        _response_agreement(annotations, seed, resamples) if annotations.responses else None,
        _question_agreement(annotations, seed, resamples) if annotations.questions else None,
    )


def _response_agreement(annotations: AnnotationSet, seed: int, resamples: int) -> AgreementOnResponses:
    responses = annotations.eligible_responses
    # A response with one finished annotation has no pair to compare.
    cases = [
        AnnotatedResponse(response.question_id, response.judgments, response.kind is AnnotationTaskKind.RESPONSE)
        for response in responses
        if len(response.annotations) > 1
    ]
    return AgreementOnResponses(
        responses=len(responses),
        compared=len(cases),
        questions=len({case.question_id for case in cases}),
        people=max((len(case.judgments) for case in cases), default=0),
        # A generator of its own: the intervals do not depend on what is computed before.
        rows=tuple(measure_annotator_agreement(cases, rng=np.random.default_rng(seed), resamples=resamples)),
        adjudication=count_response_adjudication(responses),
        ineligible=len(annotations.responses) - len(responses),
        knew_reference=sum(row.reference_seen_before for response in responses for row in response.annotations),
    )


def _question_agreement(annotations: AnnotationSet, seed: int, resamples: int) -> EligibilityAgreement:
    cases = [
        ScreenedQuestion(question.benchmark or UNKNOWN_GROUP, question.screenings)
        for question in annotations.questions
        if len(question.annotations) > 1
    ]
    # 2,000 resamples of questions with seed 42 are the paper's (A.3.1).
    agreement = measure_screening_agreement(cases, rng=np.random.default_rng(seed), resamples=resamples)
    return EligibilityAgreement(
        questions=len(annotations.questions),
        compared=len(cases),
        people=max((len(case.screenings) for case in cases), default=0),
        overall=agreement.overall,
        datasets=agreement.datasets,
        adjudication=count_screening_adjudication(annotations.questions),
        outcomes=count_screening_outcomes(annotations),
    )


def count_screening_outcomes(annotations: AnnotationSet) -> ScreeningOutcomes:
    """Count the settled questions by outcome (table of final eligibility outcomes, A.3.1)."""
    screenings = [question.final for question in annotations.questions]
    codes = Counter(screening.code for screening in screenings if screening is not None and not screening.eligible)
    return ScreeningOutcomes(
        len(screenings),
        sum(screening is not None and bool(screening.eligible) for screening in screenings),
        {str(code): codes[code] for code in Ineligibility},
    )


def count_response_adjudication(responses: Sequence[ResponseAnnotations]) -> AdjudicationCounts:
    """Count the adjudication of responses."""
    settled = [response for response in responses if response.adjudication is not None and response.triggers]
    seen_before = sum(
        bool(response.adjudication and response.adjudication.reference_seen_before) for response in settled
    )
    return replace(
        count_screening_adjudication(responses), reference_seen_before=seen_before, changed=_changed(settled)
    )


def count_screening_adjudication(
    subjects: Sequence[ResponseAnnotations | QuestionAnnotations],
) -> AdjudicationCounts:
    """Count the adjudication of questions, or of responses without their changed labels."""
    # The paper's shares are of the responses with two annotations: 823 of 2,598 adjudicated (A.3.3).
    any_single = any(subject.triggers and len(subject.annotations) == 1 for subject in subjects)
    least = 1 if any_single else 2
    complete = [subject for subject in subjects if len(subject.annotations) >= max(least, subject.required)]
    states = [(subject.triggers, subject.adjudication is not None) for subject in complete]
    disputed = [(triggers, settled) for triggers, settled in states if triggers]
    # Agreement on an inconsistent pattern has no trigger that is a difference.
    agreed = [set(triggers) for triggers, _ in disputed if set(triggers) <= _NOT_A_DIFFERENCE]
    flagged = sum(AdjudicationTrigger.INCONSISTENT in triggers for triggers in agreed)
    counts = Counter(trigger for triggers, _ in disputed for trigger in triggers)
    return AdjudicationCounts(
        asked=len(subjects),
        complete=len(complete),
        to_adjudicate=len(disputed),
        disagreements=len(disputed) - len(agreed),
        flag_only=flagged,
        amended_only=len(agreed) - flagged,
        triggers={trigger: counts[trigger] for trigger in AdjudicationTrigger if counts[trigger]},
        adjudicated=sum(settled for _, settled in disputed),
    )


_NOT_A_DIFFERENCE = {AdjudicationTrigger.INCONSISTENT, AdjudicationTrigger.AMENDMENT}

# Labels of a step, each with the steps it is compared on: soundness where both people call the step substantive, the
# reason where both call it unsound. A changed label is so counted once, and not again for those that depend on it.
_STEPS: Mapping[str, tuple[Callable[[StepJudgment], object], Callable[[StepJudgment], bool]]] = {
    "substantive status of a step": (lambda step: step.substantive, lambda _step: True),
    "soundness of a step": (lambda step: step.sound, lambda step: step.substantive is True),
    "reason of a step": (lambda step: step.failure, lambda step: step.sound is False),
}


def _changed(settled: Sequence[ResponseAnnotations]) -> dict[str, OverruledLabels]:
    """Count the labels of annotators that differ from those of the adjudicator."""
    stepwise = [response for response in settled if response.kind is AnnotationTaskKind.RESPONSE]
    steps = {name: _count(stepwise, partial(_step_pairs, *label)) for name, label in _STEPS.items()} if stepwise else {}
    return steps | {str(criterion): _count(settled, partial(_trace_pairs, criterion)) for criterion in Criterion}


LabelPairs: TypeAlias = Iterator[tuple[object, object]]
"""Labels of an annotator with those of the adjudicator."""


def _step_pairs(
    label: Callable[[StepJudgment], object],
    applies: Callable[[StepJudgment], bool],
    judgment: Judgment,
    adjudicated: Judgment,
) -> LabelPairs:
    for step, final in zip(judgment.steps, adjudicated.steps, strict=True):
        if applies(step) and applies(final):
            yield label(step), label(final)


def _trace_pairs(criterion: Criterion, judgment: Judgment, adjudicated: Judgment) -> LabelPairs:
    yield judgment.label(criterion), adjudicated.label(criterion)


def _count(
    settled: Sequence[ResponseAnnotations], pairs: Callable[[Judgment, Judgment], LabelPairs]
) -> OverruledLabels:
    responses = changed = of = 0
    for response in settled:
        # Callers pass adjudicated responses only.
        assert response.adjudication is not None
        assert response.adjudication.judgment is not None
        differs = [
            label != final
            for judgment in response.judgments
            for label, final in pairs(judgment, response.adjudication.judgment)
        ]
        of += len(differs)
        changed += sum(differs)
        responses += any(differs)
    return OverruledLabels(responses, changed, of)


def why_alpha_undefined(row: AnnotatorAgreementRow) -> str | None:
    """Return why alpha is undefined; None where it is defined."""
    if row.alpha.value is not None:
        return None
    return UNDEFINED_UNANIMOUS if row.n else UNDEFINED_NOTHING_TO_COMPARE


def agreement_to_json(report: AgreementReport) -> dict[str, Any]:
    """Return the report as JSON values; undefined numbers are null, with the reason beside them."""
    values: dict[str, Any] = {"settings": {"seed": report.seed, "resamples": report.resamples}}
    if (responses := report.responses) is not None:
        values["responses"] = {
            "responses": responses.responses,
            "compared": responses.compared,
            "questions": responses.questions,
            "people": responses.people,
            "ineligible": responses.ineligible,
            "knew_reference": responses.knew_reference,
            "agreement": [_row_json(row) for row in responses.rows],
            "adjudication": _adjudication_json(responses.adjudication),
        }
    if (screening := report.screening) is not None:
        values["screening"] = {
            "questions": screening.questions,
            "compared": screening.compared,
            "people": screening.people,
            "agreement": _screening_json(screening.overall),
            "datasets": {name: _screening_json(agreement) for name, agreement in screening.datasets.items()},
            "adjudication": _adjudication_json(screening.adjudication),
            "outcomes": {
                **asdict(screening.outcomes),
                "ineligible": screening.outcomes.ineligible,
                "open": screening.outcomes.open,
            },
        }
    return values


def _adjudication_json(counts: AdjudicationCounts) -> dict[str, Any]:
    return {**asdict(counts), "waiting": counts.waiting}


def _screening_json(agreement: ScreeningAgreement) -> dict[str, Any]:
    rows = [_row_json(agreement.eligibility), _row_json(agreement.reason)]
    return {"agreement": rows, "both_no": agreement.both_no}


def _row_json(row: AnnotatorAgreementRow) -> dict[str, Any]:
    return {
        "judgment": row.judgment,
        "n": row.n,
        "majority": row.majority,
        "raw": _estimate_json(row.raw),
        "alpha": {**_estimate_json(row.alpha), "undefined": why_alpha_undefined(row)},
        "specific": row.specific,
        "ac1": row.ac1,
    }


def _estimate_json(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval": estimate.interval, "undefined_resamples": estimate.undefined}
