"""Figures of an experiment: bars of every metric and method, and gains over the ablated variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report.plots.style import (
    FIGURE_WIDTH,
    INK,
    SOFT_INK,
    TRACK_GREY,
    make_figure_columns,
    remove_frame,
    render_figure_files,
)
from eclose.experiments.report.outcomes import ALL_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from eclose.experiments.report.ablations import AblationResults
    from eclose.experiments.report.build import ExperimentReport

_COLOURS = ("#4a4f5c", "#8db8d9", "#1f6fb2", "#c98a00", "#d55e00", "#3d8b37", "#a3478f", "#8a6d1f")


def draw_experiment_figures(report: ExperimentReport) -> dict[str, bytes]:
    """Return every figure as PDF and SVG, by file name; a warning stands above those of incomplete grids."""
    warnings = ["Incomplete: see what is missing in the tables."] if report.missing else []
    drawn: dict[str, Callable[[], Figure]] = {"overall": lambda: draw_overall_bars(report)}
    for number, ablation in enumerate(report.ablations):
        if ablation.gains:
            suffix = f"-{number + 1}" if number else ""
            drawn[f"ablation-gains{suffix}"] = lambda ablation=ablation: draw_ablation_gains(ablation)  # type: ignore[misc]
    return {
        f"{name}.{kind}": data
        for name, draw in drawn.items()
        for kind, data in render_figure_files(draw, warnings).items()
    }


def draw_overall_bars(report: ExperimentReport) -> Figure:
    """Draw a group of bars per metric, one bar per method, with the interval as an error bar."""
    figure, (axes,) = make_figure_columns(2.6)
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
    figure, columns = make_figure_columns(0.9 + 0.24 * len(ablation.gains), 2, sharey=True)
    figure.set_size_inches(FIGURE_WIDTH, 0.9 + 0.24 * len(ablation.gains))
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
