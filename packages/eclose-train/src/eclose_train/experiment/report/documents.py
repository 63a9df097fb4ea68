"""The report of an experiment as Markdown, LaTeX, CSV and JSON. Names from files are escaped in every format."""

from __future__ import annotations

import csv
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.number_format import (
    add_no_break_spaces,
    format_count,
    format_percent,
    format_signed_interval,
    format_signed_percent,
)
from eclose.metrics.rates import Metric
from eclose.report.formats.json_file import dump_json, estimate_to_dict, rate_to_dict, table_to_dict, to_plain
from eclose.report.formats.latex import escape_latex, join_latex_lines, make_latex_table
from eclose.report.formats.markdown import escape_markdown, make_markdown_table
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.outcomes import COUNTERFACTUAL, MATCH, ORIGINAL, RESPONSE_COLUMNS, SWITCHED
from eclose_train.experiment.report.study_tables import HYPERPARAMETERS_KEY, build_audit_tables, build_experiment_tables
from eclose_train.experiment.report.tables import FIXED
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.metrics.judge_against_people import GroupValidation
    from eclose.report.document import ReportTable
    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.main_results import SwitchResults
    from eclose_train.experiment.report.outcomes import MeanRate, OutcomeTable
    from eclose_train.experiment.report.people import AuditResults, EvaluatorResults

EXPERIMENT_FORMAT = "eclose-experiment-1"


def list_report_cautions(report: ExperimentReport) -> Iterator[str]:
    """Yield the limits of the report: missing runs, responses left out, and the source of the labels."""
    if report.missing:
        yield "Incomplete: what is missing is listed here, and grids with holes have no intervals."
        yield from report.missing
    yield from list_left_out(report)
    yield report.labels


def list_left_out(report: ExperimentReport) -> Iterator[str]:
    """Yield the responses that are not in the report, by reason."""
    for reason, count in report.left_out.items():
        yield f"Not in the report, because {reason}: {format_count(count, 'response')}."


def list_report_statements(report: ExperimentReport) -> Iterator[str]:
    """Yield sentences on the gains of the reference method: differences, settings won, and ranges by benchmark."""
    for gain in report.main.gains:
        differences = ", ".join(
            f"{metric} {format_signed_percent(estimate.value, decimals=2)} "
            f"{format_signed_interval(estimate.interval, decimals=2)}".rstrip()
            for metric in (Metric.ACCURACY, Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)
            for estimate in (gain.differences[metric],)
        )
        accuracy, reliability = gain.settings[Metric.ACCURACY], gain.settings[Metric.TRACE_RELIABILITY_RATE]
        settings = format_count(sum(accuracy), "setting")
        ranges = "; ".join(
            f"{benchmark} {format_signed_percent(low)} to {format_signed_percent(high)}"
            for benchmark, (low, high) in gain.reliability_ranges.items()
        )
        sentence = (
            f"{REFERENCE_METHOD} against {gain.method}, in points: {differences}. Of {settings}, accuracy is "
            f"higher in {accuracy.won} and TRR in {reliability.won}. TRR gains by dataset: {ranges}."
        )
        if report.matched:
            matched = gain.settings[MATCH]
            sentence += f" By deterministic matching, accuracy is higher in {matched.won} and equal in {matched.tied}."
        yield sentence


def render_experiment_markdown(report: ExperimentReport) -> str:
    """Return the report as Markdown."""
    lines = ["# Results of the experiment\n"]
    lines += [f"> {escape_markdown(sentence)}\n>" for sentence in list_report_cautions(report)]
    lines += ["", *(f"- {escape_markdown(sentence)}" for sentence in list_report_statements(report))]
    return _join_markdown(lines, build_experiment_tables(report))


def render_audit_markdown(tables: Iterable[ReportTable]) -> str:
    """Return the tables of an audit as Markdown."""
    return _join_markdown(["# Audit of the results\n"], tables)


def _join_markdown(lines: list[str], tables: Iterable[ReportTable]) -> str:
    for table in tables:
        lines += make_markdown_table(table)
    return add_no_break_spaces("\n".join(lines)) + "\n"


def render_experiment_latex(report: ExperimentReport) -> str:
    """Return every table as LaTeX, in the layout of the paper."""
    # Comments at the top, because tables are copied without the page around them.
    lines = [f"% {escape_latex(sentence)}" for sentence in list_report_cautions(report)]
    return join_latex_lines([*lines, *_make_latex_tables(build_experiment_tables(report))])


def render_audit_latex(tables: Iterable[ReportTable]) -> str:
    """Return the tables of an audit as LaTeX."""
    return join_latex_lines(_make_latex_tables(tables))


