"""The plot and the table of a trend as an HTML page: one file that needs no network, no script and no other file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eclose.diagnosis.number_format import format_percent
from eclose.diagnosis.trend import format_window_start
from eclose.report.formats.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.report.wording import METRIC_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.trend import Trend

_POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
_HEIGHT = 240
"""Height of the plot in pixels, for rates from 0 to 1."""


class TrendMark(NamedTuple):
    """A window in the plot, from left to right in percent and from top to bottom in pixels."""

    start: float
    width: float
    bounds: tuple[float, float]
    """What the run is shown to have been above and below."""
    value: float | None
    whisker: tuple[float, float] | None
    row: tuple[str, ...]
    """The cells of the table."""


def render_trend_page(trend: Trend, name: str, notices: Sequence[str]) -> str:
    """Return the page of a trend of the run ``name``."""
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    style = read_page_text("page.css") + read_page_text("trend.css")
    html: str = load_page_template("trend.html").render(
        trend=trend,
        name=name,
        notices=notices,
        metric_words=METRIC_WORDS[trend.metric][0],
        marks=_layout_marks(trend),
        height=_HEIGHT,
        limit=None if trend.limit is None else _drop(trend.limit),
        alarm=None if trend.alarm is None else format_window_start(trend.alarm, trend.by),
        policy=_POLICY.format(style=csp_source_hash(style)),
        style=Markup(style),  # part of the package, not a value
    )
    return html


def _layout_marks(trend: Trend) -> list[TrendMark]:
    count, marks = len(trend.windows), []
    for number, window in enumerate(trend.windows):
        rate = window.rate
        interval = rate.interval if rate.printed else None
        marks.append(
            TrendMark(
                start=round(100 * number / count, 3),
                width=round(100 / count, 3),
                bounds=(_drop(window.above), _drop(window.below)),
                value=None if rate.value is None or not rate.printed else _drop(rate.value),
                whisker=None if interval is None else (_drop(interval.high), _drop(interval.low)),
                row=(
                    format_window_start(window.start, trend.by),
                    f"{window.responses:,}",
                    f"{window.questions:,}",
                    f"{rate.rate.unjudged:,}",
                    str(rate.figure),
                    format_percent(window.above),
                    format_percent(window.below),
                ),
            )
        )
    return marks


def _drop(rate: float) -> float:
    """Return how far below the top of the plot a rate is."""
    return round(_HEIGHT * (1 - rate), 1)
