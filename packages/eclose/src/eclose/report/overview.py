"""First screen of the page: the worst response with its steps, and systems or runs side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eclose.diagnosis.compare import name_outcome
from eclose.diagnosis.diagnose import EvidenceSufficiency
from eclose.diagnosis.number_format import format_percent, format_signed_interval, format_signed_percent
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.diagnosis.shown_rate import TOO_LITTLE_TEXT, UNDEFINED_TEXT, ShownRate, is_too_little_judged
from eclose.metrics.rates import Metric
from eclose.report.explorer import OUTCOME_WORDS
from eclose.report.sections import encode_address
from eclose.stats.intervals import Estimate
from eclose.values.segmentation import split_sentences
from eclose.values.verdict import TraceGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.diagnosis.compare import RateDifference
    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase
    from eclose.metrics.summary import GroupRates
    from eclose.report.context import ReportContext
    from eclose.stats.rates import Rate
    from eclose.values.judgment import StepJudgment

MAX_STEPS = 5
"""Steps of the worst example that the first screen shows."""
# In characters; the explorer shows the texts in full.
_MAX_STEP, _MAX_QUOTE, _MAX_QUESTION, _MAX_ANSWER = 260, 150, 300, 120


class ExampleStep(NamedTuple):
    """A step of the worst example as the first screen shows it."""

    text: str
    tone: str
    """``holds``, ``fails`` or ``open``; pages colour by it."""
    verdict: str
    quote: str
    """The words of a passage that the step rests on; empty where it cites none."""
    passage: str
    """Title or number of that passage."""


@dataclass(frozen=True, slots=True)
class WorstExample:
    """The failing response that the first screen shows with its steps."""

    position: int
    """Position among the cases."""
    title: str
    kind: str
    outcome: str
    show: str
    question: str
    failure: str
    steps: tuple[ExampleStep, ...]
    more_steps: int
    """Steps that are not shown."""
    answer: str
    reference: str


def find_worst_example(cases: Sequence[JudgedCase]) -> WorstExample | None:
    """Return the worst response; None where no response has a label that fails."""
    failing = [(position, case) for position, case in enumerate(cases) if case.verdict.reliable is False]
    if not failing:
        return None
    position, case = min(failing, key=lambda entry: (*_rank_failure(entry[1]), entry[0]))
    judgment, response = case.judgment, case.response
    outcome = name_outcome(case.verdict)
    judged: tuple[StepJudgment, ...] = judgment.steps if judgment.stepwise else ()
    steps = [
        _show_step(text, judged[number] if number < len(judged) else None, case)
        for number, text in enumerate(response.trace.texts[:MAX_STEPS])
    ]
    in_gap = case.verdict.trace_group is TraceGroup.GAP
    return WorstExample(
        position=position,
        title="One of them, opened: every step holds, the whole does not" if in_gap else "A failing response, opened",
        kind=outcome,
        outcome=OUTCOME_WORDS[outcome],
        show=f"r={encode_address(response.id)}",
        question=_shorten(case.instance.question, _MAX_QUESTION),
        failure=describe_response_failure(case),
        steps=tuple(steps),
        more_steps=len(response.trace) - len(steps),
        answer="none" if response.answer is None else _shorten(response.answer, _MAX_ANSWER),
        reference=_shorten(case.instance.reference_answer or "", _MAX_ANSWER),
    )


def _rank_failure(case: JudgedCase) -> tuple[bool | int, ...]:
    """Return the key that sorts the worst response first.

    A response is worse the better it looks: in the gap, with a wrong answer although the passages settle the question,
    and with many steps that rest on a quote.
    """
    verdict, judgment = case.verdict, case.judgment
    quoted = sum(step.sound is True and step.support is not None for step in judgment.steps)
    return (
        verdict.trace_group is not TraceGroup.GAP,
        verdict.correct is not False,
        case.evidence is EvidenceSufficiency.INSUFFICIENT,
        # A sentence on what was pursued or established explains the failure by itself.
        not (judgment.pursued or judgment.established),
        -min(quoted, MAX_STEPS),
        # The first screen shows a short trace whole, with its quotes.
        len(case.response.trace) > MAX_STEPS,
        any(step.support is not None and len(step.support.quote) > _MAX_QUOTE for step in judgment.steps),
        sum(map(len, case.response.trace.texts)),
    )


def _show_step(text: str, step: StepJudgment | None, case: JudgedCase) -> ExampleStep:
    full_text, text = text, _shorten(text, _MAX_STEP)
    if step is None or (step.sound is None and step.substantive is not False):
        return ExampleStep(text, "open", "? not judged", "", "")
    if step.substantive is False:
        return ExampleStep(text, "aside", "not substantive", "", "")
    quote, passage, evidence = "", "", case.instance.evidence
    if step.support is not None and 0 <= step.support.passage_index < len(evidence):
        title = evidence[step.support.passage_index].title
        quote = _excerpt(step.support.quote, full_text, title)
        passage = f"[{step.support.passage_index}] {_shorten(title, 60)}".strip()
    tone, verdict = ("holds", "✓ holds") if step.sound else ("fails", "✗ does not hold")
    return ExampleStep(text, tone, verdict, quote, passage)


def _excerpt(quote: str, step: str, title: str) -> str:
    """Return a quote; of a long one, the sentence that shares the most words with the step."""
    if len(quote) <= _MAX_QUOTE:
        return quote
    # The title is the subject of most sentences of its passage, so its words do not tell them apart.
    words = _content_words(step) - _content_words(title)
    sentences = split_sentences(quote)
    # Of two sentences that share as many words the shorter one says less else.
    number = max(
        range(len(sentences)),
        key=lambda index: (len(words & _content_words(sentences[index])), -len(sentences[index])),
    )
    before, after = "… " if number else "", " …" if number + 1 < len(sentences) else ""
    return f"{before}{_shorten(sentences[number], _MAX_QUOTE)}{after}"


def _content_words(text: str) -> set[str]:
    """Return the words and numbers of a text without the shortest words, which are mostly articles and prepositions."""
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3 or word.isdigit()}


def _shorten(text: str, length: int) -> str:
    """Return the text, cut behind a word where it is longer than ``length`` characters."""
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    # A text without blanks, such as an address, is cut anywhere.
    return (cut.rpartition(" ")[0] or cut).rstrip() + "…"


SYSTEM_WORDS: Mapping[Metric, str] = {
    Metric.ACCURACY: "correct answers",
    Metric.GAP_RATE: "look right step by step, fail as a whole",
    Metric.TRACE_RELIABILITY_RATE: "reliable",
    Metric.LOCAL_SOUNDNESS_RATE: "every step holds",
    Metric.ALIGNMENT_RATE: "pursue the question",
    Metric.CLOSURE_RATE: "establish their answer",
}
"""Rates of the comparison, in words for readers who do not know their letters."""
_ALWAYS_COMPARED = (Metric.ACCURACY, Metric.GAP_RATE, Metric.TRACE_RELIABILITY_RATE)


class SideCell(NamedTuple):
    """A cell of the comparison."""

    text: str
    small: str = ""
    tone: str = ""
    """``good``, ``bad`` or empty."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Table of two systems or runs in columns, or of several systems in rows."""

    title: str
    sentence: str
    heads: tuple[str, ...]
    rows: tuple[tuple[SideCell, ...], ...]
    more: str
    """Id of the part of the page with every rate."""