def _make_latex_tables(tables: Iterable[ReportTable]) -> Iterator[str]:
    for table in tables:
        # Texts of settings are broken into lines; numbers are aligned at the right.
        columns = r"lp{0.75\linewidth}" if table.key == HYPERPARAMETERS_KEY else "l" + "r" * (len(table.heads) - 1)
        yield from make_latex_table(table, columns, details_below=True)


def list_run_rates(outcomes: OutcomeTable) -> list[dict[str, Any]]:
    """Return hits, n and unjudged of every column, for every run and benchmark that has responses."""
    rows = []
    for method, backbone, seed in outcomes.grid.runs:
        for benchmark in outcomes.grid.benchmarks:
            rates = {column: outcomes.rate(method, backbone, seed, benchmark, column) for column in outcomes.columns}
            counts = {str(column): rate_to_dict(rate) for column, rate in rates.items() if rate is not None}
            if counts:
                run = {"method": method, "backbone": backbone, "seed": seed, "benchmark": benchmark}
                rows.append({**run, "rates": counts})
    return rows


def render_seed_csv(report: ExperimentReport) -> str:
    """Return one line per run and benchmark: every rate in percent, each with its n."""
    lines = [
        ((run["backbone"], run["benchmark"], run["method"], _name_seed(run["seed"])), run["rates"].values())
        for run in list_run_rates(report.main.outcomes)
    ]
    return _write_csv(("backbone", "dataset", "method", "seed"), RESPONSE_COLUMNS, lines)


def render_ablation_csv(report: ExperimentReport) -> str:
    """Return one line per variant and seed, with all benchmarks pooled: every rate in percent, each with its n."""
    lines = []
    for ablation in report.ablations:
        outcomes, backbone = ablation.outcomes, ablation.backbone
        for variant in ablation.rates:
            for seed in outcomes.grid.seeds_of(variant):
                pooled = [outcomes.pool(variant, backbone, seed, column) for column in RESPONSE_COLUMNS]
                # A run without a response has no line; it is among what is missing.
                if rates := [rate_to_dict(rate) for rate in pooled if rate]:
                    lines.append(((backbone, variant, _name_seed(seed)), rates))
    return _write_csv(("backbone", "variant", "seed"), RESPONSE_COLUMNS, lines)


def render_switch_csv(report: ExperimentReport) -> str:
    """Return one line per run, benchmark and edge: O, CF and SW in percent, each with its n."""
    kinds = (ORIGINAL, COUNTERFACTUAL, SWITCHED)
    lines = [
        (
            (run["benchmark"], run["backbone"], run["method"], _name_seed(run["seed"]), str(edge)),
            [run["rates"][f"{edge} {kind}"] for kind in kinds],
        )
        for switches in filter(None, (report.switches, *report.variant_switches))
        for run in list_run_rates(switches.outcomes)
        for edge in Edge
    ]
    return _write_csv(("dataset", "backbone", "method", "seed", "edge"), kinds, lines)


def _name_seed(seed: int | None) -> str:
    return FIXED if seed is None else str(seed)


def _write_csv(
    names: Sequence[str], columns: Sequence[str], lines: Iterable[tuple[Sequence[str], Iterable[Mapping[str, Any]]]]
) -> str:
    """Return names and rates as CSV, each rate in percent with its n."""
    # An undefined rate is empty: a dash is no number.
    rows = [
        (*run, *(entry for rate in rates for entry in (format_percent(rate["value"], "", decimals=4), rate["n"])))
        for run, rates in lines
    ]
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*names, *(head for column in columns for head in (column, f"{column} n"))])
    # The full method stands beside its variants once more; a line is written once.
    writer.writerows(dict.fromkeys(rows))
    return buffer.getvalue()


def render_experiment_json(report: ExperimentReport) -> str:
    """Return one JSON object in ASCII: every rate with its n and interval."""
    return dump_json(_report_to_dict(report))


