"""What a diagnosis says, in sentences for somebody who never read the paper; and where the responses are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.judgment import EVIDENCE, MAX_UNJUDGED_SHARE, NEVER_ASKED, Criterion
from eclose.core.verdict import FailureClass
from eclose.diagnosis.diagnose import Evidence
from eclose.diagnosis.report.format import (
    EVIDENCE_WORDS,
    FAILURE_WORDS,
    LABEL_WORDS,
    agreement_of,
    plural,
    reason_words,
)
from eclose.diagnosis.report.headline import RateText, group_rate_text, value_text
from eclose.metrics.judge_agreement import DIRECT_LABELS, JudgedLabel
from eclose.metrics.rates import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.diagnosis.diagnose import Diagnosis
    from eclose.diagnosis.report.context import ReportContext

FEW_QUESTIONS = 20
"""Below this, no interval over questions deserves its name."""


@dataclass(frozen=True, slots=True)
class FlowPart:
    """Some responses of a stage: those that go on, or those lost to one reason."""

    kind: str
    name: str
    count: int
    show: str = ""


@dataclass(frozen=True, slots=True)
class FlowStage:
    """One test of the chain, and what becomes of the responses that come to it."""

    asked: str
    total: int
    kept: FlowPart
    lost: tuple[FlowPart, ...]


def evidence_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Whether the passages settle the questions: what reasoning cannot be blamed for."""
    found = diagnosis.by_evidence
    lacking, unjudged = found.get(Evidence.INSUFFICIENT), found.get(Evidence.UNJUDGED)
    told = []
    if set(found) == {Evidence.UNJUDGED}:
        return (
            "Whether the passages settle the questions was not judged, so failures of retrieval are not told apart.",
        )
    if lacking is None:
        told.append("Wherever it was judged, the passages settle the question.")
    else:
        told.append(
            f"For {lacking.questions:,} of {plural(diagnosis.overall.questions, 'question')} "
            f"({plural(lacking.responses, 'response')}) the passages do not settle the question: "
            "that is a failure of retrieval, not of reasoning, so every rate is also given apart."
        )
    if unjudged is not None:
        told.append(f"For {plural(unjudged.responses, 'response')} this was not judged.")
    return tuple(told)


def evidence_rates(diagnosis: Diagnosis) -> tuple[tuple[str, str, str, str], ...]:
    """Return, for each kind of evidence and for all responses, their number and the judge's TRR and LGG."""
    if len(diagnosis.by_evidence) < 2:
        return ()
    groups = [(f"Where {_EVIDENCE_LEADS[kind]}", group) for kind, group in diagnosis.by_evidence.items()]
    return tuple(
        (
            name,
            plural(group.responses, "response"),
            str(group_rate_text(group, Metric.TRACE_RELIABILITY_RATE)),
            str(group_rate_text(group, Metric.GAP_RATE)),
        )
        for name, group in (*groups, ("All together", diagnosis.overall))
    )


EVIDENCE_NOTE = (
    "All of these are the judge's own figures, not corrected: the labels of people tell of all responses together."
)
_EVIDENCE_LEADS = {**EVIDENCE_WORDS, Evidence.UNJUDGED: "this was not judged"}


def agreement_figures(notes: ReportContext) -> dict[JudgedLabel, RateText]:
    """How far the judge agrees with people about each label it gives, where both gave some."""
    return {
        row.label: value_text(*agreement_of(row)[:2]) for row in notes.agreement if row.label in DIRECT_LABELS and row.n
    }  # fmt: skip


def agreement_sentences(notes: ReportContext) -> tuple[str, ...]:
    """About which label the judge agrees with people the least, and how far about each."""
    if not (figures := agreement_figures(notes)):
        return ()
    found = [row for row in notes.agreement if row.label in figures]
    worst = min(found, key=lambda row: (agreement_of(row).value or 0, row.label))
    label = f"{worst.label} ({LABEL_WORDS[worst.label]})"
    told = f"It agrees with them least about {label}: {figures[worst.label]} of {plural(worst.n, 'response')}."
    return told, f"Agreement by label: {'; '.join(f'{name} {figure}' for name, figure in figures.items())}."


def flip_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """How steady the judge is, where it was asked more than once."""
    found = {name: one for name, one in diagnosis.flips.items() if one.responses}
    if not found:
        return ()
    if not any(one.flipped for one in found.values()):
        return ("The judge was asked more than once and said the same each time.",)
    name, worst = max(found.items(), key=lambda one: one[1].rate or 0)
    of = f"{worst.flipped:,} of {plural(worst.responses, 'response')}"
    figure = value_text(worst.rate, worst.interval)
    about = LABEL_WORDS[name] if name == EVIDENCE else f"{name} ({LABEL_WORDS[name]})"
    return (f"The judge was asked more than once. It is least steady about {about}: {of} got both answers, {figure}.",)


