"""Statistics of adjudication (appendix A.3.3): how many subjects, for which reasons, and which labels changed.

Contains no names and no individual labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from eclose.annotation.adjudication import AdjudicationTrigger
from eclose.annotation.forms import AnnotationTaskKind
from eclose.core.judgment import Criterion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.annotation.annotation_records import QuestionAnnotations, ResponseAnnotations
    from eclose.core.judgment import Judgment, StepJudgment


@dataclass(frozen=True, slots=True)
class OverruledLabels:
    """Labels of annotators that the adjudicator changed."""

    responses: int
    """Adjudicated responses with at least one changed label."""
    labels: int
    """Changed labels."""
    of: int
    """All labels that annotators gave to adjudicated responses."""


@dataclass(frozen=True, slots=True)
class AdjudicationCounts:
    """Counts of adjudicated responses, or questions."""

    asked: int
    """Responses, or questions, assigned to people."""
    complete: int
    """Those finished by all of at least two assigned people."""
    to_adjudicate: int
    """Those that need adjudication."""
    disagreements: int
    """Of these, those on which people differ."""
    flag_only: int
    """Of these, those on which people agree on an inconsistent judgment."""
    triggers: Mapping[AdjudicationTrigger, int]
    """Counts by reason; a subject may have several."""
    adjudicated: int
    reference_seen_before: int = 0
    """Those whose adjudicator knew the reference from another response to the question."""
    changed: Mapping[str, OverruledLabels] = field(default_factory=dict)
    """Changed labels by criterion, and by step label where steps were judged one by one."""

    @property
    def waiting(self) -> int:
        """Those whose adjudication is not finished."""
        return self.to_adjudicate - self.adjudicated


def count_response_adjudication(responses: Sequence[ResponseAnnotations]) -> AdjudicationCounts:
    """Count the adjudication of responses."""
    settled = [response for response in responses if response.adjudication is not None and response.triggers]
    seen_before = sum(
        bool(response.adjudication and response.adjudication.reference_seen_before) for response in settled
    )
    return replace(
        count_screening_adjudication(responses), reference_seen_before=seen_before, changed=_changed(settled)
    )


def count_screening_adjudication(
    subjects: Sequence[ResponseAnnotations | QuestionAnnotations],
) -> AdjudicationCounts:
    """Count the adjudication of questions, or of responses without their changed labels."""
    # The paper's shares are of the responses with two annotations: 823 of 2,598 adjudicated (A.3.3).
    complete = [subject for subject in subjects if len(subject.annotations) >= max(2, subject.required)]
    states = [(subject.triggers, subject.adjudication is not None) for subject in complete]
    disputed = [(triggers, settled) for triggers, settled in states if triggers]
    # Agreement on an inconsistent pattern has INCONSISTENT as its only trigger.
    flagged = sum(triggers == (AdjudicationTrigger.INCONSISTENT,) for triggers, _ in disputed)
    counts = Counter(trigger for triggers, _ in disputed for trigger in triggers)
    return AdjudicationCounts(
        asked=len(subjects),
        complete=len(complete),
        to_adjudicate=len(disputed),
        disagreements=len(disputed) - flagged,
        flag_only=flagged,
        triggers={trigger: counts[trigger] for trigger in AdjudicationTrigger if counts[trigger]},
        adjudicated=sum(settled for _, settled in disputed),
    )


# Labels of a step, each with those it depends on.
_STEPS: Mapping[str, Callable[[StepJudgment], object]] = {
    "substantive status of a step": lambda step: step.substantive,
    "soundness of a step": lambda step: (step.substantive, step.sound),
    "reason of a step": lambda step: (step.substantive, step.sound, step.failure),
}


def _changed(settled: Sequence[ResponseAnnotations]) -> dict[str, OverruledLabels]:
    """Count changed labels. A change counts for dependent labels too: soundness of a step includes its substance."""
    stepwise = [response for response in settled if response.kind is AnnotationTaskKind.RESPONSE]
    steps = {name: _count(stepwise, partial(_step_labels, label)) for name, label in _STEPS.items()} if stepwise else {}
    return steps | {str(criterion): _count(settled, partial(_trace_labels, criterion)) for criterion in Criterion}


def _step_labels(label: Callable[[StepJudgment], object], judgment: Judgment) -> Sequence[object]:
    return [label(step) for step in judgment.steps]


def _trace_labels(criterion: Criterion, judgment: Judgment) -> Sequence[object]:
    return [judgment.label(criterion)]


def _count(settled: Sequence[ResponseAnnotations], labels: Callable[[Judgment], Sequence[object]]) -> OverruledLabels:
    responses = changed = of = 0
    for response in settled:
        assert response.adjudication is not None  # callers pass adjudicated responses only
        adjudicated = labels(response.adjudication.final)
        differing = 0
        for annotation in response.annotations:
            annotated = labels(annotation.final)
            of += len(annotated)
            differing += sum(label != final for label, final in zip(annotated, adjudicated, strict=True))
        changed += differing
        responses += bool(differing)
    return OverruledLabels(responses, changed, of)
