"""Switch rates of every method and the gains of the reference method (appendix D.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.core.preference_comparisons import Edge
from eclose.experiments.report.main_results import subtract_columns
from eclose.experiments.report.outcomes import SWITCH_COLUMNS, SWITCHED, MeanRate, OutcomeTable
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from eclose.experiments.report.inputs import IntervalSettings


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


def summarize_switches(outcomes: OutcomeTable, settings: IntervalSettings) -> SwitchResults:
    """Compute switch rates and gains; with intervals where every model was tested on every family."""
    methods, reference = outcomes.grid.methods, settings.reference
    rates = {
        method: {column: outcomes.average_settings(method, column) for column in SWITCH_COLUMNS} for method in methods
    }
    arrays = replicates = None
    if outcomes.complete and reference in methods:
        arrays = outcomes.arrange([name_switch_column(edge) for edge in Edge])
        rng = np.random.default_rng(settings.switch_seed)
        replicates = arrays.bootstrap_shared_questions(rng=rng, resamples=settings.switch_resamples)

    def subtract(method: str, edge: Edge) -> Estimate:
        column = name_switch_column(edge)
        columns = (arrays.column(reference, column), arrays.column(method, column)) if arrays else (0, 0)
        return subtract_columns(replicates, columns, rates[reference][column], rates[method][column])

    others = [method for method in methods if method != reference] if reference in methods else []
    return SwitchResults(
        outcomes, rates, {method: {edge: subtract(method, edge) for edge in Edge} for method in others}
    )
