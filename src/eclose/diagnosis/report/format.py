"""The words and number forms that all formats share. Knows no format: whoever writes one escapes for it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.invisible_chars import reveal_invisible
from eclose.core.judgment import EVIDENCE, MAX_UNJUDGED_SHARE, Criterion, LocalFailure
from eclose.core.verdict import FailureClass
from eclose.diagnosis.diagnose import Evidence
from eclose.metrics.rates import Metric
from eclose.stats.intervals import Estimate, Interval

if TYPE_CHECKING:
    from eclose.core.three_valued import Label
    from eclose.metrics.judge_agreement import LabelRow
    from eclose.stats.rates import Rate

DASH = "–"
NO_BREAK = "\u00a0"

METRIC_WORDS: dict[Metric, tuple[str, str]] = {
    Metric.ACCURACY: ("accuracy", "The submitted answer is correct."),
    Metric.LOCAL_SOUNDNESS_RATE: ("local soundness", "Every step holds, taken by itself."),
    Metric.ALIGNMENT_RATE: ("alignment", "The reasoning pursues the question that was asked."),
    Metric.CLOSURE_RATE: ("closure", "The reasoning establishes the answer that was submitted."),
    Metric.COMPLETENESS_RATE: ("completeness", "The reasoning establishes the reference answer."),
    Metric.GLOBAL_SUFFICIENCY_RATE: ("global sufficiency", "The whole holds: aligned and closed (A and C)."),
    Metric.TRACE_RELIABILITY_RATE: ("reliability", "Every step holds, and so does the whole (L, A and C)."),
    Metric.GAP_RATE: ("the local-global gap", "Every step holds, and the whole does not."),
    Metric.GAP_SHARE: ("share of the gap", "Of the responses whose whole does not hold, those in the gap."),
    Metric.GAP_RISK: (
        "risk of the gap",
        "Of the wrong answers, those in the gap: no check of single steps finds them.",
    ),
    Metric.GAP_AMONG_SOUND: (
        "the gap among sound responses",
        "Of the responses in which every step holds, those in the gap.",
    ),
}
"""A name and a sentence for each letter of the paper."""

FAILURE_WORDS: dict[FailureClass, tuple[str, str]] = {
    FailureClass.PATH_DEVIATION: ("path deviation", "pursue another question than the one asked"),
    FailureClass.INCOMPLETE_REASONING: ("incomplete reasoning", "do not establish the reference answer"),
    FailureClass.ANSWER_DECOUPLING: ("answer decoupling", "establish the reference answer, and submit another"),
    FailureClass.CLOSURE_FAILURE: (
        "closure failure",
        "do not establish their answer; without a reference it is not known which of the two",
    ),
    FailureClass.UNDETERMINED: ("undetermined", "do not establish their answer; what they pursue was not judged"),
}
"""A name, and what such responses do."""

CODE_WORDS: dict[LocalFailure, tuple[str, str]] = {
    LocalFailure.UNSUPPORTED_CONTENT: ("unsupported content", "The step states what no passage says."),
    LocalFailure.INVALID_INFERENCE: ("invalid inference", "The step does not follow from what precedes it."),
    LocalFailure.CONSTRAINT_OR_COMPUTATION: (
        "constraint or computation",
        "A condition, a comparison or a calculation is wrong.",
    ),
    LocalFailure.FALSE_COVERAGE: ("false coverage", "The step says the passages lack what they do tell."),
    LocalFailure.OTHER: ("other", "The step does not hold for another reason."),
}

CRITERION_WORDS: dict[Criterion, str] = {
    Criterion.LOCAL_SOUNDNESS: "every step holds",
    Criterion.ALIGNMENT: "pursues the question",
    Criterion.CLOSURE: "establishes the submitted answer",
    Criterion.COMPLETENESS: "establishes the reference answer",
    Criterion.CORRECTNESS: "the answer is correct",
}

LABEL_WORDS: dict[str, str] = {
    **{criterion.value: told for criterion, told in CRITERION_WORDS.items()},
    EVIDENCE: "the passages settle the question",
}
"""What each label of a judge says, by the name it has in files."""

EVIDENCE_WORDS: dict[Evidence, str] = {
    Evidence.SUFFICIENT: "the passages settle the question",
    Evidence.INSUFFICIENT: "the passages do not settle the question",
    Evidence.UNJUDGED: "not judged whether they do",
}


REASON_WORDS = {
    "invalid": "the reply does not have the requested form",
    "refusal": "the judge refused to answer",
    "length": "the reply was cut off at the token limit (--max-tokens)",
    "empty": "the reply was empty",
    "too_long": "the question does not fit into the judge's context",
    "wrong step ids": "the reply is about other steps than those of the trace",
    "quote not found": "a quote of the reply does not stand in its passage",
    "no such passage": "the reply cites a passage that does not exist",
}
"""Why a judge gave no label, by the kind that judgments name."""


def reason_words(reason: str) -> str:
    """Return why there is no label, in words; reasons that are words already stay as they are."""
    return REASON_WORDS.get(reason, reason)


def one_line(text: str) -> str:
    """The visible text on a single line."""
    return " ".join(reveal_invisible(text).split())


def percent(value: float | None) -> str:
    """``46.3``; a dash for what is undefined."""
    return DASH if value is None else f"{100 * value:.1f}"


def percent_range(interval: Interval | None) -> str:
    """``[40.9, 51.9]``, or nothing."""
    return "" if interval is None else f"[{percent(interval.low)}, {percent(interval.high)}]"


def percent_span(interval: Interval) -> str:
    """``22.2 to 33.3``; one number where both ends are written alike."""
    low, high = percent(interval.low), percent(interval.high)
    return low if low == high else f"{low} to {high}"


def percent_between(interval: Interval) -> str:
    """``between 22.2 % and 33.3 %``; one number where both ends are written alike."""
    low, high = percent(interval.low), percent(interval.high)
    return f"{low} %" if low == high else f"between {low} % and {high} %"


class RateStatus(StrEnum):
    """What may be told of a rate, given the responses without a label."""

    RATE = "rate"
    """Every response has a label: the rate with its interval."""
    BOUNDS = "bounds"
    """Some have none: the least and the greatest value that the rate can have."""
    TOO_LITTLE = "too_little_judged"
    """More than ``MAX_UNJUDGED_SHARE`` have none: no value at all, and the bounds in small print."""
    UNDEFINED = "undefined"
    """No response is in the denominator."""


TOO_LITTLE = "too little judged"
UNDEFINED = "not defined"


def rate_status(rate: Rate) -> RateStatus:
    """Return what may be told of a rate."""
    if not rate.n + rate.unjudged:
        return RateStatus.UNDEFINED
    if not rate.unjudged:
        return RateStatus.RATE
    share = rate.unjudged / (rate.n + rate.unjudged)
    return RateStatus.TOO_LITTLE if share > MAX_UNJUDGED_SHARE else RateStatus.BOUNDS


def widened(rate: Rate, low: float, high: float) -> Interval:
    """Return an interval of a corrected rate, widened by the responses without a label of the judge."""
    share = rate.unjudged / (rate.n + rate.unjudged)
    return Interval((1 - share) * low, (1 - share) * high + share)


def complement(interval: Interval | None) -> Interval | None:
    """The interval of one minus a rate."""
    return None if interval is None else Interval(1 - interval.high, 1 - interval.low)


def agreement_of(row: LabelRow) -> Estimate:
    """How often a judge and people agree, with the interval that holds where they nearly always do."""
    return row.agreement


def signed(value: float | None) -> str:
    """``+4.2`` or ``−4.2``, for a difference; what rounds to nothing has no sign."""
    if value is None:
        return DASH
    rounded = f"{100 * value:+.1f}"
    return "0.0" if float(rounded) == 0 else rounded.replace("-", "−")


def signed_range(interval: Interval | None) -> str:
    """``[−1.3, +9.7]``, or nothing."""
    return "" if interval is None else f"[{signed(interval.low)}, {signed(interval.high)}]"


_UNIT = re.compile(r"(?<=\d) (?=%|points\b)|(?<=\bn) (?=\d)|(?<=\d,) (?=[−+\d.]+\\?\])|(?<=%) (?=\\?\[)")


def unbroken(text: str) -> str:
    """The text with no line break between a number and its unit, nor within an interval."""
    return _UNIT.sub(NO_BREAK, text)


def plural(count: int, noun: str) -> str:
    """``1 response``, ``2,000 responses``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_label(label: Label) -> str:
    """``1``, ``0``, or a dash for what was not judged."""
    return DASH if label is None else str(int(label))


def group_name(group: tuple[str, ...]) -> str:
    """A group of responses in words."""
    return " · ".join(group) if group else "all responses"
