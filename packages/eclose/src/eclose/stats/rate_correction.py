"""A judge's rate on all cases, corrected by people's labels on a random sample of them.

The sample says how often people find a hit among the cases that the judge passed, and among those it failed. This is
the prediction-powered estimate, with the weight of the judge chosen by the data: an uninformative judge leaves the rate
of the people.

Useful judges rarely err, so a sample of a hundred may hold no error, and an interval based on the observed errors would
be certain of the judge. Here the probabilities of all four combinations of labels are drawn from the sample together
with four imaginary questions, one per combination, each with half the weight of a real one (Jeffreys' prior). Questions
are drawn, not cases, since cases of one question are correlated. Decision 0021 has the reasons.

Labels are 1 for a hit, 0 for none and ``MISSING_CODE``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.stats.arrays import Floats, Indices, divide_or_nan, float_or_none, sum_by_group
from eclose.stats.coefficients import MISSING_CODE
from eclose.stats.intervals import Interval, adjust_level_for_few_units, percentile_interval

if TYPE_CHECKING:
    from eclose.stats.arrays import Flags

CORRECTION_DRAWS = 4_000
"""Number of draws for an interval."""

PRIOR_CASES = 0.5
"""The weight of an imaginary question."""


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A judge's rate, the rate of people on a sample, and the rate that follows from both."""

    judged: int
    """Cases with a label of the judge."""
    unjudged: int
    labelled: int
    """Judged cases that people also labelled: in this run or, for a rate carried over, in the validation."""
    judge: float | None
    """The judge's own rate."""
    human: float | None
    """People's rate on the labelled cases."""
    difference: float | None
    """The judge's rate plus the mean of human minus judge: full trust in the judge. May leave [0, 1]."""
    trust: float | None
    """Weight of the judge's labels, between 0 and 1."""
    value: float | None
    """The corrected rate."""
    interval: Interval | None

    @property
    def bounds(self) -> Interval | None:
        """The corrected rate with every unjudged case a miss, and with every unjudged case a hit."""
        return None if self.value is None else self._widened(self.value, self.value)

    @property
    def widest(self) -> Interval | None:
        """The ends of the interval, widened by the unjudged cases in the same way."""
        return None if self.interval is None else self._widened(*self.interval)

    def _widened(self, low: float, high: float) -> Interval:
        share = self.unjudged / (self.judged + self.unjudged)
        return Interval((1 - share) * low, (1 - share) * high + share)


def corrected_rate(
    judge: Indices,
    human: Indices,
    question: Indices,
    *,
    rng: np.random.Generator,
    weight: Floats | None = None,
    draws: int = CORRECTION_DRAWS,
    level: float = 0.95,
) -> CorrectedRate:
    """Return the rate of hits among all cases, from the judge's labels and people's labels on a random sample.

    The interval is that of the source the cases come from, so it also covers the rate of these very cases.

    Args:
        judge: The judge's label of each case.
        human: People's label of each case; ``MISSING_CODE`` outside the sample.
        question: The number of each case's question.
        rng: Source of the draws.
        weight: How many cases a labelled one stands for, where cases were not drawn with equal probability; see
            ``sampling_weights``.
        draws: Number of draws for the interval.
        level: Nominal level of the interval.
    """
    weight = np.ones(len(judge)) if weight is None else weight
    sample = _sample(judge, human, question, weight)
    rates = _rates_by_label(sample.cells.sum(axis=0))
    judge_rate = _mean_label(sample.judged.sum(axis=0))
    return CorrectedRate(
        judged=int(sample.judged.sum()),
        unjudged=int((judge == MISSING_CODE).sum()),
        labelled=sample.labelled,
        judge=judge_rate,
        human=rates.human,
        difference=None if judge_rate is None or rates.human is None else judge_rate + rates.human - rates.sampled,
        trust=rates.trust,
        value=(value := None if judge_rate is None else rates.corrected(judge_rate)),
        interval=None if value is None else _around(value, _drawn_rates(sample, rng, draws), sample.questions, level),
    )


def sampling_weights(stratum: Indices, labelled: Flags) -> Floats:
    """Return how many cases a labelled one stands for, with each stratum sampled separately; 0 without a label."""
    sizes, sampled = np.bincount(stratum).astype(float), np.bincount(stratum[labelled], minlength=stratum.max() + 1)
    if (missing := np.flatnonzero((sizes > 0) & (sampled == 0))).size:
        raise ValueError(f"stratum {missing[0]} has {sizes[missing[0]]:.0f} cases and none of them is labelled")
    return np.where(labelled, divide_or_nan(sizes, sampled.astype(float))[stratum], 0)


def _mean_label(counts: Floats) -> float | None:
    return float_or_none(divide_or_nan(counts[1:], counts.sum(keepdims=True))[0])


