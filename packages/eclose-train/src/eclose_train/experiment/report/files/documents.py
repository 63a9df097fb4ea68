"""The report of an experiment as Markdown, LaTeX and CSV. Names from files are escaped in every format."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.number_format import (
    add_no_break_spaces,
    format_count,
    format_signed_interval,
    format_signed_percent,
)
from eclose.metrics.rates import Metric
from eclose.report.formats.latex import escape_latex, join_latex_lines, make_latex_table
from eclose.report.formats.markdown import escape_markdown, make_markdown_table
from eclose_train.experiment.report.grid import REFERENCE_METHOD
from eclose_train.experiment.report.outcomes import COUNTERFACTUAL, MATCH, ORIGINAL, RESPONSE_COLUMNS, SWITCHED
from eclose_train.experiment.report.study_tables import HYPERPARAMETERS_KEY, build_experiment_tables
from eclose_train.experiment.report.tables import FIXED
from eclose_train.families.comparisons import Edge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.report.document import ReportTable
    from eclose.stats.rates import Rate
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.outcomes import OutcomeTable


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


def rate_to_dict(rate: Rate) -> dict[str, Any]:
    """Return a rate as plain values for JSON."""
    return {"hits": rate.hits, "n": rate.n, "unjudged": rate.unjudged, "value": rate.value}


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
    runs = list_run_rates(report.main.outcomes)
    heads = [name for column in RESPONSE_COLUMNS for name in (str(column), f"{column} n")]
    lines: list[list[object]] = [["backbone", "dataset", "method", "seed", *heads]]
    for run in runs:
        values = [text for column in RESPONSE_COLUMNS for text in _write_rate(run["rates"][str(column)])]
        lines.append([run["backbone"], run["benchmark"], run["method"], _name_seed(run["seed"]), *values])
    return _write_csv(lines)


def render_ablation_csv(report: ExperimentReport) -> str:
    """Return one line per variant and seed, with all benchmarks pooled: every rate in percent, each with its n."""
    heads = [name for column in RESPONSE_COLUMNS for name in (str(column), f"{column} n")]
    lines: list[list[object]] = [["backbone", "variant", "seed", *heads]]
    for ablation in report.ablations:
        outcomes, backbone = ablation.outcomes, ablation.backbone
        for variant in ablation.rates:
            for seed in outcomes.grid.seeds_of(variant):
                rates = [outcomes.pool(variant, backbone, seed, column) for column in RESPONSE_COLUMNS]
                values = [text for rate in rates if rate for text in _write_rate(rate_to_dict(rate))]
                # A run without a response has no line; it is among what is missing.
                if values:
                    lines.append([backbone, variant, _name_seed(seed), *values])
    return _write_csv(lines)


def render_switch_csv(report: ExperimentReport) -> str:
    """Return one line per run, benchmark and edge: O, CF and SW in percent, each with its n."""
    kinds = (ORIGINAL, COUNTERFACTUAL, SWITCHED)
    heads = [name for kind in kinds for name in (kind, f"{kind} n")]
    lines: list[list[object]] = [["dataset", "backbone", "method", "seed", "edge", *heads]]
    for switches in filter(None, (report.switches, *report.variant_switches)):
        for run in list_run_rates(switches.outcomes):
            for edge in Edge:
                values = [text for kind in kinds for text in _write_rate(run["rates"][f"{edge} {kind}"])]
                names = [run["benchmark"], run["backbone"], run["method"], _name_seed(run["seed"]), str(edge)]
                lines.append([*names, *values])
    # The full method stands beside its variants once more; a line is written once.
    return _write_csv(list({tuple(line): line for line in lines}.values()))


def _name_seed(seed: int | None) -> str:
    return FIXED if seed is None else str(seed)


def _write_rate(rate: Mapping[str, Any]) -> tuple[str, int]:
    # Empty where the rate is undefined: a dash is no number.
    return ("" if rate["value"] is None else f"{100 * rate['value']:.4f}"), rate["n"]


def _write_csv(lines: list[list[object]]) -> str:
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()
