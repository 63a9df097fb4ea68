"""Agreement of annotators before adjudication, judgment by judgment: the tables of appendix A.3.

A step is compared where a judgment applies to it for both annotators: soundness on steps that both call substantive,
the failure code on steps that both call unsound. Intervals resample questions with all their responses and steps.

With more than two annotators every pair that judged a case is compared, and a case with m labels weighs m: raw
agreement is the share of agreeing pairs, and alpha is Krippendorff's for any number of annotators. With two these are
the usual definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.errors import RecordError
from eclose.stats import coefficients as stat
from eclose.stats.arrays import Floats, Indices, number_distinct_labels, sum_by_group
from eclose.stats.bootstrap import StratifiedDesign, bootstrap
from eclose.stats.intervals import Estimate
from eclose.values.judgment import Ineligibility, LocalFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eclose.values.judgment import Judgment, QuestionScreening, StepJudgment
    from eclose.values.three_valued import Label


class AnnotatedResponse(NamedTuple):
    """One response with the judgments of its annotators."""

    question_id: str
    judgments: tuple[Judgment, ...]
    stepwise: bool = True
    """Whether the annotators judged the steps one by one; otherwise steps are not compared."""


@dataclass(frozen=True, slots=True)
class AnnotatorAgreementRow:
    """Agreement on one judgment."""

    judgment: str
    n: int
    """Cases with labels of two or more annotators."""
    majority: float | None
    """Share of the most frequent label."""
    raw: Estimate
    alpha: Estimate
    specific: tuple[float | None, float | None] | None
    """Agreement on the majority and on the minority label; None for more than two categories."""
    ac1: float | None = None
    """Gwet's AC1 of two labels, (raw - e)/(1 - e) with e = 2p(1 - p) and p the share of one of them.

    Alpha falls where nearly all labels are alike, however few differ; AC1 does not. None for more than two categories.
    """

    @property
    def unanimous(self) -> bool:
        """Whether only one label occurs, so that agreement beyond chance is undefined."""
        return self.majority == 1


_FAILURES = {failure: index for index, failure in enumerate(LocalFailure)}


def _binary(label: Label) -> int:
    """Return the code of a label: 0, 1 or ``MISSING``."""
    return stat.MISSING_CODE if label is None else int(label)


# A step is compared where no annotator's code is missing, so each code states the condition for one annotator.
def _soundness(step: StepJudgment) -> int:
    return _binary(step.sound) if step.substantive else stat.MISSING_CODE


def _failure(step: StepJudgment) -> int:
    return _FAILURES[step.failure] if _soundness(step) == 0 and step.failure is not None else stat.MISSING_CODE


_STEP_ROWS: dict[str, tuple[int, Callable[[StepJudgment], int]]] = {
    "Substantive status": (2, lambda step: _binary(step.substantive)),
    "Step soundness": (2, _soundness),
    "Local-failure reason": (len(LocalFailure), _failure),
}
_RESPONSE_ROWS: dict[str, Callable[[Judgment], Label]] = {
    "Alignment A": lambda judgment: judgment.aligned,
    "Closure C": lambda judgment: judgment.closed,
    "Answer correctness": lambda judgment: judgment.correct,
    "Completeness K": lambda judgment: judgment.complete,
    "Local soundness L": lambda judgment: judgment.locally_sound,
    "Global sufficiency G": lambda judgment: judgment.verdict.globally_sufficient,
    "LGG indicator": lambda judgment: judgment.verdict.in_gap,
}


def measure_annotator_agreement(
    cases: Sequence[AnnotatedResponse], *, rng: np.random.Generator, resamples: int = 2_000
) -> list[AnnotatorAgreementRow]:
    """Measure agreement on every judgment, derived labels included; all rows share the draws of questions.

    Rows about steps are omitted where no response was judged step by step.

    Raises:
        RecordError: Annotators of a response judged different numbers of steps.
    """
    for case in cases:
        _refuse_unequal_steps(case)
    question, questions = number_distinct_labels([case.question_id for case in cases])
    # Width of the code matrices; shorter rows are padded with MISSING.
    people = max((len(case.judgments) for case in cases), default=0)
    stepwise = [case for case in cases if case.stepwise]
    compared: dict[str, _Comparison] = {}
    if stepwise or not cases:
        step_counts = np.array([len(case.judgments[0].steps) if case.stepwise else 0 for case in cases], np.intp)
        # One row per step: repeat the number of the question for each step of its responses.
        step_question = np.repeat(question, step_counts)
        for name, (categories, code) in _STEP_ROWS.items():
            labels = _step_codes(stepwise, code, people)
            compared[name] = _Comparison.of(step_question, labels, categories, len(questions))
    for name, label in _RESPONSE_ROWS.items():
        labels = _pad(([_binary(label(judgment)) for judgment in case.judgments] for case in cases), people)
        compared[name] = _Comparison.of(question, labels, 2, len(questions))
    return _rows(compared, len(questions), rng, resamples)


def _refuse_unequal_steps(case: AnnotatedResponse) -> None:
    """Raise where annotators of a response judged different numbers of steps."""
    first, *others = case.judgments
    for other in others if case.stepwise else ():
        if len(first.steps) != len(other.steps):
            raise RecordError(
                f"{len(first.steps)} steps were judged by {first.judge}, {len(other.steps)} by {other.judge}. "
                "Both must judge every step.",
                record=f"response {first.response_id}",
            )


def _step_codes(cases: Iterable[AnnotatedResponse], code: Callable[[StepJudgment], int], people: int) -> Indices:
    """Return codes, steps by annotators."""
    by_case = (zip(*(judgment.steps for judgment in case.judgments), strict=True) for case in cases)
    return _pad(([code(step) for step in steps] for case in by_case for steps in case), people)


def _pad(rows: Iterable[list[int]], people: int) -> Indices:
    """Return codes, cases by annotators; ``MISSING`` where fewer annotators judged a case."""
    padded = [row + [stat.MISSING_CODE] * (people - len(row)) for row in rows]
    return np.array(padded, np.intp).reshape(len(padded), people)


class _Comparison(NamedTuple):
    """The labels of one judgment, ready for resampling."""

    n: int
    """Cases with two or more labels."""
    by_question: Floats
    """Coincidences of labels, questions by categories by categories. They add up."""

    @classmethod
    def of(cls, question: Indices, labels: Indices, categories: int, questions: int) -> _Comparison:
        """Sum the coincidences of ``labels`` (cases by annotators) over questions."""
        paired = (labels != stat.MISSING_CODE).sum(axis=1) > 1
        return cls(int(paired.sum()), sum_by_group(question, stat.coincidence_tables(labels, categories), questions))


def _rows(
    compared: Mapping[str, _Comparison], questions: int, rng: np.random.Generator, resamples: int
) -> list[AnnotatorAgreementRow]:
    """Return the rows of all judgments, with intervals from the same draws."""

    def evaluate(weights: Floats) -> Floats:
        columns = []
        for comparison in compared.values():
            drawn = np.tensordot(weights, comparison.by_question, axes=1)
            # Two columns per judgment: raw agreement at 2i, alpha at 2i + 1.
            columns += [stat.raw_agreement.over(drawn), stat.nominal_alpha.over(drawn)]
        return np.stack(columns, axis=1)

    replicates = bootstrap(StratifiedDesign.single(questions), evaluate, rng=rng, resamples=resamples)
    return [
        _row(name, comparison, replicates.estimate(2 * index), replicates.estimate(2 * index + 1))
        for index, (name, comparison) in enumerate(compared.items())
    ]


def _row(name: str, comparison: _Comparison, raw: Estimate, alpha: Estimate) -> AnnotatorAgreementRow:
    # Point estimates use the sum over all questions.
    table = comparison.by_question.sum(axis=0)
    specific = ac1 = None
    if len(table) == 2:
        # Ties go to label 1, the label without a failure.
        majority = int(table[1].sum() >= table[0].sum())
        specific = (stat.specific_agreement(majority)(table), stat.specific_agreement(1 - majority)(table))
        ac1 = stat.gwet_ac1(table)
    return AnnotatorAgreementRow(
        judgment=name,
        n=comparison.n,
        majority=stat.majority_prevalence(table),
        raw=raw,
        alpha=alpha,
        specific=specific,
        ac1=ac1,
    )


# Screening: questions before any response.


class ScreenedQuestion(NamedTuple):
    """One question with the decisions of its screeners."""

    dataset: str
    screenings: tuple[QuestionScreening, ...]


ELIGIBILITY, REASON = "Binary eligibility", "Primary ineligibility reason"
_CODES = {code: index for index, code in enumerate(Ineligibility)}


class ScreeningAgreement(NamedTuple):
    """Agreement of screeners on a set of questions."""

    eligibility: AnnotatorAgreementRow
    reason: AnnotatorAgreementRow
    """Agreement on the reason, among questions that both call ineligible."""
    both_no: int
    """Questions that two or more screeners call ineligible."""


class ScreeningAgreementReport(NamedTuple):
    """Agreement of screeners, overall and by dataset."""

    overall: ScreeningAgreement
    datasets: Mapping[str, ScreeningAgreement]
    """By name of the dataset."""


def measure_screening_agreement(
    cases: Sequence[ScreenedQuestion], *, rng: np.random.Generator, resamples: int = 2_000
) -> ScreeningAgreementReport:
    """Measure agreement on eligibility, and on the reason among questions that both call ineligible.

    The reason resamples only these questions.
    """
    overall = _measure_questions(cases, rng, resamples)
    names = sorted({case.dataset for case in cases})
    by_dataset = {
        name: _measure_questions([case for case in cases if case.dataset == name], rng, resamples) for name in names
    }
    return ScreeningAgreementReport(overall, by_dataset)


def _measure_questions(
    cases: Sequence[ScreenedQuestion], rng: np.random.Generator, resamples: int
) -> ScreeningAgreement:
    people = max((len(case.screenings) for case in cases), default=0)
    eligible = _pad(([_binary(screening.eligible) for screening in case.screenings] for case in cases), people)
    reasons = _pad(([_reason(screening) for screening in case.screenings] for case in cases), people)
    # Of several screeners, two or more must say no.
    both_no = (eligible == 0).sum(axis=1) > 1
    eligibility = _question_row(ELIGIBILITY, eligible, 2, rng, resamples)
    reason = _question_row(REASON, reasons[both_no], len(_CODES), rng, resamples)
    return ScreeningAgreement(eligibility, reason, int(both_no.sum()))


def _reason(screening: QuestionScreening) -> int:
    return stat.MISSING_CODE if screening.eligible is not False or screening.code is None else _CODES[screening.code]


def _question_row(
    name: str, labels: Indices, categories: int, rng: np.random.Generator, resamples: int
) -> AnnotatorAgreementRow:
    """Return the row of one judgment in which each question is a case of its own."""
    questions = np.arange(len(labels))
    return _rows({name: _Comparison.of(questions, labels, categories, len(labels))}, len(labels), rng, resamples)[0]
