"""How far a judge can be trusted: its labels against people's, label by label (appendices D.1 and D.5).

What either side did not label is left out of a comparison and counted beside it. Intervals resample questions within
datasets, and every row, every dataset and both judges of a comparison share the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.core.three_valued import Label, negation
from eclose.metrics.rates import Metric
from eclose.stats import coefficients as stat
from eclose.stats.arrays import Floats, Indices, codes, sum_by
from eclose.stats.clustered_rates import clustered_rate
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rate_correction import JudgeErrors
from eclose.stats.resampling import Replicates, Strata, bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.verdict import Verdict


class JudgedLabel(StrEnum):
    """What is compared: the five labels a judge gives and three that follow from them."""

    LOCAL_SOUNDNESS = "L"
    ALIGNMENT = "A"
    CLOSURE = "C"
    COMPLETENESS = "K"
    CORRECTNESS = "Acc"
    GLOBAL_SUFFICIENCY = "G"
    RELIABILITY = "TRR"
    GAP = "LGG"
    """Here the failure is to be in the gap, so precision, recall and F1 are those of finding gap responses."""


DIRECT = tuple(JudgedLabel)[:5]
"""The labels a judge gives."""

HITS: Mapping[JudgedLabel, Callable[[Verdict], Label]] = {
    JudgedLabel.LOCAL_SOUNDNESS: lambda verdict: verdict.locally_sound,
    JudgedLabel.ALIGNMENT: lambda verdict: verdict.aligned,
    JudgedLabel.CLOSURE: lambda verdict: verdict.closed,
    JudgedLabel.COMPLETENESS: lambda verdict: verdict.complete,
    JudgedLabel.CORRECTNESS: lambda verdict: verdict.correct,
    JudgedLabel.GLOBAL_SUFFICIENCY: lambda verdict: verdict.globally_sufficient,
    JudgedLabel.RELIABILITY: lambda verdict: verdict.reliable,
    JudgedLabel.GAP: lambda verdict: verdict.in_gap,
}
"""What the rate of a label counts."""

RATES: Mapping[JudgedLabel, Metric] = {
    JudgedLabel.LOCAL_SOUNDNESS: Metric.LOCAL_SOUNDNESS_RATE,
    JudgedLabel.ALIGNMENT: Metric.ALIGNMENT_RATE,
    JudgedLabel.CLOSURE: Metric.CLOSURE_RATE,
    JudgedLabel.COMPLETENESS: Metric.COMPLETENESS_RATE,
    JudgedLabel.CORRECTNESS: Metric.ACCURACY,
    JudgedLabel.GLOBAL_SUFFICIENCY: Metric.GLOBAL_SUFFICIENCY_RATE,
    JudgedLabel.RELIABILITY: Metric.TRACE_RELIABILITY_RATE,
    JudgedLabel.GAP: Metric.GAP_RATE,
}
"""The rate of each label, as results name it."""


def hit_codes(label: JudgedLabel, verdicts: Iterable[Verdict]) -> Indices:
    """1 for a response that the label's rate counts, 0 for one that it does not, ``MISSING`` for an unknown one."""
    hits = (HITS[label](verdict) for verdict in verdicts)
    return np.array([stat.MISSING if hit is None else int(hit) for hit in hits], np.intp)


def _passes(label: JudgedLabel, verdict: Verdict) -> Label:
    """False is a failure; to be in the gap is one."""
    hit = HITS[label](verdict)
    return negation(hit) if label is JudgedLabel.GAP else hit


class Compared(NamedTuple):
    """One response, what the judge said and what is so."""

    question_id: str
    dataset: str
    judge: Verdict
    human: Verdict


@dataclass(frozen=True, slots=True)
class Scores:
    """How far a judge reproduces people's labels; a failure is the event to be found."""

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
"""In the order of the fields of ``Scores``."""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One label of a judge against people's."""

    label: JudgedLabel
    labelled: int
    """Responses with a label by people."""
    n: int
    """Those of them that the judge labelled, too: what was compared."""
    found: int
    """Failures both see."""
    misses: int
    """Failures that people alone see."""
    false_alarms: int
    """Failures that the judge alone sees."""
    scores: Scores
    disagreement: Estimate
    """The rate of misses and false alarms together, with the interval of every rate: it holds where they are rare."""

    @property
    def failures(self) -> int:
        """Failures that people see among the compared responses: n0."""
        return self.found + self.misses

    @property
    def unjudged(self) -> int:
        """Responses with a label by people and none by the judge."""
        return self.labelled - self.n

    @property
    def agreement(self) -> Estimate:
        """How often judge and people agree, with the interval of every rate.

        ``scores.agreement`` is the same rate with the interval of appendix D.1: too narrow where nearly all agree.
        """
        value, interval, _ = self.disagreement
        turned = None if interval is None else Interval(1 - interval.high, 1 - interval.low)
        return Estimate(None if value is None else 1 - value, turned)

    @property
    def rate_difference(self) -> Estimate:
        """The judge's rate minus people's, in the direction of the rate: TRR and LGG as they are printed."""
        difference = self.scores.failure_difference
        return difference if self.label is JudgedLabel.GAP else _negated(difference)


