"""Ablations on Qwen3-8B: per-seed counts over 866 pooled questions give the table, the decomposition and the gains."""

from __future__ import annotations

from functools import cache, partial

from eclose.metrics.rates import Metric, compute_metric_rate, count_response_composition
from eclose.stats.rates import Rate, mean_or_none
from eclose.values.verdict import FailureClass, Verdict
from tests.metrics.setting_rates import compute_setting_rates

from ..printed import (
    DATASETS,
    QUESTIONS,
    Cell,
    Derivation,
    Resolver,
    cell,
    derived,
    percent,
    statements,
)
from ..reconstruct import settled, tally, with_links
from .experiment import MATCH, SEEDS, SEMANTIC, run, setting

BACKBONE = "Qwen3-8B"
POOL = QUESTIONS * len(SEEDS)
"""Responses of a variant over its three seeds."""
FULL, ONE_SIDED = "E-Closure", "One-sided"
REMOVALS = ("w/o S", "w/o T", "w/o C")
VARIANTS = (*REMOVALS, ONE_SIDED, FULL)
METRICS = {
    "Acc": Metric.ACCURACY,
    "LSR": Metric.LOCAL_SOUNDNESS_RATE,
    "A": Metric.ALIGNMENT_RATE,
    "C": Metric.CLOSURE_RATE,
    "GSR": Metric.GLOBAL_SUFFICIENCY_RATE,
    "TRR": Metric.TRACE_RELIABILITY_RATE,
    "LGG": Metric.GAP_RATE,
}
TARGETED = {"w/o S": "LSR", "w/o T": "A", "w/o C": "C", ONE_SIDED: "Acc"}
"""The metric whose gain is reported beside TRR and LGG."""


@cache
def pooled_run(variant: str, seed: str, accuracy: str = SEMANTIC) -> list[Verdict]:
    """The 866 responses of one seed, from the printed rates without LGG."""
    row = f"{'Full' if variant == FULL else variant} | {seed}"
    columns = (accuracy, "lsr", "a", "c", "gsr", "trr")
    acc, lsr, a, c, gsr, trr = (cell("appendix_ablation_seeds", row, name).count(QUESTIONS) for name in columns)
    return with_links(QUESTIONS, acc=acc, lsr=lsr, a=a, c=c, gsr=gsr, trr=trr)


@cache
def seed_means(metric: Metric, accuracy: str = SEMANTIC) -> dict[str, float]:
    """Each variant's rate, pooled over datasets within a seed, then averaged over seeds."""
    rows = [
        row
        for variant in VARIANTS
        for seed in SEEDS
        for row in settled(
            pooled_run(variant, seed, accuracy), benchmark="pooled", model=BACKBONE, method=variant, seed=seed
        )
    ]
    return {variant: percent(value) for (variant, _, _), value in compute_setting_rates(rows, metric).items()}


def pooled(variant: str, column: str) -> float:
    if column == "Acc_match":
        return seed_means(Metric.ACCURACY, MATCH)[variant]
    return seed_means(METRICS[column])[variant]


def gain(variant: str, column: str) -> float:
    return pooled(FULL, column) - pooled(variant, column)


def main_ablations(cell: Cell) -> Derivation:
    return derived(partial(pooled, cell.row, cell.column))


def per_seed(cell: Cell) -> Derivation | None:
    variant, seed = cell.row.replace("Full", FULL).split(" | ")
    if cell.column == "lgg":
        return derived(lambda: percent(compute_metric_rate(Metric.GAP_RATE, pooled_run(variant, seed)).value))
    if variant != FULL or cell.column in {"a", "c"}:
        return None
    # The full objective is the main experiment's: its three datasets pooled.
    accuracy = MATCH if cell.column == MATCH else SEMANTIC
    metric = METRICS["Acc" if cell.column.startswith("acc") else cell.column.upper()]
    return derived(lambda: percent(compute_metric_rate(metric, main_run(seed, accuracy)).value))


@cache
def main_run(seed: str, accuracy: str) -> list[Verdict]:
    return [verdict for dataset in DATASETS for verdict in run(BACKBONE, dataset, FULL, seed, accuracy)]