def compare_side_by_side(diagnosis: Diagnosis, context: ReportContext) -> SideBySide | None:
    """Compare the run with its base run, or the systems of the run; None for a single system without a base run."""
    if context.base is not None:
        return compare_base_rates(context.base.name, context.base.comparison.overall.differences)
    if context.systems is not None:
        base, name, comparison = context.systems
        title = "Two systems: which is better at what"
        return _side_by_side(title, (base, name), comparison.overall.differences, "table-metrics")
    systems = list_systems(diagnosis)
    return _rank_systems(systems) if len(systems) > 1 else None


def compare_base_rates(base_name: str, differences: Mapping[Metric, RateDifference]) -> SideBySide:
    """Compare the rates of a run with those of its base run."""
    title = f"Against {base_name}: what got better, and what worse"
    return _side_by_side(title, (base_name, "this run"), differences, "against")


def list_systems(diagnosis: Diagnosis) -> tuple[GroupRates, ...]:
    """Return the rates of each model over all datasets."""
    if diagnosis.by_model:
        return diagnosis.by_model
    # Left empty where it would repeat the pairs: every model has then one dataset.
    models = [pair.group[-1] for pair in diagnosis.pairs]
    return diagnosis.pairs if len(set(models)) == len(models) > 1 else ()


def _side_by_side(
    title: str, names: tuple[str, str], differences: Mapping[Metric, RateDifference], more: str
) -> SideBySide:
    rows = tuple(
        _compare_rate(metric, differences[metric])
        for metric in SYSTEM_WORDS
        if metric in _ALWAYS_COMPARED or judge_change(metric, differences[metric]) in ("better", "worse")
    )
    # A table that says nothing but "too little judged" repeats the sentence above it.
    if all(row[-1].text in (TOO_LITTLE_TEXT, UNDEFINED_TEXT) for row in rows):
        rows = ()
    heads = ("share of responses", *names, "difference in points")
    return SideBySide(title, describe_change(names, differences), heads, rows, more)


