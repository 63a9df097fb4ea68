"""The human audit of the experiment: 90 responses of each method under two kinds of labels."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from eclose.metrics.rates import Metric, compute_metric_rate
from eclose.stats.bootstrap import StratifiedDesign, bootstrap
from eclose.stats.coefficients import cohen_kappa, failure_f1, raw_agreement
from eclose.stats.rates import Rate

from ..printed import Cell, Derivation, Resolver, cell, consistent, derived, percent, said, statements, whole
from ..reconstruct import verdicts

if TYPE_CHECKING:
    from eclose.stats.arrays import Floats
    from eclose.stats.intervals import Interval
    from eclose.values.verdict import Verdict

AUTOMATED, HUMAN = "Automated", "Human"
METHODS = ("SFT", "CF-SFT", "RM", "E-Closure")
QUESTIONS = 10 * 9
"""Ten questions of each of nine settings."""
RESPONSES = QUESTIONS * len(METHODS)
LABELS = {
    "Acc": Metric.ACCURACY,
    "L": Metric.LOCAL_SOUNDNESS_RATE,
    "G": Metric.GLOBAL_SUFFICIENCY_RATE,
}
"""Labels whose failures both tables of the audit count."""
STATISTICS = {"Agreement": lambda table: percent(raw_agreement(table)), "F1": failure_f1, "kappa": cohen_kappa}
TRR, LGG = Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE
DIFFERENCES = {"dTRR": TRR, "dLGG": LGG}
_said = partial(said, section="human audit")


@cache
def labelled(method: str, labels: str) -> list[Verdict]:
    """A method's responses, from the printed rates without LGG."""
    row = f"{method} | {labels}"
    names = ("Acc", "LSR", "GSR", "TRR")
    acc, lsr, gsr, trr = (cell("appendix_human_audit_results", row, name).count(QUESTIONS) for name in names)
    return verdicts(QUESTIONS, acc=acc, lsr=lsr, gsr=gsr, trr=trr)


def scored(methods: tuple[str, ...], labels: str, metric: Metric) -> float:
    return percent(
        compute_metric_rate(metric, [verdict for method in methods for verdict in labelled(method, labels)]).value
    )


def hits(labels: str, metric: Metric, methods: tuple[str, ...] = METHODS) -> int:
    return sum(compute_metric_rate(metric, labelled(method, labels)).hits for method in methods)


def difference(methods: tuple[str, ...], metric: Metric) -> float:
    return scored(methods, AUTOMATED, metric) - scored(methods, HUMAN, metric)


def human_gain(other: str) -> float:
    return scored(("E-Closure",), HUMAN, TRR) - scored((other,), HUMAN, TRR)


def failures(label: str, labels: str) -> int:
    return RESPONSES - hits(labels, LABELS[label])


@cache
def confusions(label: str) -> list[Floats]:
    """The tables of people against the evaluator that are left open, failure first.

    For Acc, L and G the results give both numbers of failures; for C the text gives the failures found. For A and K
    the printed F1 decides.
    """
    printed = partial(cell, "appendix_human_audit_agreement", label)
    human = whole("appendix_human_audit_agreement", label, "n0")
    disputed = RESPONSES - printed("Agreement").count(RESPONSES)
    tables = [
        np.array([[human - missed, missed], [disputed - missed, RESPONSES - human - disputed + missed]])
        for missed in range(min(disputed, human) + 1)
    ]
    if label in LABELS:
        return [table for table in tables if table[:, 0].sum() == failures(label, AUTOMATED)]
    if label == "C":
        return [table for table in tables if table[0, 0] == _said("closure failures found")]
    return [table for table in tables if printed("F1").agrees(failure_f1(table))]


def agreement(cell: Cell) -> Derivation | None:
    match cell.row, cell.column:
        case label, "n0" if label in LABELS:
            return derived(lambda: failures(label, HUMAN))
        case (("Acc" | "L" | "C"), "Agreement"):
            return derived(lambda: percent(Rate(RESPONSES - disputes(cell.row), RESPONSES).value))
        case (("A" | "K"), ("Agreement" | "F1")):
            return None
        case _, ("F1" | "kappa"):
            return derived(lambda: [STATISTICS[cell.column](table) for table in confusions(cell.row)])
    return None


