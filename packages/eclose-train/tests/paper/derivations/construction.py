"""Training data and schedule: the funnel, the split, the audit of families, and the arithmetic of a run."""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.bootstrap import BootstrapReplicates, StratifiedDesign, bootstrap_weighted_rates
from eclose.stats.coefficients import gwet_ac1
from eclose.stats.rates import Rate
from eclose.values.identity import HashSplit, split_by_hash
from eclose_train.families.comparisons import Direction, Edge, margin_weights

from ..printed import (
    BACKBONES,
    Cell,
    Derivation,
    Resolver,
    cell,
    consistent,
    contradiction,
    derived,
    number,
    percent,
    reestimated,
    said,
    statements,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

DATASETS = ("2WikiMultiHopQA", "MuSiQue", "HotpotQA")
VIEWS = ("Gold", "Evidence-CF", "Question-CF", "Family")
AUDITED = 100
"""Families audited of each dataset."""
WORKERS, ACCUMULATION, EPOCHS, SEEDS = 4, 2, 5, 3
MAIN_METHODS, ABLATIONS = 4, 4


def flow(dataset: str, stage: str) -> int:
    return whole("training_construction_flow", dataset, stage)


def all_at(stage: str) -> int:
    return sum(flow(dataset, stage) for dataset in DATASETS)


def funnel(cell: Cell) -> Derivation | None:
    return derived(partial(all_at, cell.column)) if cell.row == "Total" else None


def retained(stage: str, before: str) -> float:
    return percent(Rate(all_at(stage), all_at(before)).value)


@cache
def split() -> HashSplit[tuple[str, str]]:
    """Made-up families, as many as the paper has: the sizes of a split do not depend on what is in it."""
    families = [(dataset, f"family-{i}") for dataset in DATASETS for i in range(flow(dataset, "Packed"))]
    return split_by_hash(families, stratum=lambda family: family[0], identity=lambda family: family[1])


def audit(printed: Cell) -> Derivation | None:
    view = printed.column.split()[0]
    if printed.row == "Corpus-weighted":
        if view == "Audited":
            return derived(lambda: AUDITED * len(DATASETS))
        if printed.column == view:
            return derived(lambda: percent(weighted().estimate(VIEWS.index(view)).value))
        end = printed.column.split()[1]
        return reestimated(lambda: percent(getattr(weighted().estimate(VIEWS.index(view)).interval, end)))
    if printed.column.endswith(("low", "high")):
        end = printed.column.split()[1]
        return derived(lambda: percent(getattr(Rate(passing(printed.row, view), AUDITED).wilson, end)))
    return None


def passing(dataset: str, view: str) -> int:
    return cell("human_audit", dataset, view).count(AUDITED)


@cache
def weighted() -> BootstrapReplicates:
    """Pass rates weighted by each dataset's share of the corpus. A family fails if one of its views does."""
    hits = np.ones((AUDITED * len(DATASETS), len(VIEWS)))
    for (i, dataset), (j, view) in product(enumerate(DATASETS), enumerate(VIEWS)):
        hits[i * AUDITED : i * AUDITED + AUDITED - passing(dataset, view), j] = 0
    strata = StratifiedDesign(np.repeat(np.arange(len(DATASETS)), AUDITED))
    packed = np.array([flow(dataset, "Packed") for dataset in DATASETS], float)
    return bootstrap_weighted_rates(hits, strata, packed, rng=np.random.default_rng(42))


def ac1() -> Iterable[float]:
    """Ten families fail in the end: those both auditors failed, and of the eight disputed ones as many as needed."""
    disputed = said("family disagreements", "construction")
    failing = audited() - families_passing()
    for both_fail in range(failing - disputed, failing + 1):
        yield gwet_ac1([[both_fail, disputed], [0, audited() - disputed - both_fail]])


def families_passing() -> int:
    return sum(passing(dataset, "Family") for dataset in DATASETS)


def audited() -> int:
    return AUDITED * len(DATASETS)


CONSTRUCTION = {
    "families": derived(partial(all_at, "Packed")),
    "training families": derived(lambda: len(split().train)),
    "development families": derived(lambda: len(split().development)),
    "screened share": derived(partial(retained, "Screened", "Processed")),
    "evidence share": derived(partial(retained, "Evidence", "Target")),
    "question share": derived(partial(retained, "Question", "Evidence")),
    "families without the duplicate": derived(lambda: all_at("Question") - 1),
    "audited families": derived(audited),
    # The tenth of each hundred that the split would send to development.
    "audited of a dataset for training": derived(lambda: AUDITED - AUDITED // 10),
    "audited of a dataset for development": derived(lambda: AUDITED // 10),
    "agreed family decisions": derived(lambda: audited() - said("family disagreements", "construction")),
    "agreed family decisions share": derived(
        lambda: percent(Rate(said("agreed family decisions", "construction"), audited()).value)
    ),
    "AC1 of family decisions": consistent(ac1),
    "passing families": derived(families_passing),
    "passing families share": derived(lambda: percent(Rate(families_passing(), audited()).value)),
    "passing families weighted share": derived(lambda: percent(weighted().estimate(VIEWS.index("Family")).value)),
}


def microsteps() -> int:
    """Of one worker in an epoch; the last round is filled up."""
    return ceil(len(split().train) / WORKERS)


def adapters(backbone: str) -> int:
    return (MAIN_METHODS + (ABLATIONS if backbone == "Qwen3-8B" else 0)) * SEEDS


def gpu_hours() -> Fraction:
    """Mean hours of every row times three seeds and four workers."""
    return sum(number(*time) for time in training_times()) * SEEDS * WORKERS


def training_times() -> list[tuple[str, str, str]]:
    main = product(("SFT", "CF-SFT", "RM", "E-Closure"), BACKBONES)
    ablated = product(("w/o S", "w/o T", "w/o C", "One-sided"), ("Qwen3-8B",))
    return [("training_cost", method, backbone) for method, backbone in (*main, *ablated)]


def term_weight(edges: tuple[Edge, ...] = tuple(Edge), directions: tuple[Direction, ...] = tuple(Direction)) -> float:
    """The one weight all kept comparisons share."""
    (weight,) = set(margin_weights(edges, directions).values())
    return weight


REMOVALS = [tuple(edge for edge in Edge if edge is not removed) for removed in Edge]
ORIGINAL = (Direction.ORIGINAL,)


def weight_of(*edges: Edge) -> float:
    """What the kept comparisons of some dependencies weigh together."""
    return sum(weight for (edge, _), weight in margin_weights().items() if edge in edges)


TRAINING = {
    "adapters": derived(lambda: sum(map(adapters, BACKBONES))),
    "main adapters": derived(lambda: MAIN_METHODS * len(BACKBONES) * SEEDS),
    "ablation adapters": derived(lambda: ABLATIONS * SEEDS),
    "adapters for Qwen3-8B": derived(partial(adapters, "Qwen3-8B")),
    "adapters for Qwen3-32B": derived(partial(adapters, "Qwen3-32B")),
    "effective batch": derived(lambda: WORKERS * ACCUMULATION),
    "microsteps per worker": derived(lambda: microsteps() * EPOCHS),
    "optimizer updates": derived(lambda: microsteps() * EPOCHS // ACCUMULATION),
    "updates per epoch": derived(lambda: microsteps() // ACCUMULATION),
    "GPU hours": contradiction(gpu_hours, instead="3586.0"),
    "comparisons of the full objective": derived(lambda: len(margin_weights())),
    "comparisons after edge removal": derived(lambda: [len(margin_weights(edges)) for edges in REMOVALS]),
    "comparisons one-sided": derived(lambda: len(margin_weights(directions=ORIGINAL))),
    "weight per term": derived(term_weight),
    "weight per term without an edge": derived(lambda: [term_weight(edges) for edges in REMOVALS]),
    "weight per term one-sided": derived(lambda: term_weight(directions=ORIGINAL)),
    "scale without an edge": derived(lambda: [term_weight(edges) / term_weight() for edges in REMOVALS]),
    "scale one-sided": derived(lambda: term_weight(directions=ORIGINAL) / term_weight()),
    "weight of each dependency": derived(lambda: [weight_of(edge) for edge in Edge]),
    # Response margins give evidence interventions what S and C weigh here, question interventions what T does.
    "evidence share of response margins": derived(partial(weight_of, Edge.SUPPORT, Edge.CLOSURE)),
    "question share of response margins": derived(partial(weight_of, Edge.ALIGNMENT)),
}

RESOLVERS: dict[str, Resolver] = {
    "training_construction_flow": funnel,
    "human_audit": audit,
    "text: construction": statements(CONSTRUCTION),
    "text: training": statements(TRAINING),
}
