"""Results of an experiment: methods compared over backbones, benchmarks and training seeds (appendix D.2).

Rates are taken within each benchmark, backbone and seed, averaged over seeds, then over the benchmark-backbone settings
with equal weight. Intervals resample backbones, questions and seeds, with draws shared by all methods.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.errors import UserError
from eclose.metrics.rates import MAIN_METRICS, Metric, MetricIndicators, make_metric_indicators
from eclose.metrics.summary import get_response_method
from eclose.stats.arrays import number_distinct_labels
from eclose.stats.bootstrap import (
    BootstrapReplicates,
    HierarchicalDesign,
    SettingScores,
    StratifiedDesign,
    bootstrap_setting_means,
    paired_hierarchical_design,
    shared_questions_design,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.values.three_valued import Label
    from eclose.values.verdict import SettledVerdict


def refuse_missing_seeds(rows: Iterable[SettledVerdict]) -> None:
    """Raise where responses of a trained method have no training seed, since they could belong to any seed."""
    missing = Counter(
        (get_response_method(row), row.source.model)
        for row in rows
        if row.source is not None and row.source.method is not None and row.source.seed is None
    )
    if missing:
        listing = "; ".join(
            f"{method} on {model}: {count} response{' has' if count == 1 else 's have'} no training seed"
            for (method, model), count in missing.items()
        )
        raise UserError(
            f"{listing}. Generate them with the adapter's recipe.json (--adapter, adapter_recipe) or training_seed."
        )


class ExperimentUnit(NamedTuple):
    """The position of a response or of a family in an experiment."""

    method: str
    backbone: str
    seed: int | None
    """None for the untuned backbone."""
    benchmark: str
    question: str

    @property
    def sort_key(self) -> tuple[str, str, str, str, int]:
        """The position as a key, so that equal outcomes give equal draws whatever the order of the files."""
        # A seed is -1 for the untuned backbone, since None cannot be compared.
        return self.benchmark, self.question, self.backbone, self.method, -1 if self.seed is None else self.seed


def indicate_labels(columns: Sequence[Sequence[Label]]) -> MetricIndicators:
    """Return labels, column by column, as indicators: a hit where a label is true, counted where there is one."""
    hits = np.array([[label is True for label in column] for column in columns], float)
    counted = np.array([[label is not None for label in column] for column in columns], float)
    return MetricIndicators(hits.T, counted.T)


def locate_response(row: SettledVerdict) -> ExperimentUnit:
    """Return the position of a response."""
    source = row.source
    model, seed = (source.model, source.seed) if source else ("", None)
    return ExperimentUnit(get_response_method(row), model, seed, row.benchmark or "", row.instance_id)


@dataclass(frozen=True)
class ExperimentArrays:
    """An experiment as arrays: every method answered the same questions with every backbone."""

    methods: list[str]
    metrics: tuple[str, ...]
    table: SettingScores
    design: HierarchicalDesign

    @classmethod
    def of(cls, rows: Sequence[SettledVerdict], metrics: tuple[Metric, ...] = MAIN_METRICS) -> ExperimentArrays:
        """Arrange the responses as arrays.

        Raises:
            UserError: A method, backbone, seed and question has no response or several, so methods cannot be paired.
        """
        if not rows:
            raise UserError("there is nothing to compare: no response has a verdict.")
        refuse_missing_seeds(rows)
        indicators = make_metric_indicators([row.verdict for row in rows], metrics)
        return cls.arrange([locate_response(row) for row in rows], metrics, indicators)

    @classmethod
    def arrange(
        cls, units: Sequence[ExperimentUnit], metrics: tuple[str, ...], indicators: MetricIndicators
    ) -> ExperimentArrays:
        """Arrange indicators, a row for each unit and a column for each metric, as arrays.

        Raises:
            UserError: A method, backbone, seed and question has no row or several, so methods cannot be paired.
        """
        method, methods = number_distinct_labels([unit.method for unit in units])
        backbone, backbones = number_distinct_labels([unit.backbone for unit in units])
        question, questions = number_distinct_labels([(unit.benchmark, unit.question) for unit in units])
        # The untuned backbone has no seed and fills all of them, so resampling seeds leaves it unchanged.
        seed_index: dict[int | None, int | slice] = {None: slice(None)}
        seed_index |= {
            seed: index for index, seed in enumerate(sorted({unit.seed for unit in units if unit.seed is not None}))
        }
        # Axes: backbone, seed, question, method, metric. The last two become the columns of the setting table.
        shape = (len(backbones), max(len(seed_index) - 1, 1), len(questions), len(methods), len(metrics))
        hits, counted, responses = np.zeros(shape), np.zeros(shape), np.zeros(shape[:4], np.intp)
        for index, unit in enumerate(units):
            cell = (backbone[index], seed_index[unit.seed], question[index], method[index])
            hits[cell], counted[cell] = indicators.hits[index], indicators.counted[index]
            responses[cell] += 1
        # A hole would make the pairing of methods a guess.
        if incomplete := int((responses != 1).sum()):
            raise UserError(
                f"a paired comparison needs one response for every method, backbone, seed and question; "
                f"{incomplete} of {responses.size} cells have none or several. Compare complete runs."
            )
        columns = (*shape[:3], -1)
        stratum, _ = number_distinct_labels([benchmark for benchmark, _ in questions])
        design = paired_hierarchical_design(StratifiedDesign(stratum), backbones=len(backbones), seeds=shape[1])
        return cls(methods, metrics, SettingScores(hits.reshape(columns), counted.reshape(columns)), design)

    def column(self, method: str, metric: str) -> int:
        """Return the column of a method's metric among the replicates."""
        return self.methods.index(method) * len(self.metrics) + self.metrics.index(metric)

    def bootstrap(
        self, *, rng: np.random.Generator, resamples: int = 5_000, design: HierarchicalDesign | None = None
    ) -> BootstrapReplicates:
        """Return the metrics of every method with intervals; by default those of appendix D.2."""
        return bootstrap_setting_means(self.table, design or self.design, rng=rng, resamples=resamples)

    def bootstrap_shared_questions(self, *, rng: np.random.Generator, resamples: int = 10_000) -> BootstrapReplicates:
        """Return the metrics of every method with the intervals of appendix D.7.

        Benchmarks and backbones are fixed. Questions are drawn within benchmarks, the same for all methods and
        backbones; seeds are drawn within each backbone, the same for all methods and benchmarks.
        """
        design = shared_questions_design(self.design.datasets, backbones=self.design.backbones, seeds=self.design.seeds)
        return self.bootstrap(rng=rng, resamples=resamples, design=design)
