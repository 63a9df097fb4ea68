"""How far two annotators agree, judgment by judgment: the table of appendix A.3.3.

Steps are compared where the question arises for both: soundness only on steps both call substantive, the failure
code only on steps both call unsound. Intervals resample questions, with all their responses and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclosure.core.judgment import LocalFailure
from eclosure.errors import RecordError
from eclosure.stats import agreement as stat
from eclosure.stats.arrays import Floats, codes, sum_by
from eclosure.stats.intervals import Estimate
from eclosure.stats.resampling import Strata, bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclosure.core.judgment import Judgment, StepJudgment
    from eclosure.core.labels import Label


class JudgedTwice(NamedTuple):
    """One response and what its two annotators said."""

    question_id: str
    first: Judgment
    second: Judgment


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """Agreement on one judgment."""

    judgment: str
    n: int
    """Cases both annotators judged."""
    majority: float | None
    """How common the most frequent label is."""
    raw: Estimate
    alpha: Estimate
    specific: tuple[float | None, float | None] | None
    """Agreement on the majority and on the minority label; None where there are more than two."""


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
    pairs: Sequence[JudgedTwice], *, rng: np.random.Generator, resamples: int = 2_000
) -> list[AgreementRow]:
    """Agreement on every judgment, the derived labels included; all rows share the question draws."""
    for pair in pairs:
        if len(pair.first.steps) != len(pair.second.steps):
            raise RecordError(
                f"{len(pair.first.steps)} steps were judged by {pair.first.judge}, {len(pair.second.steps)} by "
                f"{pair.second.judge}. Both must judge every step.",
                record=f"response {pair.first.response_id}",
            )
    question, questions = codes([pair.question_id for pair in pairs])
    step_question = np.repeat(question, [len(pair.first.steps) for pair in pairs])
    tables = {
        name: sum_by(step_question, _step_tables(pairs, categories, code), len(questions))
        for name, (categories, code) in _STEP_ROWS.items()
    } | {
        name: sum_by(question, _response_tables(pairs, label), len(questions)) for name, label in _RESPONSE_ROWS.items()
    }
    return _rows(tables, len(questions), rng, resamples)


def _step_tables(pairs: Sequence[JudgedTwice], categories: int, code: Callable[[StepJudgment], int]) -> Floats:
    first = np.array([code(step) for pair in pairs for step in pair.first.steps], np.intp)
    second = np.array([code(step) for pair in pairs for step in pair.second.steps], np.intp)
    return stat.pair_tables(first, second, categories)


def _response_tables(pairs: Sequence[JudgedTwice], label: Callable[[Judgment], Label]) -> Floats:
    first = np.array([_binary(label(pair.first)) for pair in pairs], np.intp)
    second = np.array([_binary(label(pair.second)) for pair in pairs], np.intp)
    return stat.pair_tables(first, second, 2)


def _rows(tables: dict[str, Floats], questions: int, rng: np.random.Generator, resamples: int) -> list[AgreementRow]:
    def evaluate(weights: Floats) -> Floats:
        columns = []
        for by_question in tables.values():
            drawn = np.tensordot(weights, by_question, axes=1)
            columns += [stat.raw_agreement.over(drawn), stat.pair_alpha.over(drawn)]
        return np.stack(columns, axis=1)

    replicates = bootstrap(Strata.single(questions), evaluate, rng=rng, resamples=resamples)
    return [
        _row(name, by_question.sum(axis=0), replicates.estimate(2 * index), replicates.estimate(2 * index + 1))
        for index, (name, by_question) in enumerate(tables.items())
    ]


def _row(name: str, table: Floats, raw: Estimate, alpha: Estimate) -> AgreementRow:
    specific = None
    if len(table) == 2:
        majority = int((table + table.T)[1].sum() >= (table + table.T)[0].sum())
        specific = (stat.specific_agreement(majority)(table), stat.specific_agreement(1 - majority)(table))
    return AgreementRow(name, int(table.sum()), stat.majority_prevalence(table), raw, alpha, specific)