def per_dataset(printed: Cell) -> Derivation | None:
    variant, dataset = printed.row.split(" | ")
    if variant == FULL:
        metric, accuracy = {"Acc_match": (Metric.ACCURACY, MATCH)}.get(
            printed.column, (METRICS.get(printed.column), SEMANTIC)
        )
        return derived(partial(setting, BACKBONE, dataset, FULL, metric, accuracy))
    # Of the other variants the pool and two datasets are given; the third is what is left.
    return derived(partial(remainder, variant, printed.column)) if dataset == "HotpotQA" else None


def remainder(variant: str, column: str) -> float:
    metric, accuracy = (Metric.ACCURACY, MATCH) if column == "Acc_match" else (METRICS[column], SEMANTIC)
    remaining = sum(compute_metric_rate(metric, pooled_run(variant, seed, accuracy)).hits for seed in SEEDS)
    for dataset in ("2WikiMultiHopQA", "MuSiQue"):
        printed = cell("appendix_ablation_datasets", f"{variant} | {dataset}", column)
        remaining -= printed.count(DATASETS[dataset] * len(SEEDS))
    return percent(Rate(remaining, DATASETS["HotpotQA"] * len(SEEDS)).value)


def failures(cell: Cell) -> Derivation | None:
    match cell.column:
        case "Acc_match" | "LGG":
            return derived(partial(pooled, cell.row, cell.column))
        case "AD":
            return derived(partial(decoupled, cell.row))
    return None


def decoupled(variant: str) -> float:
    """What of the gap is neither path deviation nor incomplete reasoning."""
    gap = sum(compute_metric_rate(Metric.GAP_RATE, pooled_run(variant, seed)).hits for seed in SEEDS)
    deviating, incomplete = (cell("appendix_ablation_failures", variant, kind).count(POOL) for kind in ("PD", "IR"))
    counts = {
        Verdict(locally_sound=True, aligned=False): deviating,
        Verdict(locally_sound=True, aligned=True, closed=False, complete=False): incomplete,
        Verdict(locally_sound=True, aligned=True, closed=False, complete=True): gap - deviating - incomplete,
    }
    return percent(
        Rate(count_response_composition(tally(counts)).gap_failures[FailureClass.ANSWER_DECOUPLING], POOL).value
    )


def gains(cell: Cell) -> Derivation | None:
    match cell.column:
        case "Metric gain":
            return derived(partial(gain, cell.row, TARGETED[cell.row]))
        case "TRR gain":
            return derived(partial(gain, cell.row, "TRR"))
        case "LGG reduction":
            return derived(lambda: -gain(cell.row, "LGG"))
    return None


TEXT = {
    "smallest TRR loss of an edge removal": derived(lambda: min(gain(variant, "TRR") for variant in REMOVALS)),
    "largest TRR loss of an edge removal": derived(lambda: max(gain(variant, "TRR") for variant in REMOVALS)),
    "one-sided TRR gain": derived(partial(gain, ONE_SIDED, "TRR")),
    "one-sided LGG reduction": derived(lambda: -gain(ONE_SIDED, "LGG")),
    "pooled TRR": derived(partial(pooled, FULL, "TRR")),
    "TRR with equal datasets": derived(
        lambda: mean_or_none(setting(BACKBONE, dataset, FULL, METRICS["TRR"]) for dataset in DATASETS)
    ),
    "pooled matching accuracy": derived(partial(pooled, FULL, "Acc_match")),
    "best matching accuracy of an ablation": derived(
        lambda: max(pooled(variant, "Acc_match") for variant in VARIANTS if variant != FULL)
    ),
    "closure gain over w/o C": derived(partial(gain, "w/o C", "C")),
}

RESOLVERS: dict[str, Resolver] = {
    "main_ablations": main_ablations,
    "appendix_ablation_seeds": per_seed,
    "appendix_ablation_datasets": per_dataset,
    "appendix_ablation_failures": failures,
    "appendix_ablation_gains": gains,
    "text: ablations": statements(TEXT),
}
