"""From filled forms to what a person said of a response or a question, in the words all judges share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.annotation.forms import NO, YES, Entry, Kind
from eclose.core.judgment import (
    NO_ANSWER,
    NO_REFERENCE,
    NO_TRACE,
    WHOLE_TRACE,
    Criterion,
    Ineligibility,
    Judgment,
    LocalFailure,
    Screening,
    StepJudgment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.core.three_valued import Label


def screening_of(question_id: str, judge: str, entry: Entry) -> Screening:
    """What a screener said."""
    code = entry.get("code")
    return Screening(question_id, judge, _label(entry, "eligible"), None if code is None else Ineligibility(code))


def judgment_of(response_id: str, judge: str, kind: Kind, filled: Mapping[str, Sequence[Entry]]) -> Judgment:
    """What an annotator said, out of the entries of each pass; what was not asked has no label and a reason."""
    whole = {name: value for entries in filled.values() if len(entries) == 1 for name, value in entries[0].items()}
    steps = tuple(_step(entry) for entry in filled.get("A", ())) if kind is Kind.RESPONSE else _one_step(whole)
    return Judgment(
        response_id,
        judge,
        steps,
        aligned=_label(whole, "aligned"),
        closed=_label(whole, "closed"),
        complete=_label(whole, "complete"),
        correct=_label(whole, "correct"),
        unjudged=dict(_open(steps, whole)),
    )


def _step(entry: Entry) -> StepJudgment:
    code = entry.get("failure")
    return StepJudgment(
        _label(entry, "substantive"), _label(entry, "sound"), None if code is None else LocalFailure(code)
    )


def _one_step(whole: Entry) -> tuple[StepJudgment, ...]:
    """Local soundness as a whole, as if the trace were one step."""
    sound = _label(whole, "locally_sound")
    return () if sound is None else (StepJudgment(True, sound, reason=WHOLE_TRACE),)


def _open(steps: Sequence[StepJudgment], whole: Entry) -> list[tuple[Criterion, str]]:
    """Why a criterion has no label: these are all the reasons for which a field is not asked."""
    found = [] if steps else [(Criterion.LOCAL_SOUNDNESS, NO_TRACE)]
    if "closed" not in whole:
        found.append((Criterion.CLOSURE, NO_ANSWER))
    if "complete" not in whole:
        found.append((Criterion.COMPLETENESS, NO_REFERENCE))
    if "correct" not in whole:
        found.append((Criterion.CORRECTNESS, NO_REFERENCE if "complete" not in whole else NO_ANSWER))
    return found


def _label(entry: Entry, name: str) -> Label:
    value = entry.get(name)
    return None if value is None else {YES: True, NO: False}[value]
