"""Main results: 33,774 verdicts with the counts of the per-seed tables give every rate, mean, SD and gain."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from eclose.metrics.rates import MAIN_METRICS, Metric, compute_metric_rate
from eclose.stats.rates import sample_sd_or_none
from eclose.values.response import UNTUNED_METHOD
from tests.metrics.setting_rates import average_setting_rates, compute_setting_rates

from ..printed import (
    BACKBONES,
    DATASETS,
    METHODS,
    Cell,
    Derivation,
    Resolver,
    Span,
    cell,
    consistent,
    derived,
    percent,
    statements,
)
from ..reconstruct import settled, verdicts

if TYPE_CHECKING:
    from eclose.values.verdict import SettledVerdict, Verdict

SEEDS = ("42", "43", "44")
SEMANTIC, MATCH = "acc_sem", "acc_match"
COLUMNS = {str(metric): metric for metric in MAIN_METRICS}


def recorded_method(method: str) -> str:
    """The name of a method among verdicts, by its printed name."""
    return UNTUNED_METHOD if method == "Backbone" else method


def seeds_of(method: str) -> tuple[str, ...]:
    return ("Fixed",) if method == "Backbone" else SEEDS


@cache
def run(backbone: str, dataset: str, method: str, seed: str, accuracy: str = SEMANTIC) -> list[Verdict]:
    """The responses of one run on one dataset, from its printed rates. Its LGG is not used, so it can be checked."""
    n = DATASETS[dataset]
    row = f"{backbone} | {dataset} | {method} | {seed}"
    count = {column: cell("appendix_seeds", row, column).count(n) for column in (accuracy, "lsr", "gsr", "trr")}
    return verdicts(n, acc=count[accuracy], lsr=count["lsr"], gsr=count["gsr"], trr=count["trr"])


@cache
def rows(accuracy: str = SEMANTIC) -> list[SettledVerdict]:
    """All responses of the main comparison."""
    return [
        row
        for backbone in BACKBONES
        for dataset in DATASETS
        for method in METHODS
        for seed in seeds_of(method)
        for row in settled(
            run(backbone, dataset, method, seed, accuracy),
            benchmark=dataset,
            model=backbone,
            method=method,
            seed=seed,
        )
    ]


@cache
def by_setting(metric: Metric, accuracy: str = SEMANTIC) -> dict[tuple[str, str, str], float | None]:
    return compute_setting_rates(rows(accuracy), metric)


@cache
def overall(accuracy: str = SEMANTIC) -> dict[str, dict[Metric, float | None]]:
    return average_setting_rates(rows(accuracy))


def setting(backbone: str, dataset: str, method: str, metric: Metric, accuracy: str = SEMANTIC) -> float:
    return percent(by_setting(metric, accuracy)[recorded_method(method), dataset, backbone])


def average(method: str, metric: Metric, accuracy: str = SEMANTIC) -> float:
    return percent(overall(accuracy)[recorded_method(method)][metric])


def gain(other: str, metric: Metric, accuracy: str = SEMANTIC) -> float:
    """E-Closure minus another method, over all settings."""
    return average("E-Closure", metric, accuracy) - average(other, metric, accuracy)


def gains(other: str, metric: Metric, accuracy: str = SEMANTIC, dataset: str | None = None) -> list[float]:
    """The same, setting by setting; differences below what a response can make are ties."""
    differences = [
        setting(backbone, name, "E-Closure", metric, accuracy) - setting(backbone, name, other, metric, accuracy)
        for backbone in BACKBONES
        for name in DATASETS
        if dataset in {None, name}
    ]
    return [0.0 if abs(difference) < 1e-9 else difference for difference in differences]


def won(other: str, metric: Metric, accuracy: str = SEMANTIC) -> int:
    return sum(difference > 0 for difference in gains(other, metric, accuracy))


def per_setting(cell: Cell) -> Derivation:
    backbone, dataset, method = cell.row.split(" | ")
    return derived(partial(setting, backbone, dataset, method, COLUMNS[cell.column]))


def answer_accuracy(cell: Cell) -> Derivation | None:
    match cell.column:
        case "Acc_sem":
            return derived(partial(average, cell.row, Metric.ACCURACY))
        case "Acc_match":
            return derived(partial(average, cell.row, Metric.ACCURACY, MATCH))
        case "Semantic only":
            return consistent(partial(semantic_only, cell))
    return None


def semantic_only(printed: Cell) -> Span:
    """Acc_sem - Acc_match = semantic only - match only, where match only is known to half a unit."""
    surplus = average(printed.row, Metric.ACCURACY) - average(printed.row, Metric.ACCURACY, MATCH)
    low, high = cell(printed.table, printed.row, "Match only").span
    return Span(surplus + low, surplus + high)


def matching_by_setting(cell: Cell) -> Derivation:
    backbone, dataset, method = cell.row.split(" | ")
    if cell.column == "mean":
        return derived(partial(setting, backbone, dataset, method, Metric.ACCURACY, MATCH))
    return derived(
        lambda: sample_sd_or_none(
            percent(compute_metric_rate(Metric.ACCURACY, run(backbone, dataset, method, seed, MATCH)).value)
            for seed in SEEDS
        )
    )


def per_seed(cell: Cell) -> Derivation | None:
    if cell.column != "lgg":
        return None
    return derived(lambda: percent(compute_metric_rate(Metric.GAP_RATE, run(*cell.row.split(" | "))).value))


def _both_won(other: str) -> list[int]:
    """The text says it of accuracy and of TRR."""
    return [won(other, Metric.ACCURACY), won(other, Metric.TRACE_RELIABILITY_RATE)]


ACC, TRR, LGG = Metric.ACCURACY, Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE
TUNED = ("SFT", "CF-SFT")
TEXT = {
    "adapted responses": derived(lambda: sum(row.source.method is not None for row in rows())),
    "backbone responses": derived(lambda: sum(row.source.method is None for row in rows())),
    "backbone LGG": derived(partial(average, "Backbone", LGG)),
    "lower LGG of SFT and CF-SFT": derived(lambda: min(average(method, LGG) for method in TUNED)),
    "higher LGG of SFT and CF-SFT": derived(lambda: max(average(method, LGG) for method in TUNED)),
    **{f"E-Closure {metric}": derived(partial(average, "E-Closure", metric)) for metric in MAIN_METRICS},
    **{f"RM {metric}": derived(partial(average, "RM", metric)) for metric in (ACC, TRR, LGG)},
    "settings": derived(lambda: len({(row.benchmark, row.source.model) for row in rows()})),
    "settings won against CF-SFT": derived(partial(_both_won, "CF-SFT")),
    "settings won against RM": derived(partial(_both_won, "RM")),
    "smallest MuSiQue TRR gain over RM": derived(lambda: min(gains("RM", TRR, dataset="MuSiQue"))),
    "largest MuSiQue TRR gain over RM": derived(lambda: max(gains("RM", TRR, dataset="MuSiQue"))),
    "match gain over RM": derived(partial(gain, "RM", ACC, MATCH)),
    "match gain over CF-SFT": derived(partial(gain, "CF-SFT", ACC, MATCH)),
    "semantic gain over RM": derived(partial(gain, "RM", ACC)),
    "match settings won against RM": derived(partial(won, "RM", ACC, MATCH)),
    "match settings won against CF-SFT": derived(partial(won, "CF-SFT", ACC, MATCH)),
    "match settings tied with CF-SFT": derived(lambda: gains("CF-SFT", ACC, MATCH).count(0.0)),
}

RESOLVERS: dict[str, Resolver] = {
    "per_setting_results": per_setting,
    "appendix_answer_accuracy": answer_accuracy,
    "appendix_training_accuracy_settings": matching_by_setting,
    "appendix_seeds": per_seed,
    "text: experiment": statements(TEXT),
    "text: figure overall_results": statements(TEXT),
}
