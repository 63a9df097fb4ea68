"""Style of all figures for print: colours, settings and files.

Colours are distinguishable for colour-blind readers. Equal input gives equal bytes with one version of matplotlib: no
dates, and ids from a fixed salt.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def render_figure_files(draw: Callable[[], Figure], warnings: Sequence[str] = ()) -> dict[str, bytes]:
    """Return a figure as PDF and SVG; warnings stand above it."""
    from warnings import catch_warnings, filterwarnings  # noqa: PLC0415

    import matplotlib as mpl  # noqa: PLC0415 - an extra

    files = {}
    with mpl.rc_context(FIGURE_SETTINGS), catch_warnings():
        # Letters that the font lacks are drawn as boxes; the warning adds nothing.
        filterwarnings("ignore", "Glyph .* missing from")
        figure = draw()
        for sentence in warnings:
            figure.suptitle(sentence, fontsize=7.5, color=GROUP_COLOURS["path_deviation"])
        for kind, metadata in _METADATA.items():
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files


def make_figure_columns(height: float, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with columns of axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure((FIGURE_WIDTH, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False, **options)
    return figure, list(axes[0])


def remove_frame(axes: Axes) -> None:
    """Remove ticks and all spines but the lower one."""
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
