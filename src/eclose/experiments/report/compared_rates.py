"""Rates of the methods of an experiment, and their paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from eclose.experiments.report.outcomes import MeanRate
from eclose.metrics.experiment import ExperimentArrays
from eclose.stats.bootstrap import BootstrapReplicates
from eclose.stats.intervals import Estimate

RateKey: TypeAlias = tuple[str, str]
"""Method and column of a rate."""


@dataclass(frozen=True)
class ComparedRates:
    """Rates by method and column, with the resamples they share where every run of the grid is there."""

    rates: Mapping[str, Mapping[str, MeanRate]]
    arrays: ExperimentArrays | None = None
    replicates: BootstrapReplicates | None = None

    def __contains__(self, key: RateKey) -> bool:
        return key[1] in self.rates.get(key[0], {})

    def rate(self, key: RateKey) -> MeanRate:
        """Return a rate."""
        return self.rates[key[0]][key[1]]

    def subtract(self, first: RateKey, second: RateKey) -> Estimate:
        """Return the first rate minus the second; without interval where nothing was resampled."""
        if self.arrays is None or self.replicates is None:
            return Estimate(subtract_rates(self.rate(first), self.rate(second)), None)
        # Draws are shared by all methods, so the difference is taken resample by resample.
        return self.replicates.difference(self.arrays.column(*first), self.arrays.column(*second))


def subtract_rates(first: MeanRate, second: MeanRate) -> float | None:
    """Return the difference of two rates; None where one of them is undefined."""
    return None if first.value is None or second.value is None else first.value - second.value
