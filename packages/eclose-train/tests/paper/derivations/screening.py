"""Sampling and eligibility: counts of questions, and agreement of the two screeners.

Alpha of two judges does not depend on which of them said no where they disagree, so the number of disagreements
and of questions both reject is all it takes.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.bootstrap import BootstrapReplicates, StratifiedDesign, bootstrap
from eclose.stats.coefficients import TableStatistic, pair_alpha, raw_agreement
from eclose.stats.rates import Rate
from eclose.values.judgment import Ineligibility

from ..printed import (
    BACKBONES,
    DATASETS,
    Cell,
    Derivation,
    Resolver,
    Span,
    cell,
    consistent,
    derived,
    number,
    percent,
    reestimated,
    said,
    statements,
    whole,
    within_spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SAMPLED = {dataset: whole("eligibility_agreement_dataset", dataset, "n") for dataset in DATASETS}
ALL = tuple(SAMPLED)
STATISTICS = {"raw": raw_agreement, "alpha": pair_alpha}
SEED = 42
NOISY = {
    ("Primary ineligibility reason", "raw low"),
    ("2WikiMultiHopQA", "alpha low"),
    ("2WikiMultiHopQA", "alpha high"),
    ("HotpotQA", "alpha low"),
}
"""Ends that rest on few disagreements and move by more than two units from one stream to the next."""
_sampling = partial(said, section="sampling")


def disagreements(dataset: str) -> int:
    raw = cell("eligibility_agreement_dataset", dataset, "raw")
    return SAMPLED[dataset] - raw.count(SAMPLED[dataset])


def both_no(dataset: str) -> int:
    return whole("eligibility_agreement_dataset", dataset, "both no")


def total_disagreements() -> int:
    return sum(map(disagreements, ALL))


def total_both_no() -> int:
    return sum(map(both_no, ALL))


def reason_disagreements() -> int:
    return said("reason-only disagreements", "screening")


def resample_questions(tables: np.ndarray, statistics: Sequence[TableStatistic], seed: int) -> BootstrapReplicates:
    """Every statistic of the tables of drawn questions, on the same draws."""

    def evaluate(weights: np.ndarray) -> np.ndarray:
        drawn = np.tensordot(weights, tables, axes=1)
        return np.stack([statistic.over(drawn) for statistic in statistics], axis=1)

    design = StratifiedDesign.single(len(tables))
    return bootstrap(design, evaluate, rng=np.random.default_rng(seed), resamples=2_000)


@cache
def eligibility(datasets: tuple[str, ...], seed: int) -> BootstrapReplicates:
    """Raw agreement and alpha of binary eligibility, questions resampled."""
    disputed, rejected = sum(map(disagreements, datasets)), sum(map(both_no, datasets))
    questions = sum(SAMPLED[dataset] for dataset in datasets)
    tables = np.zeros((questions, 2, 2))
    tables[:rejected, 0, 0] = 1
    tables[rejected : rejected + disputed, 0, 1] = 1
    tables[rejected + disputed :, 1, 1] = 1
    return resample_questions(tables, list(STATISTICS.values()), seed)


@cache
def reasons(seed: int) -> BootstrapReplicates:
    """Raw agreement on the reason among questions both reject: which reasons they gave does not matter to it."""
    questions = total_both_no()
    tables = np.zeros((questions, 2, 2))
    tables[: reason_disagreements(), 0, 1] = 1
    tables[reason_disagreements() :, 1, 1] = 1
    return resample_questions(tables, [raw_agreement], seed)


def estimated(cell: Cell, resampled: Callable[[int], BootstrapReplicates]) -> Derivation:
    """A statistic or one end of its interval, as printed: raw agreement in percent."""
    name, *end = cell.column.split()
    scale = 100 if name == "raw" else 1

    def compute(seed: int = SEED) -> float:
        estimate = resampled(seed).estimate(list(STATISTICS).index(name))
        return scale * (getattr(estimate.interval, end[0]) if end else estimate.value)

    def spread() -> Span:
        ends = [compute(seed) for seed in range(20)]
        return Span(min(ends), max(ends))

    if (cell.row, cell.column) in NOISY:
        return within_spread(spread)
    return (reestimated if end else derived)(compute)


def agreement(cell: Cell) -> Derivation | None:
    if cell.row == "Binary eligibility":
        if cell.column == "n":
            return derived(lambda: sum(SAMPLED.values()))
        return estimated(cell, partial(eligibility, ALL))
    if cell.column == "n":
        return derived(total_both_no)
    return estimated(cell, reasons) if cell.column.startswith("raw") else None


def by_dataset(cell: Cell) -> Derivation | None:
    return estimated(cell, partial(eligibility, (cell.row,))) if cell.column.startswith("alpha") else None


def outcomes(cell: Cell) -> Derivation | None:
    if cell.row == "Rate":
        return derived(lambda: percent(Rate(outcome(cell.column), outcome_total(cell.column)).value))
    match cell.column:
        case "Eligible":
            return derived(lambda: sum(DATASETS.values()))
        case "Ineligible":
            return derived(lambda: (sum(map(outcome, Ineligibility)), sum(SAMPLED.values()) - sum(DATASETS.values())))
    return None


def outcome(column: str) -> int:
    return whole("eligibility_adjudication", "Count", column)


def outcome_total(column: str) -> int:
    """Eligibility is a share of all questions, a reason one of those excluded."""
    return sum(SAMPLED.values()) if column.endswith("ligible") else outcome("Ineligible")


def sample(printed: Cell) -> Derivation | None:
    """Every question of a dataset has as many passages, so both follow from the number that support the answer."""
    name, *end = printed.column.split()
    row = partial(number, printed.table, printed.row)

    def passages() -> int:
        return row("supporting") + row("distractors")

    if name == "density":
        return consistent(lambda: percent(row(" ".join(["supporting", *end])) / passages()))
    if name == "distractors" and end:
        opposite = {"low": "high", "high": "low"}[end[0]]
        return consistent(lambda: passages() - row(f"supporting {opposite}"))
    return None


SAMPLING = {
    "sampled questions": derived(lambda: sum(SAMPLED.values())),
    "initial generations": derived(lambda: _sampling("sampled questions") * len(BACKBONES)),
    "generations with an answer": derived(
        lambda: _sampling("generations with one answer line") + _sampling("generations with two answer lines")
    ),
    "incomplete generations": derived(
        lambda: (
            _sampling("initial generations") - _sampling("generations with an answer"),
            _sampling("incomplete of Qwen3-8B") + _sampling("incomplete of Qwen3-32B"),
        )
    ),
    # Each incomplete generation takes its question out; the nine may, but need not, be of nine questions.
    "questions complete for all models": consistent(
        lambda: Span(
            _sampling("sampled questions") - _sampling("incomplete generations"),
            _sampling("sampled questions") - _sampling("incomplete of Qwen3-8B"),
        )
    ),
    "responses to complete questions": derived(lambda: _sampling("questions complete for all models") * len(BACKBONES)),
}
SCREENING = {
    "questions adjudicated": derived(lambda: total_disagreements() + reason_disagreements()),
    "eligibility disagreements": derived(total_disagreements),
}

RESOLVERS: dict[str, Resolver] = {
    "diagnostic_sample_stats": sample,
    "eligibility_agreement": agreement,
    "eligibility_agreement_dataset": by_dataset,
    "eligibility_adjudication": outcomes,
    "text: sampling": statements(SAMPLING),
    "text: screening": statements(SCREENING),
}
