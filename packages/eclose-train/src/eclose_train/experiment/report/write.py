"""The files of an experiment's report in one folder: HTML page, figures, documents. Each is complete or not there."""

from __future__ import annotations

import base64
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.diagnosis.number_format import format_count, format_percent, format_percent_interval
from eclose.files.atomic import write_files
from eclose.metrics.rates import Metric
from eclose.report.figures import (
    INK,
    SOFT_INK,
    TRACK_GREY,
    explain_missing_figures,
    make_figure,
    remove_frame,
    render_figures,
)
from eclose.report.formats.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.report.marks import RateDot
from eclose.report.write import FIGURES_FOLDER
from eclose_train.construction.view import POLICY
from eclose_train.experiment.report.documents import (
    list_left_out,
    list_report_statements,
    render_ablation_csv,
    render_audit_json,
    render_audit_latex,
    render_audit_markdown,
    render_experiment_json,
    render_experiment_latex,
    render_experiment_markdown,
    render_seed_csv,
    render_switch_csv,
)
from eclose_train.experiment.report.outcomes import ALL_METRICS
from eclose_train.experiment.report.study_tables import build_audit_tables, build_experiment_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.figure import Figure

    from eclose_train.experiment.plan import BootstrapDraws
    from eclose_train.experiment.report.build import ExperimentReport
    from eclose_train.experiment.report.main_results import AblationResults
    from eclose_train.experiment.report.outcomes import MeanRate
    from eclose_train.experiment.report.people import AuditResults

_COLOURS = ("#4a4f5c", "#8db8d9", "#1f6fb2", "#c98a00", "#d55e00", "#3d8b37", "#a3478f", "#8a6d1f")


def draw_experiment_figures(report: ExperimentReport) -> dict[str, bytes]:
    """Return every figure as PDF and SVG, by file name; a warning stands above those of incomplete grids."""
    warnings = ["Incomplete: see what is missing in the tables."] if report.missing else []
    drawn: dict[str, Callable[[], Figure]] = {"overall": lambda: draw_overall_bars(report)}
    for number, ablation in enumerate(report.ablations):
        if ablation.gains:
            suffix = f"-{number + 1}" if number else ""
            drawn[f"ablation-gains{suffix}"] = lambda ablation=ablation: draw_ablation_gains(ablation)  # type: ignore[misc]
    return render_figures(drawn, warnings)


def draw_overall_bars(report: ExperimentReport) -> Figure:
    """Draw a group of bars per metric, one bar per method, with the interval as an error bar."""
    figure, (axes,) = make_figure(2.6)
    methods = list(report.main.overall)
    # The bars of one metric take 84 % of its slot.
    width = 0.84 / len(methods)
    for number, method in enumerate(methods):
        rates = [report.main.overall[method][metric] for metric in ALL_METRICS]
        positions = [at + (number - (len(methods) - 1) / 2) * width for at in range(len(rates))]
        heights = [100 * (rate.shown or 0) for rate in rates]
        axes.bar(positions, heights, width * 0.9, color=_COLOURS[number % len(_COLOURS)], label=method)
        for position, rate, height in zip(positions, rates, heights, strict=True):
            text = "–" if rate.shown is None else f"{height:.1f}"
            top = height
            if rate.interval:
                top = 100 * rate.interval.high
                axes.plot([position] * 2, [100 * end for end in rate.interval], color=INK, linewidth=0.8)
            axes.annotate(text, (position, top), (0, 2), textcoords="offset points", ha="center", fontsize=4.2)
    axes.set_xticks(range(len(ALL_METRICS)), [str(metric) for metric in ALL_METRICS])
    axes.set_ylim(0, 108)
    axes.grid(axis="y", color=TRACK_GREY)
    remove_frame(axes)
    # A legend of the axes, not of the figure, leaves the line above it to the warning of an incomplete grid.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(methods), 5), frameon=False, fontsize=7)
    lines = "" if report.missing else " Lines: 95 % paired hierarchical intervals."
    settings = len(report.main.outcomes.grid.settings)
    figure.supxlabel(f"Percent, means over {settings} settings.{lines}", fontsize=6.5, color=SOFT_INK)
    return figure


