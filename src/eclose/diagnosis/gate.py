"""Hold rates against limits: pass, fail, or cannot tell. For CI.

A limit is held against the interval of the rate, not against the estimate. The rate passes where the whole interval
keeps the limit, fails where none of it does, and else there are too few responses to tell. What was not judged widens
the interval to everything it could turn out to be, so it never helps to pass. Decision 0028 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from eclose.core.judgment import NEVER_ASKED, Criterion
from eclose.errors import SettingError
from eclose.metrics.rates import Metric
from eclose.stats.clustered_rates import QuestionCounts
from eclose.stats.intervals import Estimate, Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.metrics.summary import GroupSummary
    from eclose.stats.rate_correction import CorrectedRate
    from eclose.stats.rates import Rate


class GateOutcome(StrEnum):
    """What a gate says, of one limit or of all."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "cannot tell"


UndecidedPolicy: TypeAlias = Literal["pass", "fail"]
"""What a gate that cannot tell is taken for."""


class LimitCheck(NamedTuple):
    """One limit, whether it is kept, and the figures behind it in a sentence."""

    outcome: GateOutcome
    message: str
    sampled: bool = True
    """Whether the limit was held against an interval; False for a plain count."""

    def __str__(self) -> str:
        """Return the outcome and the message."""
        return f"{self.outcome}: {self.message}"