class _Sample(NamedTuple):
    """Judged cases by question; a cell is judge's label times two plus people's."""

    judged: Floats
    """Questions by the judge's label, all cases."""
    cells: Floats
    """Questions by cell, labelled cases alone, weighted."""
    labelled: int
    imaginary: float
    """How many cases an imaginary question has."""
    heaviest: Floats
    """The greatest weight of a labelled case of each cell's judge label."""

    @property
    def questions(self) -> int:
        """Questions with a labelled case."""
        return int((self.cells.sum(axis=1) > 0).sum())


def _sample(judge: Indices, human: Indices, question: Indices, weight: Floats) -> _Sample:
    count = int(question.max(initial=-1)) + 1
    by_judge = (judge[:, np.newaxis] == np.arange(2)).astype(float)
    both = (judge != MISSING_CODE) & (human != MISSING_CODE)
    # Cells: 0 neither sees a hit, 1 people alone, 2 the judge alone, 3 both.
    cell = np.where(both, 2 * judge + human, MISSING_CODE)
    labelled = (cell[:, np.newaxis] == np.arange(4)).astype(float)
    # An imaginary case weighs as much as the heaviest labelled one, so a thinly sampled stratum is not overtrusted.
    heaviest = [weight[both & (judge == label)].max(initial=0) or 1.0 for label in (0, 1)]
    disputed = np.where(both, judge != human, MISSING_CODE)
    return _Sample(
        sum_by_group(question, by_judge, count),
        sum_by_group(question, labelled * weight[:, np.newaxis], count),
        int(both.sum()),
        _imaginary_size(disputed, question),
        np.repeat(heaviest, 2),
    )


def _imaginary_size(rare: Indices, question: Indices) -> float:
    """Return the number of cases of the imaginary question: the mean count of rare cases in a question that has any.

    One question that consists of rare cases alone is added to the observed ones. Without an observed rare case the
    worst is assumed, and observed cases soon outweigh it.
    """
    labelled, affected = question[rare != MISSING_CODE], question[rare == 1]
    if not labelled.size:
        return 1.0
    mean_size = len(labelled) / len(np.unique(labelled))
    return float((len(affected) + mean_size) / (len(np.unique(affected)) + 1))


class _RatesByLabel(NamedTuple):
    """The rates of people on the sample."""

    human: float | None
    sampled: float
    """The judge's rate on the sample."""
    trust: float | None
    """How much more often people find a hit where the judge does; 0 for an uninformative judge."""

    def corrected(self, judge: float) -> float | None:
        """Return the corrected rate, given the judge's rate on all cases."""
        if self.human is None or self.trust is None:
            return None
        return self.human + self.trust * (judge - self.sampled)


def _rates_by_label(cells: Floats) -> _RatesByLabel:
    """Return the rates of people from the weighted counts of the four combinations."""
    total = cells.sum()
    if not total:
        return _RatesByLabel(None, np.nan, None)
    # People's rate of hits where the judge sees one (cells 2 and 3) and where it sees none (cells 0 and 1).
    passed, failed = divide_or_nan(cells[[3, 1]], cells[[2, 0]] + cells[[3, 1]])
    # If the judge gave only one label in the sample, its labels carry no information, and the rate of people is kept.
    # The difference is the best weight of the judge for binary labels (PPI++, decision 0021); below 0 it counts as 0.
    trust = 0.0 if np.isnan(passed - failed) else max(0.0, float(passed - failed))
    return _RatesByLabel(float(cells[[1, 3]].sum() / total), float(cells[[2, 3]].sum() / total), trust)


def _drawn_rates(sample: _Sample, rng: np.random.Generator, draws: int) -> Floats:
    """Return drawn rates of hits: the judge's labels first, then people's labels given the judge's."""
    drawn = _drawn_sums(np.hstack([sample.judged, sample.cells]), rng, draws)
    # Four imaginary questions, one per cell: neither, people alone, judge alone, both.
    imaginary = sample.imaginary * rng.standard_gamma(PRIOR_CASES, (draws, 4))
    judged = drawn[:, :2] + imaginary.reshape(draws, 2, 2).sum(axis=2)
    # (draws, label of the judge, label of people).
    cells = (drawn[:, 2:] + sample.heaviest * imaginary).reshape(draws, 2, 2)
    hits = cells[:, :, 1] / cells.sum(axis=2)
    rates: Floats = (judged * hits).sum(axis=1) / judged.sum(axis=1)
    return rates


