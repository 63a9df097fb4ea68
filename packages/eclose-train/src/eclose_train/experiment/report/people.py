"""Labels of people: the evaluator against them and against other judges (D.1), and the audit of results (D.5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.errors import UserError
from eclose.metrics.judge_against_people import (
    GroupValidation,
    JudgeAgreementReport,
    JudgedLabel,
    ValidationCase,
    validate_judge,
)
from eclose.metrics.rates import MAIN_METRICS, Metric, MetricIndicators, make_metric_indicators
from eclose.metrics.repeats import JudgeComparison, TwoJudgesCase, compare_judges
from eclose.stats.arrays import Floats, number_distinct_labels
from eclose.stats.bootstrap import StratifiedDesign, bootstrap_rates
from eclose.stats.intervals import Estimate
from eclose.stats.rates import Rate
from eclose.values.verdict import Verdict
from eclose_train.experiment.report.grid import REFERENCE_METHOD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.stats.arrays import Indices
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.pooling import ExperimentUnit


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


ALL_METHODS = "All methods"
"""Name of the responses of all methods together."""


class LabelSource(StrEnum):
    """Origin of the labels behind a rate."""

    AUTOMATED = "Automated"
    HUMAN = "Human"


class AuditedResponse(NamedTuple):
    """A response of the audit with the evaluator's verdict and people's."""

    unit: ExperimentUnit
    automated: Verdict
    human: Verdict


@dataclass(frozen=True, kw_only=True)
class AuditLabels:
    """Responses that people labelled in the audit."""

    responses: Sequence[AuditedResponse]
    not_in_runs: int = 0
    """Labels on responses outside the experiment, which are not used."""


@dataclass(frozen=True)
class AuditResults:
    """Agreement, rates and differences of an audit."""

    responses: int
    questions: int
    settings: int
    not_in_runs: int
    agreement: JudgeAgreementReport
    """Labels of the evaluator against people's, all methods pooled; groups are settings."""
    rates: Mapping[str, Mapping[LabelSource, Mapping[Metric, Rate]]]
    """Rates by method and source of labels, all methods together last."""
    compared: Mapping[str, Mapping[Metric, int]]
    """Number of responses that both labelled, by method."""
    differences: Mapping[str, Mapping[Metric, Estimate]]
    """Automated minus human rate on the responses that both labelled, by method."""
    gains: Mapping[str, Mapping[Metric, Estimate]]
    """Human rate of the reference method minus that of each other method."""


def summarize_audit(labels: AuditLabels, draws: BootstrapDraws) -> AuditResults:
    """Compute the tables of the audit; all methods and both sources of labels share the draws within settings.

    Raises:
        UserError: A question has several responses of one method, so that the methods cannot be paired.
    """
    rows = labels.responses
    _refuse_repeated(rows)
    question, questions = number_distinct_labels([(*_setting(row), row.unit.question) for row in rows])
    setting, settings = number_distinct_labels([key[:2] for key in questions])
    table = _AuditTable.of(rows)
    replicates = bootstrap_rates(
        *table.indicators,
        question,
        rng=np.random.default_rng(draws.seed),
        resamples=draws.resamples,
        strata=StratifiedDesign(setting),
    )
    methods = [method for method in table.methods if method != ALL_METHODS]
    others = [method for method in methods if method != REFERENCE_METHOD] if REFERENCE_METHOD in methods else []
    return AuditResults(
        responses=len(rows),
        questions=len(questions),
        settings=len(settings),
        not_in_runs=labels.not_in_runs,
        agreement=_compare_labels(rows, draws),
        rates=table.rates,
        compared={
            method: {metric: table.count(_PAIRED_HUMAN, method, metric) for metric in MAIN_METRICS}
            for method in table.methods
        },
        differences={
            method: {
                metric: replicates.difference(
                    table.column(_PAIRED_AUTOMATED, method, metric), table.column(_PAIRED_HUMAN, method, metric)
                )
                for metric in MAIN_METRICS
            }
            for method in table.methods
        },
        gains={
            method: {
                metric: replicates.difference(
                    table.column(_HUMAN, REFERENCE_METHOD, metric), table.column(_HUMAN, method, metric)
                )
                for metric in MAIN_METRICS
            }
            for method in others
        },
    )


