"""Results of an experiment: methods compared over backbones, benchmarks and training seeds (appendix D.2).

Rates are taken within each benchmark, backbone and seed, averaged over seeds, then over the benchmark-backbone settings
with equal weight. Intervals resample backbones, questions and seeds, with draws shared by all methods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.errors import UserError
from eclose.metrics.rates import MAIN_METRICS, Metric, compute_metric_rate, make_metric_indicators
from eclose.stats.arrays import number_distinct_labels
from eclose.stats.bootstrap import (
    HierarchicalDesign,
    SettingScores,
    bootstrap_setting_means,
    paired_hierarchical_design,
)
from eclose.stats.rates import mean_or_none
from eclose.stats.resampling import BootstrapReplicates, StratifiedDesign

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.core.verdict import SettledVerdict, Verdict

UNTUNED_METHOD = "Backbone"
"""The name of an untuned model in place of a method."""


def get_response_method(row: SettledVerdict) -> str:
    """Return the method that produced the response."""
    return (row.source.method if row.source else None) or UNTUNED_METHOD


def _setting(row: SettledVerdict) -> tuple[str, str, str]:
    """Return method, benchmark and backbone of a response."""
    return get_response_method(row), row.benchmark or "", row.source.model if row.source else ""


def _refuse_missing_seeds(rows: Iterable[SettledVerdict]) -> None:
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
            f"{listing}. Generate them with the adapter's recipe.json (--adapter, --adapter-recipe) or --training-seed."
        )


def compute_setting_rates(rows: Sequence[SettledVerdict], metric: Metric) -> dict[tuple[str, str, str], float | None]:
    """Return one metric per (method, benchmark, model): the mean over seeds of the rate of each seed."""
    runs: defaultdict[tuple[str, str, str], defaultdict[int | None, list[Verdict]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        runs[_setting(row)][row.source.seed if row.source else None].append(row.verdict)
    # A setting with and without seeds cannot be averaged over seeds.
    mixed = {setting for setting, seeds in runs.items() if None in seeds and len(seeds) > 1}
    _refuse_missing_seeds(row for row in rows if row.source and _setting(row) in mixed)
    return {
        # A seed counts once, however many responses of it were judged (appendix D.2).
        setting: mean_or_none(compute_metric_rate(metric, verdicts).value for verdicts in seeds.values())
        for setting, seeds in runs.items()
    }


def average_setting_rates(
    rows: Sequence[SettledVerdict], metrics: Sequence[Metric] = MAIN_METRICS
) -> dict[str, dict[Metric, float | None]]:
    """Return the metrics of each method, with every setting of equal weight."""
    means: defaultdict[str, dict[Metric, float | None]] = defaultdict(dict)
    for metric in metrics:
        # Every benchmark-backbone setting counts once.
        by_method: defaultdict[str, list[float | None]] = defaultdict(list)
        for (method, _, _), value in compute_setting_rates(rows, metric).items():
            by_method[method].append(value)
        for method, settings in by_method.items():
            means[method][metric] = mean_or_none(settings)
    return dict(means)


@dataclass(frozen=True)
class ExperimentArrays:
    """An experiment as arrays: every method answered the same questions with every backbone."""

    methods: list[str]
    metrics: tuple[Metric, ...]
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
        method, methods = number_distinct_labels([get_response_method(row) for row in rows])
        backbone, backbones = number_distinct_labels([row.source.model if row.source else "" for row in rows])
        question, questions = number_distinct_labels([(row.benchmark, row.instance_id) for row in rows])
        seeds = [row.source.seed if row.source else None for row in rows]
        _refuse_missing_seeds(rows)
        # The untuned backbone has no seed and fills all of them, so resampling seeds leaves it unchanged.
        seed_index: dict[int | None, int | slice] = {None: slice(None)}
        seed_index |= {seed: index for index, seed in enumerate(sorted({seed for seed in seeds if seed is not None}))}
        table = make_metric_indicators([row.verdict for row in rows], metrics)
        # Axes: backbone, seed, question, method, metric. The last two become the columns of the setting table.
        shape = (len(backbones), max(len(seed_index) - 1, 1), len(questions), len(methods), len(metrics))
        hits, counted, responses = np.zeros(shape), np.zeros(shape), np.zeros(shape[:4], np.intp)
        for index, seed in enumerate(seeds):
            cell = (backbone[index], seed_index[seed], question[index], method[index])
            hits[cell], counted[cell] = table.hits[index], table.counted[index]
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

    def column(self, method: str, metric: Metric) -> int:
        """Return the column of a method's metric among the replicates."""
        return self.methods.index(method) * len(self.metrics) + self.metrics.index(metric)

    def bootstrap(self, *, rng: np.random.Generator, resamples: int = 5_000) -> BootstrapReplicates:
        """Return the metrics of every method with the paired hierarchical intervals of appendix D.2."""
        return bootstrap_setting_means(self.table, self.design, rng=rng, resamples=resamples)
