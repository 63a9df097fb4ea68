"""The bootstrap as a matrix of weights.

A resample is a row of counts: how often each unit was drawn. A statistic of a thousand resamples is then one matrix
product instead of a thousand loops. A ``ResamplingDesign`` draws the rows; the caller computes the statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from eclose.stats.arrays import Floats, Indices, float_or_none
from eclose.stats.intervals import Estimate, percentile_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)

RESAMPLE_BLOCK = 256
"""Resamples held in memory at once. Results do not depend on it: every stream of draws has its own generator."""
RESAMPLE_WEIGHTS = 2**21
"""Weights held in memory at once (16 MB); with more than 8,192 units a block has fewer resamples."""


class ResamplingDesign(Protocol[W_co]):
    """A way to draw resamples, with the weights of the sample itself."""

    def original(self) -> W_co:
        """Return the weights of the sample itself: one row."""

    def draw(self, rng: np.random.Generator, resamples: int) -> Iterator[W_co]:
        """Yield the weights of the resamples in blocks of rows."""


@dataclass(frozen=True)
class BootstrapReplicates:
    """Point estimates with their resampled values; an undefined value is NaN."""

    values: Floats
    """One value per statistic."""
    draws: Floats
    """Resamples by statistics."""

    def estimate(self, which: int = 0, level: float = 0.95) -> Estimate:
        """Return one statistic with its percentile interval."""
        return _estimate(self.values[which], self.draws[:, which], level)

    def difference(self, first: int, second: int, level: float = 0.95) -> Estimate:
        """Return the first statistic minus the second, paired resample by resample."""
        return _estimate(self.values[first] - self.values[second], self.draws[:, first] - self.draws[:, second], level)

    def estimates(self, level: float = 0.95) -> list[Estimate]:
        """Return every statistic with its percentile interval."""
        return [self.estimate(index, level) for index in range(len(self.values))]


def _estimate(value: float, draws: Floats, level: float) -> Estimate:
    return Estimate(float_or_none(value), percentile_interval(draws, level), int(np.isnan(draws).sum()))


def bootstrap(
    design: ResamplingDesign[W], evaluate: Callable[[W], Floats], *, rng: np.random.Generator, resamples: int
) -> BootstrapReplicates:
    """Evaluate the sample and its resamples with the same function.

    ``evaluate`` takes a block of weights and returns one row of statistics per resample.
    """
    draws = [evaluate(block) for block in design.draw(rng, resamples)]
    # The sample itself is one more row of weights, so estimate and draws cannot follow different formulas.
    return BootstrapReplicates(evaluate(design.original())[0], np.concatenate(draws))


def resample_block_sizes(resamples: int, units: int = 1) -> Iterator[int]:
    """Yield the sizes of blocks that add up to the number of resamples, each a draw of ``units`` units."""
    block = max(1, min(RESAMPLE_BLOCK, RESAMPLE_WEIGHTS // max(units, 1)))
    for start in range(0, resamples, block):
        yield min(block, resamples - start)


def draw_resample_counts(rng: np.random.Generator, rows: int, size: int) -> Floats:
    """Draw ``size`` of ``size`` units with replacement, ``rows`` times; return how often each unit was drawn."""
    drawn = rng.integers(size, size=(rows, size))
    # Each row counts in its own range of numbers, so one bincount serves all rows.
    drawn += np.arange(rows)[:, np.newaxis] * size
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(float)


@dataclass(frozen=True)
class StratifiedDesign:
    """Units drawn with replacement within each stratum. A single stratum is the plain bootstrap."""

    stratum: Indices
    """Stratum of each unit, numbered from zero."""

    @classmethod
    def single(cls, size: int) -> StratifiedDesign:
        """Put all units in one stratum."""
        return cls(np.zeros(size, np.intp))

    @property
    def members(self) -> list[Indices]:
        """Units of each stratum."""
        return [np.flatnonzero(self.stratum == number) for number in range(int(self.stratum.max(initial=-1)) + 1)]

    def original(self) -> Floats:
        """Return each unit once."""
        return np.ones((1, len(self.stratum)))

    def draw(self, rng: np.random.Generator, resamples: int) -> Iterator[Floats]:
        """Yield how often each unit is drawn, in blocks of rows."""
        members = self.members
        # A stream per stratum: the draws of a stratum do not depend on the block size or on the other strata.
        streams = rng.spawn(len(members))
        for rows in resample_block_sizes(resamples, len(self.stratum)):
            yield self.fill(rows, streams, members)

    def fill(self, rows: int, streams: list[np.random.Generator], members: list[Indices]) -> Floats:
        """Draw one block of rows, each stratum from its own stream."""
        weights = np.zeros((rows, len(self.stratum)))
        for stream, units in zip(streams, members, strict=True):
            weights[:, units] = draw_resample_counts(stream, rows, len(units))
        return weights
