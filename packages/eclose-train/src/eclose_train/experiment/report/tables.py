"""Tables of an experiment as cells of plain text, in the layout of the paper. Each output format prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import (
    DASH,
    format_percent,
    format_percent_interval,
    format_signed_interval,
    format_signed_percent,
)
from eclose.metrics.rates import MAIN_METRICS, Metric
from eclose.report.document import ReportTable, ReportTableCell, ReportTableRow, describe_judged
from eclose.stats.rates import sample_sd_or_none
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.main_results import LOWER_IS_BETTER
from eclose_train.experiment.report.outcomes import ALL_METRICS, MATCH, MATCH_ONLY, SEMANTIC_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.stats.intervals import Estimate
    from eclose.stats.rates import Rate
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.outcomes import MeanRate, OutcomeTable

FIXED = "Fixed"
"""Stands for the seed of the untuned backbone."""
SEED_COLUMNS = (MATCH, *MAIN_METRICS)
_MATCH_NOTE = "Acc_match: the answer matches the reference by the deterministic rule, without aliases."


def rank_displayed_values(texts: Sequence[str], *, lower: bool = False) -> list[int]:
    """Return 1 for the best displayed value, 2 for the second best, 0 for all others; equal values rank alike.

    >>> rank_displayed_values(["99.8", "99.0", "99.8", "–"])
    [1, 2, 1, 0]
    """
    numbers = [None if text == DASH else float(text) for text in texts]
    ordered = sorted({number for number in numbers if number is not None}, reverse=not lower)
    ranks = {number: rank for rank, number in enumerate(ordered[:2], start=1)}
    return [0 if number is None else ranks.get(number, 0) for number in numbers]


def make_mean_cell(rate: MeanRate, *, decimals: int = 2, rank: int = 0, n: int | None = None) -> ReportTableCell:
    """Return a rate with its interval; with its n where that is not the given one, or responses are unjudged."""
    details = [format_percent_interval(rate.shown_interval, decimals=decimals)] if rate.shown_interval else []
    if rate.unjudged or rate.n != n:
        details.append(describe_judged(rate.n, rate.unjudged))
    return ReportTableCell(format_percent(rate.shown, decimals=decimals), tuple(details), rank=rank)


def make_rate_cell(rate: Rate | None, n: int | None = None) -> ReportTableCell:
    """Return a rate of one run with two decimals; a dash where the run has no response."""
    if rate is None:
        return ReportTableCell(DASH)
    details = (describe_judged(rate.n, rate.unjudged),) if rate.unjudged or rate.n != n else ()
    return ReportTableCell(format_percent(rate.value, decimals=2), details)


def make_gain_cell(estimate: Estimate | None) -> ReportTableCell:
    """Return a difference in points with its interval."""
    if estimate is None:
        return ReportTableCell(DASH)
    interval = format_signed_interval(estimate.interval, decimals=2)
    return ReportTableCell(format_signed_percent(estimate.value, decimals=2), (interval,) if interval else ())


def rank_rows(columns: Sequence[str], rows: Sequence[Sequence[MeanRate]], decimals: int) -> list[list[int]]:
    """Return the rank of each value within its column, by the displayed values."""
    ranks = [
        rank_displayed_values(
            [format_percent(row[at].shown, decimals=decimals) for row in rows], lower=column in LOWER_IS_BETTER
        )
        for at, column in enumerate(columns)
    ]
    return [list(row) for row in zip(*ranks, strict=True)]


def describe_sizes(outcomes: OutcomeTable, noun: str = "questions") -> str:
    """Return a sentence on the number of questions of each benchmark and on the seeds."""
    sizes = ", ".join(f"{benchmark} {size:,}" for benchmark, size in outcomes.grid.benchmarks.items())
    seeds = ", ".join(map(str, outcomes.grid.seeds)) or "none"
    return (
        f"n: {sizes} {noun}, each once per seed ({seeds}) and once for an untuned backbone. A cell with another n "
        "prints it; + counts cases without a label."
    )


def build_main_tables(report: ExperimentReport) -> Iterator[ReportTable]:
    """Yield the tables of the main comparison."""
    yield _build_overall_table(report)
    yield _build_settings_table(report)
    if report.main.gains:
        yield _build_gains_table(report)
    if report.matched:
        yield _build_accuracy_table(report)
        yield _build_matching_table(report)
    yield from _build_seed_tables(report)


def _build_overall_table(report: ExperimentReport) -> ReportTable:
    main = report.main
    rows = [[main.overall[method][metric] for metric in ALL_METRICS] for method in main.outcomes.grid.methods]
    ranks = rank_rows(ALL_METRICS, rows, 2)
    cells: tuple[ReportTableRow, ...] = tuple(
        (
            method,
            *(
                make_mean_cell(rate, rank=rank, n=main.outcomes.grid.count_responses(method))
                for rate, rank in zip(rates, row_ranks, strict=True)
            ),
        )
        for method, rates, row_ranks in zip(main.outcomes.grid.methods, rows, ranks, strict=True)
    )
    note = (
        f"Percent. Means over {len(main.outcomes.grid.settings)} settings of equal weight, after means over seeds. "
        f"{_describe_main_intervals(report)} Best bold, second best underlined. {describe_sizes(main.outcomes)} "
        f"{report.labels}"
    )
    return ReportTable.of("overall", "Aggregate performance", ("Method", *ALL_METRICS), cells, note)


def _describe_main_intervals(report: ExperimentReport) -> str:
    if not report.main.outcomes.complete:
        return "No intervals: the grid is incomplete."
    return f"Brackets: 95 % paired hierarchical intervals ({report.bootstrap.main})."


def _build_settings_table(report: ExperimentReport) -> ReportTable:
    """Return every method in every setting: blocks of backbones, groups of columns by benchmark."""
    outcomes = report.main.outcomes
    grid = outcomes.grid
    rows: list[ReportTableRow] = []
    for backbone in grid.backbones:
        rows.append((backbone,))
        columns = [(benchmark, metric) for benchmark in grid.benchmarks for metric in MAIN_METRICS]
        rates = [[outcomes.average_seeds(method, backbone, *column) for column in columns] for method in grid.methods]
        ranks = rank_rows([metric for _, metric in columns], rates, 1)
        for method, values, row_ranks in zip(grid.methods, rates, ranks, strict=True):
            seeds = len(grid.seeds_of(method))
            cells = [
                make_mean_cell(rate, decimals=1, rank=rank, n=seeds * grid.benchmarks[benchmark])
                for rate, rank, (benchmark, _) in zip(values, row_ranks, columns, strict=True)
            ]
            rows.append((method, *cells))
    note = (
        "Percent, means over seeds. Best bold, second best underlined, by the displayed values within each setting, "
        f"ties included; LGG: smaller is better. {describe_sizes(outcomes)} {report.labels}"
    )
    heads = ("Method", *(str(metric) for _ in grid.benchmarks for metric in MAIN_METRICS))
    spans = (("", 1), *((benchmark, len(MAIN_METRICS)) for benchmark in grid.benchmarks))
    return ReportTable.of("settings", "Performance by dataset and backbone", heads, rows, note, spans=spans)


def _build_gains_table(report: ExperimentReport) -> ReportTable:
    rows: list[ReportTableRow] = []
    for gain in report.main.gains:
        settings = len(report.main.outcomes.grid.settings)
        won = [
            f"{gain.settings[metric].won} won, {gain.settings[metric].tied} tied of {settings}"
            for metric in (Metric.ACCURACY, Metric.TRACE_RELIABILITY_RATE)
        ]
        cells = [make_gain_cell(gain.differences[metric]) for metric in ALL_METRICS]
        rows.append((gain.method, *cells, *map(ReportTableCell, won)))
    heads = ("Compared with", *ALL_METRICS, "Settings, Acc", "Settings, TRR")
    note = (
        f"{REFERENCE_METHOD} minus each method, in points of the means over settings. "
        f"{_describe_main_intervals(report)} Settings are won by exact values. {report.labels}"
    )
    return ReportTable.of("gains", f"Gains of {REFERENCE_METHOD}", heads, rows, note)


def _build_accuracy_table(report: ExperimentReport) -> ReportTable:
    columns = (Metric.ACCURACY, MATCH, MATCH_ONLY, SEMANTIC_ONLY)
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            method,
            *(make_mean_cell(rates[column], n=report.main.outcomes.grid.count_responses(method)) for column in columns),
        )
        for method, rates in report.main.overall.items()
    )
    note = (
        "Percent, means over settings. Acc_sem: labels of the evaluator. Match only and Semantic only: accepted by one "
        f"of the two. {_describe_main_intervals(report)} {_MATCH_NOTE} {describe_sizes(report.main.outcomes)} "
        f"{report.labels}"
    )
    heads = ("Method", "Acc_sem", MATCH, MATCH_ONLY, SEMANTIC_ONLY)
    return ReportTable.of("answer-accuracy", "Answer accuracy under two scoring rules", heads, rows, note)


def _build_matching_table(report: ExperimentReport) -> ReportTable:
    """Return the matching accuracy of every setting: mean and sample SD over seeds."""
    outcomes = report.main.outcomes
    grid = outcomes.grid
    rows: list[ReportTableRow] = []
    for backbone in grid.backbones:
        rows.append((backbone,))
        for method in grid.methods:
            cells = []
            for benchmark, size in grid.benchmarks.items():
                rate = outcomes.average_seeds(method, backbone, benchmark, MATCH)
                values = [part.value for part in outcomes.seed_rates(method, backbone, benchmark, MATCH)]
                sd = sample_sd_or_none(value for value in values if value is not None)
                cell = make_mean_cell(rate, n=size * len(grid.seeds_of(method)))
                spread = "" if sd is None else f" ± {format_percent(sd, decimals=2)}"
                cells.append(cell._replace(text=cell.text + spread))
            rows.append((method, *cells))
    note = (
        f"Percent, mean ± sample standard deviation over seeds. {describe_sizes(outcomes)} {_MATCH_NOTE} "
        "No evaluator takes part."
    )
    heads = ("Method", *grid.benchmarks)
    return ReportTable.of("matching-settings", "Deterministic accuracy by dataset and backbone", heads, rows, note)


def _build_seed_tables(report: ExperimentReport) -> Iterator[ReportTable]:
    """Yield a table per backbone with every run: datasets as blocks, a row per method and seed."""
    outcomes = report.main.outcomes
    grid = outcomes.grid
    heads = ("Method", "Seed", MATCH, "Acc_sem", *map(str, MAIN_METRICS[1:]))
    for backbone in grid.backbones:
        rows: list[ReportTableRow] = []
        for benchmark, size in grid.benchmarks.items():
            rows.append((f"{benchmark} (n = {size:,})",))
            for method in grid.methods:
                for seed in grid.seeds_of(method):
                    rates = [outcomes.rate(method, backbone, seed, benchmark, column) for column in SEED_COLUMNS]
                    name = FIXED if seed is None else str(seed)
                    rows.append((method, name, *(make_rate_cell(rate, size) for rate in rates)))
        note = (
            f"Percent. {FIXED}: the untuned backbone. A cell with another n than that of its block prints it. "
            f"{_MATCH_NOTE} {report.labels}"
        )
        yield ReportTable.of(
            f"seeds-{grid.backbones.index(backbone) + 1}", f"Per-seed results for {backbone}", heads, rows, note
        )
