"""Figures of detectors: scores by group, recall against the false positive rate, and the use of a calibrated one."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from eclose.detectors.study_statistics import DISJOINT_GROUPS, StudyGroup
from eclose.report.detectors.tables import GROUP_WORDS, name_recall
from eclose.report.figures import (
    GROUP_COLOURS,
    INK,
    LINE_GREY,
    SOFT_INK,
    TRACK_GREY,
    make_figure,
    remove_frame,
    render_figures,
)
from eclose.report.scores import name_detectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eclose.detectors.evaluate import DetectorEvaluation
    from eclose.detectors.joined import DetectorStudy
    from eclose.detectors.study_statistics import DetectorResult

MAX_DOTS = 400
"""Most responses of a group that are drawn as dots."""
_PANELS_IN_ROW = 5
_VIOLIN_WIDTH = 0.84
_LEAST_FOR_VIOLIN = 10
"""Fewest responses of a group for a violin; smaller groups have box and dots."""
_DOT_SPREAD = 0.26
_BOX_WIDTH = 0.2
_MARKED_THRESHOLDS = 40
"""With fewer thresholds, the curve shows a mark at each."""
_COLOURS = {
    StudyGroup.RELIABLE: GROUP_COLOURS["reliable"],
    StudyGroup.GAP: GROUP_COLOURS["path_deviation"],
    StudyGroup.LOCALLY_UNSOUND: GROUP_COLOURS["unsound"],
}
_RED = "#c1121f"
_NAMES = {
    StudyGroup.RELIABLE: "reliable",
    StudyGroup.GAP: GROUP_WORDS[StudyGroup.GAP],
    StudyGroup.LOCALLY_UNSOUND: "unsound",
}


def draw_detector_figures(study: DetectorStudy, warnings: Sequence[str] = ()) -> dict[str, bytes]:
    """Return both figures as PDF and SVG, by file name; a warning stands above each."""
    figures = {
        "detector-scores": lambda: draw_score_distributions(study),
        "detector-sweep": lambda: draw_threshold_sweeps(study),
    }
    return render_figures(figures, warnings)


def choose_dots(scores: Sequence[tuple[str, float]], most: int = MAX_DOTS) -> list[tuple[float, float]]:
    """Return the scores to draw as dots, each with a shift between -1 and 1.

    Responses are chosen by the hash of their id, so every detector shows the same ones, whatever their order.
    """
    hashed = sorted((sha256(response_id.encode()).digest(), score) for response_id, score in scores)
    # The last bytes place a dot; the first ones chose it and would place all of them on one side.
    return [(2 * int.from_bytes(digest[-4:]) / (2**32 - 1) - 1, score) for digest, score in hashed[:most]]


def draw_score_distributions(study: DetectorStudy) -> Figure:
    """Draw a violin with box and dots for each group, one panel per detector."""
    figure, panels = _make_panels(study, height=2.1)
    for (axes, name), result in zip(panels, study.results, strict=True):
        for position, group in enumerate(DISJOINT_GROUPS):
            _draw_violin(axes, position, result, group)
        axes.set_title(name, fontsize=7.5, loc="left")
        labels = [f"{_NAMES[group]}\n{result.scored[group]:,}" for group in DISJOINT_GROUPS]
        axes.set_xticks(range(len(labels)), labels, fontsize=5.5)
        axes.set_xlim(-0.6, len(labels) - 0.4)
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.grid(axis="y", color=TRACK_GREY)
        axes.tick_params(axis="y", labelsize=6)
        remove_frame(axes)
    panels[0][0].set_ylabel("score", fontsize=7)
    figure.supxlabel(
        f"Number: scored responses. Box: quartiles and median. Violins have one width; none below {_LEAST_FOR_VIOLIN}"
        " responses.\n"
        f"Dots: at most {MAX_DOTS} responses of a group, chosen by the hash of their id.",
        fontsize=6, color=SOFT_INK,
    )  # fmt: skip
    return figure


def _draw_violin(axes: Axes, position: int, result: DetectorResult, group: StudyGroup) -> None:
    """Draw one group; nothing where no response of it has a score."""
    import numpy as np  # noqa: PLC0415
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    scores = [score for _, score in result.scores[group]]
    if not scores:
        axes.annotate("none", (position, 0.5), ha="center", fontsize=6, color=SOFT_INK)
        return
    # A density of a few or of equal values shows nothing that the dots do not.
    if len(scores) >= _LEAST_FOR_VIOLIN and min(scores) < max(scores):
        violin = axes.violinplot([scores], [position], widths=_VIOLIN_WIDTH, showextrema=False)
        for body in violin["bodies"]:  # type: ignore[attr-defined]
            body.set(facecolor=_COLOURS[group], edgecolor=_COLOURS[group], alpha=0.28, linewidth=0.5)
    dots = choose_dots(result.scores[group])
    axes.scatter(
        [position + _DOT_SPREAD * shift for shift, _ in dots], [score for _, score in dots],
        s=1.1, color=_COLOURS[group], alpha=0.5, linewidths=0,
    )  # fmt: skip
    low, median, high = np.quantile(scores, [0.25, 0.5, 0.75])
    box = Rectangle(
        (position - _BOX_WIDTH / 2, low), _BOX_WIDTH, high - low, facecolor="white", edgecolor=INK, linewidth=0.7,
        alpha=0.85, zorder=3,
    )  # fmt: skip
    axes.add_patch(box)
    ends = [position - _BOX_WIDTH / 2, position + _BOX_WIDTH / 2]
    axes.plot(ends, [median, median], color=INK, linewidth=1.6, solid_capstyle="butt", zorder=4)


def draw_threshold_sweeps(study: DetectorStudy) -> Figure:
    """Draw recall of the gap against the false positive rate at every threshold, one panel per detector."""
    figure, panels = _make_panels(study, height=1.62)
    for (axes, name), result in zip(panels, study.results, strict=True):
        _draw_sweep(axes, result, study)
        axes.set_title(name, fontsize=7.5, loc="left")
        _scale_to_percent(axes)
        axes.set_aspect("equal")
    panels[0][0].set_ylabel("recall of LGG, %", fontsize=7)
    figure.supxlabel(
        "Reliable responses flagged, % (FPR), at every threshold; the last one, (100, 100), flags every response.\n"
        f"Red: {name_recall(study)}. Dashed: chance.",
        fontsize=6, color=SOFT_INK,
    )  # fmt: skip
    return figure


def _draw_sweep(axes: Axes, result: DetectorResult, study: DetectorStudy) -> None:
    """Draw the curve and the operating point; a word where either group has no score."""
    sweep, recall = result.sweep, result.separations[StudyGroup.GAP].recall.value
    if sweep is None or recall is None or result.false_positive_rate.value is None:
        axes.annotate("undefined", (0.5, 0.5), ha="center", fontsize=6, color=SOFT_INK)
        return
    axes.plot([0, 1], [0, 1], color=LINE_GREY, linewidth=0.8, linestyle=(0, (3, 2)))
    mark = "." if len(sweep.thresholds) < _MARKED_THRESHOLDS else ""
    colour = _COLOURS[StudyGroup.RELIABLE]
    axes.plot(sweep.false_positive_rates, sweep.recalls, color=colour, linewidth=1.1, marker=mark, markersize=3)
    axes.plot([1], [1], "o", color=colour, markersize=3, clip_on=False)
    axes.plot([result.false_positive_rate.value], [recall], "o", color=_RED, markersize=4, clip_on=False, zorder=4)
    axes.annotate(
        f"{name_recall(study)} {100 * recall:.1f}", (0.97, 0.05), xycoords="axes fraction", ha="right", fontsize=6,
        color=_RED,
    )  # fmt: skip


def _make_panels(study: DetectorStudy, height: float) -> tuple[Figure, list[tuple[Axes, str]]]:
    """Return a figure with a named panel for each detector, in rows of five."""
    names = list(name_detectors([result.detector for result in study.results]).values())
    rows = -(-len(names) // _PANELS_IN_ROW)
    # Always five columns: the panels of a study with one detector are as large as those of the paper.
    figure, grid = make_figure(height * rows + 0.3, rows, _PANELS_IN_ROW, sharey=True)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    return figure, list(zip(grid, names, strict=False))


def draw_use_curves(evaluation: DetectorEvaluation) -> Figure:
    """Draw gaps missed against judge calls saved, and reliability against coverage."""
    figure, (cascade, abstention) = make_figure(2.4, columns=2)
    colour, total = GROUP_COLOURS["path_deviation"], evaluation.responses
    missed = [(point.saved / total, 1 - point.recall) for point in evaluation.cascade if point.recall is not None]
    cascade.plot([0, 1], [0, 1], color=LINE_GREY, linewidth=0.8, linestyle=(0, (3, 2)))
    cascade.plot([x for x, _ in missed], [y for _, y in missed], color=colour, linewidth=1.1)
    cascade.set_xlabel("judge calls saved, %", fontsize=7)
    cascade.set_ylabel("LGG missed, %", fontsize=7)
    reliable = [(point.coverage, point.reliable) for point in evaluation.abstention if point.reliable is not None]
    abstention.plot(*zip(*reliable, strict=True), color=GROUP_COLOURS["reliable"], linewidth=1.1)
    abstention.set_xlabel("coverage, %", fontsize=7)
    abstention.set_ylabel("reliable among answered, %", fontsize=7)
    for axes in (cascade, abstention):
        _scale_to_percent(axes)
    return figure


def _scale_to_percent(axes: Axes) -> None:
    """Set both axes from 0 to 100 %, with a grid."""
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xticks([0, 0.5, 1], ["0", "50", "100"])
    axes.set_yticks([0, 0.5, 1], ["0", "50", "100"])
    axes.tick_params(labelsize=6)
    axes.grid(color=TRACK_GREY)
    remove_frame(axes)
