"""Final labels of responses and questions, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.values.judgment import PEOPLE_JUDGE, Criterion
from eclose.values.response import ResponseSource
from eclose.values.three_valued import Label
from eclose.values.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
from eclose_annotate.adjudication import AdjudicationTrigger, LabelOrigin
from eclose_annotate.annotations import rename_judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.values.judgment import Judgment, QuestionScreening
    from eclose_annotate.adjudication import FinalJudgment
    from eclose_annotate.annotations import AnnotationSet, ResponseAnnotations


@dataclass(frozen=True, slots=True)
class DerivedLabels:
    """Labels computed from the five judged ones."""

    globally_sufficient: Label
    in_gap: Label
    reliable: Label
    failure_class: FailureClass | None
    trace_group: TraceGroup | None


@dataclass(frozen=True, slots=True)
class SettledLabel:
    """The final labels of a response with their origin; a line of ``labels.jsonl``."""

    response_id: str
    question_id: str
    origin: LabelOrigin
    labels: Mapping[Criterion, Label]
    derived: DerivedLabels
    annotators: tuple[str, ...]
    adjudicator: str | None = None
    triggers: tuple[AdjudicationTrigger, ...] = ()
    """Reasons for its adjudication."""
    changed: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """The annotators' labels, in their order, for every criterion on which one of them differs from the adjudicator."""
    reference_seen_before: bool = False
    benchmark: str | None = None
    source: ResponseSource | None = None

    @property
    def verdict(self) -> Verdict:
        """The five judged labels."""
        # The fields of Verdict are in the order of Criterion.
        return Verdict(*(self.labels[name] for name in Criterion))


def collect_final_judgments(annotations: AnnotationSet, judge: str = PEOPLE_JUDGE) -> Iterator[Judgment]:
    """Yield the final judgment of each settled response, as other commands read judgments."""
    for _, final in _settled_responses(annotations):
        yield rename_judge(final.judgment, judge)


def collect_final_verdicts(annotations: AnnotationSet) -> Iterator[SettledVerdict]:
    """Yield the verdict of each settled response, as other commands read verdicts."""
    for response, final in _settled_responses(annotations):
        verdict = final.judgment.verdict
        yield SettledVerdict(response.response_id, response.question_id, verdict, response.benchmark, response.source)


def collect_final_labels(annotations: AnnotationSet) -> Iterator[SettledLabel]:
    """Yield the final labels of each settled response."""
    for response, final in _settled_responses(annotations):
        verdict = final.judgment.verdict
        # Imported files may hold an adjudication where people agree; it does not count.
        adjudication = response.adjudication if final.origin is LabelOrigin.ADJUDICATED else None
        yield SettledLabel(
            response_id=response.response_id,
            question_id=response.question_id,
            origin=final.origin,
            labels={criterion: final.judgment.label(criterion) for criterion in Criterion},
            derived=DerivedLabels(
                verdict.globally_sufficient,
                verdict.in_gap,
                verdict.reliable,
                verdict.failure_class,
                verdict.trace_group,
            ),
            annotators=tuple(str(row.annotator) for row in response.annotations),
            adjudicator=None if adjudication is None else adjudication.annotator,
            triggers=final.triggers,
            changed=final.changed,
            reference_seen_before=adjudication is not None and adjudication.reference_seen_before,
            benchmark=response.benchmark,
            source=response.source,
        )


def collect_question_screenings(annotations: AnnotationSet, judge: str = PEOPLE_JUDGE) -> Iterator[QuestionScreening]:
    """Yield the final screening of each settled question, as ``eclose screen`` writes them."""
    for question in annotations.questions:
        if (final := question.final) is not None:
            yield rename_judge(final, judge)


def _settled_responses(annotations: AnnotationSet) -> Iterator[tuple[ResponseAnnotations, FinalJudgment]]:
    for response in annotations.responses:
        if (final := response.final) is not None:
            yield response, final
