"""The automatic evaluator against people: failures, agreement and the difference of failure rates fix a 2 x 2 table."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from eclose.metrics.rates import Metric, compute_metric_rate
from eclose.stats.coefficients import (
    balanced_accuracy,
    cohen_kappa,
    failure_f1,
    failure_precision,
    failure_rate_difference,
    failure_recall,
    raw_agreement,
)
from eclose.stats.rates import Rate, mean_or_none

from ..printed import (
    BACKBONES,
    DATASETS,
    RESPONSES,
    Cell,
    Derivation,
    Resolver,
    Span,
    cell,
    consistent,
    derived,
    number,
    percent,
    said,
    statements,
    whole,
)
from .diagnosis import diagnosed, failing
from .experiment import run

if TYPE_CHECKING:
    from eclose.stats.arrays import Floats

TABLE = "evaluator_validation"
DIRECT = ("Correctness", "Local soundness L", "Alignment A", "Closure C", "Completeness K")
HUMAN_FAILURES = {
    "Correctness": Metric.ACCURACY,
    "Local soundness L": Metric.LOCAL_SOUNDNESS_RATE,
    "Alignment A": Metric.ALIGNMENT_RATE,
    "Closure C": Metric.CLOSURE_RATE,
    "Global sufficiency G": Metric.GLOBAL_SUFFICIENCY_RATE,
}
"""Criteria whose failures the diagnostic study counts; completeness is not one of them."""
AUTOMATED = {name: HUMAN_FAILURES[name] for name in ("Correctness", "Local soundness L", "Global sufficiency G")}
"""Criteria whose rate under the evaluator is in the main comparison, too."""
STATISTICS = {"F1": failure_f1, "BAcc": balanced_accuracy, "kappa": cohen_kappa}
_said = partial(said, section="evaluator")


@cache
def confusion(criterion: str) -> Floats:
    """People in the rows, the evaluator in the columns, failure first."""
    failures = whole(TABLE, criterion, "n0")
    disputed = RESPONSES - cell(TABLE, criterion, "Agreement").count(RESPONSES)
    surplus = cell(TABLE, criterion, "delta").count(RESPONSES)
    missed, twice = divmod(disputed - surplus, 2)
    assert twice == 0, "the failures missed and those added differ by the surplus and add up to the disputed"
    added = disputed - missed
    return np.array([[failures - missed, missed], [added, RESPONSES - failures - added]])


def validation(cell: Cell) -> Derivation | None:
    if cell.column == "n0" and cell.row in HUMAN_FAILURES:
        return derived(lambda: failing(HUMAN_FAILURES[cell.row]).hits)
    if cell.column == "delta" and cell.row in AUTOMATED:
        return derived(
            lambda: (-difference(AUTOMATED[cell.row]), percent(failure_rate_difference(confusion(cell.row))))
        )
    if cell.column not in STATISTICS:
        return None
    scale = 100 if cell.column == "BAcc" else 1
    return derived(lambda: scale * STATISTICS[cell.column](confusion(cell.row)))


def mean_agreement() -> float:
    return percent(mean_or_none(raw_agreement(confusion(criterion)) for criterion in DIRECT))


def mean_f1() -> float:
    return mean_or_none(failure_f1(confusion(criterion)) for criterion in DIRECT)


def largest_difference() -> float:
    return percent(max(abs(failure_rate_difference(confusion(criterion))) for criterion in DIRECT))


@cache
def automated(metric: Metric) -> Rate:
    """A rate under the evaluator: the untuned backbones of the main comparison are the diagnostic responses."""
    runs = (run(backbone, dataset, "Backbone", "Fixed") for backbone in BACKBONES for dataset in DATASETS)
    return compute_metric_rate(metric, list(chain.from_iterable(runs)))


def difference(metric: Metric) -> float:
    return percent(automated(metric).value) - percent(diagnosed()[metric].value)


def remainder(column: str) -> float:
    """What the pool and the other two datasets leave for HotpotQA."""
    remaining = automated(DIFFERENCES[column]).hits - diagnosed()[DIFFERENCES[column]].hits
    for dataset in ("2WikiMultiHopQA", "MuSiQue"):
        remaining -= cell("evaluator_dataset_bias", dataset, column).count(DATASETS[dataset] * len(BACKBONES))
    return percent(Fraction(remaining, DATASETS["HotpotQA"] * len(BACKBONES)))


TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE
DIFFERENCES = {"dTRR": TRR, "dLGG": LGG}
SUMMARIES = {"Mean agr": mean_agreement, "Mean F1": mean_f1, "max delta": largest_difference}


def effort(cell: Cell) -> Derivation | None:
    if cell.row != "high":
        return None
    if cell.column in SUMMARIES:
        return derived(SUMMARIES[cell.column])
    return derived(partial(difference, DIFFERENCES[cell.column])) if cell.column in DIFFERENCES else None


def dataset_bias(cell: Cell) -> Derivation | None:
    pooled = cell.row == "All (pooled)"
    if cell.column == "n":
        return derived(lambda: sum(DATASETS.values() if pooled else [DATASETS[cell.row]]) * len(BACKBONES))
    if cell.column not in DIFFERENCES:
        return None
    if pooled:
        return derived(partial(difference, DIFFERENCES[cell.column]))
    return derived(partial(remainder, cell.column)) if cell.row == "HotpotQA" else None


@cache
def gap_table() -> Floats:
    """The evaluator's gap labels against people's, the gap first."""
    gap, rates, added = diagnosed()[LGG].hits, _said("gap found"), _said("gap assigned in addition")
    return np.array([[rates, gap - rates], [added, RESPONSES - gap - added]])


def gap_f1(effort: str) -> list[float]:
    """F1 for every number of gap responses the evaluator may have found; how many it assigns is known."""
    human = diagnosed()[LGG].hits
    assigned = human + cell("evaluator_effort", effort, "dLGG").count(RESPONSES)
    tables = [
        [[rates, human - rates], [assigned - rates, RESPONSES - human - assigned + rates]]
        for rates in range(min(human, assigned) + 1)
    ]
    return [failure_f1(table) for table in tables]


def over_low(ours: float, column: str) -> Span:
    low, high = cell("evaluator_effort", "low", column).span
    return Span(ours - high, ours - low)


def shortfalls() -> list[float]:
    """TRR below people's: ours for high, as printed for the other two."""
    printed = [-number("evaluator_effort", effort, "dTRR") for effort in ("low", "medium")]
    return [*printed, -difference(TRR)]


