"""Outcomes of responses and families as a table of labels, with the rates and means that the tables print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from eclose.errors import UserError
from eclose.metrics.rates import Metric, MetricIndicators, make_metric_indicators
from eclose.stats.arrays import number_distinct_labels, sum_by_group
from eclose.stats.bootstrap import BootstrapReplicates
from eclose.stats.intervals import Estimate, Interval
from eclose.stats.rates import Rate, mean_or_none
from eclose.values.judgment import MAX_UNJUDGED_SHARE
from eclose.values.response import UNTUNED_METHOD
from eclose.values.verdict import FailureClass
from eclose_train.experiment.report.grid import (
    ExperimentGrid,
    MissingResponses,
    derive_grid,
    find_missing_responses,
    name_method,
)
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.pooling import (
    ExperimentArrays,
    ExperimentUnit,
    indicate_labels,
    locate_response,
    refuse_missing_seeds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eclose.values.three_valued import Label
    from eclose.values.verdict import SettledVerdict, Verdict
    from eclose_train.training.switch_test import FamilySwitchScores

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


ALL_METRICS = (
    Metric.ACCURACY,
    Metric.LOCAL_SOUNDNESS_RATE,
    Metric.ALIGNMENT_RATE,
    Metric.CLOSURE_RATE,
    Metric.GLOBAL_SUFFICIENCY_RATE,
    Metric.TRACE_RELIABILITY_RATE,
    Metric.GAP_RATE,
)
"""Columns of the overall figure and of the ablations."""
MATCH, MATCH_ONLY, SEMANTIC_ONLY = "Acc_match", "Match only", "Semantic only"
"""Accuracy by deterministic matching, and answers that only one of matching and evaluator accepts."""
GAP_CLASSES = {
    "PD": FailureClass.PATH_DEVIATION,
    "IR": FailureClass.INCOMPLETE_REASONING,
    "AD": FailureClass.ANSWER_DECOUPLING,
}
"""Failure classes of the gap, counted among all responses."""
ORIGINAL, COUNTERFACTUAL, SWITCHED = "O", "CF", "SW"
RESPONSE_COLUMNS = (*ALL_METRICS, MATCH, MATCH_ONLY, SEMANTIC_ONLY, *GAP_CLASSES)
SWITCH_COLUMNS = tuple(f"{edge} {kind}" for edge in Edge for kind in (ORIGINAL, COUNTERFACTUAL, SWITCHED))


@dataclass(frozen=True, slots=True)
class MeanRate:
    """A rate, or the mean of several, with the numbers behind it."""

    value: float | None
    n: int
    """Judged responses of all parts together."""
    unjudged: int = 0
    parts: int = 1
    """Number of rates that were averaged."""
    interval: Interval | None = None
    undefined: int = 0
    """Resamples without a value."""

    @property
    def shown(self) -> float | None:
        """The value that tables print; None where too few responses have a label."""
        total = self.n + self.unjudged
        return None if total and self.unjudged / total > MAX_UNJUDGED_SHARE else self.value

    @property
    def shown_interval(self) -> Interval | None:
        """The interval that tables print; None where they print no value."""
        return None if self.shown is None else self.interval

    def with_estimate(self, estimate: Estimate) -> MeanRate:
        """Return the rate with the interval of an estimate."""
        return replace(self, interval=estimate.interval, undefined=estimate.undefined)


@dataclass(frozen=True)
class OutcomeTable:
    """Labels of responses or families in an experiment: a row for each, a column for each rate."""

    units: tuple[ExperimentUnit, ...]
    columns: tuple[str, ...]
    indicators: MetricIndicators
    grid: ExperimentGrid
    missing: tuple[MissingResponses, ...]

    @classmethod
    def of(
        cls,
        units: Sequence[ExperimentUnit],
        columns: tuple[str, ...],
        indicators: MetricIndicators,
        grid: ExperimentGrid | None = None,
    ) -> OutcomeTable:
        """Build the table and compare it with the grid."""
        grid = grid or derive_grid(units)
        missing = find_missing_responses(units, grid)
        return cls(tuple(units), columns, indicators, grid, missing)

    @property
    def complete(self) -> bool:
        """Whether every run of the grid has every response."""
        return not self.missing

    @cached_property
    def _runs(self) -> dict[tuple[str, str, int | None, str], dict[str, Rate]]:
        """Rates of every column by method, backbone, seed and benchmark."""
        group, runs = number_distinct_labels([unit[:4] for unit in self.units])
        hits, counted = (sum_by_group(group, part, len(runs)) for part in self.indicators)
        sizes = np.bincount(group, minlength=len(runs))
        return {
            run: {
                column: Rate(int(hits[number, at]), int(counted[number, at]), int(sizes[number] - counted[number, at]))
                for at, column in enumerate(self.columns)
            }
            for number, run in enumerate(runs)
        }

    def rate(self, method: str, backbone: str, seed: int | None, benchmark: str, column: str) -> Rate | None:
        """Return the rate of a run on a benchmark; None where it has no response."""
        run = self._runs.get((method, backbone, seed, benchmark))
        return None if run is None else run[column]

    def pool(self, method: str, backbone: str, seed: int | None, column: str) -> Rate | None:
        """Return the rate of a run with all benchmarks pooled; None where it has no response."""
        rates = [self.rate(method, backbone, seed, benchmark, column) for benchmark in self.grid.benchmarks]
        present = [rate for rate in rates if rate is not None]
        if not present:
            return None
        return Rate(
            sum(rate.hits for rate in present),
            sum(rate.n for rate in present),
            sum(rate.unjudged for rate in present),
        )

    def seed_rates(self, method: str, backbone: str, benchmark: str, column: str) -> list[Rate]:
        """Return the rate of every seed that has responses."""
        rates = (self.rate(method, backbone, seed, benchmark, column) for seed in self.grid.seeds_of(method))
        return [rate for rate in rates if rate is not None]

    def average_seeds(self, method: str, backbone: str, benchmark: str, column: str) -> MeanRate:
        """Return the mean over seeds in one setting; a seed counts once, whatever its number of judged responses."""
        return average_rates(self.seed_rates(method, backbone, benchmark, column))

    def average_settings(self, method: str, column: str) -> MeanRate:
        """Return the mean over all settings with equal weight; undefined where a setting has no response."""
        return average_rates(self.average_seeds(method, *setting, column) for setting in self.grid.settings)

    def average_pooled(self, method: str, backbone: str, column: str) -> MeanRate:
        """Return the mean over seeds of the rates with all benchmarks pooled."""
        pooled = [self.pool(method, backbone, seed, column) for seed in self.grid.seeds_of(method)]
        return average_rates(rate for rate in pooled if rate is not None)

    def arrange(self, columns: Sequence[str] | None = None) -> ExperimentArrays:
        """Return the outcomes as arrays for the bootstrap; the order of the rows does not matter."""
        chosen = tuple(columns or self.columns)
        at = [self.columns.index(column) for column in chosen]
        order = sorted(range(len(self.units)), key=lambda index: self.units[index].sort_key)
        hits, counted = (part[np.ix_(order, at)] for part in self.indicators)
        return ExperimentArrays.arrange([self.units[index] for index in order], chosen, MetricIndicators(hits, counted))

    def expect(self, grid: ExperimentGrid) -> OutcomeTable:
        """Return the table compared with another grid."""
        return OutcomeTable.of(self.units, self.columns, self.indicators, grid)

    def select(self, keep: Callable[[ExperimentUnit], bool], methods: Sequence[str] | None = None) -> OutcomeTable:
        """Return the rows that are kept, with a grid of their own; ``methods`` sets the order of its methods."""
        chosen = [index for index, unit in enumerate(self.units) if keep(unit)]
        units = [self.units[index] for index in chosen]
        grid = derive_grid(units)
        if methods is not None:
            grid = replace(grid, methods=tuple(methods))
        hits, counted = (part[chosen] for part in self.indicators)
        return OutcomeTable.of(units, self.columns, MetricIndicators(hits, counted), grid)


def average_rates(rates: Iterable[Rate | MeanRate]) -> MeanRate:
    """Return the mean of rates with equal weight, with their responses."""
    parts = list(rates)
    return MeanRate(
        mean_or_none(rate.value for rate in parts),
        sum(rate.n for rate in parts),
        sum(rate.unjudged for rate in parts),
        len(parts),
    )


def tabulate_responses(
    rows: Sequence[SettledVerdict], matches: Mapping[str, Label], grid: ExperimentGrid | None = None
) -> OutcomeTable:
    """Return the outcomes of responses: the metrics, answer matching and the classes of the gap.

    Raises:
        UserError: Two responses share an id, a trained method has no seed, or the rows do not fit the grid.
    """
    refuse_missing_seeds(rows)
    if matches and len({row.response_id for row in rows}) < len(rows):
        raise UserError("responses share an id, so their answer matches cannot be told apart. Give each its own id.")
    units = [_rename_method(locate_response(row)) for row in rows]
    metrics = make_metric_indicators([row.verdict for row in rows], ALL_METRICS)
    answers = [(row.verdict.correct, matches.get(row.response_id)) for row in rows]
    labels: list[list[Label]] = [
        [match for _, match in answers],
        [_accepted_by_first(match, semantic) for semantic, match in answers],
        [_accepted_by_first(semantic, match) for semantic, match in answers],
        *([_in_gap_class(row.verdict, kind) for row in rows] for kind in GAP_CLASSES.values()),
    ]
    extra = indicate_labels(labels)
    joined = MetricIndicators(
        np.hstack([metrics.hits, extra.hits]),
        np.hstack([metrics.counted, extra.counted]),
    )
    return OutcomeTable.of(units, RESPONSE_COLUMNS, joined, grid)


def tabulate_switches(rows: Sequence[FamilySwitchScores], methods: Sequence[str] = ()) -> OutcomeTable:
    """Return the outcomes of the switch test: each edge under the original, the counterfactual and both inputs.

    Args:
        rows: Scores of families; each names its backbone.
        methods: Order of the methods; others follow in order of appearance.

    Raises:
        UserError: A row does not name its backbone, or a family has several rows of one model.
    """
    if unnamed := sum(row.model is None for row in rows):
        raise UserError(f"{unnamed:,} rows of the switch test do not name their backbone. Run the switch test again.")
    units = [
        ExperimentUnit(
            name_method(row.method or UNTUNED_METHOD),
            row.model or "",
            row.seed,
            row.benchmark or "",
            row.family_id,
        )
        for row in rows
    ]
    labels = []
    for edge in Edge:
        labels += [[row.holds(edge, direction) for row in rows] for direction in Direction]
        labels.append([row.switched(edge) for row in rows])
    grid = derive_grid(units)
    first = [method for method in methods if method in grid.methods]
    ordered = (*first, *(method for method in grid.methods if method not in first))
    return OutcomeTable.of(units, SWITCH_COLUMNS, indicate_labels(labels), replace(grid, methods=ordered))


def _rename_method(unit: ExperimentUnit) -> ExperimentUnit:
    return unit._replace(method=name_method(unit.method))


def _accepted_by_first(first: Label, second: Label) -> Label:
    """Return whether the first rule accepts an answer that the second rejects."""
    # Certain as soon as the first rejects or the second accepts.
    if first is False or second is True:
        return False
    return None if first is None or second is None else True


def _in_gap_class(verdict: Verdict, kind: FailureClass) -> Label:
    if not verdict.in_gap:
        return verdict.in_gap
    match verdict.failure_class:
        case FailureClass.UNDETERMINED:
            return None
        case FailureClass.CLOSURE_FAILURE:
            # Aligned, so no path deviation; incomplete or decoupled depends on the missing label.
            return False if kind is FailureClass.PATH_DEVIATION else None
    return verdict.failure_class is kind
