"""Results of an experiment: methods compared over backbones, benchmarks and training seeds (appendix D.2).

Rates are taken within each benchmark, backbone and seed, averaged over seeds, then with equal weight over the
benchmark-backbone settings. The intervals resample what the paper resamples and share draws between methods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.errors import UserError
from eclose.metrics.rates import MAIN_METRICS, Metric, indicators, rate
from eclose.stats.arrays import codes
from eclose.stats.bootstrap import Hierarchy, SettingTable, bootstrap_settings, paired_hierarchical
from eclose.stats.rates import mean
from eclose.stats.resampling import Replicates, Strata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.core.verdict import SettledVerdict, Verdict

UNTUNED = "Backbone"
"""The name of a model as it is, where a method is expected."""


def method_of(row: SettledVerdict) -> str:
    """The method that made the response."""
    return (row.source.method if row.source else None) or UNTUNED


def _setting(row: SettledVerdict) -> tuple[str, str, str]:
    """Return method, benchmark and backbone of a response."""
    return method_of(row), row.benchmark or "", row.source.model if row.source else ""


def _refuse_missing_seeds(rows: Iterable[SettledVerdict]) -> None:
    """Raise when responses of a trained method name no training seed: they would count for every seed, or as one."""
    missing = Counter(
        (method_of(row), row.source.model)
        for row in rows
        if row.source is not None and row.source.method is not None and row.source.seed is None
    )
    if missing:
        named = "; ".join(
            f"{method} on {model}: {count} response{' has' if count == 1 else 's have'} no training seed"
            for (method, model), count in missing.items()
        )
        raise UserError(
            f"{named}. Generate them with the adapter's recipe.json (--adapter, --adapter-recipe) or --training-seed."
        )


def setting_rates(rows: Sequence[SettledVerdict], metric: Metric) -> dict[tuple[str, str, str], float | None]:
    """One metric per (method, benchmark, model): the mean over seeds of the rate of each seed."""
    runs: defaultdict[tuple[str, str, str], defaultdict[int | None, list[Verdict]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        runs[_setting(row)][row.source.seed if row.source else None].append(row.verdict)
    mixed = {setting for setting, seeds in runs.items() if None in seeds and len(seeds) > 1}
    _refuse_missing_seeds(row for row in rows if row.source and _setting(row) in mixed)
    return {
        setting: mean(rate(metric, verdicts).value for verdicts in seeds.values()) for setting, seeds in runs.items()
    }


def equal_setting_means(
    rows: Sequence[SettledVerdict], metrics: Sequence[Metric] = MAIN_METRICS
) -> dict[str, dict[Metric, float | None]]:
    """Each method's metrics, with every setting of equal weight."""
    means: defaultdict[str, dict[Metric, float | None]] = defaultdict(dict)
    for metric in metrics:
        by_method: defaultdict[str, list[float | None]] = defaultdict(list)
        for (method, _, _), value in setting_rates(rows, metric).items():
            by_method[method].append(value)
        for method, settings in by_method.items():
            means[method][metric] = mean(settings)
    return dict(means)


@dataclass(frozen=True)
class Experiment:
    """An experiment as arrays: every method answered the same questions with every backbone."""

    methods: list[str]
    metrics: tuple[Metric, ...]
    table: SettingTable
    design: Hierarchy

    @classmethod
    def of(cls, rows: Sequence[SettledVerdict], metrics: tuple[Metric, ...] = MAIN_METRICS) -> Experiment:
        """Lay the rows out; an experiment with holes is refused, since pairing would be a guess."""
        if not rows:
            raise UserError("there is nothing to compare: no response has a verdict.")
        method, methods = codes([method_of(row) for row in rows])
        backbone, backbones = codes([row.source.model if row.source else "" for row in rows])
        question, questions = codes([(row.benchmark, row.instance_id) for row in rows])
        seeds = [row.source.seed if row.source else None for row in rows]
        _refuse_missing_seeds(rows)
        # The backbone has no seed and stands for all of them: seed resampling then leaves it alone.
        place: dict[int | None, int | slice] = {None: slice(None)}
        place |= {seed: index for index, seed in enumerate(sorted({seed for seed in seeds if seed is not None}))}
        marks = indicators([row.verdict for row in rows], metrics)
        shape = (len(backbones), max(len(place) - 1, 1), len(questions), len(methods), len(metrics))
        hits, counted, filled = np.zeros(shape), np.zeros(shape), np.zeros(shape[:4], np.intp)
        for index, seed in enumerate(seeds):
            at = (backbone[index], place[seed], question[index], method[index])
            hits[at], counted[at] = marks.hits[index], marks.counted[index]
            filled[at] += 1
        if wrong := int((filled != 1).sum()):
            raise UserError(
                f"a paired comparison needs one response for every method, backbone, seed and question; "
                f"{wrong} of {filled.size} places have none or several. Compare complete runs."
            )
        flat = (*shape[:3], -1)
        stratum, _ = codes([benchmark for benchmark, _ in questions])
        design = paired_hierarchical(Strata(stratum), backbones=len(backbones), seeds=shape[1])
        return cls(methods, metrics, SettingTable(hits.reshape(flat), counted.reshape(flat)), design)

    def column(self, method: str, metric: Metric) -> int:
        """Where a method's metric stands among the replicates."""
        return self.methods.index(method) * len(self.metrics) + self.metrics.index(metric)

    def bootstrap(self, *, rng: np.random.Generator, resamples: int = 5_000) -> Replicates:
        """Every method's metrics with the paired hierarchical intervals of appendix D.2."""
        return bootstrap_settings(self.table, self.design, rng=rng, resamples=resamples)
