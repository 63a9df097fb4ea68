"""Rates that a judge gave to every case, put right by people who looked at a few.

People label a random sample. How often they find a success among the cases the judge passed, and among those it failed,
says how to read the judge's labels on all the others. That is the prediction-powered estimate with the weight on the
judge chosen by the data: a judge that tells nothing leaves the people's own rate.

Judges worth using rarely err, so a sample of a hundred may hold no error at all, and an interval that rests on the
errors seen would then be certain of the judge. Here the chances of all four combinations of labels are drawn from what
the sample says of them together with four imaginary questions, one of each combination and half the weight of a real
one (Jeffreys' prior). Questions are drawn, not cases: cases of one question may share their fate. Decision 0021 has the
reasons.

Labels are 1 for a hit, 0 for none and ``MISSING``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.stats.arrays import Floats, Indices, ratio, scalar, sum_by
from eclose.stats.coefficients import MISSING
from eclose.stats.intervals import Interval, expanded_level, percentile

if TYPE_CHECKING:
    from eclose.stats.arrays import Flags

DRAWS = 4_000
"""How many times the chances are drawn for an interval."""

IMAGINARY = 0.5
"""The weight of an imaginary question."""


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A judge's rate, what people found on a sample, and the rate that follows from both."""

    judged: int
    """Cases with a label of the judge."""
    unjudged: int
    labelled: int
    """Judged cases that people labelled, too: in this run or, for a rate carried over, in the validation."""
    judge: float | None
    """The judge's own rate."""
    human: float | None
    """People's rate on the labelled cases."""
    difference: float | None
    """The judge's rate and the mean of human minus judge: the judge trusted in full. May leave [0, 1]."""
    trust: float | None
    """The weight that the judge's labels got, between 0 and 1."""
    value: float | None
    """The corrected rate."""
    interval: Interval | None

    @property
    def bounds(self) -> Interval | None:
        """The corrected rate with every unjudged case a miss, and with every one a hit."""
        return None if self.value is None else self._widened(self.value, self.value)

    @property
    def widest(self) -> Interval | None:
        """The ends of the interval, widened in the same way."""
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
    draws: int = DRAWS,
    level: float = 0.95,
) -> CorrectedRate:
    """The rate of hits among all cases, from the judge's labels on all and people's on a random sample of them.

    ``question`` numbers the question of each case. ``weight`` says how many cases a labelled one stands for, where
    these were not all drawn with the same chance: see ``sampling_weights``. The interval is for the rate of the
    source the cases come from, and so covers the rate of these very cases, too.
    """
    weight = np.ones(len(judge)) if weight is None else weight
    sample = _sample(judge, human, question, weight)
    rates = _rates_by_label(sample.cells.sum(axis=0))
    by_judge = _mean_label(sample.judged.sum(axis=0))
    return CorrectedRate(
        judged=int(sample.judged.sum()),
        unjudged=int((judge == MISSING).sum()),
        labelled=sample.labelled,
        judge=by_judge,
        human=rates.human,
        difference=None if by_judge is None or rates.human is None else by_judge + rates.human - rates.sampled,
        trust=rates.trust,
        value=(value := None if by_judge is None else rates.corrected(by_judge)),
        interval=None if value is None else _around(value, _drawn_rates(sample, rng, draws), sample.questions, level),
    )


def sampling_weights(stratum: Indices, labelled: Flags) -> Floats:
    """How many cases a labelled one stands for, when each stratum was sampled on its own; 0 for one without a label."""
    sizes, taken = np.bincount(stratum).astype(float), np.bincount(stratum[labelled], minlength=stratum.max() + 1)
    if (missing := np.flatnonzero((sizes > 0) & (taken == 0))).size:
        raise ValueError(f"stratum {missing[0]} has {sizes[missing[0]]:.0f} cases and none of them is labelled")
    return np.where(labelled, ratio(sizes, taken.astype(float))[stratum], 0)


def _mean_label(counts: Floats) -> float | None:
    """The rate of hits, from how many there are of each label."""
    return scalar(ratio(counts[1:], counts.sum(keepdims=True))[0])


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
    both = (judge != MISSING) & (human != MISSING)
    cell = np.where(both, 2 * judge + human, MISSING)
    labelled = (cell[:, np.newaxis] == np.arange(4)).astype(float)
    heaviest = [weight[both & (judge == label)].max(initial=0) or 1.0 for label in (0, 1)]
    disputed = np.where(both, judge != human, MISSING)
    return _Sample(
        sum_by(question, by_judge, count),
        sum_by(question, labelled * weight[:, np.newaxis], count),
        int(both.sum()),
        _imaginary_size(disputed, question),
        np.repeat(heaviest, 2),
    )


def _imaginary_size(rare: Indices, question: Indices) -> float:
    """How many cases of its kind an imaginary question has: as many as a question with a rare case has of them.

    One question of which every case is of the kind is added to those seen. So where none was seen the worst is
    supposed, and what was seen soon outweighs it.
    """
    known, seen = question[rare != MISSING], question[rare == 1]
    if not known.size:
        return 1.0
    whole = len(known) / len(np.unique(known))
    return float((len(seen) + whole) / (len(np.unique(seen)) + 1))


