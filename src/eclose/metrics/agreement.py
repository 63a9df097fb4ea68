"""How far people agree before anybody settles anything, judgment by judgment: the tables of appendix A.3.

Steps are compared where the question arises for both: soundness only on steps both call substantive, the failure
code only on steps both call unsound. Intervals resample questions, with all their responses and steps.

Of more than two people every pair that judged a case is compared, a case with m labels weighing m: raw agreement is the
share of pairs that agree, and alpha is Krippendorff's for any number of people. Of two these are the usual ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from eclose.core.judgment import Ineligibility, LocalFailure
from eclose.errors import RecordError
from eclose.stats import coefficients as stat
from eclose.stats.arrays import Floats, Indices, codes, sum_by
from eclose.stats.intervals import Estimate
from eclose.stats.resampling import Strata, bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eclose.core.judgment import Judgment, Screening, StepJudgment
    from eclose.core.three_valued import Label


class Judged(Protocol):
    """One response and what several people said."""

    @property
    def question_id(self) -> str:
        """The question it answers."""

    @property
    def judgments(self) -> Sequence[Judgment]:
        """One for each of them."""

    @property
    def stepwise(self) -> bool:
        """Whether they judged the steps one by one; else there is nothing to compare about single steps."""


class JudgedTwice(NamedTuple):
    """One response and what its two annotators said."""

    question_id: str
    first: Judgment
    second: Judgment

    @property
    def judgments(self) -> tuple[Judgment, Judgment]:
        """Both."""
        return self.first, self.second

    @property
    def stepwise(self) -> bool:
        """Step by step."""
        return True


class JudgedBySeveral(NamedTuple):
    """One response and what any number of annotators said."""

    question_id: str
    judgments: tuple[Judgment, ...]
    stepwise: bool = True


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """Agreement on one judgment."""

    judgment: str
    n: int
    """Cases that two annotators judged, or more."""
    majority: float | None
    """How common the most frequent label is."""
    raw: Estimate
    alpha: Estimate
    specific: tuple[float | None, float | None] | None
    """Agreement on the majority and on the minority label; None where there are more than two."""
    ac1: float | None = None
    """Gwet's AC1 of two labels, (raw - e)/(1 - e) with e = 2p(1 - p) and p the share of one of them.

    Alpha falls where nearly all labels are alike, however few differ; this one does not. None where there are more."""

    @property
    def unanimous(self) -> bool:
        """Whether one label was all that was ever given: agreement beyond chance cannot be told from that."""
        return self.majority == 1


_FAILURES = {failure: index for index, failure in enumerate(LocalFailure)}


def _binary(label: Label) -> int:
    return stat.MISSING if label is None else int(label)


# A step is compared where neither annotator's code is missing, so each code states its condition for one of them.
def _soundness(step: StepJudgment) -> int:
    return _binary(step.sound) if step.substantive else stat.MISSING


def _failure(step: StepJudgment) -> int:
    return _FAILURES[step.failure] if _soundness(step) == 0 and step.failure is not None else stat.MISSING


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


def agreement_report(
    cases: Sequence[Judged], *, rng: np.random.Generator, resamples: int = 2_000
) -> list[AgreementRow]:
    """Agreement on every judgment, the derived labels included; all rows share the question draws.

    Without rows about steps where nobody judged them one by one.
    """
    for case in cases:
        _refuse_unequal_steps(case)
    question, questions = codes([case.question_id for case in cases])
    people = max((len(case.judgments) for case in cases), default=0)
    stepwise = [case for case in cases if case.stepwise]
    compared: dict[str, _Compared] = {}
    if stepwise or not cases:
        counted = np.array([len(case.judgments[0].steps) if case.stepwise else 0 for case in cases], np.intp)
        step_question = np.repeat(question, counted)
        for name, (categories, code) in _STEP_ROWS.items():
            given = _step_codes(stepwise, code, people)
            compared[name] = _Compared.of(step_question, given, categories, len(questions))
    for name, label in _RESPONSE_ROWS.items():
        given = _padded(([_binary(label(one)) for one in case.judgments] for case in cases), people)
        compared[name] = _Compared.of(question, given, 2, len(questions))
    return _rows(compared, len(questions), rng, resamples)


def _refuse_unequal_steps(case: Judged) -> None:
    first, *others = case.judgments
    for other in others if case.stepwise else ():
        if len(first.steps) != len(other.steps):
            raise RecordError(
                f"{len(first.steps)} steps were judged by {first.judge}, {len(other.steps)} by {other.judge}. "
                "Both must judge every step.",
                record=f"response {first.response_id}",
            )


def _step_codes(cases: Iterable[Judged], code: Callable[[StepJudgment], int], people: int) -> Indices:
    """A row a step."""
    by_case = (zip(*(judgment.steps for judgment in case.judgments), strict=True) for case in cases)
    return _padded(([code(step) for step in steps] for case in by_case for steps in case), people)


def _padded(rows: Iterable[list[int]], people: int) -> Indices:
    """Codes of cases by people; where fewer judged a case, the others gave none."""
    full = [row + [stat.MISSING] * (people - len(row)) for row in rows]
    return np.array(full, np.intp).reshape(len(full), people)


class _Compared(NamedTuple):
    """What was said about one judgment."""

    n: int
    by_question: Floats
    """Coincidences of labels, which add up."""

    @classmethod
    def of(cls, question: Indices, given: Indices, categories: int, questions: int) -> _Compared:
        several = (given != stat.MISSING).sum(axis=1) > 1
        return cls(int(several.sum()), sum_by(question, stat.coincidence_tables(given, categories), questions))


def _rows(
    compared: Mapping[str, _Compared], questions: int, rng: np.random.Generator, resamples: int
) -> list[AgreementRow]:
    def evaluate(weights: Floats) -> Floats:
        columns = []
        for one in compared.values():
            drawn = np.tensordot(weights, one.by_question, axes=1)
            columns += [stat.raw_agreement.over(drawn), stat.nominal_alpha.over(drawn)]
        return np.stack(columns, axis=1)

    replicates = bootstrap(Strata.single(questions), evaluate, rng=rng, resamples=resamples)
    return [
        _row(name, one, replicates.estimate(2 * index), replicates.estimate(2 * index + 1))
        for index, (name, one) in enumerate(compared.items())
    ]


def _row(name: str, compared: _Compared, raw: Estimate, alpha: Estimate) -> AgreementRow:
    table = compared.by_question.sum(axis=0)
    specific = ac1 = None
    if len(table) == 2:
        majority = int(table[1].sum() >= table[0].sum())
        specific = (stat.specific_agreement(majority)(table), stat.specific_agreement(1 - majority)(table))
        ac1 = stat.gwet_ac1(table)
    return AgreementRow(name, compared.n, stat.majority_prevalence(table), raw, alpha, specific, ac1)


# Questions before any response.


class ScreenedBySeveral(NamedTuple):
    """One question and what its screeners said."""

    dataset: str
    screenings: tuple[Screening, ...]


ELIGIBILITY, REASON = "Binary eligibility", "Primary ineligibility reason"
_CODES = {code: index for index, code in enumerate(Ineligibility)}


class ScreeningAgreement(NamedTuple):
    """Agreement of screeners on some questions."""

    eligibility: AgreementRow
    reason: AgreementRow
    """Only where both say no."""
    both_no: int
    """Questions to which two screeners say no, or more."""


class ScreeningReport(NamedTuple):
    """Agreement of screeners."""

    overall: ScreeningAgreement
    datasets: Mapping[str, ScreeningAgreement]
    """By name."""


def screening_report(
    cases: Sequence[ScreenedBySeveral], *, rng: np.random.Generator, resamples: int = 2_000
) -> ScreeningReport:
    """Agreement on eligibility, and on the reason among what both call ineligible, which alone is resampled then."""
    overall = _screened(cases, rng, resamples)
    names = sorted({case.dataset for case in cases})
    apart = {name: _screened([one for one in cases if one.dataset == name], rng, resamples) for name in names}
    return ScreeningReport(overall, apart)


def _screened(cases: Sequence[ScreenedBySeveral], rng: np.random.Generator, resamples: int) -> ScreeningAgreement:
    people = max((len(case.screenings) for case in cases), default=0)
    eligible = _padded(([_binary(one.eligible) for one in case.screenings] for case in cases), people)
    reasons = _padded(([_reason(one) for one in case.screenings] for case in cases), people)
    both_no = (eligible == 0).sum(axis=1) > 1
    first = _question_row(ELIGIBILITY, eligible, 2, rng, resamples)
    second = _question_row(REASON, reasons[both_no], len(_CODES), rng, resamples)
    return ScreeningAgreement(first, second, int(both_no.sum()))


def _reason(one: Screening) -> int:
    return stat.MISSING if one.eligible is not False or one.code is None else _CODES[one.code]


def _question_row(name: str, given: Indices, categories: int, rng: np.random.Generator, resamples: int) -> AgreementRow:
    questions = np.arange(len(given))
    return _rows({name: _Compared.of(questions, given, categories, len(given))}, len(given), rng, resamples)[0]
