"""Check rates against limits: passed, failed, or cannot tell. For continuous integration.

A limit is compared with the interval of a rate, not with its estimate. The rate passes where the whole interval keeps
the limit, fails where none of it does, and otherwise there are too few responses to tell. Unjudged responses widen the
interval to all values they allow, so they never help to pass. Decision 0028 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from eclose.diagnosis.number_format import (
    format_count,
    format_percent,
    format_percent_interval,
    format_percent_with_interval,
    format_signed_interval,
    format_signed_percent,
)
from eclose.errors import SettingError
from eclose.metrics.rates import Metric
from eclose.stats.clustered_rates import QuestionHitCounts
from eclose.stats.intervals import Estimate, Interval
from eclose.values.judgment import NEVER_ASKED_REASONS, Criterion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.metrics.summary import GroupRates
    from eclose.stats.rate_correction import CorrectedRate
    from eclose.stats.rates import Rate


class GateOutcome(StrEnum):
    """Outcome of a gate, for one limit or for all."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "cannot tell"


UndecidedPolicy: TypeAlias = Literal["pass", "fail"]
"""How to treat a gate that cannot tell."""


class GateLimitCheck(NamedTuple):
    """One limit with its outcome and the figures behind it in a sentence."""

    outcome: GateOutcome
    message: str
    sampled: bool = True
    """Whether the limit was compared with an interval; False for a plain count."""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.message}"