def judge_change(metric: Metric, difference: RateDifference) -> str:
    """Return ``better``, ``worse``, ``no clear change`` or ``too little judged`` for a rate."""
    estimate = difference.estimate
    if is_too_little_judged(difference.run, difference.base):
        return TOO_LITTLE_TEXT
    if estimate.value is None or estimate.interval is None:
        return UNDEFINED_TEXT
    if estimate.interval.low <= 0 <= estimate.interval.high:
        return "no clear change"
    # Every rate of the comparison but the gap is good news where it is high.
    return "better" if (estimate.interval.low > 0) is (metric is not Metric.GAP_RATE) else "worse"


def _compare_rate(metric: Metric, difference: RateDifference) -> tuple[SideCell, ...]:
    change = judge_change(metric, difference)
    figures = SideCell(_rate(difference.base)), SideCell(_rate(difference.run))
    if change in (TOO_LITTLE_TEXT, UNDEFINED_TEXT):
        return SideCell(SYSTEM_WORDS[metric]), *figures, SideCell(change)
    points = (
        f"{format_signed_percent(difference.estimate.value)} {format_signed_interval(difference.estimate.interval)}"
    )
    tone = {"better": "good", "worse": "bad"}.get(change, "")
    return SideCell(SYSTEM_WORDS[metric]), *figures, SideCell(change, points, tone)


def _rate(rate: Rate) -> str:
    """Return a rate as a cell shows it: a value, bounds, or a word."""
    shown_rate = ShownRate(rate, Estimate(rate.value, None))
    return f"{shown_rate.number} %" if shown_rate.printed else shown_rate.figure.value


def describe_change(names: tuple[str, str], differences: Mapping[Metric, RateDifference]) -> str:
    """Return a sentence on accuracy and the gap of two systems, and one each on the better and the worse rates."""
    base, run = names
    changes = {metric: judge_change(metric, differences[metric]) for metric in SYSTEM_WORDS}
    accuracy, gap = differences[Metric.ACCURACY], differences[Metric.GAP_RATE]
    if TOO_LITTLE_TEXT in (changes[Metric.ACCURACY], changes[Metric.GAP_RATE]):
        return f"{run} against {base}: too little was judged to compare accuracy and the gap."
    if accuracy.estimate.value is None or gap.estimate.value is None:
        return f"{run} against {base}: accuracy or the gap is not defined, so there is nothing to compare."
    # Opposite news need a "but": a system that answers better and fails more where single steps look right.
    opposed = {changes[Metric.ACCURACY], changes[Metric.GAP_RATE]} == {"better", "worse"}
    rising = accuracy.estimate.value > 0 and gap.estimate.value > 0
    joined = ", but" if opposed or rising else ", and"
    unclear = ("", " (not clearly)")
    accuracy_text = _describe_accuracy(accuracy) + unclear[changes[Metric.ACCURACY] == "no clear change"]
    gap_text = _describe_gap(gap) + unclear[changes[Metric.GAP_RATE] == "no clear change"]
    # The sentence may begin with "this run"; the names of systems are left as they are.
    run = "This run" if run == "this run" else run
    sentences = [f"{run} against {base}: {accuracy_text}{joined} {gap_text}."]
    clear = {
        change: [SYSTEM_WORDS[metric] for metric in SYSTEM_WORDS if changes[metric] == change]
        for change in ("better", "worse")
    }
    sentences += [f"Clearly {change}: {'; '.join(metrics)}." for change, metrics in clear.items() if metrics]
    return " ".join(sentences)


