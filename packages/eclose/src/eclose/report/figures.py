"""The plots of the page as PDF and SVG for print, with the same marks, and the style of all figures: colours and files.

Every mark has its number or name beside it. Colours are distinguishable for colour-blind readers. Equal input gives
equal bytes with one version of matplotlib: no dates, and ids from a fixed salt.
"""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.number_format import to_one_line
from eclose.report import marks
from eclose.report.document import CONDITIONAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.report.context import ReportContext


FIGURE_WIDTH = 7.0
"""Width of a figure in inches: the text width of a page."""
INK, SOFT_INK, LINE_GREY, TRACK_GREY = "#1d2026", "#5c6270", "#c9c7c0", "#f1efe9"
GROUP_COLOURS = {
    "reliable": "#1f6fb2",
    "sound": "#8db8d9",
    "path_deviation": "#d55e00",
    "incomplete_reasoning": "#a3478f",
    "answer_decoupling": "#c98a00",
    "closure_failure": "#8a6d1f",
    "undetermined": "#7a5c5c",
    "unsound": "#4a4f5c",
    "undecided": "#a9abb3",
    "abstained": "#c9c7c0",
}
FIGURE_SETTINGS: Any = {
    # Set within a context: the caller's matplotlib settings stay as they are.
    "axes.edgecolor": LINE_GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # real letters, which publishers ask for
    "svg.fonttype": "path",  # looks alike where the font is missing
    "svg.hashsalt": "eclose",
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.color": SOFT_INK,
    "ytick.color": INK,
}
# Without dates and versions, equal input gives equal bytes.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def render_figures(drawn: Mapping[str, Callable[[], Figure]], warnings: Sequence[str] = ()) -> dict[str, bytes]:
    """Return every figure as PDF and SVG, by file name; warnings stand above each."""
    from warnings import catch_warnings, filterwarnings  # noqa: PLC0415

    import matplotlib as mpl  # noqa: PLC0415 - an extra

    files = {}
    for name, draw in drawn.items():
        with mpl.rc_context(FIGURE_SETTINGS), catch_warnings():
            # Letters that the font lacks are drawn as boxes; the warning adds nothing.
            filterwarnings("ignore", "Glyph .* missing from")
            figure = draw()
            for sentence in warnings:
                figure.suptitle(sentence, fontsize=7.5, color=GROUP_COLOURS["path_deviation"])
            for kind, metadata in _METADATA.items():
                buffer = BytesIO()
                figure.savefig(buffer, format=kind, metadata=metadata)
                files[f"{name}.{kind}"] = buffer.getvalue()
    return files


def make_figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of axes, row by row."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure((FIGURE_WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).ravel())


def remove_frame(axes: Axes) -> None:
    """Remove ticks and all spines but the lower one."""
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


_MAX_LETTERS = 38
_MAX_POINTS = 170
"""Longest name of a group, in letters and in points of width."""
_METRIC_COLOURS = {
    "Acc": GROUP_COLOURS["unsound"],
    "TRR": GROUP_COLOURS["reliable"],
    "LGG": GROUP_COLOURS["path_deviation"],
}
_HATCHES = {"undecided": "////"}


def explain_missing_figures() -> str | None:
    """Return why no figures can be drawn; None where they can."""
    # Asked without importing it: matplotlib is slow to load.
    if find_spec("matplotlib") is not None:
        return None
    return "no figures are written: they need matplotlib. Run: pip install 'eclose[figures]'"


def draw_report_figures(diagnosis: Diagnosis, context: ReportContext) -> dict[str, bytes]:
    """Return every figure in both formats, by file name; figures without data are left out."""
    drawn: dict[str, Callable[[], Figure]] = {
        "rates": lambda: _rates(marks.layout_rate_plot(diagnosis, context)),
        "metrics": lambda: _metrics(marks.layout_dataset_panels(diagnosis)),
        "flow": lambda: _flow(marks.build_response_flow(diagnosis)),
    }
    if compositions := marks.layout_composition_charts(diagnosis):
        drawn["failures"] = lambda: _compositions(compositions)
    if (base := context.base) is not None:
        drawn["differences"] = lambda: _differences(*marks.layout_difference_plot(base.comparison), base.name)
    # The first sentence is the warning itself; the others name files.
    return render_figures(drawn, context.stale_warnings[:1])


