"""Rates of a run over time windows, with bounds that hold while it grows, and the alarms of ``eclose gate --trend``.

The unit of the bounds is the mean response to a question within a window: its responses are alike, and count once. A
window of a question set that is asked again and again therefore tells of the rate on these questions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.diagnosis.gate_rules import GateLimitCheck, GateLimits, GateOutcome, GateReport
from eclose.diagnosis.label_table import NO_TIME
from eclose.diagnosis.number_format import format_count, format_percent
from eclose.diagnosis.shown_rate import ShownRate
from eclose.errors import SettingError, UserError
from eclose.metrics.rates import CONDITIONAL_METRICS, Metric, tabulate_indicator_bounds
from eclose.stats.anytime import ALARM_LEVEL, bound_from_below, find_alarm
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.stats.rates import Rate
from eclose.values.times import to_datetime

if TYPE_CHECKING:
    from eclose.diagnosis.label_table import LabelTable
    from eclose.stats.arrays import Floats, Indices

TREND_METRICS = tuple(metric for metric in Metric if metric not in CONDITIONAL_METRICS)
"""Rates among all responses, of which windows have the same denominator."""
_LENGTH = re.compile(r"([1-9]\d{0,4})([mhdw])")
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MONDAY = 4 * 86_400
"""Seconds from 1 January 1970 to the first Monday, at which weeks begin."""


@dataclass(frozen=True, slots=True)
class TrendWindow:
    """The rate of one time window, and what the run has shown up to its end."""

    start: datetime
    """In UTC."""
    responses: int
    questions: int
    rate: ShownRate
    """Rate of the window with its interval, which holds for this window alone."""
    above: float
    """The greatest rate that the run is shown to have been above, at some time by the end of the window."""
    below: float
    """The least rate that the run is shown to have been below; less than ``above`` where the rate has changed."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A rate over time windows."""

    metric: Metric
    by: str
    """Length of a window, such as ``1d``."""
    windows: tuple[TrendWindow, ...]
    """Windows with a response, in order."""
    timeless: int
    """Responses without a time, which are in no window."""
    left_out: int = 0
    """Responses without any judgment, which are in no window either."""
    limit: float | None = None
    alarm: datetime | None = None
    """Start of the first window at whose end it is shown that the rate has left the limit."""

    @property
    def aim(self) -> str:
        """The limit in words; empty without one."""
        return "" if self.limit is None else _describe_aim(self.metric, self.limit)


class _Units(NamedTuple):
    """The mean response to each question in each window, with the unjudged responses as misses and as hits."""

    least: Floats
    greatest: Floats
    window: Indices

    def find_alarm(self, limit: float, level: float, *, at_least: bool, unjudged_as_worst: bool) -> int | None:
        """Return the first window of an alarm; None without one."""
        # A rate that is too low is a rate of misses that is too high.
        misses = 1 - (self.least if unjudged_as_worst else self.greatest)
        hits = self.greatest if unjudged_as_worst else self.least
        return find_alarm(misses if at_least else hits, self.window, 1 - limit if at_least else limit, level)


class _TimedLabels(NamedTuple):
    """The labels of the responses that have a time, in the order of their windows."""

    starts: list[datetime]
    """Start of each window with a response."""
    window: Indices
    question: Indices
    verdict: Indices
    timeless: int

    @classmethod
    def of(cls, labels: LabelTable, by: str) -> _TimedLabels:
        """Divide the responses into windows; raise UserError where none has a time."""
        length, offset = read_window_length(by)
        timed = labels.time != NO_TIME
        if not timed.any():
            raise UserError(
                "no response has a time. It is read when responses are judged: from columns such as timestamp or "
                "created_at, from --map time=PATH, or from spans."
            )
        numbers = (labels.time[timed] - offset) // length
        present, window = np.unique(numbers, return_inverse=True)
        starts = [to_datetime(number * length + offset) for number in present.tolist()]
        question, verdict = (column[timed].astype(np.intp) for column in (labels.question, labels.verdict))
        return cls(starts, window, question, verdict, int((~timed).sum()))

    def divide_by_question(self) -> tuple[Indices, Indices]:
        """Return the unit of each response, and the window of each unit."""
        pairs, unit = np.unique(self.window * (self.question.max() + 1) + self.question, return_inverse=True)
        return unit, pairs // (self.question.max() + 1)

    def average_by_question(self, metric: Metric) -> _Units:
        """Return the units that are bet on."""
        unit, window = self.divide_by_question()
        column = list(Metric).index(metric)
        tables = tabulate_indicator_bounds()
        least, greatest = (
            np.bincount(unit, table.hits[self.verdict, column]) / np.bincount(unit)
            for table in (tables.least, tables.greatest)
        )
        return _Units(least, greatest, window)

    def measure_windows(self, metric: Metric) -> list[tuple[int, int, ShownRate]]:
        """Return the numbers of responses and questions of each window, and its rate."""
        unit, window = self.divide_by_question()
        judged, column = tabulate_indicator_bounds().judged, list(Metric).index(metric)
        hits, cases = (np.bincount(unit, part[self.verdict, column]).astype(np.float64) for part in judged)
        responses, windows = np.bincount(self.window), []
        for number, rows in enumerate(np.split(np.arange(len(window)), np.flatnonzero(np.diff(window)) + 1)):
            counts = QuestionHitCounts.of(hits[rows], cases[rows] - hits[rows])
            total = int(responses[number])
            rate = Rate(counts.hits, counts.cases, total - counts.cases)
            windows.append((total, len(rows), ShownRate(rate, counts.estimate())))
        return windows