class GateReport(NamedTuple):
    """The checks of all limits."""

    checks: tuple[GateLimitCheck, ...]

    @property
    def outcome(self) -> GateOutcome:
        """Failed where a limit is broken, passed where all are kept."""
        # Failed outranks undecided: a broken limit is certain whatever the others say.
        outcomes = {check.outcome for check in self.checks}
        return next(
            (worst for worst in (GateOutcome.FAILED, GateOutcome.UNDECIDED) if worst in outcomes), GateOutcome.PASSED
        )

    def decide(self, undecided: UndecidedPolicy | None) -> GateOutcome:
        """Return the outcome; an undecided gate becomes passed or failed where a policy is given."""
        if self.outcome is not GateOutcome.UNDECIDED or undecided is None:
            return self.outcome
        return GateOutcome.PASSED if undecided == "pass" else GateOutcome.FAILED

    @property
    def reasons(self) -> tuple[str, ...]:
        """Checks that did not pass."""
        return tuple(str(check) for check in self.checks if check.outcome is not GateOutcome.PASSED)

    @property
    def multiplicity(self) -> str | None:
        """How several limits change the probability of an error; None for one limit."""
        # Plain counts have no sampling error and do not add to the probability of an error.
        count = sum(check.sampled for check in self.checks)
        if count < 2:
            return None
        return (
            f"{count} limits are held at once. To pass, all must be kept, so a run that breaks one of them passes by "
            f"chance in at most 2.5 % of cases. A run that keeps all fails by chance in at most {count * 2.5:g} %."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Limits on the rates of a run, between 0 and 1."""

    at_least: Mapping[Metric, float] = field(default_factory=dict)
    at_most: Mapping[Metric, float] = field(default_factory=dict)
    unjudged: float | None = None
    """Largest share of responses without a label."""
    max_drop: Mapping[Metric, float] = field(default_factory=dict)
    """Largest drop of a rate below that of a base run, on the questions both answer."""
    max_rise: Mapping[Metric, float] = field(default_factory=dict)
    """Largest rise of a rate above that of a base run."""

    def __post_init__(self) -> None:
        """Raise where there is no limit, or where one lies outside [0, 1]."""
        # A value above 1 is most likely a percentage.
        limits = [*self.at_least.values(), *self.at_most.values(), *self.max_drop.values(), *self.max_rise.values()]
        limits += [] if self.unjudged is None else [self.unjudged]
        if not limits:
            raise SettingError("a gate without limits lets everything pass. Give at least one, such as --min-trr 0.85.")
        if not all(0 <= limit <= 1 for limit in limits):
            raise SettingError("limits are rates between 0 and 1: 0.85, not 85.")

    @property
    def relative(self) -> bool:
        """Whether a limit needs a base run."""
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
        """Build limits from the names of the command-line options; None for no limit."""
        # The order of the options below.
        rates = Metric.TRACE_RELIABILITY_RATE, Metric.ACCURACY, Metric.LOCAL_SOUNDNESS_RATE
        return cls(
            at_least=_drop_none(zip(rates, (min_trr, min_accuracy, min_lsr), strict=True)),
            at_most=_drop_none([(Metric.GAP_RATE, max_lgg)]),
            unjudged=max_unjudged,
            max_drop=_drop_none(zip(rates, (max_trr_drop, max_accuracy_drop, max_lsr_drop), strict=True)),
            max_rise=_drop_none([(Metric.GAP_RATE, max_lgg_rise)]),
        )


def _drop_none(limits: Iterable[tuple[Metric, float | None]]) -> dict[Metric, float]:
    return {metric: limit for metric, limit in limits if limit is not None}


class PairedRunRate(NamedTuple):
    """A rate of a run and of a base run on the questions both answer, with their difference."""

    run: Rate
    base: Rate
    difference: Estimate
    """The run minus the base run, with its interval."""
    questions: int


class GateBaseRun(NamedTuple):
    """A base run to compare with."""

    name: str
    rates: Mapping[Metric, PairedRunRate]
    left_out: int = 0
    """Responses of the base run without any judgment."""


def check_gate_limits(
    summary: GroupRates,
    unjudged: Mapping[Criterion, Mapping[str, int]],
    limits: GateLimits,
    left_out: Sequence[tuple[str, str]] = (),
    *,
    corrected: Mapping[Metric, CorrectedRate] | None = None,
    base: GateBaseRun | None = None,
    settled_by_people: bool = False,
) -> GateReport:
    """Check every limit against the interval of its rate.

    Args:
        summary: The rates of all judged responses.
        unjudged: Missing labels by criterion and reason.
        limits: The limits to keep.
        left_out: Responses without any judgment, with the reason.
        corrected: Rates corrected by labels of people; they replace the judge's own.
        base: The run that ``max_drop`` and ``max_rise`` are relative to.
        settled_by_people: Whether people settled every label of the run.

    Raises:
        SettingError: A limit is relative to a base run and there is none, or the other way round.
    """
    # A base run without a limit would be read and then ignored.
    if limits.relative != (base is not None):
        raise SettingError(
            "--against compares with a base run, and --max-trr-drop, --max-accuracy-drop, --max-lsr-drop and"
            " --max-lgg-rise are limits of that comparison. Give --against and at least one of them, or neither."
        )
    # Responses without a judgment count as unjudged for every rate.
    rates = _Rates(summary, len(left_out), corrected or {}, settled_by_people)
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


def _outcome(interval: Interval, limit: float, *, least: bool) -> GateOutcome:
    """Return on which side of a limit an interval lies; undecided where it contains the limit."""
    # An upper limit is a lower limit on the mirrored interval.
    low, high = (interval.low, interval.high) if least else (-interval.high, -interval.low)
    limit = limit if least else -limit
    if low >= limit:
        return GateOutcome.PASSED
    return GateOutcome.FAILED if high < limit else GateOutcome.UNDECIDED


class _Rates(NamedTuple):
    """The rates of a run, ready to be checked."""

    summary: GroupRates
    left_out: int
    corrected: Mapping[Metric, CorrectedRate]
    settled_by_people: bool = False

    def check(self, metric: Metric, limit: float, *, least: bool) -> GateLimitCheck:
        """Check one rate against a lower (``least``) or upper limit."""
        # First the aim, then the figures, then what would decide it.
        aim = f"{metric} at {'least' if least else 'most'} {format_percent(limit)} %"
        missing = self.summary.rates[metric].unjudged + self.left_out
        widest = self._widest(metric)
        if widest is None:
            return GateLimitCheck(GateOutcome.UNDECIDED, f"{aim}: the rate is undefined, no response counts for it.")
        outcome = _outcome(widest, limit, least=least)
        message = f"{aim}: {self._figure(metric)}"
        if missing:
            unlabelled = format_count(missing, "response")
            verb = "is" if missing == 1 else "are"
            message += f"; {format_percent_interval(widest)} whatever the {unlabelled} without a label {verb}"
        if outcome is GateOutcome.UNDECIDED:
            message += f". {self._plan(metric, limit, least=least)}"
        return GateLimitCheck(outcome, f"{message}.")

    def _widest(self, metric: Metric) -> Interval | None:
        """Return the interval of a rate, widened by the responses without a label."""
        rate = self.corrected.get(metric)
        if rate is None or rate.interval is None:
            return self.summary.widest(metric, self.left_out)
        # At worst the unknown responses are all misses, at best all hits.
        unknown = _unknown_share(rate.judged, rate.unjudged + self.left_out)
        # The upper end equals (1 - u) * high + u, and in this form rounding cannot bring it above 1.
        return Interval((1 - unknown) * rate.interval.low, 1 - (1 - unknown) * (1 - rate.interval.high))

    def _figure(self, metric: Metric) -> str:
        """Return the rate in words, with the judge's own rate beside a corrected one."""
        rate = self.corrected.get(metric)
        judge_rate = format_percent_with_interval(*self.summary.estimates[metric][:2])
        if rate is None or rate.interval is None:
            origin = "settled by people" if self.settled_by_people else "the judge's own rate"
            return f"{judge_rate}, n = {self.summary.rates[metric].n:,}, {origin}"
        corrected = format_percent_with_interval(rate.value, rate.interval)
        labels = f"corrected by {rate.labelled:,} labels of people"
        return f"{corrected}, {labels} (the judge's own rate: {judge_rate})"

    def _plan(self, metric: Metric, limit: float, *, least: bool) -> str:
        """Return what would decide the check: labels for unlabelled responses, or more responses."""
        rate, value = self.corrected.get(metric), self.summary.estimates[metric].value
        missing = self.summary.rates[metric].unjudged + self.left_out
        judged = self.summary.rates[metric].n
        value = value if rate is None else rate.value
        # With more responses the intervals shrink, but the share of unlabelled ones stays.
        share = missing / (judged + missing) if missing else 0.0
        # The limit lies between the least and the greatest rate that the unlabelled responses allow.
        if value is None or (1 - share) * value < limit <= (1 - share) * value + share:
            return f"More responses do not decide it: judge the {format_count(missing, 'response')} without a label"
        if rate is None or rate.interval is None:
            total = self.summary.responses + self.left_out
            times = _times_needed(total, lambda times: _outcome(self._repeated(metric, times), limit, least=least))
            needed, noun = times and times * total, "responses"
            if times is not None and self.summary.questions < self.summary.responses:
                # More responses to the same questions hardly narrow an interval over questions.
                noun += f", to about {_round_up(times * self.summary.questions):,} questions,"
        else:
            widest = self._widest(metric)
            assert widest is not None
            # The value that the end of the interval converges to on the side of the limit.
            edge = (1 - share) * value + (share if limit > value else 0.0)
            needed, noun = _scaled(rate.labelled, edge, widest, limit), "labels of people"
            if needed is not None:
                # The interval shrinks so only where the responses grow with the labels.
                total = self.summary.responses + self.left_out
                noun += f", in a run of about {_round_up(needed * total / rate.labelled):,} responses,"
        return _needed(needed, noun)

    def _repeated(self, metric: Metric, times: float) -> Interval:
        """Return the widest interval for ``times`` as many responses like these."""
        # Lower end from the least completion, upper end from the greatest.
        low = self.summary.least[metric].with_single(misses=self.left_out).repeated(times)
        high = self.summary.greatest[metric].with_single(hits=self.left_out).repeated(times)
        assert low is not None
        assert high is not None
        return Interval(low.low, high.high)


def _unknown_share(judged: int, unjudged: int) -> float:
    """Return the upper limit of the share of responses without a label; 0 where none lacks one."""
    if not unjudged:
        return 0.0
    share = QuestionHitCounts(()).with_single(hits=unjudged, misses=judged).interval()
    assert share is not None
    return share.high


_MOST = 10_000_000
"""A rate that this many responses do not separate from a limit is too near to it."""


def _times_needed(responses: int, outcome: Callable[[float], GateOutcome]) -> float | None:
    """Return by how much to multiply the responses to decide a limit, to 1 %; None where no number does."""
    # Bisection on a logarithmic scale; the outcome is monotone in the number of responses.
    low, high = 1.0, max(_MOST / responses, 2.0)
    if outcome(high) is GateOutcome.UNDECIDED:
        return None
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if outcome(middle) is GateOutcome.UNDECIDED else (low, middle)
    return high


def _scaled(count: int, value: float, interval: Interval, limit: float) -> float | None:
    """Return how many cases bring an interval that shrinks with their square root to the limit."""
    if value == limit:
        return None
    end = interval.low if limit < value else interval.high
    # The distance to the end shrinks with the square root of the count.
    needed = count * ((value - end) / (value - limit)) ** 2
    return needed if needed < _MOST else None


def _round_up(count: float) -> int:
    unit: int = 10 ** max(len(str(int(count))) - 2, 0)
    # 1e-9 keeps an exact multiple from being rounded up by floating point error.
    return ceil(count / unit - 1e-9) * unit


def _needed(count: float | None, noun: str) -> str:
    if count is None:
        return "The rate is too near the limit for any number of responses to decide it"
    return f"About {_round_up(count):,} {noun} would decide it if the rate stays as it is"


def _relative(metric: Metric, limit: float, base: GateBaseRun, left_out: int, *, drop: bool) -> GateLimitCheck:
    """Check the difference from a base run against its lower or upper limit."""
    paired = base.rates[metric]
    aim = f"{metric} at most {format_percent(abs(limit))} points {'below' if drop else 'above'} {base.name}"
    value, interval, _ = paired.difference
    if value is None or interval is None:
        return GateLimitCheck(GateOutcome.UNDECIDED, f"{aim}: the difference is undefined, no response counts for it.")
    # A share u of unknown responses lowers a rate r by at most r * u and raises it by at most (1 - r) * u.
    # A defined difference has two defined rates; `or` is for the type checker.
    run_rate, base_rate = paired.run.value or 0.0, paired.base.value or 0.0
    unknown = _unknown_share(paired.run.n, paired.run.unjudged + left_out)
    unknown_base = _unknown_share(paired.base.n, paired.base.unjudged + base.left_out)
    low = interval.low - run_rate * unknown - (1 - base_rate) * unknown_base
    widest = Interval(low, interval.high + (1 - run_rate) * unknown + base_rate * unknown_base)
    outcome = _outcome(widest, limit, least=drop)
    points = f"{format_signed_percent(value)} points {format_signed_interval(interval)}"
    message = f"{aim}: {points} on {paired.questions:,} shared questions, by the judge's own rates"
    if unknown or unknown_base:
        message += f"; {format_signed_interval(widest)} whatever the responses without a label are"
    if outcome is GateOutcome.UNDECIDED:
        message += f". {_needed(_scaled(paired.questions, value, interval, limit), 'shared questions')}"
    return GateLimitCheck(outcome, f"{message}.")


def _unjudged(
    judged: int,
    unjudged: Mapping[Criterion, Mapping[str, int]],
    left_out: Sequence[tuple[str, str]],
    limit: float,
) -> Iterator[GateLimitCheck]:
    """Check missing labels that were requested, and responses without any judgment."""
    total, missing_responses, most = judged + len(left_out), len(left_out), f"at most {format_percent(limit)} %"
    # A response without any judgment lacks every label, so the criteria need no checks of their own.
    if missing_responses > limit * total:
        # Id and reason of the first one, enough to find the cause.
        example = "{} ({})".format(*left_out[0])
        share = f"{missing_responses:,} of {format_count(total, 'response')}"
        message = f"without any judgment {most}: {share}, such as {example}."
        yield GateLimitCheck(GateOutcome.FAILED, message, sampled=False)
        return
    # Labels that no judge was asked for (NEVER_ASKED_REASONS) are not missing.
    missing_labels = {
        criterion: missing_responses
        + sum(count for reason, count in reasons.items() if reason not in NEVER_ASKED_REASONS)
        for criterion, reasons in ((criterion, unjudged.get(criterion, {})) for criterion in Criterion)
    }
    for criterion, missing in missing_labels.items():
        if missing > limit * total:
            message = f"{criterion} without a label {most}: {missing:,} of {format_count(total, 'response')}."
            yield GateLimitCheck(GateOutcome.FAILED, message, sampled=False)
    if max(missing_labels.values()) <= limit * total:
        most_missing = f"{max(missing_labels.values()):,} of {format_count(total, 'response')}"
        never_asked = [
            str(criterion)
            for criterion in Criterion
            if sum(unjudged.get(criterion, {}).get(reason, 0) for reason in NEVER_ASKED_REASONS) == judged > 0
        ]
        apart = f" ({', '.join(never_asked)} apart, which no judge was asked for)" if never_asked else ""
        message = f"without a label {most}: no criterion{apart} in more than {most_missing}."
        yield GateLimitCheck(GateOutcome.PASSED, message, sampled=False)