def disputes(label: str) -> int:
    """Disagreements the text counts."""
    if label == "Acc":
        return RESPONSES - _said("agreeing on correctness")
    if label == "L":
        return _said("unsound missed") + _said("unsound flagged in addition")
    missed = whole("appendix_human_audit_agreement", "C", "n0") - _said("closure failures found")
    return missed + _said("closure failures flagged in addition")


def results(cell: Cell) -> Derivation | None:
    method, labels = cell.row.split(" | ")
    match cell.column:
        case "LGG":
            return derived(partial(scored, (method,), labels, LGG))
        case "LGG count":
            return derived(partial(hits, labels, LGG, (method,)))
    return None


def differences(cell: Cell) -> Derivation | None:
    name, *end = cell.column.split()
    if not end:
        methods = METHODS if cell.row == "All methods" else (cell.row,)
        return derived(partial(difference, methods, DIFFERENCES[name]))
    return consistent(partial(ends, cell, DIFFERENCES[name], end[0])) if cell.row in METHODS else None


def ends(printed: Cell, metric: Metric, end: str) -> list[float]:
    """An interval's end for up to three changes against the trend, where the other end is as printed."""
    name, other = printed.column.split()[0], {"low": "high", "high": "low"}[end]
    gained = hits(AUTOMATED, metric, (printed.row,)) - hits(HUMAN, metric, (printed.row,))
    intervals = [resampled(gained, against) for against in range(4)]
    opposite = cell(printed.table, printed.row, f"{name} {other}")
    return [
        percent(getattr(interval, end)) for interval in intervals if opposite.agrees(percent(getattr(interval, other)))
    ]


@cache
def resampled(gained: int, against: int) -> Interval:
    """So many changes one way and the other, each in a question of its own, spread over the nine settings."""
    settings = StratifiedDesign(np.repeat(np.arange(9), 10))
    changes = np.zeros((9, 10))
    for index in range(gained + 2 * against):
        changes[index % 9, index // 9] = 1 if index < gained + against else -1
    replicates = bootstrap(
        settings,
        lambda weights: (weights @ changes.ravel())[:, np.newaxis] / QUESTIONS,
        rng=np.random.default_rng(42),
        resamples=10_000,
    )
    return replicates.estimate().interval


def agreements() -> list[float]:
    return [STATISTICS["Agreement"](table) for label in ("Acc", "L", "A", "C", "K") for table in confusions(label)]


def unsound_flagged() -> int:
    """What the evaluator flags beyond the human failures it finds."""
    return failures("L", AUTOMATED) - (failures("L", HUMAN) - _said("unsound missed"))


TEXT = {
    "questions": derived(lambda: QUESTIONS),
    "responses": derived(lambda: RESPONSES),
    "adjudicated responses": derived(lambda: RESPONSES - _said("agreed responses")),
    "lowest agreement": derived(lambda: min(agreements())),
    "highest agreement": derived(lambda: max(agreements())),
    "automated TRR": derived(partial(scored, METHODS, AUTOMATED, TRR)),
    "human TRR": derived(partial(scored, METHODS, HUMAN, TRR)),
    "TRR difference": derived(partial(difference, METHODS, TRR)),
    "automated LGG": derived(partial(scored, METHODS, AUTOMATED, LGG)),
    "automated gap responses": derived(partial(hits, AUTOMATED, LGG)),
    "human LGG": derived(partial(scored, METHODS, HUMAN, LGG)),
    "human gap responses": derived(partial(hits, HUMAN, LGG)),
    "LGG difference": derived(partial(difference, METHODS, LGG)),
    "TRR gain over CF-SFT": derived(partial(human_gain, "CF-SFT")),
    "TRR gain over RM": derived(partial(human_gain, "RM")),
    "unsound flagged in addition": derived(unsound_flagged),
}

RESOLVERS: dict[str, Resolver] = {
    "appendix_human_audit_agreement": agreement,
    "appendix_human_audit_results": results,
    "appendix_human_audit_differences": differences,
    "text: human audit": statements(TEXT),
}
