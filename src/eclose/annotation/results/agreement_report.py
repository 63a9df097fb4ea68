"""Agreement of people before adjudication, and statistics of adjudication (appendix A.3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.annotation.forms import AnnotationTaskKind
from eclose.annotation.results.adjudication_report import (
    AdjudicationCounts,
    count_response_adjudication,
    count_screening_adjudication,
)
from eclose.core.judgment import Ineligibility
from eclose.metrics.agreement import (
    AnnotatedResponse,
    AnnotatorAgreementRow,
    ScreenedQuestion,
    ScreeningAgreement,
    measure_annotator_agreement,
    measure_screening_agreement,
)
from eclose.metrics.summary import UNKNOWN_GROUP

if TYPE_CHECKING:
    from eclose.annotation.annotation_records import AnnotationSet
    from eclose.stats.intervals import Estimate

# Alpha divides by the disagreement expected by chance, which is close to 0 where nearly all labels are equal.
UNINFORMATIVE_ALPHA_SHARE = 0.95
"""Share of the commonest label from which alpha is uninformative, and AC1 is reported beside it."""
UNDEFINED_UNANIMOUS = "undefined, unanimous"
UNDEFINED_NOTHING_TO_COMPARE = "undefined, nothing to compare"
DERIVED_ROWS = ("Local soundness L", "Global sufficiency G", "LGG indicator")
"""Rows of derived labels, which people do not decide directly."""


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
        len(responses),
        len(cases),
        len({case.question_id for case in cases}),
        max((len(case.judgments) for case in cases), default=0),
        # A generator of its own: the intervals do not depend on what is computed before.
        tuple(measure_annotator_agreement(cases, rng=np.random.default_rng(seed), resamples=resamples)),
        count_response_adjudication(responses),
        len(annotations.responses) - len(responses),
        sum(row.reference_seen_before for response in responses for row in response.annotations),
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
        len(annotations.questions),
        len(cases),
        max((len(case.screenings) for case in cases), default=0),
        agreement.overall,
        agreement.datasets,
        count_screening_adjudication(annotations.questions),
        count_screening_outcomes(annotations),
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