class _RatesByLabel(NamedTuple):
    """What people found on the sample."""

    human: float | None
    sampled: float
    """The judge's rate on the sample."""
    trust: float | None
    """How much more often people find a hit where the judge does; 0 where the judge tells nothing."""

    def corrected(self, judge: float) -> float | None:
        if self.human is None or self.trust is None:
            return None
        return self.human + self.trust * (judge - self.sampled)


def _rates_by_label(cells: Floats) -> _RatesByLabel:
    total = cells.sum()
    if not total:
        return _RatesByLabel(None, np.nan, None)
    passed, failed = ratio(cells[[3, 1]], cells[[2, 0]] + cells[[3, 1]])
    # With one label of the judge in the sample there is nothing to compare, and people decide alone.
    trust = 0.0 if np.isnan(passed - failed) else max(0.0, float(passed - failed))
    return _RatesByLabel(float(cells[[1, 3]].sum() / total), float(cells[[2, 3]].sum() / total), trust)


def _drawn_rates(sample: _Sample, rng: np.random.Generator, draws: int) -> Floats:
    """Rates of hits: the judge's label first, then people's where the judge gave that label."""
    drawn = _drawn_sums(np.hstack([sample.judged, sample.cells]), rng, draws)
    imaginary = sample.imaginary * rng.standard_gamma(IMAGINARY, (draws, 4))
    judged = drawn[:, :2] + imaginary.reshape(draws, 2, 2).sum(axis=2)
    cells = (drawn[:, 2:] + sample.heaviest * imaginary).reshape(draws, 2, 2)
    hits = cells[:, :, 1] / cells.sum(axis=2)
    rates: Floats = (judged * hits).sum(axis=1) / judged.sum(axis=1)
    return rates


def _drawn_sums(tables: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Sums over questions, each with a random weight of mean 1 (the Bayesian bootstrap).

    Questions with the same table share a draw of their total weight, so the cost does not grow with their number.
    """
    distinct, times = np.unique(tables, axis=0, return_counts=True)
    return rng.standard_gamma(times.astype(float), (draws, len(times))) @ distinct


def _around(value: float, drawn: Floats, questions: int, level: float) -> Interval:
    """The percentile interval, which holds the value in any case: at 0 and 1 the draws come near and do not arrive.

    Draws of n questions scatter less than their mean does, by (n - 1)/(n + 1) in variance.
    """
    freedom = max(questions - 1, 1)
    interval = percentile(drawn, expanded_level(level, freedom, (freedom + 2) / freedom))
    assert interval is not None
    return Interval(min(interval.low, value), max(interval.high, value))


@dataclass(frozen=True, slots=True)
class JudgeErrors:
    """How a judge's labels compare with people's, question by question, for use on other cases.

    Counts are in the order of the cells: neither sees a hit, people alone, the judge alone, both. Questions with the
    same counts are listed once.
    """

    counts: tuple[tuple[int, int, int, int], ...]
    questions: tuple[int, ...]
    """How many questions have these counts."""
    imaginary: float
    """How many cases an imaginary question has."""

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
        table: Floats = (np.array(self.questions, float) @ cells).reshape(2, 2).T
        return table


def carried_over_rate(
    judge: Indices,
    question: Indices,
    errors: JudgeErrors,
    *,
    rng: np.random.Generator,
    draws: int = DRAWS,
    level: float = 0.95,
) -> CorrectedRate:
    """The rate of hits among cases that nobody labelled, from how the judge erred on others.

    Supposes that the judge finds a hit, and takes something else for one, as often here as there (Rogan and Gladen).
    The rate itself may differ between the two. Nothing in the data can tell whether this is so.
    """
    by_judge = (judge[:, np.newaxis] == np.arange(2)).astype(float)
    found = _mean_label(by_judge.sum(axis=0))
    (_, human), (taken_for_hit, hit_found) = errors.table.sum(axis=1), _recalls(errors.table[np.newaxis])[0]
    tells = hit_found - taken_for_hit
    value = interval = None
    if found is not None and tells > 0:
        value = float(np.clip((found - taken_for_hit) / tells, 0, 1))
        sums = sum_by(question, by_judge, int(question.max()) + 1)
        interval = _around(value, _drawn_carried(sums, errors, rng, draws), sum(errors.questions), level)
    labelled = int(errors.table.sum())
    return CorrectedRate(
        judged=int(by_judge.sum()),
        unjudged=int((judge == MISSING).sum()),
        labelled=labelled,
        judge=found,
        human=float(human / labelled) if labelled else None,
        difference=None,
        trust=None,
        value=value,
        interval=interval,
    )


def _recalls(tables: Floats) -> Floats:
    """How often the judge sees a hit where people see none, and where they see one."""
    return ratio(tables[..., 1], tables.sum(axis=-1))


def _drawn_carried(judged: Floats, errors: JudgeErrors, rng: np.random.Generator, draws: int) -> Floats:
    found = _drawn_sums(judged, rng, draws) + rng.standard_gamma(IMAGINARY, (draws, 2))
    weights = rng.standard_gamma(np.array(errors.questions, float), (draws, len(errors.questions)))
    cells = weights @ np.array(errors.counts, float)
    cells += errors.imaginary * rng.standard_gamma(IMAGINARY, (draws, 4))
    recalls = _recalls(np.swapaxes(cells.reshape(draws, 2, 2), 1, 2))
    rates = ratio(found[:, 1] / found.sum(axis=1) - recalls[:, 0], recalls[:, 1] - recalls[:, 0])
    return np.clip(rates, 0, 1)
