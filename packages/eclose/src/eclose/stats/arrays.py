"""Array types and helpers of the statistics. An undefined value is NaN inside an array and None outside."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Codes: TypeAlias = NDArray[np.integer[Any]]
Flags: TypeAlias = NDArray[np.bool_]


def divide_or_nan(numerator: Floats, denominator: Floats) -> Floats:
    """Return the elementwise quotient; NaN where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    # Filled beforehand, because elements that are not divided keep the value of ``out``.
    out: Floats = np.full(shape, np.nan)
    np.divide(numerator, denominator, out=out, where=np.broadcast_to(denominator, shape) != 0)
    return out


def float_or_none(value: float | np.floating[Any]) -> float | None:
    """Return a float, or None for NaN."""
    return None if np.isnan(value) else float(value)


def number_distinct_labels(labels: Sequence[object]) -> tuple[Indices, list[Any]]:
    """Assign numbers to the distinct labels in order of first appearance.

    Returns the number of each label, and the distinct labels.
    """
    numbers: dict[object, int] = {}
    coded = np.fromiter((numbers.setdefault(label, len(numbers)) for label in labels), np.intp, len(labels))
    return coded, list(numbers)


def sum_by_group(groups: Indices, values: Floats, count: int) -> Floats:
    """Sum the rows of ``values`` within each of ``count`` groups."""
    # bincount sums one column at a time, so all further axes are flattened to columns first.
    flat = values.reshape(len(values), prod(values.shape[1:]))
    sums: Floats = np.stack([np.bincount(groups, column, minlength=count).astype(float) for column in flat.T], axis=1)
    return sums.reshape(count, *values.shape[1:])