def _rates(plot: marks.RatePlot) -> Figure:
    """Draw dots, whiskers of intervals and bands of bounds; one row per group."""
    figure, columns = make_figure(0.9 + 0.21 * len(plot.rows), columns=len(plot.axes), sharey=True)
    for column, (axes, axis) in enumerate(zip(columns, plot.axes, strict=True)):
        _scaled(axes, axis)
        for row, (_, _, dots) in enumerate(plot.rows):
            _dot(axes, row, dots[column], _METRIC_COLOURS[axis.letter])
            _beside(axes, row, dots[column].label)
    labels = [f"{_short(name)}  ({responses:,})" for name, responses, _ in plot.rows]
    _rows(columns[0], labels)
    # Last row of each section: a line separates it from the next.
    ends = list(accumulate(len(rows) for _, rows in plot.sections))[:-1]
    for axes in columns:
        for end in ends:
            axes.axhline(end - 0.5, color=LINE_GREY, linewidth=0.6)
    kinds = "; ".join(["all", *(name for name, _ in plot.sections[1:])])
    figure.supxlabel(
        "Percent. Dot: the rate. Line: its 95 % interval over questions. Pale band: where it could lie, whatever the\n"
        f"unjudged responses are. In brackets: responses. From the top, between lines: {kinds}.",
        fontsize=6.5, color=SOFT_INK,
    )  # fmt: skip
    return figure


def _scaled(axes: Axes, axis: marks.PlotAxis) -> None:
    end = 100 * axis.scale
    axes.set_title(f"{axis.letter}\n{axis.name}", fontsize=7.5, loc="left")
    axes.set_xlim(-2, 102)
    axes.set_xticks([0, 25, 50, 75, 100], [f"{end * share:g}" for share in (0, 0.25, 0.5, 0.75, 1)], fontsize=6.5)
    axes.grid(axis="x", color=TRACK_GREY)
    remove_frame(axes)


def _beside(axes: Axes, row: int, text: str) -> None:
    axes.annotate(text, (1.04, row), xycoords=("axes fraction", "data"), va="center_baseline", fontsize=7)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows, the first one at the top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _dot(axes: Axes, row: int, dot: marks.RateDot, colour: str) -> None:
    """Draw the band, the whisker and the dot of a rate."""
    if dot.band:
        axes.barh(row, dot.band[1] - dot.band[0], left=dot.band[0], height=0.5, color=LINE_GREY, alpha=0.7)
    if dot.whisker:
        axes.plot(dot.whisker, (row, row), color=colour, linewidth=2, alpha=0.6, solid_capstyle="round")
    if dot.value is not None:
        axes.plot([dot.value], [row], "o", color=colour, markersize=4, markeredgecolor="white", markeredgewidth=0.6)


_MODEL_COLOURS = ("#1f6fb2", "#d55e00", "#3d8b37", "#a3478f", "#c98a00", "#4a4f5c", "#8db8d9", "#8a6d1f")
_LABELLED_MODELS = 4
"""With more models, bars are too thin for a number above each."""