def caution_sentences(diagnosis: Diagnosis, notes: ReportContext) -> tuple[str, ...]:
    """What a reader must know before believing a figure."""
    return tuple(_cautions(diagnosis, notes))


_CHAIN = (Criterion.LOCAL_SOUNDNESS, Criterion.ALIGNMENT, Criterion.CLOSURE)
"""The labels that decide whether a response is reliable."""


def _unjudged_cautions(diagnosis: Diagnosis) -> Iterator[str]:
    """Name each label of the headline that is missing too often, with the reasons."""
    total = diagnosis.overall.responses
    for criterion in _CHAIN:
        reasons = {
            reason: count
            for reason, count in diagnosis.unjudged.get(criterion, {}).items()
            if reason not in NEVER_ASKED
        }
        missing = sum(reasons.values())
        if missing > MAX_UNJUDGED_SHARE * total:
            listed = "; ".join(f"{reason_words(reason)} ({count:,})" for reason, count in reasons.items())
            label = f"{criterion.value} ({LABEL_WORDS[criterion.value]})"
            yield f"Too little judged: {label} has no label for {missing:,} of {plural(total, 'response')}: {listed}."


def _cautions(diagnosis: Diagnosis, notes: ReportContext) -> Iterator[str]:
    yield from _unjudged_cautions(diagnosis)
    if diagnosis.overall.questions < FEW_QUESTIONS:
        yield f"Fewer than {FEW_QUESTIONS} questions: take the intervals as a rough hint, not as 95 %."
    for reason, count in notes.left_out_by_reason.items():
        yield f"{plural(count, 'response')} left out: {reason}."
    if diagnosis.inconsistent:
        yield (
            f"{plural(diagnosis.inconsistent, 'response')} reliable by every label and yet wrong: "
            "one of the labels, or the reference, must be mistaken."
        )
    for judge in dict.fromkeys(judge for judge, _ in diagnosis.kin):
        models = " and ".join(model for one, model in diagnosis.kin if one == judge)
        yield (
            f"By their names, the judge {judge} is of the family of {models}, whose responses it judges: "
            "a judge may be kind to its kin. Ask one of another family, or label some responses yourself."
        )


def flow_stages(diagnosis: Diagnosis) -> tuple[FlowStage, ...]:
    """From all responses to the reliable ones, with every loss named."""
    joint = diagnosis.joint
    gap = diagnosis.overall.composition.gap_failures

    def count(*wanted: bool | None) -> int:
        return sum(n for labels, n in joint.items() if labels[: len(wanted)] == wanted)

    total, sound, aligned = sum(joint.values()), count(True), count(True, True)
    reliable = count(True, True, True)
    closing = (FailureClass.INCOMPLETE_REASONING, FailureClass.ANSWER_DECOUPLING, FailureClass.CLOSURE_FAILURE)
    return (
        _stage("Does every step hold?", total, FlowPart("sound", "hold step by step", sound), [
            FlowPart("unsound", "an unsound step", count(False), "outcome=unsound"),
            FlowPart("undecided", "not judged", count(None), "outcome=undecided_L"),
        ]),
        _stage("Does the reasoning pursue the question?", sound, FlowPart("sound", "pursue it as well", aligned), [
            _lost(FailureClass.PATH_DEVIATION, count(True, False)),
            _lost(FailureClass.UNDETERMINED, count(True, None, False)),
            FlowPart("undecided", "not judged", count(True, None) - count(True, None, False), "outcome=undecided_A"),
        ]),
        _stage("Does it establish the submitted answer?", aligned, FlowPart("reliable", "are reliable", reliable), [
            *(_lost(failure, gap.get(failure, 0)) for failure in closing),
            FlowPart("undecided", "not judged", count(True, True, None), "outcome=undecided_C"),
        ]),
    )  # fmt: skip


def _lost(failure: FailureClass, count: int) -> FlowPart:
    return FlowPart(str(failure), FAILURE_WORDS[failure][0], count, f"outcome=gap_{failure}")


def _stage(asked: str, total: int, kept: FlowPart, lost: list[FlowPart]) -> FlowStage:
    return FlowStage(asked, total, kept, tuple(part for part in lost if part.count))
