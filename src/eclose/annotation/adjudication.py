"""Several people and what comes of it: where they differ, what another must look at, and which labels hold in the end.

Any difference in what was decided sends a response to adjudication, and so does a pattern that cannot be right. What
all decided alike is taken over untouched, and every label says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.core.judgment import Criterion, Judgment
from eclose.core.three_valued import Label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.judgment import Screening, StepJudgment


class Trigger(StrEnum):
    """Why somebody must look again. Never shown to whoever does: it says what the others decided."""

    SUBSTANTIVE = "substantive"
    SOUNDNESS = "soundness"
    FAILURE = "failure"
    ALIGNMENT = "alignment"
    CLOSURE = "closure"
    COMPLETENESS = "completeness"
    CORRECTNESS = "correctness"
    INCONSISTENT = "inconsistent"
    """Reliable, and yet the answer is wrong: on an eligible question one of the labels must be."""
    ELIGIBILITY = "eligibility"
    REASON = "reason"


_WHOLE = {
    Trigger.ALIGNMENT: Criterion.ALIGNMENT,
    Trigger.CLOSURE: Criterion.CLOSURE,
    Trigger.COMPLETENESS: Criterion.COMPLETENESS,
    Trigger.CORRECTNESS: Criterion.CORRECTNESS,
}


def triggers(judgments: Sequence[Judgment]) -> tuple[Trigger, ...]:
    """Why a response needs another look; none where all agree and nothing is odd."""
    first, *others = judgments
    found = [trigger for other in others for trigger in _differences(first, other)]
    if any(one.verdict.inconsistent for one in judgments):
        found.append(Trigger.INCONSISTENT)
    return tuple(trigger for trigger in Trigger if trigger in found)


def _differences(first: Judgment, second: Judgment) -> Iterator[Trigger]:
    if len(first.steps) != len(second.steps):
        raise ValueError(f"{first.response_id}: {len(first.steps)} steps and {len(second.steps)} were judged")
    for one, other in zip(first.steps, second.steps, strict=True):
        yield from _step_differences(one, other)
    yield from (trigger for trigger, name in _WHOLE.items() if first.label(name) is not second.label(name))


def _step_differences(one: StepJudgment, other: StepJudgment) -> Iterator[Trigger]:
    """Soundness is compared where both call a step substantive, the reason where both call it unsound."""
    if one.substantive is not other.substantive:
        yield Trigger.SUBSTANTIVE
    elif one.sound is not other.sound:
        yield Trigger.SOUNDNESS
    elif one.failure is not other.failure:
        yield Trigger.FAILURE


def screening_triggers(first: Screening, second: Screening) -> tuple[Trigger, ...]:
    """Why a question needs a third look."""
    if first.eligible is not second.eligible:
        return (Trigger.ELIGIBILITY,)
    return (Trigger.REASON,) if first.code is not second.code else ()


class Origin(StrEnum):
    """Where a label that holds comes from."""

    AGREED = "agreed"
    ADJUDICATED = "adjudicated"
    SINGLE = "single"
    """One person alone was asked."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What holds of a response in the end."""

    judgment: Judgment
    origin: Origin
    triggers: tuple[Trigger, ...] = ()
    """Why it was looked at again."""
    changed: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """What the others had said, for every label that somebody had otherwise."""


def settle(judgments: Sequence[Judgment], adjudicated: Judgment | None = None, *, wanted: int = 2) -> Settled | None:
    """The judgment that holds; None while somebody is still to look.

    What was adjudicated holds whole: whoever looked again went through all passes. Those who agree need nobody.
    """
    if len(judgments) < wanted:
        return None
    found = triggers(judgments)
    if wanted == 1:
        return Settled(judgments[0], Origin.SINGLE, found)
    if not found:
        return Settled(judgments[0], Origin.AGREED)
    if adjudicated is None:
        return None
    changed = {
        str(name): tuple(one.label(name) for one in judgments)
        for name in Criterion
        if any(one.label(name) is not adjudicated.label(name) for one in judgments)
    }
    return Settled(adjudicated, Origin.ADJUDICATED, found, changed)
