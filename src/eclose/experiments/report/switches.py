"""Switch rates of every method and the gains of the reference method (appendix D.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.core.preference_comparisons import Edge
from eclose.experiments.report.compared_rates import ComparedRates
from eclose.experiments.report.method_names import REFERENCE_METHOD
from eclose.experiments.report.outcomes import SWITCH_COLUMNS, SWITCHED, MeanRate, OutcomeTable
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.experiments.bootstrap_plan import BootstrapDraws


@dataclass(frozen=True)
class SwitchResults:
    """Switch rates of the methods on some backbones."""

    outcomes: OutcomeTable
    compared: ComparedRates
    """Means over settings; columns are such as ``S SW``."""
    gains: Mapping[str, Mapping[Edge, Estimate]]
    """Switch rate of the reference method minus that of another method, by that method."""

    @property
    def rates(self) -> Mapping[str, Mapping[str, MeanRate]]:
        """Means over settings by method and column."""
        return self.compared.rates


def name_switch_column(edge: Edge) -> str:
    """Return the column of the joint switch rate of an edge."""
    return f"{edge} {SWITCHED}"


def summarize_switches(outcomes: OutcomeTable, draws: BootstrapDraws) -> SwitchResults:
    """Compute switch rates and gains; with intervals where every model was tested on every family."""
    methods = outcomes.grid.methods
    rates = {
        method: {column: outcomes.average_settings(method, column) for column in SWITCH_COLUMNS} for method in methods
    }
    arrays = replicates = None
    if outcomes.complete and REFERENCE_METHOD in methods:
        arrays = outcomes.arrange(SWITCH_COLUMNS)
        rng = np.random.default_rng(draws.seed)
        replicates = arrays.bootstrap_shared_questions(rng=rng, resamples=draws.resamples)
    compared = ComparedRates(rates, arrays, replicates)
    others = [method for method in methods if method != REFERENCE_METHOD] if REFERENCE_METHOD in methods else []
    gains = {method: {edge: _compare_switches(compared, method, edge) for edge in Edge} for method in others}
    return SwitchResults(outcomes, compared, gains)


def _compare_switches(compared: ComparedRates, method: str, edge: Edge) -> Estimate:
    column = name_switch_column(edge)
    return compared.subtract((REFERENCE_METHOD, column), (method, column))
