"""Detectors: what is known of the three classes of the gap fixes the recall, and bounds the means, of the gap."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial

import numpy as np

from eclose.stats.ranking import ScoredResponses, recall_at_retention

from ..printed import Cell, Derivation, Resolver, Span, cell, consistent, derived, number, percent, statements
from .diagnosis import CLASSES, group_size

DETECTORS = ("RAGAS", "VeriScore", "AlignScore", "Alignment", "Closure")
SUPPORT_VERIFIERS = DETECTORS[:3]


@cache
def gap_recall(detector: str) -> float:
    """R@95 of the gap from the number of responses flagged in each of its classes.

    Two scores tell the story: flagged or not. As many reliable responses as may be are flagged, too.
    """
    flagged = [cell("detector_blindness", name, f"{detector} R@95").count(group_size(name)) for name in CLASSES]
    sizes = [group_size(name) for name in CLASSES]
    reliable = group_size("Reliable")
    failing = np.repeat([0.2, 0.8], [sum(flagged), sum(sizes) - sum(flagged)])
    passing = np.repeat([0.2, 0.8], [reliable // 20, reliable - reliable // 20])
    failed = np.repeat([True, False], [len(failing), len(passing)])
    return percent(recall_at_retention(ScoredResponses(np.concatenate([failing, passing]), failed, ~failed)))


def gap_mean(table: str, column: str) -> Span:
    """A mean over the gap is that of its classes, weighted by size; each of these is known to half a unit."""
    total = group_size("LGG")
    ends = [cell(table, name, column).span for name in CLASSES]
    weights = [Fraction(group_size(name), total) for name in CLASSES]
    low, high = (sum(w * end[i] for w, end in zip(weights, ends, strict=True)) for i in (0, 1))
    return Span(low, high)


def sensitivity(cell: Cell) -> Derivation | None:
    if cell.column == "n":
        return derived(partial(group_size, cell.row))
    if cell.row != "LGG":
        return None
    detector, statistic = cell.column.split()
    if statistic == "R@95":
        return derived(partial(gap_recall, detector))
    return consistent(partial(gap_mean, cell.table, cell.column))


def scores(cell: Cell) -> Derivation | None:
    if cell.column == "n":
        return derived(partial(group_size, cell.row))
    if cell.row == "LGG" and cell.column in DETECTORS:
        return consistent(partial(gap_mean, cell.table, cell.column))
    return None


def robustness(cell: Cell) -> Derivation | None:
    match cell.column:
        case "R@95":
            return derived(partial(gap_recall, cell.row))
        case "AUROC":
            return consistent(partial(gap_mean, "detector_blindness", f"{cell.row} AUC"))
    return None


def recalls(row: str) -> list[Fraction]:
    return [number("detector_blindness", row, f"{detector} R@95") for detector in SUPPORT_VERIFIERS]


def cross_fitted(column: str, detectors: tuple[str, ...] = DETECTORS) -> list[Fraction]:
    return [number("detector_robustness", detector, column) for detector in detectors]


TEXT = {
    "highest gap recall of support verifiers": derived(lambda: max(map(gap_recall, SUPPORT_VERIFIERS))),
    "lowest gap recall of support verifiers": derived(lambda: min(map(gap_recall, SUPPORT_VERIFIERS))),
    "highest unsound recall of support verifiers": derived(lambda: max(recalls("Locally unsound"))),
    "lowest decoupling recall of support verifiers": derived(lambda: min(recalls("Answer decoupling"))),
    "highest decoupling recall of support verifiers": derived(lambda: max(recalls("Answer decoupling"))),
    "lowest cross-fitted false positive rate": derived(lambda: min(cross_fitted("CF FPR"))),
    "highest cross-fitted false positive rate": derived(lambda: max(cross_fitted("CF FPR"))),
    "lowest cross-fitted recall of support verifiers": derived(
        lambda: min(cross_fitted("CF recall", SUPPORT_VERIFIERS))
    ),
    "highest cross-fitted recall of support verifiers": derived(
        lambda: max(cross_fitted("CF recall", SUPPORT_VERIFIERS))
    ),
}

RESOLVERS: dict[str, Resolver] = {
    "detector_blindness": sensitivity,
    "detector_scores": scores,
    "detector_robustness": robustness,
    "text: detectors": statements(TEXT),
}