def _negated(estimate: Estimate) -> Estimate:
    value, interval, undefined = estimate
    turned = None if interval is None else Interval(-interval.high, -interval.low)
    # Minus zero would be printed as such.
    return Estimate(None if value is None else 0.0 - value, turned, undefined)


@dataclass(frozen=True, slots=True)
class GroupValidation:
    """A judge against people on one group of responses."""

    responses: int
    questions: int
    rows: Mapping[JudgedLabel, LabelRow]
    mean_agreement: Estimate
    """Over the five labels a judge gives; undefined where one of them is."""
    mean_failure_f1: Estimate
    largest_failure_difference: float | None = None
    """The largest difference of failure rates, judge and people, over the same labels; sign left out."""


class ValidationReport(NamedTuple):
    """All responses, and each dataset on its own."""

    overall: GroupValidation
    datasets: Mapping[str, GroupValidation]


def validation_report(
    cases: Sequence[Compared], *, rng: np.random.Generator, resamples: int = 2_000
) -> ValidationReport:
    """Every label, all responses together and dataset by dataset."""
    layout = _Layout.of(cases)
    judged = [case.judge for case in cases]
    groups = _Tables([layout.tables(judged, dataset) for dataset in (None, *layout.datasets)])
    replicates = groups.bootstrap(layout.strata, rng, resamples)
    overall, *each = (
        _group(layout, dataset, groups, index, replicates) for index, dataset in enumerate((None, *layout.datasets))
    )
    return ValidationReport(overall, dict(zip(layout.datasets, each, strict=True)))


@dataclass(frozen=True)
class _Layout:
    """Cases as arrays. Questions are numbered through all datasets."""

    cases: Sequence[Compared]
    question: Indices
    dataset: Indices
    """The dataset of each question."""
    datasets: list[str]

    @classmethod
    def of(cls, cases: Sequence[Compared]) -> _Layout:
        question, questions = codes([(case.dataset, case.question_id) for case in cases])
        dataset, datasets = codes([dataset for dataset, _ in questions])
        return cls(cases, question, dataset, datasets)

    @property
    def strata(self) -> Strata:
        return Strata(self.dataset)

    def within(self, dataset: str | None) -> Indices:
        """The cases of a dataset; all for None."""
        if dataset is None:
            return np.arange(len(self.cases))
        return np.flatnonzero(self.dataset[self.question] == self.datasets.index(dataset))

    def tables(self, judged: Sequence[Verdict], dataset: str | None) -> Floats:
        """Questions by labels by a table of people and judge, failure first."""
        chosen = self.within(dataset)
        human = [self.cases[index].human for index in chosen]
        said = [judged[index] for index in chosen]
        tables = [stat.pair_tables(_pass_codes(label, human), _pass_codes(label, said), 2) for label in JudgedLabel]
        return sum_by(self.question[chosen], np.stack(tables, axis=1), len(self.dataset))


def _pass_codes(label: JudgedLabel, verdicts: Iterable[Verdict]) -> Indices:
    passes = (_passes(label, verdict) for verdict in verdicts)
    return np.array([stat.MISSING if one is None else int(one) for one in passes], np.intp)


@dataclass(frozen=True)
class _Tables:
    """Several groups, or judges, over the same questions; one set of draws serves all of them."""

    groups: Sequence[Floats]

    def bootstrap(self, strata: Strata, rng: np.random.Generator, resamples: int) -> Replicates:
        return bootstrap(strata, self._evaluate, rng=rng, resamples=resamples)

    def _evaluate(self, weights: Floats) -> Floats:
        columns = [_columns(np.tensordot(weights, tables, axes=1)) for tables in self.groups]
        return np.concatenate(columns, axis=1)

    @staticmethod
    def column(group: int, label: JudgedLabel, statistic: int) -> int:
        """Where a statistic stands among the replicates."""
        return group * _WIDTH + list(JudgedLabel).index(label) * len(_STATISTICS) + statistic

    @staticmethod
    def mean_column(group: int, statistic: int) -> int:
        """The same for the mean of agreement (0) or of failure F1 (1)."""
        return (group + 1) * _WIDTH - 2 + statistic


_WIDTH = len(JudgedLabel) * len(_STATISTICS) + 2


def _columns(tables: Floats) -> Floats:
    """Resamples by statistics: every label's, then the two means over the labels a judge gives."""
    scores = np.stack([statistic.over(tables) for statistic in _STATISTICS], axis=2)
    means = scores[:, : len(DIRECT), :2].mean(axis=1)
    return np.concatenate([scores.reshape(len(tables), -1), means], axis=1)


def _scores(label: JudgedLabel, estimate: Callable[[int], Estimate], group: int) -> Scores:
    return Scores(*(estimate(_Tables.column(group, label, index)) for index in range(len(_STATISTICS))))