def _metrics(panels: Sequence[marks.DatasetPanel]) -> Figure:
    """Draw bars of every metric for each dataset and model, and a row pooled over datasets (Figure 2 of the paper)."""
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure, rows = make_figure(0.75 + 1.25 * len(panels), rows=len(panels))
    names = list(dict.fromkeys(model for _, models in panels for model, _ in models))
    for axes, (dataset, models) in zip(rows, panels, strict=True):
        # Bars of one metric take 84 % of its slot.
        width = 0.84 / max(len(models), 1)
        for number, (model, dots) in enumerate(models):
            colour = _MODEL_COLOURS[names.index(model) % len(_MODEL_COLOURS)]
            for column, dot in enumerate(dots):
                at = column + (number - (len(models) - 1) / 2) * width
                numbered = len(models) <= _LABELLED_MODELS
                _metric_bar(axes, at, width * 0.9, dot, colour, conditional=marks.PANEL_METRICS[column] in CONDITIONAL,
                            numbered=numbered)  # fmt: skip
        axes.set_title(_short(dataset), fontsize=8, loc="left")
        axes.set_xticks(range(len(marks.PANEL_METRICS)), [metric.value for metric in marks.PANEL_METRICS], fontsize=7)
        axes.set_ylim(0, 125)
        axes.set_yticks([0, 50, 100])
        axes.tick_params(axis="y", labelsize=6.5)
        axes.grid(axis="y", color=TRACK_GREY)
        remove_frame(axes)
    handles = [
        Patch(color=_MODEL_COLOURS[index % len(_MODEL_COLOURS)], label=_short(name)) for index, name in enumerate(names)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(names), 3), frameon=False, fontsize=7)
    figure.supxlabel(
        "Percent. Line: 95 % interval over questions. Pale: where a rate could lie, whatever the responses without a\n"
        "label are. n: denominator of LggShare (responses that fail as a whole) and LggRisk (wrong answers).",
        fontsize=6.5, color=SOFT_INK,
    )  # fmt: skip
    return figure


def _metric_bar(
    axes: Axes, at: float, width: float, dot: marks.RateDot, colour: str, *, conditional: bool, numbered: bool
) -> None:
    """Draw one bar with its whisker; only the band of its bounds where the rate must not be given."""
    if dot.band:
        axes.bar(at, dot.band[1] - dot.band[0], width, bottom=dot.band[0], color=LINE_GREY, alpha=0.7)
    if dot.value is not None:
        axes.bar(at, dot.value, width, color=colour, alpha=0.85)
    if dot.whisker:
        axes.plot((at, at), dot.whisker, color=INK, linewidth=0.8)
    if numbered:
        # The number stands above the highest mark.
        ends = (dot.whisker or (0, 0))[1], (dot.band or (0, 0))[1], dot.value or 0
        value = f"{dot.value:.1f}" if dot.value is not None else "–"
        words = f"{value}\nn {dot.n:,}" if conditional else value
        axes.annotate(words, (at, max(ends)), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=5)


def _flow(rows: Sequence[marks.FlowBar]) -> Figure:
    """Draw one bar per test of the chain; lost responses are named beside it."""
    figure, (axes,) = make_figure(0.45 + 0.68 * (len(rows) + 1))
    _bar(axes, 0, "sound", 0, 100)
    axes.text(0, -0.3, f"All responses: {rows[0].total:,}", va="bottom")
    for number, row in enumerate(rows, start=1):
        axes.fill([0, row.reach, row.reach, 0], [number - 0.78, number - 0.78, number - 0.22, number - 0.22],
                  color=GROUP_COLOURS["sound"], alpha=0.18, linewidth=0)  # fmt: skip
        for part in (row.passed, *row.lost):
            _bar(axes, number, part.kind, part.start, part.width)
        passed = f"{row.passed.count:,} {row.passed.name} ({row.passed.share} %)"
        axes.text(0, number - 0.3, f"{row.question}  {passed}", va="bottom")
        _losses(axes, number, row.lost)
    axes.set_xlim(0, 100)
    axes.set_ylim(len(rows) + 0.3, -0.55)
    axes.set_axis_off()
    figure.supxlabel("In percent of all responses.", fontsize=6.5, color=SOFT_INK)
    return figure


def _bar(axes: Axes, row: int, kind: str, start: float, width: float) -> None:
    hatch = _HATCHES.get(kind, "")
    ground = "white" if hatch else GROUP_COLOURS[kind]
    axes.barh(row, width, left=start, height=0.44, color=ground, edgecolor=GROUP_COLOURS[kind] if hatch else "white",
              linewidth=0.5, hatch=hatch)  # fmt: skip


