"""Agreement of a judge's labels with people's, label by label (appendices D.1 and D.5.2).

A response that either side did not label is left out of a comparison and counted beside it. Intervals resample
questions within datasets. All rows, all datasets and both judges of a comparison share the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.metrics.rates import Metric
from eclose.stats import coefficients as stat
from eclose.stats.arrays import Floats, Indices, number_distinct_labels, sum_by_group
from eclose.stats.bootstrap import BootstrapReplicates, StratifiedDesign, bootstrap
from eclose.stats.clustered_rates import QuestionHitCounts, clustered_rate
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rate_correction import JudgeErrors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.verdict import Verdict


class JudgedLabel(StrEnum):
    """The compared labels: five that a judge gives and three derived from them."""

    LOCAL_SOUNDNESS = "L"
    ALIGNMENT = "A"
    CLOSURE = "C"
    COMPLETENESS = "K"
    CORRECTNESS = "Acc"
    GLOBAL_SUFFICIENCY = "G"
    RELIABILITY = "TRR"
    GAP = "LGG"
    """Being in the gap is the failure, so precision, recall and F1 are those of finding gap responses."""


DIRECT_LABELS = tuple(JudgedLabel)[:5]
"""The labels that a judge gives directly; the other three are derived from them."""

LABEL_METRICS: Mapping[JudgedLabel, Metric] = {
    JudgedLabel.LOCAL_SOUNDNESS: Metric.LOCAL_SOUNDNESS_RATE,
    JudgedLabel.ALIGNMENT: Metric.ALIGNMENT_RATE,
    JudgedLabel.CLOSURE: Metric.CLOSURE_RATE,
    JudgedLabel.COMPLETENESS: Metric.COMPLETENESS_RATE,
    JudgedLabel.CORRECTNESS: Metric.ACCURACY,
    JudgedLabel.GLOBAL_SUFFICIENCY: Metric.GLOBAL_SUFFICIENCY_RATE,
    JudgedLabel.RELIABILITY: Metric.TRACE_RELIABILITY_RATE,
    JudgedLabel.GAP: Metric.GAP_RATE,
}
"""The rate that counts each label."""


def encode_rate_hits(label: JudgedLabel, verdicts: Iterable[Verdict]) -> Indices:
    """Return 1 for a response that the label's rate counts, 0 for one that it does not, ``MISSING`` for an unknown."""
    hits = (LABEL_METRICS[label].hit(verdict) for verdict in verdicts)
    return np.array([stat.MISSING_CODE if hit is None else int(hit) for hit in hits], np.intp)


def encode_label_passes(label: JudgedLabel, verdicts: Iterable[Verdict]) -> Indices:
    """Return 0 for a failure, 1 for a pass and ``MISSING``; a response in the gap is a failure."""
    hits = encode_rate_hits(label, verdicts)
    return np.where(hits == stat.MISSING_CODE, hits, 1 - hits) if label is JudgedLabel.GAP else hits


class ValidationCase(NamedTuple):
    """One response with the verdict of the judge and that of people."""

    question_id: str
    dataset: str
    judge: Verdict
    human: Verdict


@dataclass(frozen=True, slots=True)
class JudgeAgreementScores:
    """How well a judge reproduces people's labels; a failure is the event to be found."""

    agreement: Estimate
    failure_f1: Estimate
    failure_precision: Estimate
    failure_recall: Estimate
    balanced_accuracy: Estimate
    kappa: Estimate
    failure_difference: Estimate
    """The judge's failure rate minus people's."""


_STATISTICS = (
    stat.raw_agreement,
    stat.failure_f1,
    stat.failure_precision,
    stat.failure_recall,
    stat.balanced_accuracy,
    stat.cohen_kappa,
    stat.failure_rate_difference,
)
"""In the order of the fields of ``JudgeAgreementScores``."""


