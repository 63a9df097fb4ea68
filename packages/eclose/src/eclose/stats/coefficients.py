"""Coefficients of agreement between judges, and of how well one judge reproduces another.

Each statistic is a function of a table of counts. Tables add up: the table of a resample is the sum of the tables of
its clusters. So each formula is written once, for a stack of tables, and serves the point estimate and every bootstrap.

In a table of two judges the rows are the first judge (the person, the reference) and the columns the second. Binary
tables have label 0, the failure, first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.arrays import divide_or_nan, float_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from eclose.stats.arrays import Floats, Indices

MISSING_CODE = -1
"""The code of a missing rating."""


class TableStatistic:
    """A statistic of a table of counts. Call it with one table, or use ``over`` for a stack of tables."""

    def __init__(self, formula: Callable[[Floats], Floats]) -> None:
        self._formula = formula
        self.__doc__ = formula.__doc__
        self.__name__ = formula.__name__

    def __call__(self, table: ArrayLike) -> float | None:
        """Return the statistic of one table; None where undefined."""
        return float_or_none(self._formula(np.asarray(table, float)[np.newaxis])[0])

    def over(self, tables: Floats) -> Floats:
        """Return the statistic of every table in a stack; NaN where undefined."""
        return self._formula(tables)


def judge_pair_tables(first: Indices, second: Indices, categories: int) -> Floats:
    """Return one table per case from the codes of two judges; all zeros where a judge gave no code."""
    tables = np.zeros((len(first), categories, categories))
    both = (first != MISSING_CODE) & (second != MISSING_CODE)
    tables[np.flatnonzero(both), first[both], second[both]] = 1
    return tables


def coincidence_tables(ratings: NDArray[np.intp], categories: int) -> Floats:
    """Return Krippendorff's coincidences per case, from a matrix of cases by judges with ``MISSING_CODE`` allowed.

    Each value is paired with the other values of its case, and a case weighs as much as it has values. A case with
    fewer than two values has no pairs.
    """
    # counts: (cases, categories); pairs and the result: (cases, categories, categories).
    counts = (ratings[:, :, np.newaxis] == np.arange(categories)).sum(axis=1).astype(float)
    values = counts.sum(axis=1)
    pairs = counts[:, :, np.newaxis] * counts[:, np.newaxis, :]
    diagonal = np.arange(categories)
    # A value is not paired with itself.
    pairs[:, diagonal, diagonal] -= counts
    share = np.where(values > 1, 1 / np.maximum(values - 1, 1), 0)
    weighted: Floats = pairs * share[:, np.newaxis, np.newaxis]
    return weighted


def _total(tables: Floats) -> Floats:
    """Return the number of cases of each table."""
    total: Floats = tables.sum(axis=(-2, -1))
    return total


def _agreed(tables: Floats) -> Floats:
    """Return the number of cases in agreement: the diagonal."""
    agreed: Floats = np.trace(tables, axis1=-2, axis2=-1)
    return agreed


def _prevalence(tables: Floats) -> Floats:
    """Return the share of each category among the labels of both judges."""
    # Row and column margins together count every label.
    both: Floats = tables.sum(axis=-1) + tables.sum(axis=-2)
    return divide_or_nan(both, both.sum(axis=-1, keepdims=True))


@TableStatistic
def raw_agreement(tables: Floats) -> Floats:
    """Return the share of cases in which both judges give the same label."""
    return divide_or_nan(_agreed(tables), _total(tables))


@TableStatistic
def majority_prevalence(tables: Floats) -> Floats:
    """Return the share of the most frequent label among all labels."""
    prevalence: Floats = _prevalence(tables).max(axis=-1)
    return prevalence


def specific_agreement(category: int) -> TableStatistic:
    """Return the statistic of agreement on one label: how often the other judge confirms it."""

    def formula(tables: Floats) -> Floats:
        uses = tables[..., category, :].sum(axis=-1) + tables[..., :, category].sum(axis=-1)
        return divide_or_nan(2 * tables[..., category, category], uses)

    return TableStatistic(formula)


@TableStatistic
def nominal_alpha(tables: Floats) -> Floats:
    """Return Krippendorff's alpha for nominal labels, from coincidences; undefined when only one label occurs.

    A table of two judges becomes coincidences by adding its transpose: ``nominal_alpha(table + table.T)``.
    """
    n = _total(tables)
    marginals = tables.sum(axis=-1)
    # 1 - observed/expected disagreement, both multiplied by n(n - 1).
    expected = n * n - (marginals * marginals).sum(axis=-1)
    return 1 - divide_or_nan((n - 1) * (n - _agreed(tables)), expected)


@TableStatistic
def pair_alpha(tables: Floats) -> Floats:
    """Return Krippendorff's alpha of two judges without missing labels."""
    return nominal_alpha.over(tables + np.swapaxes(tables, -2, -1))


@TableStatistic
def cohen_kappa(tables: Floats) -> Floats:
    """Return Cohen's kappa: agreement beyond what the label frequencies of each judge would give by chance."""
    n = _total(tables)
    by_chance = divide_or_nan((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), n * n)
    return divide_or_nan(raw_agreement.over(tables) - by_chance, 1 - by_chance)


@TableStatistic
def gwet_ac1(tables: Floats) -> Floats:
    """Return Gwet's AC1: agreement beyond chance that stays stable when nearly all labels are alike."""
    prevalence = _prevalence(tables)
    categories = tables.shape[-1]
    # For two labels this is 2p(1 - p), which vanishes as one label takes over; kappa's chance agreement approaches 1.
    by_chance = (prevalence * (1 - prevalence)).sum(axis=-1) / max(categories - 1, 1)
    return divide_or_nan(raw_agreement.over(tables) - by_chance, 1 - by_chance)


@TableStatistic
def failure_f1(tables: Floats) -> Floats:
    """Return F1 of label 0, the failure; undefined when no judge gives it."""
    shared = tables[..., 0, 0]
    return divide_or_nan(2 * shared, 2 * shared + tables[..., 0, 1] + tables[..., 1, 0])


@TableStatistic
def failure_precision(tables: Floats) -> Floats:
    """Return the share of the second judge's failures that the first confirms."""
    return divide_or_nan(tables[..., 0, 0], tables[..., :, 0].sum(axis=-1))


@TableStatistic
def failure_recall(tables: Floats) -> Floats:
    """Return the share of the first judge's failures that the second finds."""
    return divide_or_nan(tables[..., 0, 0], tables[..., 0, :].sum(axis=-1))


@TableStatistic
def balanced_accuracy(tables: Floats) -> Floats:
    """Return the second judge's recall of the first judge's labels, averaged over the two labels."""
    recalls = divide_or_nan(np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(axis=-1))
    balanced: Floats = recalls.mean(axis=-1)
    return balanced


@TableStatistic
def failure_rate_difference(tables: Floats) -> Floats:
    """Return the second judge's failure rate minus the first's."""
    return divide_or_nan(tables[..., :, 0].sum(axis=-1) - tables[..., 0, :].sum(axis=-1), _total(tables))
