"""Tables of the ablations, the switch test and the training runs, and the list of all tables of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import DASH
from eclose.metrics.rates import Metric
from eclose.report.document import ReportTable, ReportTableCell
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.main_results import name_switch_column
from eclose_train.experiment.report.outcomes import (
    ALL_METRICS,
    COUNTERFACTUAL,
    GAP_CLASSES,
    MATCH,
    ORIGINAL,
    SWITCH_COLUMNS,
    SWITCHED,
)
from eclose_train.experiment.report.people_tables import build_audit_tables, build_evaluator_tables
from eclose_train.experiment.report.tables import (
    build_main_tables,
    describe_sizes,
    make_gain_cell,
    make_mean_cell,
    make_rate_cell,
    make_row,
    rank_rows,
)
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.main_results import AblationResults, SwitchResults
    from eclose_train.experiment.report.outcomes import OutcomeTable
    from eclose_train.experiment.report.training import TrainingCost

HYPERPARAMETERS_KEY = "hyperparameters"
_DATASET_COLUMNS = (MATCH, Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
_CLAIM_HEADS = ("Comparison", "Outcome", "Difference", "n")
_SWITCH_LABELS = "No labels: signs of differences of mean log-likelihoods, whose ties fail."


def build_experiment_tables(report: ExperimentReport) -> tuple[ReportTable, ...]:
    """Return every table that has data, in the order of the paper."""
    tables = list(build_main_tables(report))
    for ablation in report.ablations:
        tables += _build_ablation_tables(report, ablation)
    if report.switches:
        tables += _build_switch_tables(report, report.switches, "switch")
    for switches in report.variant_switches:
        tables += _build_switch_tables(report, switches, f"ablation-switch-{switches.outcomes.grid.backbones[0]}")
    if report.evaluator:
        tables += build_evaluator_tables(report.evaluator, report.bootstrap.judge)
    if report.audit:
        tables += build_audit_tables(report.audit, report.bootstrap.audit)
    if report.used_settings:
        tables.append(_build_hyperparameter_table(report))
    if report.cost:
        tables.append(_build_cost_table(report.cost))
    if claims := _build_claims_table(report):
        tables.append(claims)
    return tuple(tables)


def _build_claims_table(report: ExperimentReport) -> ReportTable | None:
    rows: list[tuple[ReportTableCell, ...]] = []
    for claim in report.claims:
        rows.append(make_row(f"{claim.title} {claim.outcome.capitalize()}."))
        for comparison in claim.comparisons:
            name, outcome, size = map(ReportTableCell, (comparison.name, comparison.outcome, f"{comparison.n:,}"))
            rows.append((name, outcome, make_gain_cell(comparison.difference), size))
    if not any(claim.comparisons for claim in report.claims):
        return None
    note = (
        "Differences in points that are positive where the claim is right, with the intervals of the tables above. A "
        "claim holds where all intervals lie above zero, does not hold where one lies below, and is open otherwise, "
        "also where methods to compare are missing. n: judged responses, or families, of the smaller side. "
        f"{report.labels}"
    )
    return ReportTable("claims", "The paper's claims in this experiment", _CLAIM_HEADS, tuple(rows), note)


def _build_ablation_tables(report: ExperimentReport, ablation: AblationResults) -> Iterator[ReportTable]:
    backbone, outcomes = ablation.backbone, ablation.outcomes
    size = sum(outcomes.grid.benchmarks.values())
    pooled = f"Percent over the {size:,} questions pooled within each of {len(outcomes.grid.seeds)} seeds"
    # A full table name per backbone: a plan may ablate on several.
    key, runs = f"ablations-{backbone}", size * len(outcomes.grid.seeds)
    rates = [[ablation.rates[variant][metric] for metric in ALL_METRICS] for variant in ablation.rates]
    ranks = rank_rows(ALL_METRICS, rates, 2)
    # The paper marks the best value of a column alone.
    best = [[int(rank == 1) for rank in row_ranks] for row_ranks in ranks]
    rows = tuple(
        make_row(
            variant,
            *(make_mean_cell(rate, rank=rank, n=runs) for rate, rank in zip(values, row_ranks, strict=True)),
        )
        for variant, values, row_ranks in zip(ablation.rates, rates, best, strict=True)
    )
    note = f"{pooled}, then averaged over seeds (n {runs:,}). Best bold. {report.labels}"
    yield ReportTable(key, f"Objective ablations on {backbone}", ("Variant", *ALL_METRICS), rows, note)
    if ablation.gains:
        yield _build_ablation_gains(report, ablation)
    columns = (MATCH, *ALL_METRICS)
    seeds = tuple(
        make_row(
            variant,
            str(seed),
            *(make_rate_cell(outcomes.pool(variant, backbone, seed, column), size) for column in columns),
        )
        for variant in ablation.rates
        for seed in outcomes.grid.seeds_of(variant)
    )
    heads = ("Variant", "Seed", MATCH, "Acc_sem", *ALL_METRICS[1:])
    yield ReportTable(f"{key}-seeds", f"Per-seed ablations on {backbone}", heads, seeds, f"{pooled}. {report.labels}")
    yield _build_ablation_datasets(report, ablation)
    yield _build_ablation_failures(report, ablation, pooled, runs)


def _build_ablation_failures(
    report: ExperimentReport, ablation: AblationResults, pooled: str, runs: int
) -> ReportTable:
    """Return the classes of the gap as shares of all responses."""
    columns = (MATCH, *GAP_CLASSES, Metric.GAP_RATE)
    rows = tuple(
        make_row(variant, *(make_mean_cell(values[column], n=runs) for column in columns))
        for variant, values in ablation.rates.items()
    )
    note = f"{pooled}, then averaged. PD, IR and AD are shares of all responses and sum to LGG. {report.labels}"
    key = f"ablations-{ablation.backbone}-failures"
    return ReportTable(key, f"Composition of LGG on {ablation.backbone}", ("Variant", *columns), rows, note)


def _build_ablation_gains(report: ExperimentReport, ablation: AblationResults) -> ReportTable:
    rows = tuple(
        make_row(
            gain.variant,
            str(gain.metric or DASH),
            *map(make_gain_cell, (gain.metric_gain, gain.reliability_gain, gain.gap_reduction)),
        )
        for gain in ablation.gains
    )
    intervals = (
        f"Brackets: 95 % intervals over pooled questions and seeds ({report.bootstrap.ablations})."
        if ablation.outcomes.complete
        else "No intervals: the grid is incomplete."
    )
    note = (
        f"Points; positive values favour {REFERENCE_METHOD}. {intervals} "
        f"{describe_sizes(ablation.outcomes)} {report.labels}"
    )
    heads = ("Comparator", "Metric", "Metric gain", "TRR gain", "LGG reduction")
    key = f"ablations-{ablation.backbone}-gains"
    return ReportTable(key, f"Paired gains of the full objective on {ablation.backbone}", heads, rows, note)


def _build_ablation_datasets(report: ExperimentReport, ablation: AblationResults) -> ReportTable:
    outcomes = ablation.outcomes
    rows = tuple(
        make_row(
            variant,
            *(
                make_mean_cell(
                    outcomes.average_seeds(variant, ablation.backbone, benchmark, column),
                    n=size * len(outcomes.grid.seeds_of(variant)),
                )
                for benchmark, size in outcomes.grid.benchmarks.items()
                for column in _DATASET_COLUMNS
            ),
        )
        for variant in ablation.rates
    )
    heads = ("Variant", *(str(column) for _ in outcomes.grid.benchmarks for column in _DATASET_COLUMNS))
    spans = (("", 1), *((benchmark, len(_DATASET_COLUMNS)) for benchmark in outcomes.grid.benchmarks))
    note = f"Percent, means over seeds. {describe_sizes(outcomes)} {report.labels}"
    title = f"Ablations by dataset on {ablation.backbone}"
    return ReportTable(
        key=f"ablations-{ablation.backbone}-datasets", title=title, heads=heads, rows=rows, note=note, spans=spans
    )


def _build_switch_tables(report: ExperimentReport, switches: SwitchResults, key: str) -> Iterator[ReportTable]:
    outcomes = switches.outcomes
    grid, sizes = outcomes.grid, describe_sizes(outcomes, "families")
    if switches.gains:
        rows = tuple(
            make_row(str(edge), *(make_gain_cell(gains[edge]) for gains in switches.gains.values())) for edge in Edge
        )
        intervals = (
            f"Brackets: 95 % intervals over families and seeds ({report.bootstrap.switches})."
            if outcomes.complete
            else "No intervals: the grid is incomplete."
        )
        note = (
            f"Switch rate of {REFERENCE_METHOD} minus that of each method, in points. {intervals} {sizes} "
            f"{_SWITCH_LABELS}"
        )
        yield ReportTable(f"{key}-gains", "Gains in dependency control", ("Edge", *switches.gains), rows, note)
    rows = tuple(
        make_row(
            method,
            *(
                make_mean_cell(switches.rates[method][column], n=grid.count_responses(method))
                for column in SWITCH_COLUMNS
            ),
        )
        for method in grid.methods
    )
    kinds = (ORIGINAL, COUNTERFACTUAL, SWITCHED)
    note = f"Percent, means over settings. O, CF: the margin is positive; SW: both. {sizes} {_SWITCH_LABELS}"
    heads, spans = ("Method", *(kind for _ in Edge for kind in kinds)), (("", 1), *((str(edge), 3) for edge in Edge))
    yield ReportTable(
        key=f"{key}-directions",
        title="Directional success and joint switching",
        heads=heads,
        rows=rows,
        note=note,
        spans=spans,
    )
    yield _build_switch_settings(outcomes, key)


def _build_switch_settings(outcomes: OutcomeTable, key: str) -> ReportTable:
    """Return the switch rates of every setting, in blocks of backbones."""
    grid = outcomes.grid
    rows: list[tuple[ReportTableCell, ...]] = []
    for backbone in grid.backbones:
        rows.append(make_row(backbone))
        for method in grid.methods:
            cells = [
                make_mean_cell(
                    outcomes.average_seeds(method, backbone, benchmark, name_switch_column(edge)),
                    n=size * len(grid.seeds_of(method)),
                )
                for benchmark, size in grid.benchmarks.items()
                for edge in Edge
            ]
            rows.append(make_row(method, *cells))
    heads = ("Method", *(str(edge) for _ in grid.benchmarks for edge in Edge))
    spans = (("", 1), *((benchmark, len(Edge)) for benchmark in grid.benchmarks))
    note = f"Percent, means over seeds. {describe_sizes(outcomes, 'families')} {_SWITCH_LABELS}"
    return ReportTable(
        key=f"{key}-settings",
        title="Switch rates by dataset and backbone",
        heads=heads,
        rows=tuple(rows),
        note=note,
        spans=spans,
    )


def _build_hyperparameter_table(report: ExperimentReport) -> ReportTable:
    rows = []
    for name, values in report.used_settings.items():
        texts = [f"{value} for {', '.join(runs)}" for value, runs in values.items()]
        rows.append(make_row(name, next(iter(values)) if len(values) == 1 else "; ".join(texts)))
    note = "As recorded in the recipes of the runs; settings outside the paper's table only where runs differ."
    return ReportTable(HYPERPARAMETERS_KEY, "Training hyperparameters", ("Setting", "Value"), tuple(rows), note)


def _build_cost_table(cost: TrainingCost) -> ReportTable:
    rows = []
    for method in cost.methods:
        cells = []
        for backbone in cost.backbones:
            hours = cost.hours.get((method, backbone))
            if hours is None or hours.mean is None:
                cells.append(ReportTableCell(DASH))
                continue
            spread = "" if hours.sd is None else f" ± {hours.sd:.2f}"
            cells.append(ReportTableCell(f"{hours.mean:.2f}{spread}", (f"n {hours.runs}",)))
        rows.append(make_row(method, *cells))
    devices = dict.fromkeys(device for hours in cost.hours.values() for device in hours.devices)
    note = (
        "Hours per run, mean ± sample standard deviation over seeds; a dash where none was run. "
        f"{cost.device_hours:,.1f} device hours in {cost.runs:,} runs. Hardware: {', '.join(devices)}."
    )
    return ReportTable("cost", "Recorded time per training run", ("Method", *cost.backbones), tuple(rows), note)