def _losses(axes: Axes, row: int, lost: Sequence[marks.BarSegment]) -> None:
    """Write each loss beside a bar, with a patch of its colour."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    step = 0.2
    # Centre the losses on the bar.
    top = row - step * (len(lost) - 1) / 2
    for number, part in enumerate(lost):
        at = top + number * step
        hatch = _HATCHES.get(part.kind, "")
        ground = "white" if hatch else GROUP_COLOURS[part.kind]
        axes.add_patch(Rectangle((102, at - 0.05), 1.6, 0.1, clip_on=False, hatch=2 * hatch, linewidth=0.5,
                                 facecolor=ground, edgecolor=GROUP_COLOURS[part.kind]))  # fmt: skip
        axes.text(104.6, at, f"{part.name}: {part.count:,} ({part.share} %)", va="center", fontsize=7)


def _compositions(compositions: Sequence[marks.CompositionChart]) -> Figure:
    """Draw how failures are composed: failure classes within the gap, and codes of unsound steps."""
    most = max(len(bars) for _, _, bars in compositions)
    figure, columns = make_figure(0.6 + 0.26 * most, columns=len(compositions))
    figure.set_layout_engine("constrained", wspace=0.1)  # room for the names of the next column
    for axes, (title, total, bars) in zip(columns, compositions, strict=True):
        axes.set_title(title, fontsize=8, loc="left")
        for row, bar in enumerate(bars):
            axes.barh(row, 100, height=0.6, color=TRACK_GREY)
            axes.barh(row, bar.width, height=0.6, color=GROUP_COLOURS[bar.kind])
            _beside(axes, row, f"{bar.count:,} ({bar.share} %)")
        _rows(axes, [bar.name for bar in bars])
        # The same limits in both columns, so that bars are equally thick.
        axes.set_ylim(most - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.set_xticks([])
        axes.set_xlabel(f"n = {total:,}", fontsize=6.5, color=SOFT_INK, loc="left")
        remove_frame(axes)
        axes.spines["bottom"].set_visible(False)
    return figure


def _differences(end: str, rows: Sequence[tuple[str, str, marks.RateDot]], name: str) -> Figure:
    """Draw every difference from the base run with its whisker around zero."""
    figure, (axes,) = make_figure(0.85 + 0.22 * len(rows))
    axes.set_title(f"This run minus {_short(name)}", fontsize=8, loc="left")
    # 50 is no change: positions are in percent of the width.
    axes.axvline(50, color=SOFT_INK, linewidth=0.8, linestyle=(0, (3, 2)))
    for row, (letter, _, dot) in enumerate(rows):
        _dot(axes, row, dot, _METRIC_COLOURS.get(letter, GROUP_COLOURS["unsound"]))
        _beside(axes, row, f"{dot.label}  {dot.interval}".rstrip())
    _rows(axes, [f"{letter}  {words}" for letter, words, _ in rows])
    axes.set_xlim(-1, 101)
    ticks = (f"{float(end) * share:+g}" if share else "0" for share in (-1, -0.5, 0, 0.5, 1))
    axes.set_xticks([0, 25, 50, 75, 100], [tick.replace("-", "−") for tick in ticks])
    axes.tick_params(axis="x", labelsize=6.5)
    axes.grid(axis="x", color=TRACK_GREY)
    remove_frame(axes)
    axes.set_xlabel(
        "Points. Line: 95 % interval, questions resampled in both runs together. Across the middle: no clear change.",
        fontsize=6.5, color=SOFT_INK,
    )  # fmt: skip
    return figure


def _short(name: str) -> str:
    """Return a name shortened in the middle to fit beside the plot; both ends of a model's name matter."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415
    from matplotlib.textpath import TextToPath  # noqa: PLC0415

    full = to_one_line(name)
    font, measure = FontProperties(size=FIGURE_SETTINGS["font.size"]), TextToPath()
    # Cut letters first, then measure: wide letters may need a shorter name.
    half = min(len(full), _MAX_LETTERS) // 2
    short = full if len(full) <= _MAX_LETTERS else f"{full[:half]}…{full[-half:]}"
    while half > 1 and measure.get_text_width_height_descent(short, font, ismath=False)[0] > _MAX_POINTS:
        half -= 1
        short = f"{full[:half]}…{full[-half:]}"
    return short
