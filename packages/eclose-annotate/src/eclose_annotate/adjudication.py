"""Comparison of several judgments: where they differ, why adjudication is needed, and which judgment is final.

Any difference sends a response to adjudication, and so does an inconsistent pattern of labels (appendix A.3). A
judgment on which all agree becomes final unchanged. Every final judgment states its origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.values.judgment import Criterion, Judgment
from eclose.values.three_valued import Label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.judgment import QuestionScreening, StepJudgment


class AdjudicationTrigger(StrEnum):
    """Reason for adjudication. Never shown to adjudicators: it reveals what the annotators decided."""

    SUBSTANTIVE = "substantive"
    SOUNDNESS = "soundness"
    FAILURE = "failure"
    ALIGNMENT = "alignment"
    CLOSURE = "closure"
    COMPLETENESS = "completeness"
    CORRECTNESS = "correctness"
    INCONSISTENT = "inconsistent"
    """Labelled reliable with a wrong answer: on an eligible question one of these labels must be wrong."""
    ELIGIBILITY = "eligibility"
    REASON = "reason"
    AMENDMENT = "amendment"
    """An annotator undid the difference when an adjudicator had taken the case."""


_TRACE_TRIGGERS = {
    AdjudicationTrigger.ALIGNMENT: Criterion.ALIGNMENT,
    AdjudicationTrigger.CLOSURE: Criterion.CLOSURE,
    AdjudicationTrigger.COMPLETENESS: Criterion.COMPLETENESS,
    AdjudicationTrigger.CORRECTNESS: Criterion.CORRECTNESS,
}


def find_adjudication_triggers(judgments: Sequence[Judgment]) -> tuple[AdjudicationTrigger, ...]:
    """Return why a response needs adjudication; empty where all agree and no judgment is inconsistent."""
    first, *others = judgments
    triggers: set[AdjudicationTrigger] = set()
    for other in others:
        if len(first.steps) != len(other.steps):
            counts = f"{len(first.steps)} steps and {len(other.steps)} steps were judged"
            raise ValueError(f"{first.response_id}: {counts}")
        for step, other_step in zip(first.steps, other.steps, strict=True):
            triggers.update(_step_differences(step, other_step))
        triggers.update(
            trigger for trigger, name in _TRACE_TRIGGERS.items() if first.label(name) is not other.label(name)
        )
    # L = A = C = 1 with a wrong answer (A.3.2). In the paper, 4 of 823 adjudicated responses have this reason alone.
    if any(judgment.verdict.inconsistent for judgment in judgments):
        triggers.add(AdjudicationTrigger.INCONSISTENT)
    return tuple(trigger for trigger in AdjudicationTrigger if trigger in triggers)


def _step_differences(step: StepJudgment, other: StepJudgment) -> Iterator[AdjudicationTrigger]:
    """Compare soundness where both call a step substantive, and the failure code where both call it unsound."""
    if step.substantive is not other.substantive:
        yield AdjudicationTrigger.SUBSTANTIVE
    # Soundness is asked of substantive steps alone: comparing it as well would count one difference twice.
    elif step.sound is not other.sound:
        yield AdjudicationTrigger.SOUNDNESS
    elif step.failure is not other.failure:
        yield AdjudicationTrigger.FAILURE


def compare_two_screenings(first: QuestionScreening, second: QuestionScreening) -> tuple[AdjudicationTrigger, ...]:
    """Return why a question needs adjudication; empty where both screenings agree."""
    if first.eligible is not second.eligible:
        return (AdjudicationTrigger.ELIGIBILITY,)
    return (AdjudicationTrigger.REASON,) if first.code is not second.code else ()


class LabelOrigin(StrEnum):
    """Origin of a final label."""

    AGREED = "agreed"
    ADJUDICATED = "adjudicated"
    SINGLE = "single"
    """Labelled by one person alone."""


@dataclass(frozen=True, slots=True)
class FinalJudgment:
    """The final judgment of a response, with its origin."""

    judgment: Judgment
    origin: LabelOrigin
    triggers: tuple[AdjudicationTrigger, ...] = ()
    """Reasons for its adjudication."""
    changed: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """The annotators' labels, in their order, for every criterion on which one of them differs from the adjudicator."""


def settle_judgment(
    judgments: Sequence[Judgment],
    adjudicated: Judgment | None = None,
    *,
    required: int = 2,
    triggers: tuple[AdjudicationTrigger, ...] | None = None,
) -> FinalJudgment | None:
    """Return the final judgment; None while fewer than ``required`` people have finished or adjudication is pending.

    An adjudicator goes through all passes, so the adjudicated judgment replaces the others entirely. Reasons for
    adjudication are found in the annotators' judgments unless ``triggers`` names them.
    """
    if len(judgments) < required:
        return None
    if triggers is None:
        # Without a queue of adjudication, the label of a single annotator stands as it is.
        triggers = find_adjudication_triggers(judgments) if len(judgments) > 1 else ()
    if not triggers:
        origin = LabelOrigin.SINGLE if len(judgments) == 1 else LabelOrigin.AGREED
        return FinalJudgment(judgments[0], origin)
    if adjudicated is None:
        return None
    changed = {
        str(criterion): tuple(judgment.label(criterion) for judgment in judgments)
        for criterion in Criterion
        if any(judgment.label(criterion) is not adjudicated.label(criterion) for judgment in judgments)
    }
    return FinalJudgment(adjudicated, LabelOrigin.ADJUDICATED, triggers, changed)