def _drawn_sums(tables: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Return sums over questions, each with a random weight of mean 1 (the Bayesian bootstrap).

    Questions with the same table share a draw of their total weight, so the cost does not grow with their number.
    """
    distinct, times = np.unique(tables, axis=0, return_counts=True)
    return rng.standard_gamma(times.astype(float), (draws, len(times))) @ distinct


def _around(value: float, drawn: Floats, questions: int, level: float) -> Interval:
    """Return the percentile interval, extended to hold the value, which draws approach but do not reach at 0 and 1.

    Draws of n questions vary less than their mean does, by (n - 1)/(n + 1) in variance.
    """
    freedom = max(questions - 1, 1)
    # (freedom + 2) / freedom is (n + 1)/(n - 1) with n questions.
    interval = percentile_interval(drawn, adjust_level_for_few_units(level, freedom, (freedom + 2) / freedom))
    assert interval is not None
    return Interval(min(interval.low, value), max(interval.high, value))


@dataclass(frozen=True, slots=True)
class JudgeErrors:
    """How a judge's labels compare with people's, by question, for correcting other cases.

    Counts are in the order of the cells: neither sees a hit, people alone, the judge alone, both. Questions with the
    same counts are listed once.
    """

    counts: tuple[tuple[int, int, int, int], ...]
    questions: tuple[int, ...]
    """Number of questions with each of these counts."""
    imaginary: float
    """Number of cases of an imaginary question."""

    @classmethod
    def of(cls, judge: Indices, human: Indices, question: Indices) -> JudgeErrors:
        """Compare the labels of cases that both labelled."""
        sample = _sample(judge, human, question, np.ones(len(judge)))
        labelled = sample.cells[sample.cells.sum(axis=1) > 0]
        distinct, times = np.unique(labelled, axis=0, return_counts=True)
        rows = tuple((int(a), int(b), int(c), int(d)) for a, b, c, d in distinct)
        return cls(rows, tuple(int(n) for n in times), sample.imaginary)

    @property
    def table(self) -> Floats:
        """People in the rows, the judge in the columns, hits last."""
        cells = np.array(self.counts, float).reshape(-1, 4)
        # Cells are ordered by the judge's label first; the transpose puts people into the rows.
        table: Floats = (np.array(self.questions, float) @ cells).reshape(2, 2).T
        return table


def rate_from_judge_errors(
    judge: Indices,
    question: Indices,
    errors: JudgeErrors,
    *,
    rng: np.random.Generator,
    draws: int = CORRECTION_DRAWS,
    level: float = 0.95,
) -> CorrectedRate:
    """Return the rate of hits among unlabelled cases, from the errors of the judge on other cases.

    Assumes that the judge has the same sensitivity and false positive rate here as there (Rogan and Gladen). The rate
    itself may differ. The data cannot test the assumption.
    """
    by_judge = (judge[:, np.newaxis] == np.arange(2)).astype(float)
    judge_rate = _mean_label(by_judge.sum(axis=0))
    (_, human_hits), (false_positives, recall) = errors.table.sum(axis=1), _recalls(errors.table[np.newaxis])[0]
    informedness = recall - false_positives
    value = interval = None
    # Otherwise the judge's hits carry no information about those of people.
    if judge_rate is not None and informedness > 0:
        value = float(np.clip((judge_rate - false_positives) / informedness, 0, 1))
        sums = sum_by_group(question, by_judge, int(question.max()) + 1)
        interval = _around(value, _drawn_carried(sums, errors, rng, draws), sum(errors.questions), level)
    labelled = int(errors.table.sum())
    return CorrectedRate(
        judged=int(by_judge.sum()),
        unjudged=int((judge == MISSING_CODE).sum()),
        labelled=labelled,
        judge=judge_rate,
        human=float(human_hits / labelled) if labelled else None,
        difference=None,
        trust=None,
        value=value,
        interval=interval,
    )


def _recalls(tables: Floats) -> Floats:
    """Return how often the judge sees a hit where people see none, and where they see one."""
    return divide_or_nan(tables[..., 1], tables.sum(axis=-1))


def _drawn_carried(judged: Floats, errors: JudgeErrors, rng: np.random.Generator, draws: int) -> Floats:
    drawn = _drawn_sums(judged, rng, draws) + rng.standard_gamma(PRIOR_CASES, (draws, 2))
    weights = rng.standard_gamma(np.array(errors.questions, float), (draws, len(errors.questions)))
    cells = weights @ np.array(errors.counts, float)
    cells += errors.imaginary * rng.standard_gamma(PRIOR_CASES, (draws, 4))
    recalls = _recalls(np.swapaxes(cells.reshape(draws, 2, 2), 1, 2))
    # Rogan and Gladen: (observed - false positives)/(recall - false positives).
    rates = divide_or_nan(drawn[:, 1] / drawn.sum(axis=1) - recalls[:, 0], recalls[:, 1] - recalls[:, 0])
    return np.clip(rates, 0, 1)