def draw_ablation_gains(ablation: AblationResults) -> Figure:
    """Draw the TRR gain and the LGG reduction over every variant, with intervals around zero."""
    figure, columns = make_figure(0.9 + 0.24 * len(ablation.gains), columns=2, sharey=True)
    parts = {
        "TRR gain": [gain.reliability_gain for gain in ablation.gains],
        "LGG reduction": [gain.gap_reduction for gain in ablation.gains],
    }
    for axes, (title, estimates) in zip(columns, parts.items(), strict=True):
        axes.axvline(0, color=SOFT_INK, linewidth=0.8, linestyle=(0, (3, 2)))
        for row, estimate in enumerate(estimates):
            if estimate.value is None:
                continue
            if estimate.interval:
                axes.plot([100 * end for end in estimate.interval], [row, row], color=_COLOURS[2], linewidth=1.5)
            axes.plot([100 * estimate.value], [row], "o", color=_COLOURS[2], markersize=4)
            text = f"{100 * estimate.value:+.2f}"
            axes.annotate(text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        axes.set_title(title, fontsize=8, loc="left")
        axes.set_yticks(range(len(estimates)), [gain.variant for gain in ablation.gains])
        axes.set_ylim(len(estimates) - 0.5, -0.5)
        axes.grid(axis="x", color=TRACK_GREY)
        remove_frame(axes)
    figure.supxlabel(
        f"Points on {ablation.backbone}; positive values favour the full objective. Lines: 95 % intervals.",
        fontsize=6.5, color=SOFT_INK,
    )  # fmt: skip
    return figure


REPORT_PAGE_FILE = "report.html"
_HEADLINE = {
    Metric.ACCURACY: "answers correct",
    Metric.TRACE_RELIABILITY_RATE: "traces reliable",
    Metric.GAP_RATE: "in the local-global gap",
}
"""Rates of the headline, with their names."""


def render_experiment_page(report: ExperimentReport, figures: Mapping[str, bytes]) -> str:
    """Return the page.

    Args:
        report: Everything that it shows.
        figures: Figures by file name; those that are SVG are put into the page.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    style = read_page_text("page.css") + read_page_text("experiment.css")
    ends = {metric: _find_scale_end(report, metric) for metric in _HEADLINE}
    grid = report.main.outcomes.grid
    html: str = load_page_template("experiment.html").render(
        lede=(
            f"{format_count(len(grid.methods), 'method')} on {format_count(len(grid.backbones), 'backbone')} and "
            f"{format_count(len(grid.benchmarks), 'dataset')}, {format_count(len(grid.seeds), 'training seed')}: "
            f"{format_count(len(report.main.outcomes.units), 'response')} in the main comparison."
        ),
        missing=report.missing,
        left_out=list(list_left_out(report)),
        labels=report.labels,
        validated=report.validation is not None,
        axes=[(str(metric), _HEADLINE[metric], end) for metric, end in ends.items()],
        rows=[
            (method, [_make_dot(rates[metric], end) for metric, end in ends.items()])
            for method, rates in report.main.overall.items()
        ],
        rows_note=(
            f"Percent, means over {format_count(len(grid.settings), 'setting')} of equal weight. "
            + ("Lines: 95 % intervals." if report.main.outcomes.complete else "No intervals: the grid is incomplete.")
            + "".join(f" The scale of {metric} ends at {end} %." for metric, end in ends.items() if end < 100)
        ),
        statements=list(list_report_statements(report)),
        figures=[
            # As an image: a drawing of matplotlib sets styles within its elements, which the page's policy forbids.
            (name, "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii"))
            for name, data in figures.items()
            if name.endswith(".svg")
        ],
        no_figures=explain_missing_figures() or "",
        tables=build_experiment_tables(report),
        policy=POLICY.format(style=csp_source_hash(style)),
        style=Markup(style),  # part of the package, not a value
    )
    return html


def _find_scale_end(report: ExperimentReport, metric: Metric) -> int:
    """Return 100 percent, or the next ten above the largest gap rate, which is small."""
    if metric is not Metric.GAP_RATE:
        return 100
    rates = [rates[metric] for rates in report.main.overall.values()]
    ends = [rate.interval.high if rate.interval else rate.shown or 0 for rate in rates]
    return min(100, max(10, 10 * ceil(10 * max(ends))))


def _make_dot(rate: MeanRate, end: int) -> RateDot:
    def locate(value: float) -> float:
        return round(min(100.0, 100 * value * 100 / end), 2)

    shown, interval = rate.shown, rate.shown_interval
    return RateDot(
        label=format_percent(shown),
        interval=format_percent_interval(interval),
        value=None if shown is None else locate(shown),
        whisker=None if interval is None else (locate(interval.low), locate(interval.high)),
    )


def write_audit_report(audit: AuditResults, draws: BootstrapDraws, folder: Path | str) -> list[Path]:
    """Write the tables of an audit alone as JSON, Markdown and LaTeX; return the paths."""
    tables = tuple(build_audit_tables(audit, draws))
    files = {
        "audit.json": render_audit_json(audit, draws),
        "audit.md": render_audit_markdown(tables),
        "audit.tex": render_audit_latex(tables),
    }
    return list(write_files(Path(folder), {name: text.encode() for name, text in files.items()}).values())


def write_experiment_report(report: ExperimentReport, folder: Path | str) -> list[Path]:
    """Write the report as one HTML page, JSON, Markdown, LaTeX, CSV and figures; return the paths.

    Figures are left out without matplotlib.
    """
    # Render everything before the first write: an error leaves an old report untouched.
    files = {
        "experiment.json": render_experiment_json(report),
        "experiment.md": render_experiment_markdown(report),
        "experiment.tex": render_experiment_latex(report),
        "per_seed.csv": render_seed_csv(report),
    }
    if report.ablations:
        files["ablation_per_seed.csv"] = render_ablation_csv(report)
    if report.switches or report.variant_switches:
        files["switch_rates.csv"] = render_switch_csv(report)
    figures = draw_experiment_figures(report) if explain_missing_figures() is None else {}
    files[REPORT_PAGE_FILE] = render_experiment_page(report, figures)
    contents = {name: text.encode() for name, text in files.items()}
    contents |= {f"{FIGURES_FOLDER}/{name}": data for name, data in figures.items()}
    return list(write_files(Path(folder), contents).values())
