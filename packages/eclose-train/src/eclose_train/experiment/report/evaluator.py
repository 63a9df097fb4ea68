"""The evaluator of an experiment against people's labels, and against other judges of the same responses (D.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eclose.metrics.judge_against_people import (
    GroupValidation,
    JudgeAgreementReport,
    JudgedLabel,
    ValidationCase,
    validate_judge,
)
from eclose.metrics.repeats import JudgeComparison, TwoJudgesCase, compare_judges
from eclose.values.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose_train.experiment.plan import BootstrapDraws

EVALUATOR_LABELS = {
    JudgedLabel.CORRECTNESS: "Correctness",
    JudgedLabel.LOCAL_SOUNDNESS: "Local soundness L",
    JudgedLabel.ALIGNMENT: "Alignment A",
    JudgedLabel.CLOSURE: "Closure C",
    JudgedLabel.COMPLETENESS: "Completeness K",
    JudgedLabel.GLOBAL_SUFFICIENCY: "Global sufficiency G",
}
"""Names of the labels in tables, in their order."""


@dataclass(frozen=True, kw_only=True)
class EvaluatorLabels:
    """Responses with the evaluator's labels and people's."""

    name: str
    """Name of the evaluator in tables, such as its effort."""
    cases: Sequence[ValidationCase]
    others: Mapping[str, Sequence[Verdict]] = field(default_factory=dict)
    """Verdicts of other judges or efforts, in the order of the cases; an empty verdict where a judge gave none."""
    not_in_runs: int = 0
    """Labels of people on responses outside the experiment, which are not used."""


@dataclass(frozen=True)
class EvaluatorResults:
    """Agreement of the evaluator, and of other judges, with people."""

    name: str
    agreement: JudgeAgreementReport
    judges: Mapping[str, GroupValidation]
    """Agreement of every judge on all responses, the evaluator last."""
    gains: Mapping[str, JudgeComparison]
    """The evaluator minus another judge, by the name of that judge."""
    inconsistent: Mapping[str, int]
    """Responses that a judge calls reliable although it calls their answer wrong, by judge."""
    not_in_runs: int

    @property
    def sentence(self) -> str:
        """The extent of the validation and its mean agreement."""
        overall = self.agreement.overall
        mean = overall.mean_agreement.value
        agreement = "undefined" if mean is None else f"{100 * mean:.2f} %"
        return (
            f"Validated against people on {overall.responses:,} responses to {overall.questions:,} questions: mean "
            f"agreement over five labels {agreement}."
        )


def summarize_evaluator(labels: EvaluatorLabels, draws: BootstrapDraws) -> EvaluatorResults:
    """Compare the evaluator and all other judges with people; all judges share the draws of questions."""
    verdicts = {**labels.others, labels.name: [case.judge for case in labels.cases]}
    reports = {
        name: validate_judge(
            [case._replace(judge=verdict) for case, verdict in zip(labels.cases, judged, strict=True)],
            # One seed for all judges, so that they share the draws.
            rng=np.random.default_rng(draws.seed),
            resamples=draws.resamples,
        )
        for name, judged in verdicts.items()
    }
    return EvaluatorResults(
        name=labels.name,
        agreement=reports[labels.name],
        judges={name: report.overall for name, report in reports.items()},
        gains={name: _compare(labels.cases, judged, draws) for name, judged in labels.others.items()},
        inconsistent={name: _count_inconsistent(judged) for name, judged in verdicts.items()},
        not_in_runs=labels.not_in_runs,
    )


def _compare(cases: Sequence[ValidationCase], judged: Sequence[Verdict], draws: BootstrapDraws) -> JudgeComparison:
    pairs = [
        TwoJudgesCase(case.question_id, case.dataset, case.judge, verdict, case.human)
        for case, verdict in zip(cases, judged, strict=True)
    ]
    return compare_judges(pairs, rng=np.random.default_rng(draws.seed), resamples=draws.resamples)


def _count_inconsistent(verdicts: Iterable[Verdict]) -> int:
    return sum(bool(verdict.inconsistent) for verdict in verdicts)
