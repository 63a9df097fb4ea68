"""Follow a rate of a judged run over time, for ``eclose trend``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.api.results import list_run_caveats
from eclose.diagnosis.label_table import TraceStratum
from eclose.diagnosis.run_counts import RunCounts, count_runs
from eclose.diagnosis.trend import Trend, TrendWindow, measure_trend
from eclose.errors import SettingError
from eclose.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eclose.readers.judged_run import JudgedCase
    from eclose.stats.intervals import Interval


@dataclass(frozen=True)
class TrendResult:
    """A rate over time windows, with the caveats of the run."""

    trend: Trend
    name: str
    """The path of the run, or ``cases``."""
    notices: tuple[str, ...] = ()
    """Sentences to read before the rates, on stale files and unused records."""

    @property
    def windows(self) -> tuple[TrendWindow, ...]:
        """Windows with a response, in order."""
        return self.trend.windows

    @property
    def alarm(self) -> bool:
        """Whether the rate has left the limit at any time."""
        return self.trend.alarm is not None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it; rates are between 0 and 1, an undefined one is None."""
        trend = self.trend
        return {
            "run": self.name,
            "metric": str(trend.metric),
            "by": trend.by,
            "limit": trend.limit,
            "alarm": None if trend.alarm is None else trend.alarm.isoformat(),
            "without_time": trend.timeless,
            "without_judgment": trend.left_out,
            "notices": list(self.notices),
            "windows": [_describe_window(window) for window in trend.windows],
        }

    def page(self) -> str:
        """Return the plot and the table as an HTML page of one file."""
        from eclose.report.trend_page import render_trend_page  # noqa: PLC0415 - rarely needed

        return render_trend_page(self.trend, self.name, self.notices)


def _describe_window(window: TrendWindow) -> dict[str, Any]:
    def ends(interval: Interval | None) -> list[float] | None:
        return None if interval is None else list(interval)

    rate = window.rate.rate
    return {
        "start": window.start.isoformat(),
        "responses": window.responses,
        "questions": window.questions,
        "unjudged": rate.unjudged,
        "rate": rate.value,
        "interval": ends(window.rate.interval),
        "span": ends(window.rate.span),
        "above": window.above,
        "below": window.below,
    }


def trend(
    run: Path | str | Iterable[JudgedCase],
    *,
    by: str = "1d",
    metric: Metric | str = Metric.TRACE_RELIABILITY_RATE,
    limit: float | None = None,
    origin: TraceStratum | str | None = None,
    allow_stale: bool = False,
    notify: Callable[[str], None] | None = None,
) -> TrendResult:
    """Follow a rate of a judged run over time windows, with bounds that hold while the run grows.

    Args:
        run: Folder of a judged run, a table of its labels, or cases.
        by: Length of a window: a number with ``m``, ``h``, ``d`` or ``w``.
        metric: Acc, LSR, A, C, K, GSR, TRR or LGG.
        limit: Largest LGG, or smallest value of another rate, between 0 and 1. An alarm says that the rate has left it;
            at most 5 % of runs that never do have one, however long they last and however often they are looked at.
        origin: Traces to follow, ``stated``, ``prose`` or ``hidden``; by default those of the report's headline.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        notify: Function that is called with each notice at once.

    Returns:
        Rates, intervals and bounds of each window with a response, and the number of responses without a time.

    Raises:
        SettingError: The length of a window, the metric or the limit is refused.
        UserError: The folder holds no judged run, or no response has a time.

    Examples:
        >>> from dataclasses import replace
        >>> cases = eclose.gate("demo", min_trr=0.3).cases
        >>> timed = [replace(case, response=replace(case.response, time="2026-11-20")) for case in cases]
        >>> eclose.trend(timed, by="1w").windows[0].responses
        60
    """
    if limit is not None and not 0 <= limit <= 1:
        raise SettingError(f"limit = {limit:g}: a rate is between 0 and 1.")
    try:
        rate = Metric(metric)
    except ValueError:
        raise SettingError(f"metric = {metric!r}: there is no such rate. Use one of {', '.join(Metric)}.") from None
    stratum = None if origin is None else TraceStratum(origin)
    if isinstance(run, str | Path):
        name, counted = str(run), count_runs([run], allow_stale=allow_stale, stratum=stratum)
    else:
        name, counted = "cases", RunCounts.of(tuple(run), stratum)
    notices = tuple(list_run_caveats(counted.caveats))
    if notify is not None:
        for notice in notices:
            notify(notice)
    left_out = len(counted.caveats.left_out)
    followed = measure_trend(counted.labels, rate, by, limit=limit, left_out=left_out)
    return TrendResult(followed, name, notices)
