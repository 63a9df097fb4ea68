"""Statistics of adjudication (appendix A.3.3): how many subjects, for which reasons, and which labels changed.

Contains no names and no individual labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

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
    """All labels that annotators gave to adjudicated responses, as far as the adjudicator gave one too."""


@dataclass(frozen=True, slots=True)
class AdjudicationCounts:
    """Counts of adjudicated responses, or questions."""

    asked: int
    """Responses, or questions, assigned to people."""
    complete: int
    """Those finished by all assigned people; by one person only where inconsistent labels go to an adjudicator."""
    to_adjudicate: int
    """Those that need adjudication, or were taken by an adjudicator before a difference was undone."""
    disagreements: int
    """Of these, those on which people differ."""
    flag_only: int
    """Of these, those on which people agree on an inconsistent judgment."""
    amended_only: int
    """Of these, those whose difference was undone after an adjudicator had taken the case."""
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
    any_single = any(subject.triggers and len(subject.annotations) == 1 for subject in subjects)
    least = 1 if any_single else 2
    complete = [subject for subject in subjects if len(subject.annotations) >= max(least, subject.required)]
    states = [(subject.triggers, subject.adjudication is not None) for subject in complete]
    disputed = [(triggers, settled) for triggers, settled in states if triggers]
    # Agreement on an inconsistent pattern has no trigger that is a difference.
    agreed = [set(triggers) for triggers, _ in disputed if set(triggers) <= _NOT_A_DIFFERENCE]
    flagged = sum(AdjudicationTrigger.INCONSISTENT in triggers for triggers in agreed)
    counts = Counter(trigger for triggers, _ in disputed for trigger in triggers)
    return AdjudicationCounts(
        asked=len(subjects),
        complete=len(complete),
        to_adjudicate=len(disputed),
        disagreements=len(disputed) - len(agreed),
        flag_only=flagged,
        amended_only=len(agreed) - flagged,
        triggers={trigger: counts[trigger] for trigger in AdjudicationTrigger if counts[trigger]},
        adjudicated=sum(settled for _, settled in disputed),
    )


_NOT_A_DIFFERENCE = {AdjudicationTrigger.INCONSISTENT, AdjudicationTrigger.AMENDMENT}

# Labels of a step, each with the steps it is compared on: soundness where both people call the step substantive, the
# reason where both call it unsound. A changed label is so counted once, and not again for those that depend on it.
_STEPS: Mapping[str, tuple[Callable[[StepJudgment], object], Callable[[StepJudgment], bool]]] = {
    "substantive status of a step": (lambda step: step.substantive, lambda _step: True),
    "soundness of a step": (lambda step: step.sound, lambda step: step.substantive is True),
    "reason of a step": (lambda step: step.failure, lambda step: step.sound is False),
}


def _changed(settled: Sequence[ResponseAnnotations]) -> dict[str, OverruledLabels]:
    """Count the labels of annotators that differ from those of the adjudicator."""
    stepwise = [response for response in settled if response.kind is AnnotationTaskKind.RESPONSE]
    steps = {name: _count(stepwise, partial(_step_pairs, *label)) for name, label in _STEPS.items()} if stepwise else {}
    return steps | {str(criterion): _count(settled, partial(_trace_pairs, criterion)) for criterion in Criterion}


LabelPairs: TypeAlias = Iterator[tuple[object, object]]
"""Labels of an annotator with those of the adjudicator."""


def _step_pairs(
    label: Callable[[StepJudgment], object],
    applies: Callable[[StepJudgment], bool],
    judgment: Judgment,
    adjudicated: Judgment,
) -> LabelPairs:
    for step, final in zip(judgment.steps, adjudicated.steps, strict=True):
        if applies(step) and applies(final):
            yield label(step), label(final)


def _trace_pairs(criterion: Criterion, judgment: Judgment, adjudicated: Judgment) -> LabelPairs:
    yield judgment.label(criterion), adjudicated.label(criterion)


def _count(
    settled: Sequence[ResponseAnnotations], pairs: Callable[[Judgment, Judgment], LabelPairs]
) -> OverruledLabels:
    responses = changed = of = 0
    for response in settled:
        # Callers pass adjudicated responses only.
        assert response.adjudication is not None
        assert response.adjudication.judgment is not None
        differs = [
            label != final
            for judgment in response.judgments
            for label, final in pairs(judgment, response.adjudication.judgment)
        ]
        of += len(differs)
        changed += sum(differs)
        responses += any(differs)
    return OverruledLabels(responses, changed, of)