@dataclass(frozen=True, slots=True)
class LabelAgreementRow:
    """Agreement of a judge with people on one label."""

    label: JudgedLabel
    labelled: int
    """Responses with a label of people."""
    n: int
    """Responses that the judge labelled as well: the compared ones."""
    found: int
    """Failures that both see."""
    misses: int
    """Failures that only people see."""
    false_alarms: int
    """Failures that only the judge sees."""
    scores: JudgeAgreementScores
    disagreement: Estimate
    """Rate of misses and false alarms together, with the clustered interval, which holds where they are rare."""

    @property
    def failures(self) -> int:
        """Failures that people see among the compared responses: n0."""
        return self.found + self.misses

    @property
    def missed(self) -> Estimate:
        """Share of people's failures that the judge missed, with the exact interval over responses.

        A judge without a miss among few failures may still miss many: of 8, up to 36.9 %.
        """
        return QuestionHitCounts(()).with_single(hits=self.misses, misses=self.found).estimate()

    @property
    def unjudged(self) -> int:
        """Responses with a label of people and none of the judge."""
        return self.labelled - self.n

    @property
    def agreement(self) -> Estimate:
        """Rate of agreement between judge and people, with the clustered interval.

        ``scores.agreement`` is the same rate with the interval of appendix D.1, which is too narrow where nearly all
        agree.
        """
        value, interval, _ = self.disagreement
        complement = None if interval is None else Interval(1 - interval.high, 1 - interval.low)
        return Estimate(None if value is None else 1 - value, complement)

    @property
    def rate_difference(self) -> Estimate:
        """The judge's rate minus people's, in the direction of the rate: TRR and LGG as printed."""
        difference = self.scores.failure_difference
        return difference if self.label is JudgedLabel.GAP else _negated(difference)


def _negated(estimate: Estimate) -> Estimate:
    value, interval, undefined = estimate
    ends = None if interval is None else Interval(-interval.high, -interval.low)
    # 0.0 - value, since -value would give a minus zero that is printed with its sign.
    return Estimate(None if value is None else 0.0 - value, ends, undefined)


@dataclass(frozen=True, slots=True)
class GroupValidation:
    """Agreement of a judge with people on one group of responses."""

    responses: int
    questions: int
    rows: Mapping[JudgedLabel, LabelAgreementRow]
    mean_agreement: Estimate
    """Mean over the five labels that a judge gives; undefined where one of them is."""
    mean_failure_f1: Estimate
    largest_failure_difference: float | None = None
    """Largest absolute difference of failure rates between judge and people over the same five labels."""


class JudgeAgreementReport(NamedTuple):
    """Agreement on all responses, and on each dataset."""

    overall: GroupValidation
    datasets: Mapping[str, GroupValidation]


def validate_judge(
    cases: Sequence[ValidationCase], *, rng: np.random.Generator, resamples: int = 2_000
) -> JudgeAgreementReport:
    """Compare a judge with people on every label, for all responses together and by dataset."""
    layout = ValidationArrays.of(cases)
    judged = [case.judge for case in cases]
    # Group 0 is all responses, then one group per dataset.
    groups = AgreementTables([layout.tables(judged, dataset) for dataset in (None, *layout.datasets)])
    replicates = groups.bootstrap(layout.strata, rng, resamples)
    overall, *each = (
        _group(layout, dataset, groups, index, replicates) for index, dataset in enumerate((None, *layout.datasets))
    )
    return JudgeAgreementReport(overall, dict(zip(layout.datasets, each, strict=True)))


@dataclass(frozen=True)
class ValidationArrays:
    """Cases as arrays. Questions are numbered through all datasets."""

    cases: Sequence[ValidationCase]
    question: Indices
    dataset: Indices
    """Dataset of each question."""
    datasets: list[str]

    @classmethod
    def of(cls, cases: Sequence[ValidationCase]) -> ValidationArrays:
        """Assign numbers to the questions and datasets of the cases."""
        # Ids are unique within a dataset only.
        question, questions = number_distinct_labels([(case.dataset, case.question_id) for case in cases])
        dataset, datasets = number_distinct_labels([dataset for dataset, _ in questions])
        return cls(cases, question, dataset, datasets)

    @property
    def strata(self) -> StratifiedDesign:
        """Strata of questions: their datasets."""
        return StratifiedDesign(self.dataset)

    def within(self, dataset: str | None) -> Indices:
        """Return the indices of the cases of a dataset; of all cases for None."""
        if dataset is None:
            return np.arange(len(self.cases))
        return np.flatnonzero(self.dataset[self.question] == self.datasets.index(dataset))

    def tables(self, judged: Sequence[Verdict], dataset: str | None) -> Floats:
        """Return tables of people (rows) and judge (columns), failure first: questions by labels by 2 by 2."""
        chosen = self.within(dataset)
        human = [self.cases[index].human for index in chosen]
        verdicts = [judged[index] for index in chosen]
        tables = [
            stat.judge_pair_tables(encode_label_passes(label, human), encode_label_passes(label, verdicts), 2)
            for label in JudgedLabel
        ]
        # All questions keep a row, also those outside the dataset, so that the groups can share one matrix of weights.
        return sum_by_group(self.question[chosen], np.stack(tables, axis=1), len(self.dataset))


