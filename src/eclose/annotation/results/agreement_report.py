"""The report of a lead: how far people agreed before anybody settled anything, and what was settled since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.annotation.forms import TaskKind
from eclose.annotation.results.adjudication_report import (
    AdjudicationCounts,
    count_adjudication,
    count_screening_adjudication,
)
from eclose.metrics.agreement import (
    AgreementRow,
    AnnotatedResponse,
    ScreenedQuestion,
    ScreeningAgreement,
    measure_agreement,
    measure_screening,
)
from eclose.metrics.summary import UNKNOWN

if TYPE_CHECKING:
    from eclose.annotation.results.annotations import Told

CEILING = 0.95
"""Where one label is so common, alpha says little, and AC1 is shown beside it."""
UNANIMOUS = "undefined, unanimous"
NOTHING = "undefined, nothing to compare"
DERIVED = ("Local soundness L", "Global sufficiency G", "LGG indicator")
"""The rows that nobody was asked for."""


@dataclass(frozen=True, slots=True)
class ResponseAgreement:
    """Of responses."""

    responses: int
    """All that people were asked for."""
    compared: int
    """Those that two have finished, or more."""
    questions: int
    people: int
    """The most who judged one response."""
    rows: tuple[AgreementRow, ...]
    adjudication: AdjudicationCounts


@dataclass(frozen=True, slots=True)
class QuestionAgreement:
    """Of questions."""

    questions: int
    compared: int
    people: int
    overall: ScreeningAgreement
    datasets: Mapping[str, ScreeningAgreement]
    adjudication: AdjudicationCounts


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """All of it."""

    seed: int
    resamples: int
    responses: ResponseAgreement | None
    """None where no response was given out."""
    screening: QuestionAgreement | None


def report_agreement(told: Told, *, seed: int = 42, resamples: int = 2_000) -> AgreementReport:
    """Count everything; the same seed gives the same intervals."""
    return AgreementReport(
        seed,
        resamples,
        _responses(told, seed, resamples) if told.responses else None,
        _screening(told, seed, resamples) if told.questions else None,
    )


def _responses(told: Told, seed: int, resamples: int) -> ResponseAgreement:
    cases = [
        AnnotatedResponse(one.question_id, one.first, one.kind is TaskKind.RESPONSE)
        for one in told.responses
        if len(one.said) > 1
    ]
    return ResponseAgreement(
        len(told.responses),
        len(cases),
        len({case.question_id for case in cases}),
        max((len(case.judgments) for case in cases), default=0),
        tuple(measure_agreement(cases, rng=np.random.default_rng(seed), resamples=resamples)),
        count_adjudication(told.responses),
    )


def _screening(told: Told, seed: int, resamples: int) -> QuestionAgreement:
    cases = [ScreenedQuestion(one.benchmark or UNKNOWN, one.first) for one in told.questions if len(one.said) > 1]
    found = measure_screening(cases, rng=np.random.default_rng(seed), resamples=resamples)
    return QuestionAgreement(
        len(told.questions),
        len(cases),
        max((len(case.screenings) for case in cases), default=0),
        found.overall,
        found.datasets,
        count_screening_adjudication(told.questions),
    )


def undefined_reason(row: AgreementRow) -> str | None:
    """Why there is no alpha; None where there is one."""
    if row.alpha.value is not None:
        return None
    return UNANIMOUS if row.n else NOTHING


def to_json(found: AgreementReport) -> dict[str, Any]:
    """As JSON: what is undefined is null, with the reason beside it."""
    told: dict[str, Any] = {"settings": {"seed": found.seed, "resamples": found.resamples}}
    if (one := found.responses) is not None:
        told["responses"] = {
            "responses": one.responses,
            "compared": one.compared,
            "questions": one.questions,
            "people": one.people,
            "agreement": [_plain_row(row) for row in one.rows],
            "adjudication": _plain_adjudication(one.adjudication),
        }
    if (other := found.screening) is not None:
        told["screening"] = {
            "questions": other.questions,
            "compared": other.compared,
            "people": other.people,
            "agreement": _plain_screening(other.overall),
            "datasets": {name: _plain_screening(apart) for name, apart in other.datasets.items()},
            "adjudication": _plain_adjudication(other.adjudication),
        }
    return told


def _plain_adjudication(found: AdjudicationCounts) -> dict[str, Any]:
    return {**asdict(found), "waiting": found.waiting}


def _plain_screening(found: ScreeningAgreement) -> dict[str, Any]:
    rows = [_plain_row(found.eligibility), _plain_row(found.reason)]
    return {"agreement": rows, "both_no": found.both_no}


def _plain_row(row: AgreementRow) -> dict[str, Any]:
    def estimate(one: Any) -> dict[str, Any]:
        return {"value": one.value, "interval": one.interval, "undefined_resamples": one.undefined}

    return {
        "judgment": row.judgment,
        "n": row.n,
        "majority": row.majority,
        "raw": estimate(row.raw),
        "alpha": {**estimate(row.alpha), "undefined": undefined_reason(row)},
        "specific": row.specific,
        "ac1": row.ac1,
    }
