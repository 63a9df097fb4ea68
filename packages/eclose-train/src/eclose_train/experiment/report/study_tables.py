"""Tables of ablations, switch test, training runs and people's labels, and the list of all tables of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import (
    DASH,
    format_percent,
)
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.metrics.rates import MAIN_METRICS, Metric
from eclose.report.document import (
    ReportTable,
    ReportTableCell,
    ReportTableRow,
    describe_judged,
    make_percent_cell,
    make_score_cell,
)
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.main_results import LOWER_IS_BETTER, name_switch_column
from eclose_train.experiment.report.outcomes import (
    ALL_METRICS,
    COUNTERFACTUAL,
    GAP_CLASSES,
    MATCH,
    ORIGINAL,
    SWITCH_COLUMNS,
    SWITCHED,
)
from eclose_train.experiment.report.people import ALL_METHODS, EVALUATOR_LABELS, LabelSource
from eclose_train.experiment.report.tables import (
    build_main_tables,
    describe_sizes,
    make_gain_cell,
    make_mean_cell,
    make_rate_cell,
    rank_displayed_values,
    rank_rows,
)
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.metrics.judge_against_people import GroupValidation, JudgeAgreementReport
    from eclose.stats.intervals import Estimate
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.main_results import AblationResults, SwitchResults
    from eclose_train.experiment.report.outcomes import OutcomeTable
    from eclose_train.experiment.report.people import AuditResults, EvaluatorResults
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
    rows: list[ReportTableRow] = []
    for claim in report.claims:
        rows.append((f"{claim.title} {claim.outcome.capitalize()}.",))
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
    return ReportTable.of("claims", "The paper's claims in this experiment", _CLAIM_HEADS, rows, note)


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
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            variant,
            *(make_mean_cell(rate, rank=rank, n=runs) for rate, rank in zip(values, row_ranks, strict=True)),
        )
        for variant, values, row_ranks in zip(ablation.rates, rates, best, strict=True)
    )
    note = f"{pooled}, then averaged over seeds (n {runs:,}). Best bold. {report.labels}"
    yield ReportTable.of(key, f"Objective ablations on {backbone}", ("Variant", *ALL_METRICS), rows, note)
    if ablation.gains:
        yield _build_ablation_gains(report, ablation)
    columns = (MATCH, *ALL_METRICS)
    seeds: tuple[ReportTableRow, ...] = tuple(
        (
            variant,
            str(seed),
            *(make_rate_cell(outcomes.pool(variant, backbone, seed, column), size) for column in columns),
        )
        for variant in ablation.rates
        for seed in outcomes.grid.seeds_of(variant)
    )
    heads = ("Variant", "Seed", MATCH, "Acc_sem", *ALL_METRICS[1:])
    yield ReportTable.of(
        f"{key}-seeds", f"Per-seed ablations on {backbone}", heads, seeds, f"{pooled}. {report.labels}"
    )
    yield _build_ablation_datasets(report, ablation)
    yield _build_ablation_failures(report, ablation, pooled, runs)


def _build_ablation_failures(
    report: ExperimentReport, ablation: AblationResults, pooled: str, runs: int
) -> ReportTable:
    """Return the classes of the gap as shares of all responses."""
    columns = (MATCH, *GAP_CLASSES, Metric.GAP_RATE)
    rows: tuple[ReportTableRow, ...] = tuple(
        (variant, *(make_mean_cell(values[column], n=runs) for column in columns))
        for variant, values in ablation.rates.items()
    )
    note = f"{pooled}, then averaged. PD, IR and AD are shares of all responses and sum to LGG. {report.labels}"
    key = f"ablations-{ablation.backbone}-failures"
    return ReportTable.of(key, f"Composition of LGG on {ablation.backbone}", ("Variant", *columns), rows, note)


def _build_ablation_gains(report: ExperimentReport, ablation: AblationResults) -> ReportTable:
    rows: tuple[ReportTableRow, ...] = tuple(
        (
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
    return ReportTable.of(key, f"Paired gains of the full objective on {ablation.backbone}", heads, rows, note)


def _build_ablation_datasets(report: ExperimentReport, ablation: AblationResults) -> ReportTable:
    outcomes = ablation.outcomes
    rows: tuple[ReportTableRow, ...] = tuple(
        (
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
    return ReportTable.of(f"ablations-{ablation.backbone}-datasets", title, heads, rows, note, spans=spans)


def _build_switch_tables(report: ExperimentReport, switches: SwitchResults, key: str) -> Iterator[ReportTable]:
    outcomes = switches.outcomes
    grid, sizes = outcomes.grid, describe_sizes(outcomes, "families")
    if switches.gains:
        rows: tuple[ReportTableRow, ...] = tuple(
            (str(edge), *(make_gain_cell(gains[edge]) for gains in switches.gains.values())) for edge in Edge
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
        yield ReportTable.of(f"{key}-gains", "Gains in dependency control", ("Edge", *switches.gains), rows, note)
    rows = tuple(
        (
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
    title = "Directional success and joint switching"
    yield ReportTable.of(f"{key}-directions", title, heads, rows, note, spans=spans)
    yield _build_switch_settings(outcomes, key)


def _build_switch_settings(outcomes: OutcomeTable, key: str) -> ReportTable:
    """Return the switch rates of every setting, in blocks of backbones."""
    grid = outcomes.grid
    rows: list[ReportTableRow] = []
    for backbone in grid.backbones:
        rows.append((backbone,))
        for method in grid.methods:
            cells = [
                make_mean_cell(
                    outcomes.average_seeds(method, backbone, benchmark, name_switch_column(edge)),
                    n=size * len(grid.seeds_of(method)),
                )
                for benchmark, size in grid.benchmarks.items()
                for edge in Edge
            ]
            rows.append((method, *cells))
    heads = ("Method", *(str(edge) for _ in grid.benchmarks for edge in Edge))
    spans = (("", 1), *((benchmark, len(Edge)) for benchmark in grid.benchmarks))
    note = f"Percent, means over seeds. {describe_sizes(outcomes, 'families')} {_SWITCH_LABELS}"
    return ReportTable.of(f"{key}-settings", "Switch rates by dataset and backbone", heads, rows, note, spans=spans)


def _build_hyperparameter_table(report: ExperimentReport) -> ReportTable:
    rows: list[ReportTableRow] = []
    for name, values in report.used_settings.items():
        texts = [f"{value} for {', '.join(runs)}" for value, runs in values.items()]
        rows.append((name, next(iter(values)) if len(values) == 1 else "; ".join(texts)))
    note = "As recorded in the recipes of the runs; settings outside the paper's table only where runs differ."
    return ReportTable.of(HYPERPARAMETERS_KEY, "Training hyperparameters", ("Setting", "Value"), rows, note)


def _build_cost_table(cost: TrainingCost) -> ReportTable:
    rows: list[ReportTableRow] = []
    for method in cost.methods:
        cells = []
        for backbone in cost.backbones:
            hours = cost.hours.get((method, backbone))
            if hours is None or hours.mean is None:
                cells.append(ReportTableCell(DASH))
                continue
            spread = "" if hours.sd is None else f" ± {hours.sd:.2f}"
            cells.append(ReportTableCell(f"{hours.mean:.2f}{spread}", (f"n {hours.runs}",)))
        rows.append((method, *cells))
    devices = dict.fromkeys(device for hours in cost.hours.values() for device in hours.devices)
    note = (
        "Hours per run, mean ± sample standard deviation over seeds; a dash where none was run. "
        f"{cost.device_hours:,.1f} device hours in {cost.runs:,} runs. Hardware: {', '.join(devices)}."
    )
    return ReportTable.of("cost", "Recorded time per training run", ("Method", *cost.backbones), rows, note)


_AUDIT_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
_PEOPLE = "Labels of people are the reference."


def build_evaluator_tables(evaluator: EvaluatorResults, draws: BootstrapDraws) -> Iterator[ReportTable]:
    """Yield the evaluator against people: by label, by dataset, and beside other judges."""
    intervals = f"Brackets: 95 % intervals over questions within datasets ({draws})."
    note = (
        f"{_PEOPLE} n0: failures by people's labels; F1_0, BAcc and kappa take a failure as the event; Δp0: failure "
        f"rate of the evaluator minus people's, in points. {intervals} {evaluator.sentence}"
    )
    if evaluator.not_in_runs:
        note += f" {evaluator.not_in_runs:,} further labels are on responses outside the experiment."
    yield build_agreement_table("evaluator", "Evaluator against people", evaluator.agreement, note)
    yield _build_bias_table(evaluator, intervals)
    if len(evaluator.judges) > 1:
        yield _build_judges_table(evaluator, intervals)
        yield _build_judge_gains_table(evaluator, intervals)


def build_agreement_table(key: str, title: str, agreement: JudgeAgreementReport, note: str) -> ReportTable:
    """Return the agreement of a judge with people, label by label."""
    rows: list[ReportTableRow] = []
    for label, name in EVALUATOR_LABELS.items():
        row = agreement.overall.rows[label]
        unjudged = (f"+{row.unjudged:,} unjudged",) if row.unjudged else ()
        rows.append(
            (
                name,
                ReportTableCell(f"{row.n:,}", unjudged),
                f"{row.failures:,}",
                make_percent_cell(row.scores.agreement, decimals=2),
                make_score_cell(row.scores.failure_f1),
                make_percent_cell(row.scores.balanced_accuracy, decimals=2),
                make_score_cell(row.scores.kappa),
                make_gain_cell(row.scores.failure_difference),
                f"{row.misses:,} / {row.false_alarms:,}",
            )
        )
    heads = ("Label", "n", "n0", "Agreement", "F1_0", "BAcc", "Kappa", "Δp0", "Misses / false alarms")
    return ReportTable.of(key, title, heads, rows, note)


def _build_bias_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    groups = {**evaluator.agreement.datasets, "All (pooled)": evaluator.agreement.overall}
    rows: tuple[ReportTableRow, ...] = tuple(
        (name, f"{group.responses:,}", *_make_bias_cells(group)) for name, group in groups.items()
    )
    note = f"Rate by the evaluator minus rate by people, in points. {_PEOPLE} {intervals}"
    return ReportTable.of("evaluator-bias", "Evaluator bias by dataset", ("Dataset", "n", "ΔTRR", "ΔLGG"), rows, note)


def _make_bias_cells(group: GroupValidation) -> tuple[ReportTableCell, ReportTableCell]:
    """Return the differences in TRR and LGG between judge and people."""
    reliability, gap = (group.rows[label].rate_difference for label in (JudgedLabel.RELIABILITY, JudgedLabel.GAP))
    return make_gain_cell(reliability), make_gain_cell(gap)


def _build_judges_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    rows: list[ReportTableRow] = []
    for name, group in evaluator.judges.items():
        gap, largest = group.rows[JudgedLabel.GAP].scores, group.largest_failure_difference
        rows.append(
            (
                name,
                f"{group.responses:,}",
                make_percent_cell(group.mean_agreement, decimals=2),
                make_score_cell(group.mean_failure_f1),
                format_percent(largest, decimals=2),
                *_make_bias_cells(group),
                make_percent_cell(gap.failure_precision, decimals=2),
                make_percent_cell(gap.failure_recall, decimals=2),
                make_score_cell(gap.failure_f1),
                f"{evaluator.inconsistent[name]:,}",
            )
        )
    gap_heads = tuple(f"LGG {name}" for name in ("precision", "recall", "F1"))
    bias_heads = ("max |Δp0|", "ΔTRR", "ΔLGG")
    heads = ("Judge", "n", "Mean agreement", "Mean F1_0", *bias_heads, *gap_heads, "Inconsistent")
    note = (
        "Means and maximum over correctness, L, A, C and K. Inconsistent: responses called reliable with a wrong "
        f"answer. {_PEOPLE} {intervals} All judges share the draws."
    )
    return ReportTable.of("evaluator-judges", "Judges and efforts against people", heads, rows, note)


def _build_judge_gains_table(evaluator: EvaluatorResults, intervals: str) -> ReportTable:
    rows: tuple[ReportTableRow, ...] = tuple(
        (name, make_gain_cell(gain.mean_agreement), make_score_gain_cell(gain.mean_failure_f1))
        for name, gain in evaluator.gains.items()
    )
    note = (
        f"{evaluator.name} minus each judge, on the responses that both labelled; agreement in points. {_PEOPLE} "
        f"{intervals}"
    )
    heads = ("Judge", "Mean agreement", "Mean F1_0")
    return ReportTable.of("evaluator-gains", f"Gains of {evaluator.name} over other judges", heads, rows, note)


def build_audit_tables(audit: AuditResults, draws: BootstrapDraws) -> Iterator[ReportTable]:
    """Yield the audit of results: agreement, rates under both kinds of labels, their differences, and methods."""
    intervals = f"Brackets: 95 % intervals over questions within settings ({draws})."
    size = f"n: {audit.responses:,} responses to {audit.questions:,} questions of {audit.settings:,} settings."
    if audit.not_in_runs:
        size += f" {audit.not_in_runs:,} further labels are on responses outside the experiment."
    note = (
        f"{_PEOPLE} n0: failures by people's labels; F1_0, BAcc and kappa take a failure as the event; Δp0: failure "
        f"rate of the evaluator minus people's, in points. {intervals} {size}"
    )
    yield build_agreement_table("audit-agreement", "Audit: evaluator against people", audit.agreement, note)
    yield _build_audit_rates(audit, size)
    rows: tuple[ReportTableRow, ...] = tuple(
        (
            method,
            f"{audit.compared[method][Metric.TRACE_RELIABILITY_RATE]:,}",
            *(make_gain_cell(differences[metric]) for metric in _AUDIT_METRICS),
        )
        for method, differences in audit.differences.items()
    )
    note = (
        "Rate by the evaluator minus rate by people, in points, on the responses that both labelled. "
        f"{intervals} Methods and both kinds of labels share the draws. {size}"
    )
    heads = ("Method", "n", "ΔTRR", "ΔLGG")
    yield ReportTable.of("audit-differences", "Audit: automated minus human rates", heads, rows, note)
    if audit.gains:
        rows = tuple(
            (method, *(make_gain_cell(gains[metric]) for metric in _AUDIT_METRICS))
            for method, gains in audit.gains.items()
        )
        note = f"{REFERENCE_METHOD} minus each method under people's labels, in points. {intervals} {size}"
        title = "Audit: methods under people's labels"
        yield ReportTable.of("audit-methods", title, ("Method", "TRR gain", "LGG difference"), rows, note)


def _build_audit_rates(audit: AuditResults, size: str) -> ReportTable:
    """Return the rates of every method under both kinds of labels; the best under people's labels is bold."""
    methods = [method for method in audit.rates if method != ALL_METHODS]
    best = {}
    for metric in MAIN_METRICS:
        values = [
            format_percent(audit.rates[method][LabelSource.HUMAN][metric].value, decimals=2) for method in methods
        ]
        for method, rank in zip(methods, rank_displayed_values(values, lower=metric in LOWER_IS_BETTER), strict=True):
            best[method, metric] = int(rank == 1)
    rows: list[ReportTableRow] = []
    for method, sources in audit.rates.items():
        for source, rates in sources.items():
            cells = []
            for metric in MAIN_METRICS:
                rank = best.get((method, metric), 0) if source is LabelSource.HUMAN else 0
                details = [describe_judged(rates[metric].n, rates[metric].unjudged)] if rates[metric].unjudged else []
                # The gap is rare, so its count is printed beside the rate.
                if metric is Metric.GAP_RATE:
                    details.insert(0, f"({rates[metric].hits:,})")
                text = format_percent(rates[metric].value, decimals=2)
                cells.append(ReportTableCell(text, tuple(details), rank=rank))
            rows.append((method, source.value, *cells))
    note = f"Percent; LGG with its count. Best under people's labels bold. {size} A cell with + has unjudged responses."
    heads = ("Method", "Labels", *map(str, MAIN_METRICS))
    return ReportTable.of("audit-results", "Audit: rates under both kinds of labels", heads, rows, note)


def make_score_gain_cell(estimate: Estimate) -> ReportTableCell:
    """Return a difference of coefficients with three decimals and its sign, its interval beneath."""
    texts = [
        DASH if value is None else f"{value:+.3f}".replace("-", "−")
        for value in (estimate.value, *(estimate.interval or ()))
    ]
    return ReportTableCell(texts[0], (f"[{texts[1]}, {texts[2]}]",) if estimate.interval else ())
