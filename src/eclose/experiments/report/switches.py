"""Switch rates of every method and the gains of the reference method (appendix D.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.core.preference_comparisons import Edge
from eclose.experiments.report.main_results import subtract_columns
from eclose.experiments.report.method_names import REFERENCE_METHOD
from eclose.experiments.report.outcomes import SWITCH_COLUMNS, SWITCHED, MeanRate, OutcomeTable
from eclose.stats.bootstrap import shared_questions_design
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.experiments.bootstrap_plan import BootstrapDraws


@dataclass(frozen=True)
class SwitchResults:
    """Switch rates of the methods on some backbones."""

    outcomes: OutcomeTable
    rates: Mapping[str, Mapping[str, MeanRate]]
    """Means over settings, by method and column such as ``S SW``."""
    gains: Mapping[str, Mapping[Edge, Estimate]]
    """Switch rate of the reference method minus that of another method, by that method."""


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
        arrays = outcomes.arrange([name_switch_column(edge) for edge in Edge])
        design = arrays.design
        shared = shared_questions_design(design.datasets, backbones=design.backbones, seeds=design.seeds)
        rng = np.random.default_rng(draws.seed)
        replicates = arrays.bootstrap(rng=rng, resamples=draws.resamples, design=shared)

    def subtract(method: str, edge: Edge) -> Estimate:
        column = name_switch_column(edge)
        columns = (arrays.column(REFERENCE_METHOD, column), arrays.column(method, column)) if arrays else (0, 0)
        return subtract_columns(replicates, columns, rates[REFERENCE_METHOD][column], rates[method][column])

    others = [method for method in methods if method != REFERENCE_METHOD] if REFERENCE_METHOD in methods else []
    return SwitchResults(
        outcomes, rates, {method: {edge: subtract(method, edge) for edge in Edge} for method in others}
    )