def _group(
    layout: _Layout,
    dataset: str | None,
    groups: _Tables,
    index: int,
    replicates: Replicates,
) -> GroupValidation:
    chosen = layout.within(dataset)
    cases, question = [layout.cases[one] for one in chosen], layout.question[chosen]
    totals = groups.groups[index].sum(axis=0)
    rows = {
        label: _row(label, cases, question, table, _scores(label, replicates.estimate, index))
        for label, table in zip(JudgedLabel, totals, strict=True)
    }
    differences = [rows[label].scores.failure_difference.value for label in DIRECT]
    known = [abs(value) for value in differences if value is not None]
    return GroupValidation(
        responses=len(chosen),
        questions=len(np.unique(question)),
        rows=rows,
        mean_agreement=replicates.estimate(_Tables.mean_column(index, 0)),
        mean_failure_f1=replicates.estimate(_Tables.mean_column(index, 1)),
        largest_failure_difference=max(known) if len(known) == len(DIRECT) else None,
    )


def _row(
    label: JudgedLabel,
    cases: Sequence[Compared],
    question: Indices,
    table: Floats,
    scores: Scores,
) -> LabelRow:
    human, judge = (hit_codes(label, [getattr(case, side) for case in cases]) for side in ("human", "judge"))
    both = (human != stat.MISSING) & (judge != stat.MISSING)
    (found, misses), (false_alarms, _) = table
    return LabelRow(
        label,
        labelled=int((human != stat.MISSING).sum()),
        n=int(both.sum()),
        found=int(found),
        misses=int(misses),
        false_alarms=int(false_alarms),
        scores=scores,
        disagreement=clustered_rate(np.where(both, human != judge, stat.MISSING), question),
    )


def judge_errors(cases: Sequence[Compared]) -> dict[JudgedLabel, JudgeErrors]:
    """What is needed to correct other runs of the same judge."""
    question, _ = codes([(case.dataset, case.question_id) for case in cases])
    judged, human = [case.judge for case in cases], [case.human for case in cases]
    return {label: JudgeErrors.of(hit_codes(label, judged), hit_codes(label, human), question) for label in JudgedLabel}


class ComparedTwice(NamedTuple):
    """One response, what two judges (or one, asked in two ways) said and what is so."""

    question_id: str
    dataset: str
    first: Verdict
    second: Verdict
    human: Verdict


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """Two judges on the same responses."""

    n: Mapping[JudgedLabel, int]
    """Responses that both judges and people labelled: only they are compared."""
    first: Mapping[JudgedLabel, Scores]
    second: Mapping[JudgedLabel, Scores]
    difference: Mapping[JudgedLabel, Scores]
    """The first minus the second, paired resample by resample."""
    mean_agreement: Estimate
    """The difference of the means over the five labels a judge gives."""
    mean_failure_f1: Estimate


def compare_judges(
    cases: Sequence[ComparedTwice], *, rng: np.random.Generator, resamples: int = 2_000
) -> JudgeComparison:
    """Two judges against the same people, with shared draws."""
    layout = _Layout.of([Compared(case.question_id, case.dataset, case.first, case.human) for case in cases])
    tables = _tables_of_both(layout, cases)
    replicates = _Tables(tables).bootstrap(layout.strata, rng, resamples)
    apart = _WIDTH  # from a column of the first judge to the same of the second

    def difference(column: int) -> Estimate:
        return replicates.difference(column, column + apart)

    counts = tables[0].sum(axis=(0, 2, 3))
    return JudgeComparison(
        n={label: int(count) for label, count in zip(JudgedLabel, counts, strict=True)},
        first={label: _scores(label, replicates.estimate, 0) for label in JudgedLabel},
        second={label: _scores(label, replicates.estimate, 1) for label in JudgedLabel},
        difference={label: _scores(label, difference, 0) for label in JudgedLabel},
        mean_agreement=difference(_Tables.mean_column(0, 0)),
        mean_failure_f1=difference(_Tables.mean_column(0, 1)),
    )


def _tables_of_both(layout: _Layout, cases: Sequence[ComparedTwice]) -> list[Floats]:
    """Each judge's tables by question, of the responses that both labelled."""
    human = {label: _pass_codes(label, [case.human for case in cases]) for label in JudgedLabel}
    said = [
        {label: _pass_codes(label, verdicts) for label in JudgedLabel}
        for verdicts in ([case.first for case in cases], [case.second for case in cases])
    ]
    tables: list[Floats] = []
    for mine, other in (said, said[::-1]):
        common = {label: np.where(other[label] == stat.MISSING, stat.MISSING, mine[label]) for label in JudgedLabel}
        each = [stat.pair_tables(human[label], common[label], 2) for label in JudgedLabel]
        tables.append(sum_by(layout.question, np.stack(each, axis=1), len(layout.dataset)))
    return tables