def _describe_accuracy(difference: RateDifference) -> str:
    value = difference.estimate.value
    assert value is not None
    points = format_signed_percent(abs(value)).lstrip("+")
    if points == "0.0":
        return "accuracy is the same"
    return f"accuracy is {points} points {'higher' if value > 0 else 'lower'}"


def _describe_gap(difference: RateDifference) -> str:
    run, base = difference.run.value, difference.base.value
    assert run is not None
    assert base is not None
    figures = f"{format_percent(run)} % instead of {format_percent(base)} %"
    text = f"{figures} look right step by step and fail as a whole"
    if not base or not run or format_percent(run) == format_percent(base):
        return text
    ratio = run / base
    if ratio >= 1.2:
        return f"{text}: the gap is {_times(ratio)} as large"
    return f"{text}: the gap is {_times(1 / ratio)} smaller" if ratio <= 1 / 1.2 else text


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def _rank_systems(systems: Sequence[GroupRates]) -> SideBySide:
    """Return a row for each system, the smallest gap first."""
    metrics = _ALWAYS_COMPARED
    ordered = sorted(systems, key=lambda group: (_value(group, Metric.GAP_RATE, missing=2.0), group.group))
    rows = tuple(
        (
            SideCell(" · ".join(group.group)),
            *(SideCell(*ShownRate.of_group(group, metric).figure) for metric in metrics),
        )
        for group in ordered
    )
    heads = ("system", *(SYSTEM_WORDS[metric] for metric in metrics))
    title = f"{len(systems)} systems: which is better at what"
    return SideBySide(title, " ".join(_describe_systems(ordered)), heads, rows, "table-metrics")


def _value(group: GroupRates, metric: Metric, *, missing: float) -> float:
    """Return a rate that may be printed, else ``missing``."""
    shown_rate = ShownRate.of_group(group, metric)
    return shown_rate.value if shown_rate.printed and shown_rate.value is not None else missing


def _describe_systems(systems: Sequence[GroupRates]) -> Iterator[str]:
    """Yield which system has the most correct answers, and which the smallest gap."""
    by_accuracy = {" · ".join(group.group): _value(group, Metric.ACCURACY, missing=-1.0) for group in systems}
    by_gap = {" · ".join(group.group): _value(group, Metric.GAP_RATE, missing=2.0) for group in systems}
    accurate, closed = max(by_accuracy, key=by_accuracy.__getitem__), min(by_gap, key=by_gap.__getitem__)
    if by_accuracy[accurate] < 0 or by_gap[closed] > 1:
        yield "Too little was judged to rank them."
        return
    yield f"{accurate} has the most correct answers ({format_percent(by_accuracy[accurate])} %)."
    gap = f"{format_percent(by_gap[closed])} %"
    if closed == accurate:
        yield f"It also has the smallest gap ({gap} look right step by step and fail as a whole)."
        return
    other = f" {format_percent(by_gap[accurate])} %" if by_gap[accurate] <= 1 else f" {TOO_LITTLE_TEXT}"
    yield f"{closed} has the smallest gap: {gap} look right step by step and fail as a whole ({accurate}:{other})."