class GateReport(NamedTuple):
    """Every limit of a gate."""

    checks: tuple[LimitCheck, ...]

    @property
    def outcome(self) -> GateOutcome:
        """Failed where a limit is broken, passed where all are kept."""
        outcomes = {check.outcome for check in self.checks}
        return next(
            (each for each in (GateOutcome.FAILED, GateOutcome.UNDECIDED) if each in outcomes), GateOutcome.PASSED
        )

    def decide(self, undecided: UndecidedPolicy | None) -> GateOutcome:
        """Return the outcome, with the third one turned into one of the other two where that is asked for."""
        if self.outcome is not GateOutcome.UNDECIDED or undecided is None:
            return self.outcome
        return GateOutcome.PASSED if undecided == "pass" else GateOutcome.FAILED

    @property
    def reasons(self) -> tuple[str, ...]:
        """The limits that are not kept, or not known to be."""
        return tuple(str(check) for check in self.checks if check.outcome is not GateOutcome.PASSED)

    @property
    def multiplicity(self) -> str | None:
        """What several limits at once do to the chance of an error; None for one limit."""
        count = sum(check.sampled for check in self.checks)
        if count < 2:
            return None
        return (
            f"{count} limits are held at once. To pass, all must be kept, so a run that breaks one of them passes by "
            f"chance in at most 2.5 % of cases. A run that keeps all fails by chance in at most {count * 2.5:g} %."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """What a set of responses must keep to. Rates lie between 0 and 1."""

    at_least: Mapping[Metric, float] = field(default_factory=dict)
    at_most: Mapping[Metric, float] = field(default_factory=dict)
    unjudged: float | None = None
    """The largest share of responses that may lack a label."""
    max_drop: Mapping[Metric, float] = field(default_factory=dict)
    """How far a rate may lie below that of a base run, on the questions both answer."""
    max_rise: Mapping[Metric, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse limits that hold nothing, or are no rates."""
        limits = [*self.at_least.values(), *self.at_most.values(), *self.max_drop.values(), *self.max_rise.values()]
        limits += [] if self.unjudged is None else [self.unjudged]
        if not limits:
            raise SettingError("a gate without limits lets everything pass. Give at least one, such as --min-trr 0.85.")
        if not all(0 <= limit <= 1 for limit in limits):
            raise SettingError("limits are rates between 0 and 1: 0.85, not 85.")

    @property
    def relative(self) -> bool:
        """Whether a base run is needed."""
        return bool(self.max_drop or self.max_rise)

    @classmethod
    def of(
        cls,
        *,
        min_trr: float | None = None,
        min_accuracy: float | None = None,
        min_lsr: float | None = None,
        max_lgg: float | None = None,
        max_unjudged: float | None = None,
        max_trr_drop: float | None = None,
        max_accuracy_drop: float | None = None,
        max_lsr_drop: float | None = None,
        max_lgg_rise: float | None = None,
    ) -> GateLimits:
        """Take limits by the names that commands and tests give them; None for no limit."""
        rates = Metric.TRACE_RELIABILITY_RATE, Metric.ACCURACY, Metric.LOCAL_SOUNDNESS_RATE
        return cls(
            at_least=_known(zip(rates, (min_trr, min_accuracy, min_lsr), strict=True)),
            at_most=_known([(Metric.GAP_RATE, max_lgg)]),
            unjudged=max_unjudged,
            max_drop=_known(zip(rates, (max_trr_drop, max_accuracy_drop, max_lsr_drop), strict=True)),
            max_rise=_known([(Metric.GAP_RATE, max_lgg_rise)]),
        )


def _known(limits: Iterable[tuple[Metric, float | None]]) -> dict[Metric, float]:
    return {metric: limit for metric, limit in limits if limit is not None}


class PairedRate(NamedTuple):
    """A rate of a run and of a base run on the questions both answer, and the difference of the two."""

    run: Rate
    base: Rate
    difference: Estimate
    """The run's minus the base's, with its interval."""
    questions: int


class Baseline(NamedTuple):
    """A base run to compare with."""

    name: str
    rates: Mapping[Metric, PairedRate]
    left_out: int = 0
    """Responses of the base run without any judgment."""


def check_limits(
    summary: GroupSummary,
    unjudged: Mapping[Criterion, Mapping[str, int]],
    limits: GateLimits,
    left_out: Sequence[tuple[str, str]] = (),
    *,
    corrected: Mapping[Metric, CorrectedRate] | None = None,
    base: Baseline | None = None,
) -> GateReport:
    """Hold every limit against what the rates may be.

    Args:
        summary: The rates of all judged responses.
        unjudged: How many labels are missing, by criterion and reason.
        limits: What to keep to.
        left_out: Responses without any judgment, with the reason.
        corrected: Rates as labels of people correct them; held against limits instead of the judge's own.
        base: The run that ``max_drop`` and ``max_rise`` are relative to.

    Raises:
        SettingError: A limit is relative to a base run and there is none, or the other way round.
    """
    if limits.relative != (base is not None):
        raise SettingError(
            "--against compares with a base run, and --max-trr-drop, --max-accuracy-drop, --max-lsr-drop and"
            " --max-lgg-rise are limits of that comparison. Give --against and at least one of them, or neither."
        )
    rates = _Rates(summary, len(left_out), corrected or {})
    checks = [rates.check(metric, limit, least=True) for metric, limit in limits.at_least.items()]
    checks += [rates.check(metric, limit, least=False) for metric, limit in limits.at_most.items()]
    if base is not None:
        checks += [
            _relative(metric, -limit, base, len(left_out), drop=True) for metric, limit in limits.max_drop.items()
        ]
        checks += [
            _relative(metric, limit, base, len(left_out), drop=False) for metric, limit in limits.max_rise.items()
        ]
    if limits.unjudged is not None:
        checks += _unjudged(summary.responses, unjudged, left_out, limits.unjudged)
    return GateReport(tuple(checks))


def _outcome(ends: Interval, limit: float, *, least: bool) -> GateOutcome:
    """Say where an interval lies: on the right side of a limit, on the wrong one, or on both."""
    low, high = (ends.low, ends.high) if least else (-ends.high, -ends.low)
    limit = limit if least else -limit
    if low >= limit:
        return GateOutcome.PASSED
    return GateOutcome.FAILED if high < limit else GateOutcome.UNDECIDED


class _Rates(NamedTuple):
    """The rates of a run, ready to be held against limits."""

    summary: GroupSummary
    left_out: int
    corrected: Mapping[Metric, CorrectedRate]

    def check(self, metric: Metric, limit: float, *, least: bool) -> LimitCheck:
        aim = f"{metric} at {'least' if least else 'most'} {percent(limit)} %"
        missing = self.summary.rates[metric].unjudged + self.left_out
        widest = self._widest(metric)
        if widest is None:
            return LimitCheck(GateOutcome.UNDECIDED, f"{aim}: the rate is undefined, no response counts for it.")
        outcome = _outcome(widest, limit, least=least)
        message = f"{aim}: {self._figure(metric)}"
        if missing:
            message += f"; {percent_range(widest)} whatever the {_responses(missing)} without a label are"
        if outcome is GateOutcome.UNDECIDED:
            message += f". {self._plan(metric, limit, least=least)}"
        return LimitCheck(outcome, f"{message}.")

    def _widest(self, metric: Metric) -> Interval | None:
        rate = self.corrected.get(metric)
        if rate is None or rate.interval is None:
            return self.summary.widest(metric, self.left_out)
        unknown = _unknown_share(rate.judged, rate.unjudged + self.left_out)
        return Interval((1 - unknown) * rate.interval.low, 1 - (1 - unknown) * (1 - rate.interval.high))

    def _figure(self, metric: Metric) -> str:
        rate, own = self.corrected.get(metric), self.summary.estimates[metric]
        if rate is None or rate.interval is None:
            return f"{figure(own)}, n = {self.summary.rates[metric].n:,}, the judge's own rate"
        labels = f"corrected by {rate.labelled:,} labels of people"
        return f"{figure(Estimate(rate.value, rate.interval))}, {labels} (the judge's own rate: {figure(own)})"

    def _plan(self, metric: Metric, limit: float, *, least: bool) -> str:
        """Say what would decide it: labels for what has none, or so many responses."""
        rate, value = self.corrected.get(metric), self.summary.estimates[metric].value
        missing = self.summary.rates[metric].unjudged + self.left_out
        judged = self.summary.rates[metric].n
        value = value if rate is None else rate.value
        share = missing / (judged + missing) if missing else 0.0
        if value is None or (1 - share) * value < limit <= (1 - share) * value + share:
            return f"More responses do not decide it: judge the {_responses(missing)} without a label"
        if rate is None or rate.interval is None:
            total = self.summary.responses + self.left_out
            times = _times_needed(total, lambda times: _outcome(self._repeated(metric, times), limit, least=least))
            needed, noun = times and times * total, "responses"
        else:
            widest = self._widest(metric)
            assert widest is not None
            edge = (1 - share) * value + (share if limit > value else 0.0)
            needed, noun = _scaled(rate.labelled, edge, widest, limit), "labels, in as many times the responses,"
        return _needed(needed, noun)

    def _repeated(self, metric: Metric, times: float) -> Interval:
        """Return the widest interval of so many times as many responses like these."""
        low = self.summary.least[metric].with_single(misses=self.left_out).repeated(times)
        high = self.summary.greatest[metric].with_single(hits=self.left_out).repeated(times)
        assert low is not None
        assert high is not None
        return Interval(low.low, high.high)


def _unknown_share(judged: int, unjudged: int) -> float:
    """Return the greatest share of responses without a label that is compatible with those seen; 0 where none is."""
    if not unjudged:
        return 0.0
    share = QuestionCounts(()).with_single(hits=unjudged, misses=judged).interval()
    assert share is not None
    return share.high


_MOST = 10_000_000
"""Where not even so many responses decide it, a rate is too near a limit to be told from it."""


def _times_needed(responses: int, outcome: Callable[[float], GateOutcome]) -> float | None:
    """Return about how many times the responses decide a limit; None where even the most do not."""
    low, high = 1.0, max(_MOST / responses, 2.0)
    if outcome(high) is GateOutcome.UNDECIDED:
        return None
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if outcome(middle) is GateOutcome.UNDECIDED else (low, middle)
    return high


def _scaled(count: int, value: float, ends: Interval, limit: float) -> float | None:
    """Return how many cases bring an interval that shrinks with the root of their number to end at the limit."""
    if value == limit:
        return None
    end = ends.low if limit < value else ends.high
    needed = count * ((value - end) / (value - limit)) ** 2
    return needed if needed < _MOST else None


def _needed(count: float | None, noun: str) -> str:
    if count is None:
        return "The rate is too near the limit for any number of responses to decide it"
    digits = max(len(str(int(count))) - 2, 0)  # two digits say enough
    rounded = ceil(count / 10**digits - 1e-9) * 10**digits
    return f"About {rounded:,} {noun} would decide it if the rate stays as it is"


def _relative(metric: Metric, limit: float, base: Baseline, left_out: int, *, drop: bool) -> LimitCheck:
    """Hold the difference to a base run against the lowest, or the highest, that it may be."""
    paired = base.rates[metric]
    aim = f"{metric} at most {percent(abs(limit))} points {'below' if drop else 'above'} {base.name}"
    value, ends, _ = paired.difference
    if value is None or ends is None:
        return LimitCheck(GateOutcome.UNDECIDED, f"{aim}: the difference is undefined, no response counts for it.")
    # The share of unknown responses moves a rate by its value down, and by the rest of it up.
    run, other = paired.run.value or 0.0, paired.base.value or 0.0
    unknown = _unknown_share(paired.run.n, paired.run.unjudged + left_out)
    unknown_base = _unknown_share(paired.base.n, paired.base.unjudged + base.left_out)
    low = ends.low - run * unknown - (1 - other) * unknown_base
    widest = Interval(low, ends.high + (1 - run) * unknown + other * unknown_base)
    outcome = _outcome(widest, limit, least=drop)
    points = f"{signed(value)} points [{signed(ends.low)}, {signed(ends.high)}]"
    message = f"{aim}: {points} on {paired.questions:,} shared questions, by the judge's own rates"
    if unknown or unknown_base:
        message += f"; [{signed(widest.low)}, {signed(widest.high)}] whatever the responses without a label are"
    if outcome is GateOutcome.UNDECIDED:
        message += f". {_needed(_scaled(paired.questions, value, ends, limit), 'shared questions')}"
    return LimitCheck(outcome, f"{message}.")


def _unjudged(
    judged: int,
    unjudged: Mapping[Criterion, Mapping[str, int]],
    left_out: Sequence[tuple[str, str]],
    limit: float,
) -> Iterator[LimitCheck]:
    """Count labels that are missing though they were asked for, and responses without any judgment."""
    total, left, most = judged + len(left_out), len(left_out), f"at most {percent(limit)} %"
    if left > limit * total:
        example = "{} ({})".format(*left_out[0])
        message = f"without any judgment {most}: {left:,} of {_responses(total)}, such as {example}."
        yield LimitCheck(GateOutcome.FAILED, message, sampled=False)
        return
    asked = {
        criterion: left + sum(count for reason, count in reasons.items() if reason not in NEVER_ASKED)
        for criterion, reasons in ((criterion, unjudged.get(criterion, {})) for criterion in Criterion)
    }
    for criterion, missing in asked.items():
        if missing > limit * total:
            message = f"{criterion} without a label {most}: {missing:,} of {_responses(total)}."
            yield LimitCheck(GateOutcome.FAILED, message, sampled=False)
    if max(asked.values()) <= limit * total:
        message = f"without a label {most}: no criterion in more than {max(asked.values()):,} of {_responses(total)}."
        yield LimitCheck(GateOutcome.PASSED, message, sampled=False)


def percent(value: float | None) -> str:
    """Return ``46.3``; ``undefined`` where there is no value."""
    return "undefined" if value is None else f"{100 * value:.1f}"


def percent_range(interval: Interval) -> str:
    """Return ``[40.9, 51.9]``."""
    return f"[{percent(interval.low)}, {percent(interval.high)}]"


def figure(estimate: Estimate) -> str:
    """Return ``46.3 % [40.9, 51.9]``, as reports have it."""
    ends = f" {percent_range(estimate.interval)}" if estimate.interval is not None else ""
    return f"{percent(estimate.value)}{'' if estimate.value is None else ' %'}{ends}"


def signed(value: float) -> str:
    """Return ``+4.2`` or ``-4.2``, and ``0.0`` for what rounds to nothing."""
    rounded = f"{100 * value:+.1f}"
    return "0.0" if float(rounded) == 0 else rounded


def _responses(count: int) -> str:
    return f"{count:,} response" + ("" if count == 1 else "s")
