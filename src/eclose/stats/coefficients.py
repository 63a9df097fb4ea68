"""How far two or more judges agree, and how far one judge reproduces another.

Every statistic here is a function of one table of counts, and tables add up: the table of a resample is the sum
of its clusters' tables. So each formula is written once, for a stack of tables, and serves the point estimate
and every bootstrap alike.

In a table of two judges the rows are the first judge (the person, the reference) and the columns the second.
Binary tables put label 0, the failure, first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.arrays import ratio, scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from eclose.stats.arrays import Floats, Indices

MISSING = -1
"""The code of a rating that was not given."""


class TableStatistic:
    """A number computed from a table of counts: call it with one table, or ask it ``over`` a stack of them."""

    def __init__(self, formula: Callable[[Floats], Floats]) -> None:
        self._formula = formula
        self.__doc__ = formula.__doc__
        self.__name__ = formula.__name__

    def __call__(self, table: ArrayLike) -> float | None:
        """The statistic of one table; None where it is undefined."""
        return scalar(self._formula(np.asarray(table, float)[np.newaxis])[0])

    def over(self, tables: Floats) -> Floats:
        """The statistic of every table in a stack; NaN where it is undefined."""
        return self._formula(tables)


def pair_tables(first: Indices, second: Indices, categories: int) -> Floats:
    """One table per case from two judges' codes; a case that either judge skipped counts nowhere."""
    tables = np.zeros((len(first), categories, categories))
    both = (first != MISSING) & (second != MISSING)
    tables[np.flatnonzero(both), first[both], second[both]] = 1
    return tables


def coincidence_tables(ratings: NDArray[np.intp], categories: int) -> Floats:
    """Krippendorff's coincidences per case, from a matrix of cases by judges with ``MISSING`` allowed.

    A case counts with as many values as it has, each value paired with the others of the case; a case with fewer
    than two values has no pairs.
    """
    counts = (ratings[:, :, np.newaxis] == np.arange(categories)).sum(axis=1).astype(float)
    given = counts.sum(axis=1)
    pairs = counts[:, :, np.newaxis] * counts[:, np.newaxis, :]
    diagonal = np.arange(categories)
    pairs[:, diagonal, diagonal] -= counts
    share = np.where(given > 1, 1 / np.maximum(given - 1, 1), 0)
    weighted: Floats = pairs * share[:, np.newaxis, np.newaxis]
    return weighted


def _total(tables: Floats) -> Floats:
    total: Floats = tables.sum(axis=(-2, -1))
    return total


def _agreed(tables: Floats) -> Floats:
    agreed: Floats = np.trace(tables, axis1=-2, axis2=-1)
    return agreed


def _prevalence(tables: Floats) -> Floats:
    """The share of each category in both judges' labels together."""
    both: Floats = tables.sum(axis=-1) + tables.sum(axis=-2)
    return ratio(both, both.sum(axis=-1, keepdims=True))


@TableStatistic
def raw_agreement(tables: Floats) -> Floats:
    """The share of cases on which both judges say the same."""
    return ratio(_agreed(tables), _total(tables))


@TableStatistic
def majority_prevalence(tables: Floats) -> Floats:
    """The share of the most frequent label among all labels given."""
    prevalence: Floats = _prevalence(tables).max(axis=-1)
    return prevalence


def specific_agreement(category: int) -> TableStatistic:
    """Agreement on one label: how often it is confirmed when one judge gives it."""

    def formula(tables: Floats) -> Floats:
        given = tables[..., category, :].sum(axis=-1) + tables[..., :, category].sum(axis=-1)
        return ratio(2 * tables[..., category, category], given)

    return TableStatistic(formula)


@TableStatistic
def nominal_alpha(tables: Floats) -> Floats:
    """Krippendorff's alpha for nominal labels, from coincidences; undefined when only one label was ever used.

    A table of two judges becomes coincidences by adding its transpose: ``nominal_alpha(table + table.T)``.
    """
    n = _total(tables)
    marginals = tables.sum(axis=-1)
    expected = n * n - (marginals * marginals).sum(axis=-1)
    return 1 - ratio((n - 1) * (n - _agreed(tables)), expected)


@TableStatistic
def pair_alpha(tables: Floats) -> Floats:
    """Krippendorff's alpha of two judges without missing labels."""
    return nominal_alpha.over(tables + np.swapaxes(tables, -2, -1))


@TableStatistic
def cohen_kappa(tables: Floats) -> Floats:
    """Agreement beyond what the two judges' own label frequencies would give."""
    n = _total(tables)
    by_chance = ratio((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), n * n)
    return ratio(raw_agreement.over(tables) - by_chance, 1 - by_chance)


@TableStatistic
def gwet_ac1(tables: Floats) -> Floats:
    """Agreement beyond chance, where chance is a coin on the hard cases: steady when nearly all labels are alike."""
    prevalence = _prevalence(tables)
    categories = tables.shape[-1]
    by_chance = (prevalence * (1 - prevalence)).sum(axis=-1) / max(categories - 1, 1)
    return ratio(raw_agreement.over(tables) - by_chance, 1 - by_chance)


@TableStatistic
def failure_f1(tables: Floats) -> Floats:
    """F1 of label 0, the failure; undefined when neither judge ever gives it."""
    found = tables[..., 0, 0]
    return ratio(2 * found, 2 * found + tables[..., 0, 1] + tables[..., 1, 0])


@TableStatistic
def failure_precision(tables: Floats) -> Floats:
    """How many of the second judge's failures the first confirms."""
    return ratio(tables[..., 0, 0], tables[..., :, 0].sum(axis=-1))


@TableStatistic
def failure_recall(tables: Floats) -> Floats:
    """How many of the first judge's failures the second finds."""
    return ratio(tables[..., 0, 0], tables[..., 0, :].sum(axis=-1))


@TableStatistic
def balanced_accuracy(tables: Floats) -> Floats:
    """The second judge's recall of the first judge's labels, averaged over the two labels."""
    recalls = ratio(np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(axis=-1))
    balanced: Floats = recalls.mean(axis=-1)
    return balanced


@TableStatistic
def failure_rate_difference(tables: Floats) -> Floats:
    """The second judge's failure rate minus the first's."""
    return ratio(tables[..., :, 0].sum(axis=-1) - tables[..., 0, :].sum(axis=-1), _total(tables))
