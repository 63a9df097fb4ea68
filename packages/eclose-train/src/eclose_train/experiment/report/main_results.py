"""Rates and switch rates of every method, and gains of the reference method over others and over its ablations.

Intervals are those of appendices D.2, D.6 and D.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.metrics.rates import Metric
from eclose.metrics.summary import get_response_method
from eclose.stats.bootstrap import pooled_questions_design
from eclose.stats.intervals import Estimate
from eclose_train.experiment.report.grid import REFERENCE_METHOD, name_method
from eclose_train.experiment.report.outcomes import (
    ALL_METRICS,
    GAP_CLASSES,
    MATCH,
    MATCH_ONLY,
    RESPONSE_COLUMNS,
    SEMANTIC_ONLY,
    SWITCH_COLUMNS,
    SWITCHED,
    ComparedRates,
    MeanRate,
    OutcomeTable,
    subtract_rates,
    tabulate_responses,
)
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.verdict import SettledVerdict
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.inputs import ExperimentResults


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


OVERALL_COLUMNS = (*ALL_METRICS, MATCH, MATCH_ONLY, SEMANTIC_ONLY)
LOWER_IS_BETTER = frozenset({Metric.GAP_RATE, *GAP_CLASSES})
"""Rates of failures: the smaller, the better."""
TIE = 1e-9
"""Differences below this are ties: one response more or less changes a rate by far more."""


class SettingTally(NamedTuple):
    """Number of settings in which the reference method is better, equal and worse."""

    won: int
    tied: int
    lost: int


@dataclass(frozen=True, slots=True)
class MethodGain:
    """The reference method minus another one."""

    method: str
    differences: Mapping[str, Estimate]
    """Differences of the means over settings, by column; without interval where the grid is incomplete."""
    settings: Mapping[str, SettingTally]
    """Settings won, by the exact values."""
    reliability_ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest gain in TRR over the backbones, by benchmark."""


@dataclass(frozen=True)
class MainResults:
    """Rates of the main comparison."""

    outcomes: OutcomeTable
    compared: ComparedRates
    """Means over settings."""
    gains: tuple[MethodGain, ...]
    """One entry per other method; empty where the reference method is not in the experiment."""

    @property
    def overall(self) -> Mapping[str, Mapping[str, MeanRate]]:
        """Means over settings by method and column."""
        return self.compared.rates


def summarize_main_results(outcomes: OutcomeTable, draws: BootstrapDraws) -> MainResults:
    """Compute the rates and gains, with paired hierarchical intervals where the grid is complete."""
    methods = outcomes.grid.methods
    overall = {
        method: {column: outcomes.average_settings(method, column) for column in OVERALL_COLUMNS} for method in methods
    }
    arrays = replicates = None
    if outcomes.complete:
        arrays = outcomes.arrange(OVERALL_COLUMNS)
        rng = np.random.default_rng(draws.seed)
        replicates = arrays.bootstrap(rng=rng, resamples=draws.resamples)
        for method in methods:
            for column in OVERALL_COLUMNS:
                estimate = replicates.estimate(arrays.column(method, column))
                overall[method][column] = overall[method][column].with_estimate(estimate)
    compared = ComparedRates(overall, arrays, replicates)
    others = [method for method in methods if method != REFERENCE_METHOD] if REFERENCE_METHOD in methods else []
    return MainResults(outcomes, compared, tuple(_compare_methods(outcomes, compared, method) for method in others))


def _compare_methods(outcomes: OutcomeTable, compared: ComparedRates, method: str) -> MethodGain:
    grid = outcomes.grid
    by_setting = {
        column: {
            setting: subtract_rates(
                outcomes.average_seeds(REFERENCE_METHOD, *setting, column),
                outcomes.average_seeds(method, *setting, column),
            )
            for setting in grid.settings
        }
        for column in OVERALL_COLUMNS
    }
    ranges = {}
    for benchmark in grid.benchmarks:
        gains = [by_setting[Metric.TRACE_RELIABILITY_RATE][backbone, benchmark] for backbone in grid.backbones]
        defined = [gain for gain in gains if gain is not None]
        if defined:
            ranges[benchmark] = (min(defined), max(defined))
    return MethodGain(
        method,
        {column: _subtract_shown(compared, column, method) for column in OVERALL_COLUMNS},
        {column: _tally_settings(column, list(gains.values())) for column, gains in by_setting.items()},
        ranges,
    )


def _subtract_shown(compared: ComparedRates, column: str, method: str) -> Estimate:
    """Return the gain over a method, undefined where too few responses of one of both are judged."""
    keys = (REFERENCE_METHOD, column), (method, column)
    if any(compared.rate(key).shown is None for key in keys):
        return Estimate(None, None)
    return compared.subtract(*keys)


def _tally_settings(column: str, gains: Sequence[float | None]) -> SettingTally:
    """Count settings won, tied and lost; settings without both rates are in none of them."""
    sign = -1 if column in LOWER_IS_BETTER else 1
    defined = [sign * gain for gain in gains if gain is not None]
    won, lost = sum(gain > TIE for gain in defined), sum(gain < -TIE for gain in defined)
    return SettingTally(won, len(defined) - won - lost, lost)


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