@dataclass(frozen=True)
class AgreementTables:
    """Tables of several groups, or judges, over the same questions; they share one set of draws."""

    groups: Sequence[Floats]

    def bootstrap(self, strata: StratifiedDesign, rng: np.random.Generator, resamples: int) -> BootstrapReplicates:
        """Evaluate all groups on the same draws of questions within datasets."""
        return bootstrap(strata, self._evaluate, rng=rng, resamples=resamples)

    def _evaluate(self, weights: Floats) -> Floats:
        columns = [_columns(np.tensordot(weights, tables, axes=1)) for tables in self.groups]
        return np.concatenate(columns, axis=1)

    @staticmethod
    def column(group: int, label: JudgedLabel, statistic: int) -> int:
        """Return the column of a statistic among the replicates."""
        return group * COLUMNS_PER_GROUP + list(JudgedLabel).index(label) * len(_STATISTICS) + statistic

    @staticmethod
    def mean_column(group: int, statistic: int) -> int:
        """Return the column of the mean of agreement (0) or of failure F1 (1)."""
        return (group + 1) * COLUMNS_PER_GROUP - 2 + statistic

    @classmethod
    def scores(cls, label: JudgedLabel, estimate: Callable[[int], Estimate], group: int) -> JudgeAgreementScores:
        """Return the scores of one label of a group; ``estimate`` maps a column to its estimate."""
        return JudgeAgreementScores(*(estimate(cls.column(group, label, index)) for index in range(len(_STATISTICS))))


COLUMNS_PER_GROUP = len(JudgedLabel) * len(_STATISTICS) + 2
"""Columns of a group among the replicates: the statistics of every label and two means."""


def _columns(tables: Floats) -> Floats:
    """Return resamples by statistics: those of every label, then the two means over the labels that a judge gives."""
    scores = np.stack([statistic.over(tables) for statistic in _STATISTICS], axis=2)
    # The labels that a judge gives come first in JudgedLabel; agreement and failure F1 in _STATISTICS.
    means = scores[:, : len(DIRECT_LABELS), :2].mean(axis=1)
    return np.concatenate([scores.reshape(len(tables), -1), means], axis=1)


def _group(
    layout: ValidationArrays,
    dataset: str | None,
    groups: AgreementTables,
    index: int,
    replicates: BootstrapReplicates,
) -> GroupValidation:
    members = layout.within(dataset)
    cases, question = [layout.cases[case] for case in members], layout.question[members]
    totals = groups.groups[index].sum(axis=0)
    rows = {
        label: _row(label, cases, question, table, AgreementTables.scores(label, replicates.estimate, index))
        for label, table in zip(JudgedLabel, totals, strict=True)
    }
    # Undefined where one of the five labels is.
    differences = [rows[label].scores.failure_difference.value for label in DIRECT_LABELS]
    defined = [abs(value) for value in differences if value is not None]
    return GroupValidation(
        responses=len(members),
        questions=len(np.unique(question)),
        rows=rows,
        mean_agreement=replicates.estimate(AgreementTables.mean_column(index, 0)),
        mean_failure_f1=replicates.estimate(AgreementTables.mean_column(index, 1)),
        largest_failure_difference=max(defined) if len(defined) == len(DIRECT_LABELS) else None,
    )


def _row(
    label: JudgedLabel,
    cases: Sequence[ValidationCase],
    question: Indices,
    table: Floats,
    scores: JudgeAgreementScores,
) -> LabelAgreementRow:
    human, judge = (encode_rate_hits(label, [getattr(case, side) for case in cases]) for side in ("human", "judge"))
    both = (human != stat.MISSING_CODE) & (judge != stat.MISSING_CODE)
    # Rows are people, columns the judge, failure first.
    (shared, misses), (false_alarms, _) = table
    return LabelAgreementRow(
        label,
        labelled=int((human != stat.MISSING_CODE).sum()),
        n=int(both.sum()),
        found=int(shared),
        misses=int(misses),
        false_alarms=int(false_alarms),
        scores=scores,
        # The bootstrap of an agreement near 1 has no width; this interval has.
        disagreement=clustered_rate(np.where(both, human != judge, stat.MISSING_CODE), question),
    )


def count_judge_errors(cases: Sequence[ValidationCase]) -> dict[JudgedLabel, JudgeErrors]:
    """Count the errors of a judge by label, for correcting its other runs."""
    question, _ = number_distinct_labels([(case.dataset, case.question_id) for case in cases])
    judged, human = [case.judge for case in cases], [case.human for case in cases]
    return {
        label: JudgeErrors.of(encode_rate_hits(label, judged), encode_rate_hits(label, human), question)
        for label in JudgedLabel
    }