def _report_to_dict(report: ExperimentReport) -> dict[str, Any]:
    main = report.main
    return {
        # The keys are a public format: add keys, never rename them.
        "format": EXPERIMENT_FORMAT,
        "labels": report.labels,
        "provenance": asdict(report.provenance),
        "complete": not report.missing,
        "missing": list(report.missing),
        "left_out": report.left_out,
        "reference": REFERENCE_METHOD,
        "intervals": asdict(report.bootstrap),
        "grid": _grid_to_dict(main.outcomes),
        "overall": _mean_rates_to_dict(main.overall),
        "gains": to_plain(main.gains),
        "seeds": list_run_rates(main.outcomes),
        "ablations": [
            {
                "backbone": ablation.backbone,
                "grid": _grid_to_dict(ablation.outcomes),
                "rates": _mean_rates_to_dict(ablation.rates),
                "seeds": list_run_rates(ablation.outcomes),
                "gains": to_plain(ablation.gains),
            }
            for ablation in report.ablations
        ],
        "evaluator": None if report.evaluator is None else _evaluator_to_dict(report.evaluator),
        "audit": None if report.audit is None else _audit_to_dict(report.audit),
        "switches": None if report.switches is None else _switches_to_dict(report.switches),
        "variant_switches": [_switches_to_dict(switches) for switches in report.variant_switches],
        "cost": None
        if report.cost is None
        else {
            "runs": report.cost.runs,
            "device_hours": report.cost.device_hours,
            "hours": [
                {"method": method, "backbone": backbone, **asdict(hours)}
                for (method, backbone), hours in report.cost.hours.items()
            ],
        },
        "hyperparameters": report.used_settings,
        "claims": [
            {
                "title": claim.title,
                "outcome": claim.outcome,
                "comparisons": [
                    {"name": row.name, "n": row.n, "outcome": row.outcome, **estimate_to_dict(row.difference)}
                    for row in claim.comparisons
                ],
            }
            for claim in report.claims
        ],
        "statements": list(list_report_statements(report)),
        "tables": [table_to_dict(table) for table in build_experiment_tables(report)],
    }


def _mean_rates_to_dict(rates: Mapping[str, Mapping[str, MeanRate]]) -> dict[str, Any]:
    # ``value`` is null where too few responses are judged; ``of_judged`` is the rate of the judged.
    return {
        method: {
            str(column): {
                **asdict(rate), "value": rate.shown, "interval": rate.shown_interval, "of_judged": rate.value
            }
            for column, rate in columns.items()
        }
        for method, columns in rates.items()
    }  # fmt: skip


def _grid_to_dict(outcomes: OutcomeTable) -> dict[str, Any]:
    return {**asdict(outcomes.grid), "cases": len(outcomes.units)}


def _switches_to_dict(switches: SwitchResults) -> dict[str, Any]:
    return {
        "grid": _grid_to_dict(switches.outcomes),
        "rates": _mean_rates_to_dict(switches.rates),
        "gains": to_plain(switches.gains),
        "seeds": list_run_rates(switches.outcomes),
    }


def _evaluator_to_dict(evaluator: EvaluatorResults) -> dict[str, Any]:
    return {
        "name": evaluator.name,
        "not_in_runs": evaluator.not_in_runs,
        "datasets": {name: _group_to_dict(group) for name, group in evaluator.agreement.datasets.items()},
        "judges": {
            name: {**_group_to_dict(group), "inconsistent": evaluator.inconsistent[name]}
            for name, group in evaluator.judges.items()
        },
        "gains": {
            name: to_plain({"mean_agreement": gain.mean_agreement, "mean_failure_f1": gain.mean_failure_f1})
            for name, gain in evaluator.gains.items()
        },
    }


def _audit_to_dict(audit: AuditResults) -> dict[str, Any]:
    return {
        "responses": audit.responses,
        "questions": audit.questions,
        "settings": audit.settings,
        "not_in_runs": audit.not_in_runs,
        "agreement": _group_to_dict(audit.agreement.overall),
        "rates": to_plain(audit.rates),
        "compared": to_plain(audit.compared),
        "differences": to_plain(audit.differences),
        "gains": to_plain(audit.gains),
    }


def render_audit_json(audit: AuditResults, draws: BootstrapDraws) -> str:
    """Return an audit alone as one JSON object in ASCII, under the keys of the report of an experiment."""
    return dump_json(
        {
            "format": EXPERIMENT_FORMAT,
            "intervals": {"audit": asdict(draws)},
            "audit": _audit_to_dict(audit),
            "tables": [table_to_dict(table) for table in build_audit_tables(audit, draws)],
        }
    )


def _group_to_dict(group: GroupValidation) -> dict[str, Any]:
    return {
        "responses": group.responses,
        "questions": group.questions,
        "mean_agreement": estimate_to_dict(group.mean_agreement),
        "mean_failure_f1": estimate_to_dict(group.mean_failure_f1),
        "largest_failure_difference": group.largest_failure_difference,
        "labels": {
            str(label): {
                "n": row.n,
                "unjudged": row.unjudged,
                "failures": row.failures,
                "misses": row.misses,
                "false_alarms": row.false_alarms,
                **to_plain(row.scores),
            }
            for label, row in group.rows.items()
        },
    }
