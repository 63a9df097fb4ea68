"""Dependency interventions: switch rates as counts of 128, 56 and 102 sources, averaged over nine settings."""

from __future__ import annotations

from functools import cache, partial

from eclose.stats.rates import Rate, mean_or_none
from eclose_train.families.comparisons import ALL_COMPARISONS

from ..printed import BACKBONES, Cell, Derivation, Resolver, cell, derived, percent, said, statements
from .construction import split
from .experiment import SEEDS, seeds_of

SOURCES = ("2WikiMultiHopQA", "MuSiQue", "HotpotQA")
CHECKPOINTS = len(BACKBONES) * len(SEEDS)
"""Of one adapted method."""


@cache
def setting(edge: str, backbone: str, dataset: str, method: str) -> float:
    """The rate of one setting, as a whole number of switches in all its runs."""
    printed = cell("appendix_intervention_settings", f"{backbone} | {dataset} | {method}", f"{edge.lower()}_switch")
    evaluations = said(f"sources of {dataset}", "switching") * len(seeds_of(method))
    return percent(Rate(printed.count(evaluations), evaluations).value)


def average(edge: str, method: str, datasets: tuple[str, ...] = SOURCES) -> float:
    return mean_or_none(setting(edge, backbone, dataset, method) for backbone in BACKBONES for dataset in datasets)


def gain(edge: str, other: str) -> float:
    return average(edge, "E-Closure") - average(edge, other)


def won(edge: str) -> int:
    """In how many settings E-Closure switches more often than RM."""
    return sum(
        setting(edge, backbone, dataset, "E-Closure") > setting(edge, backbone, dataset, "RM")
        for backbone in BACKBONES
        for dataset in SOURCES
    )


def gains(cell: Cell) -> Derivation:
    return derived(partial(gain, cell.row, cell.column))


def directions(printed: Cell) -> Derivation | None:
    edge, column = printed.column.split()
    if column == "SW":
        return derived(partial(average, edge, printed.row))
    # Where one direction always holds, the pair switches exactly when the other does. 100.00 means always: one
    # failure among all evaluations would show.
    other = cell(printed.table, printed.row, f"{edge} {'O' if column == 'CF' else 'CF'}")
    if column == "CF" and other.printed == "100.00":
        return derived(partial(average, edge, printed.row))
    return None


def paired(cell: Cell) -> Derivation | None:
    return derived(partial(gain, cell.row, "CF-SFT")) if cell.column == "gain" else None


TEXT = {
    "sources": derived(lambda: len(split().development)),
    **{
        f"sources of {dataset}": derived(
            lambda dataset=dataset: sum(name == dataset for name, _ in split().development)
        )
        for dataset in SOURCES
    },
    "scoring runs": derived(lambda: said("main adapters", "training") + len(BACKBONES)),
    "margins": derived(lambda: len(ALL_COMPARISONS)),
    "candidate scores": derived(lambda: 2 * len(ALL_COMPARISONS)),
    "evaluations of E-Closure": derived(lambda: len(split().development) * CHECKPOINTS),
    **{f"T of {dataset}": derived(partial(average, "T", "E-Closure", (dataset,))) for dataset in SOURCES},
    "C gap of RM": derived(partial(gain, "C", "RM")),
    "settings won against RM on T": derived(partial(won, "T")),
    "settings won against RM on C": derived(partial(won, "C")),
}

RESOLVERS: dict[str, Resolver] = {
    "dependency_interventions": gains,
    "appendix_intervention_directions": directions,
    "appendix_intervention_cis": paired,
    "text: switching": statements(TEXT),
}
