"""Equal-setting means of the paper straight from their definition (appendix D.2): no arrays, no resampling."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eclose.metrics.rates import MAIN_METRICS, Metric, compute_metric_rate
from eclose.stats.rates import mean_or_none
from eclose_train.pooling import locate_response, refuse_missing_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.values.verdict import SettledVerdict, Verdict


def _setting(row: SettledVerdict) -> tuple[str, str, str]:
    """Return method, benchmark and backbone of a response."""
    unit = locate_response(row)
    return unit.method, unit.benchmark, unit.backbone


def compute_setting_rates(rows: Sequence[SettledVerdict], metric: Metric) -> dict[tuple[str, str, str], float | None]:
    """Return one metric per (method, benchmark, model): the mean over seeds of the rate of each seed."""
    runs: defaultdict[tuple[str, str, str], defaultdict[int | None, list[Verdict]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        runs[_setting(row)][row.source.seed if row.source else None].append(row.verdict)
    # A setting with and without seeds cannot be averaged over seeds.
    mixed = {setting for setting, seeds in runs.items() if None in seeds and len(seeds) > 1}
    refuse_missing_seeds(row for row in rows if row.source and _setting(row) in mixed)
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