def agreements() -> list[float]:
    return [percent(raw_agreement(confusion(criterion))) for criterion in DIRECT]


TEXT = {
    "lowest agreement": derived(lambda: min(agreements())),
    "highest agreement": derived(lambda: max(agreements())),
    "agreement gain over low": consistent(lambda: over_low(mean_agreement(), "Mean agr")),
    "F1 gain over low": consistent(lambda: over_low(mean_f1(), "Mean F1")),
    "smallest TRR shortfall": derived(lambda: min(shortfalls())),
    "largest TRR shortfall": derived(lambda: max(shortfalls())),
    "automated TRR": derived(lambda: percent(automated(TRR).value)),
    "human TRR": derived(lambda: percent(diagnosed()[TRR].value)),
    "automated LGG": derived(lambda: (percent(automated(LGG).value), percent(gap_table()[:, 0].sum() / RESPONSES))),
    "human LGG": derived(lambda: percent(diagnosed()[LGG].value)),
    "gap of human labels": derived(lambda: diagnosed()[LGG].hits),
    "gap precision": derived(lambda: percent(failure_precision(gap_table()))),
    "gap recall": derived(lambda: percent(failure_recall(gap_table()))),
    "gap F1": derived(lambda: failure_f1(gap_table())),
    "gap F1 of low": consistent(partial(gap_f1, "low")),
    "gap F1 of medium": consistent(partial(gap_f1, "medium")),
}

RESOLVERS: dict[str, Resolver] = {
    TABLE: validation,
    "evaluator_effort": effort,
    "evaluator_dataset_bias": dataset_bias,
    "text: evaluator": statements(TEXT),
}
