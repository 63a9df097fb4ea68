"""Ablations of the reference method on one backbone, with questions pooled over benchmarks (appendix D.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eclose.experiments.report.grid import REFERENCE_METHOD, name_method
from eclose.experiments.report.outcomes import (
    RESPONSE_COLUMNS,
    ComparedRates,
    MeanRate,
    OutcomeTable,
    tabulate_responses,
)
from eclose.metrics.experiment import get_response_method
from eclose.metrics.rates import Metric
from eclose.stats.bootstrap import pooled_questions_design
from eclose.stats.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.verdict import SettledVerdict
    from eclose.experiments.plan import BootstrapDraws
    from eclose.experiments.report.inputs import ExperimentResults

TARGET_METRICS = {
    "w/o S": Metric.LOCAL_SOUNDNESS_RATE,
    "w/o T": Metric.ALIGNMENT_RATE,
    "w/o C": Metric.CLOSURE_RATE,
    "One-sided": Metric.ACCURACY,
}
"""The metric that an ablation should lower."""


@dataclass(frozen=True, slots=True)
class AblationGain:
    """The full method compared with a variant; positive values favour the full method."""

    variant: str
    metric: Metric | None
    """The metric that the ablation targets; None for a variant that is not the paper's."""
    metric_gain: Estimate | None
    """Full minus variant."""
    reliability_gain: Estimate
    """TRR of the full method minus that of the variant."""
    gap_reduction: Estimate
    """LGG of the variant minus that of the full method."""


@dataclass(frozen=True)
class AblationResults:
    """Rates of the variants on one backbone; the full method comes last."""

    backbone: str
    outcomes: OutcomeTable
    rates: Mapping[str, Mapping[str, MeanRate]]
    """Means over seeds of the rates over all questions, by variant and column."""
    gains: tuple[AblationGain, ...]


def summarize_ablations(results: ExperimentResults, draws: BootstrapDraws) -> Iterator[AblationResults]:
    """Yield the ablations of each backbone, with intervals where its grid is complete."""
    backbones = dict.fromkeys(row.source.model for row in results.ablations if row.source)
    for backbone in backbones:
        rows = [row for row in results.ablations if row.source and row.source.model == backbone]
        # The full method was trained for the main comparison; its responses are not repeated among the ablations.
        if not any(_is_method(row, REFERENCE_METHOD) for row in rows):
            rows += [
                row
                for row in results.verdicts
                if row.source and row.source.model == backbone and _is_method(row, REFERENCE_METHOD)
            ]
        planned = replace(results.ablation_grid, backbones=(backbone,)) if results.ablation_grid else None
        outcomes = tabulate_responses(rows, results.matches, planned)
        yield _summarize_backbone(backbone, outcomes, draws)


def _is_method(row: SettledVerdict, method: str) -> bool:
    return name_method(get_response_method(row)) == method


def _summarize_backbone(backbone: str, outcomes: OutcomeTable, draws: BootstrapDraws) -> AblationResults:
    methods = outcomes.grid.methods
    variants = [method for method in methods if method != REFERENCE_METHOD]
    ordered = [*variants, REFERENCE_METHOD] if REFERENCE_METHOD in methods else variants
    rates = {
        method: {column: outcomes.average_pooled(method, backbone, column) for column in RESPONSE_COLUMNS}
        for method in ordered
    }
    if REFERENCE_METHOD not in methods:
        return AblationResults(backbone, outcomes, rates, ())
    arrays = replicates = None
    if outcomes.complete:
        arrays = outcomes.arrange()
        design = pooled_questions_design(arrays.table.hits.shape[2], seeds=arrays.design.seeds)
        rng = np.random.default_rng(draws.seed)
        replicates = arrays.bootstrap(rng=rng, resamples=draws.resamples, design=design)

    compared = ComparedRates(rates, arrays, replicates)

    def subtract(first: str, second: str, column: str) -> Estimate:
        return compared.subtract((first, column), (second, column))

    gains = []
    for variant in variants:
        metric = TARGET_METRICS.get(variant)
        gains.append(
            AblationGain(
                variant,
                metric,
                None if metric is None else subtract(REFERENCE_METHOD, variant, metric),
                subtract(REFERENCE_METHOD, variant, Metric.TRACE_RELIABILITY_RATE),
                subtract(variant, REFERENCE_METHOD, Metric.GAP_RATE),
            )
        )
    return AblationResults(backbone, outcomes, rates, tuple(gains))
