"""The report of an experiment as one HTML page that needs no network and no script."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from eclose.diagnosis.report.families.view import POLICY
from eclose.diagnosis.report.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.diagnosis.report.number_format import format_count, format_percent, format_percent_interval
from eclose.diagnosis.report.plots.figures import explain_missing_figures
from eclose.experiments.report.files.documents import list_left_out, list_report_statements
from eclose.experiments.report.study_tables import build_experiment_tables
from eclose.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.experiments.report.build import ExperimentReport
    from eclose.experiments.report.outcomes import MeanRate

REPORT_PAGE_FILE = "report.html"
_HEADLINE = {
    Metric.ACCURACY: "answers correct",
    Metric.TRACE_RELIABILITY_RATE: "traces reliable",
    Metric.GAP_RATE: "in the local-global gap",
}
"""Rates of the headline, with their names."""


@dataclass(frozen=True, slots=True)
class HeadlineAxis:
    """A column of the headline."""

    letter: str
    name: str
    end: int
    """Right end of the scale in percent."""


@dataclass(frozen=True, slots=True)
class HeadlineDot:
    """A rate on its scale."""

    value: float | None
    """Position in percent of the width; None where the rate is undefined."""
    whisker: tuple[float, float] | None
    label: str
    interval: str


@dataclass(frozen=True, slots=True)
class HeadlineRow:
    """The rates of a method."""

    method: str
    dots: tuple[HeadlineDot, ...]


def render_experiment_page(report: ExperimentReport, figures: Mapping[str, bytes]) -> str:
    """Return the page.

    Args:
        report: Everything that it shows.
        figures: Figures by file name; those that are SVG are put into the page.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    style = read_page_text("page.css") + read_page_text("experiment.css")
    axes = [_make_axis(report, metric) for metric in _HEADLINE]
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
        axes=axes,
        rows=list(_list_rows(report, axes)),
        rows_note=(
            f"Percent, means over {format_count(len(grid.settings), 'setting')} of equal weight. "
            + ("Lines: 95 % intervals." if report.main.outcomes.complete else "No intervals: the grid is incomplete.")
            + "".join(f" The scale of {axis.letter} ends at {axis.end} %." for axis in axes if axis.end < 100)
        ),
        statements=list(list_report_statements(report)),
        figures=[(name, _encode_figure(data)) for name, data in figures.items() if name.endswith(".svg")],
        no_figures=explain_missing_figures() or "",
        tables=build_experiment_tables(report),
        policy=POLICY.format(style=csp_source_hash(style)),
        style=Markup(style),  # part of the package, not a value
    )
    return html


def _encode_figure(data: bytes) -> str:
    # As an image: a drawing of matplotlib sets styles within its elements, which the page's policy forbids.
    return "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")


def _make_axis(report: ExperimentReport, metric: Metric) -> HeadlineAxis:
    """Return a scale to 100 percent, or to the next ten above the largest gap rate, which is small."""
    end = 100
    if metric is Metric.GAP_RATE:
        rates = [rates[metric] for rates in report.main.overall.values()]
        ends = [rate.interval.high if rate.interval else rate.shown or 0 for rate in rates]
        end = min(100, max(10, 10 * ceil(10 * max(ends))))
    return HeadlineAxis(str(metric), _HEADLINE[metric], end)


def _list_rows(report: ExperimentReport, axes: list[HeadlineAxis]) -> Iterator[HeadlineRow]:
    for method, rates in report.main.overall.items():
        dots = tuple(_make_dot(rates[metric], axis.end) for metric, axis in zip(_HEADLINE, axes, strict=True))
        yield HeadlineRow(method, dots)


def _make_dot(rate: MeanRate, end: int) -> HeadlineDot:
    def locate(value: float) -> float:
        return round(min(100.0, 100 * value * 100 / end), 2)

    shown = rate.shown
    interval = rate.shown_interval
    return HeadlineDot(
        None if shown is None else locate(shown),
        None if interval is None else (locate(interval.low), locate(interval.high)),
        format_percent(shown),
        format_percent_interval(interval),
    )