def measure_trend(
    labels: LabelTable, metric: Metric, by: str, *, limit: float | None = None, left_out: int = 0
) -> Trend:
    """Return a rate over time windows.

    Args:
        labels: Labels of the responses.
        metric: A rate among all responses.
        by: Length of a window: a number with ``m``, ``h``, ``d`` or ``w``.
        limit: Largest LGG, or smallest value of another rate, whose crossing is an alarm.
        left_out: Responses without any judgment.

    Raises:
        SettingError: The length or the metric is refused.
        UserError: No response has a time.
    """
    if metric not in TREND_METRICS:
        raise SettingError(f"metric = {metric}: a trend is of {', '.join(TREND_METRICS)}.")
    timed = _TimedLabels.of(labels, by)
    units = timed.average_by_question(metric)
    lows = bound_from_below(units.least, units.window)
    highs = 1 - bound_from_below(1 - units.greatest, units.window)
    windows = tuple(
        TrendWindow(start=start, responses=responses, questions=questions, rate=rate, above=above, below=below)
        for start, (responses, questions, rate), above, below in zip(
            timed.starts, timed.measure_windows(metric), lows.tolist(), highs.tolist(), strict=True
        )
    )
    alarm = None
    if limit is not None:
        at_least = metric is not Metric.GAP_RATE
        number = units.find_alarm(limit, ALARM_LEVEL, at_least=at_least, unjudged_as_worst=False)
        alarm = None if number is None else timed.starts[number]
    return Trend(
        metric=metric,
        by=by,
        windows=windows,
        timeless=timed.timeless,
        left_out=left_out,
        limit=limit,
        alarm=alarm,
    )


def check_trend_limits(labels: LabelTable, limits: GateLimits, by: str, left_out: int = 0) -> GateReport:
    """Check whether a rate has left its limit at any time; false alarms of all limits together are 5 % of lives.

    A limit fails where the judged responses alone show an alarm, whatever the unjudged ones are. It cannot be told
    where only the unjudged ones, counted as worst, would make it one.

    Raises:
        SettingError: A limit is none of a rate.
        UserError: No response has a time.
    """
    if limits.relative or limits.unjudged is not None:
        raise SettingError("--trend takes --min-trr, --min-accuracy, --min-lsr and --max-lgg. Leave the others out.")
    timed = _TimedLabels.of(labels, by)
    level = ALARM_LEVEL / (len(limits.at_least) + len(limits.at_most))
    apart = [f"{format_count(count, 'response')} {why}" for count, why in _count_apart(timed.timeless, left_out)]
    where = f"{format_count(len(timed.starts), 'window')} of {by}"
    checks = []
    for metric, limit in (*limits.at_least.items(), *limits.at_most.items()):
        units, at_least = timed.average_by_question(metric), metric in limits.at_least
        alarm, worst = (
            units.find_alarm(limit, level, at_least=at_least, unjudged_as_worst=worst) for worst in (False, True)
        )
        outcome, finding = GateOutcome.PASSED, f"no alarm in {where}"
        if alarm is not None:
            outcome = GateOutcome.FAILED
            finding = f"alarm at the end of {_name(timed.starts[alarm], by)}, one of {where}"
        elif worst is not None:
            outcome = GateOutcome.UNDECIDED
            finding += f", but at the end of {_name(timed.starts[worst], by)} with unjudged responses counted as worst"
        message = "; ".join([f"{_describe_aim(metric, limit)}: {finding}, by the judge's own labels", *apart])
        # Not sampled: the probability of an error is shared among the limits already.
        checks.append(GateLimitCheck(outcome, f"{message}.", sampled=False))
    return GateReport(tuple(checks))


def _count_apart(timeless: int, left_out: int) -> list[tuple[int, str]]:
    pairs = ((timeless, "without a time in no window"), (left_out, "without any judgment in no window"))
    return [pair for pair in pairs if pair[0]]


def _describe_aim(metric: Metric, limit: float) -> str:
    return f"{metric} at {'most' if metric is Metric.GAP_RATE else 'least'} {format_percent(limit)} %"


def _name(start: datetime, by: str) -> str:
    return f"the window of {format_window_start(start, by)}"


def format_window_start(start: datetime, by: str) -> str:
    """Return the day of a window, with the time where windows are shorter than a day."""
    return f"{start:%Y-%m-%d}" if by[-1] in "dw" else f"{start:%Y-%m-%d %H:%M}"


def read_window_length(by: str) -> tuple[int, int]:
    """Return the length of a window in microseconds, and when the first one begins."""
    match = _LENGTH.fullmatch(by)
    if match is None:
        raise SettingError(f"by = {by!r}: write a number with m, h, d or w, such as 15m, 1h, 1d or 2w.")
    return int(match[1]) * _SECONDS[match[2]] * 10**6, (_MONDAY if match[2] == "w" else 0) * 10**6
