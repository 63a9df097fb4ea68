"""Convert filled forms to the judgments and screenings that all judges share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.annotation.forms import NO, YES, AnnotationTaskKind, FormEntry
from eclose.core.judgment import (
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    WHOLE_TRACE_REASON,
    Criterion,
    Ineligibility,
    Judgment,
    LocalFailure,
    QuestionScreening,
    StepJudgment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.core.three_valued import Label


def screening_from_form(question_id: str, judge: str, entry: FormEntry) -> QuestionScreening:
    """Return the screening of a question from the entry of pass S."""
    code = entry.get("code")
    return QuestionScreening(
        question_id, judge, _label(entry, "eligible"), None if code is None else Ineligibility(code)
    )


def judgment_from_form(
    response_id: str, judge: str, kind: AnnotationTaskKind, entries: Mapping[str, Sequence[FormEntry]]
) -> Judgment:
    """Return the judgment of a response from the entries of each pass; criteria that were not asked get a reason."""
    # Passes about the whole trace have one entry. So has pass A of a one-step trace; its field names are different.
    trace = {name: value for forms in entries.values() if len(forms) == 1 for name, value in forms[0].items()}
    steps = (
        tuple(_step(entry) for entry in entries.get("A", ()))
        if kind is AnnotationTaskKind.RESPONSE
        else _single_step(trace)
    )
    return Judgment(
        response_id,
        judge,
        steps,
        aligned=_label(trace, "aligned"),
        closed=_label(trace, "closed"),
        complete=_label(trace, "complete"),
        correct=_label(trace, "correct"),
        unjudged=dict(_unjudged(steps, trace)),
    )


def _step(entry: FormEntry) -> StepJudgment:
    code = entry.get("failure")
    return StepJudgment(
        _label(entry, "substantive"), _label(entry, "sound"), None if code is None else LocalFailure(code)
    )


def _single_step(trace: FormEntry) -> tuple[StepJudgment, ...]:
    # L is 1 where every substantive step is sound, so one substantive step with the label gives the same L.
    sound = _label(trace, "locally_sound")
    return () if sound is None else (StepJudgment(True, sound, reason=WHOLE_TRACE_REASON),)


def _unjudged(steps: Sequence[StepJudgment], trace: FormEntry) -> list[tuple[Criterion, str]]:
    """Return the criteria without a label, each with the reason why its field was not asked."""
    reasons = [] if steps else [(Criterion.LOCAL_SOUNDNESS, NO_TRACE_REASON)]
    if "closed" not in trace:
        reasons.append((Criterion.CLOSURE, NO_ANSWER_REASON))
    if "complete" not in trace:
        reasons.append((Criterion.COMPLETENESS, NO_REFERENCE_REASON))
    if "correct" not in trace:
        reasons.append((Criterion.CORRECTNESS, NO_REFERENCE_REASON if "complete" not in trace else NO_ANSWER_REASON))
    return reasons


def _label(entry: FormEntry, name: str) -> Label:
    value = entry.get(name)
    return None if value is None else {YES: True, NO: False}[value]