def _setting(row: AuditedResponse) -> tuple[str, str]:
    return row.unit.backbone, row.unit.benchmark


def _refuse_repeated(rows: Sequence[AuditedResponse]) -> None:
    counts = Counter((*_setting(row), row.unit.question, row.unit.method) for row in rows)
    repeated = [key for key, count in counts.items() if count > 1]
    if repeated:
        backbone, benchmark, question, method = repeated[0]
        raise UserError(
            f"{len(repeated):,} questions of the audit have several labelled responses of one method, such as "
            f"{question} of {benchmark} by {method} on {backbone}. Audit the checkpoints of one training seed."
        )


def _compare_labels(rows: Sequence[AuditedResponse], draws: BootstrapDraws) -> JudgeAgreementReport:
    cases = [ValidationCase(row.unit.question, " / ".join(_setting(row)), row.automated, row.human) for row in rows]
    return validate_judge(cases, rng=np.random.default_rng(draws.seed), resamples=draws.resamples)


_AUTOMATED, _HUMAN, _PAIRED_AUTOMATED, _PAIRED_HUMAN = range(4)
"""Blocks of columns: each source with all its labels, and both on the responses that both labelled."""


@dataclass(frozen=True)
class _AuditTable:
    """Indicators of the audit: responses by blocks, methods and metrics."""

    methods: tuple[str, ...]
    indicators: tuple[Floats, Floats]
    """Hits and counted responses: one row per response, columns in the order of ``column``."""
    rates: dict[str, dict[LabelSource, dict[Metric, Rate]]]

    @classmethod
    def of(cls, rows: Sequence[AuditedResponse]) -> _AuditTable:
        """Arrange the labels of the responses."""
        method, names = number_distinct_labels([row.unit.method for row in rows])
        # Responses by methods: 1 where the response is of the method; the last column takes all of them.
        member = np.hstack([method[:, np.newaxis] == np.arange(len(names)), np.ones((len(rows), 1))])
        automated, human = (
            make_metric_indicators([getattr(row, source) for row in rows], MAIN_METRICS)
            for source in ("automated", "human")
        )
        both = automated.counted * human.counted
        blocks = [automated, human, *(MetricIndicators(part.hits * both, both) for part in (automated, human))]
        hits = np.hstack([_spread(member, block.hits) for block in blocks])
        counted = np.hstack([_spread(member, block.counted) for block in blocks])
        methods = (*names, ALL_METHODS)
        rates = {
            name: {
                source: _rates(member[:, at], indicators)
                for source, indicators in zip(LabelSource, (automated, human), strict=True)
            }
            for at, name in enumerate(methods)
        }
        return cls(methods, (hits, counted), rates)

    def column(self, block: int, method: str, metric: Metric) -> int:
        """Return the column of a metric of a method in a block."""
        at = block * len(self.methods) + self.methods.index(method)
        return at * len(MAIN_METRICS) + MAIN_METRICS.index(metric)

    def count(self, block: int, method: str, metric: Metric) -> int:
        """Return the number of counted responses of a column."""
        return int(self.indicators[1][:, self.column(block, method, metric)].sum())


def _spread(member: Floats, values: Floats) -> Floats:
    """Return responses by methods times metrics; zero where a response is not of the method."""
    # Responses x methods x 1 times responses x 1 x metrics.
    spread: Floats = (member[:, :, np.newaxis] * values[:, np.newaxis, :]).reshape(len(member), -1)
    return spread


def _rates(member: Floats, indicators: MetricIndicators) -> dict[Metric, Rate]:
    chosen: Indices = np.flatnonzero(member)
    hits, counted = (part[chosen].sum(axis=0) for part in indicators)
    return {
        metric: Rate(int(hits[at]), int(counted[at]), len(chosen) - int(counted[at]))
        for at, metric in enumerate(MAIN_METRICS)
    }
