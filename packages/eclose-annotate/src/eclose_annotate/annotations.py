"""The annotation model: one record per person and response or question, and all records of a subject together.

Both the database of a project (``read_annotations``) and imported files (``results.import_labels``) produce these
records, and all results are computed from them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from eclose.values.judgment import Judgment, QuestionScreening
from eclose.values.response import ResponseSource
from eclose_annotate.adjudication import (
    AdjudicationTrigger,
    FinalJudgment,
    compare_two_screenings,
    find_adjudication_triggers,
    settle_judgment,
)
from eclose_annotate.forms import AnnotationTaskKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NOT_FINISHED = "no annotator has finished"
AWAITING_ADJUDICATION = "waits for adjudication"
AWAITING_SCREENING = "waits for screening"
INELIGIBLE = "ineligible"


@dataclass(frozen=True, slots=True)
class Annotation:
    """One person's judgment of one response; a line of ``annotations.jsonl``."""

    response_id: str
    question_id: str
    kind: AnnotationTaskKind
    """``response`` where steps were judged one by one, ``short`` where the trace was judged as a whole."""
    asked: int
    """Number of people assigned to the response, without adjudicators."""
    annotator: str | None = None
    """None in the single line of a response that has no finished annotation."""
    judgment: Judgment | None = None
    adjudicates: bool = False
    """Whether this person is the adjudicator."""
    reference_seen_before: bool = False
    """Whether this person knew the reference from another response to the question."""
    benchmark: str | None = None
    source: ResponseSource | None = None
    queued: bool = False
    """Whether the response was sent to adjudication."""


@dataclass(frozen=True, slots=True)
class ScreeningAnnotation:
    """One person's screening of one question; a line of ``screening-annotations.jsonl``."""

    question_id: str
    asked: int
    """Number of screeners assigned to the question."""
    annotator: str | None = None
    screening: QuestionScreening | None = None
    adjudicates: bool = False
    benchmark: str | None = None
    decides: bool = False
    """Whether responses to the question are annotated only if it is eligible."""
    queued: bool = False
    """Whether the question was sent to adjudication."""


@dataclass(frozen=True)
class ResponseAnnotations:
    """All annotations of a response."""

    response_id: str
    question_id: str
    kind: AnnotationTaskKind
    required: int
    """Number of people assigned to the response, without adjudicators."""
    annotations: tuple[Annotation, ...] = ()
    """Finished annotations without the adjudicator's, sorted by annotator."""
    adjudication: Annotation | None = None
    benchmark: str | None = None
    source: ResponseSource | None = None
    queued: bool = False
    """Whether the response was sent to adjudication."""
    excluded: str | None = None
    """Why its question keeps it out: not screened yet, or ineligible with the code; None where it does not."""

    @property
    def ineligible(self) -> bool:
        """Whether the question was found ineligible, so that the response is not annotated."""
        return self.excluded is not None and self.excluded != AWAITING_SCREENING

    @property
    def judgments(self) -> tuple[Judgment, ...]:
        """The annotators' judgments, on which agreement is measured."""
        return tuple(row.judgment for row in self.annotations if row.judgment is not None)

    @property
    def complete(self) -> bool:
        """Whether all assigned people have finished."""
        return len(self.annotations) >= self.required

    @cached_property
    def triggers(self) -> tuple[AdjudicationTrigger, ...]:
        """Reasons for adjudication; empty before all have finished."""
        if not self.complete:
            return ()
        if len(self.annotations) > 1:
            return _explain_queued(find_adjudication_triggers(self.judgments), queued=self.queued)
        # The flag of a single annotator counts where it was sent to an adjudicator.
        return (AdjudicationTrigger.INCONSISTENT,) if self.queued else ()

    @cached_property
    def final(self) -> FinalJudgment | None:
        """The final judgment; None while annotations, the adjudication or the screening are missing."""
        if self.excluded is not None:
            return None
        # Imported files may hold more annotations than were required; all of them must agree.
        return settle_judgment(
            self.judgments,
            None if self.adjudication is None else self.adjudication.judgment,
            required=max(self.required, len(self.annotations)),
            triggers=self.triggers,
        )

    @property
    def open_reason(self) -> str | None:
        """Why there is no final judgment; None where there is one."""
        if self.excluded is not None:
            return self.excluded
        return None if self.final is not None else _open_reason(len(self.annotations), self.required)

    @property
    def records(self) -> Iterator[Annotation]:
        """Lines of the exported file; one line without annotator where nothing is finished."""
        yield from self.annotations or [
            Annotation(
                self.response_id,
                self.question_id,
                self.kind,
                self.required,
                benchmark=self.benchmark,
                source=self.source,
                queued=self.queued,
            )
        ]
        if self.adjudication is not None:
            yield self.adjudication


@dataclass(frozen=True)
class QuestionAnnotations:
    """All screenings of a question."""

    question_id: str
    required: int
    """Number of screeners assigned to the question."""
    annotations: tuple[ScreeningAnnotation, ...] = ()
    """Finished screenings without the adjudicator's, sorted by annotator."""
    adjudication: ScreeningAnnotation | None = None
    benchmark: str | None = None
    decides: bool = False
    """Whether responses to the question are annotated only if it is eligible."""
    queued: bool = False
    """Whether the question was sent to adjudication."""

    @property
    def screenings(self) -> tuple[QuestionScreening, ...]:
        """The screeners' screenings, on which agreement is measured."""
        return tuple(row.screening for row in self.annotations if row.screening is not None)

    @cached_property
    def triggers(self) -> tuple[AdjudicationTrigger, ...]:
        """Reasons for adjudication; empty with a single screener."""
        if len(self.annotations) < max(2, self.required):
            return ()
        return _explain_queued(find_screening_disputes(self.screenings), queued=self.queued)

    @cached_property
    def final(self) -> QuestionScreening | None:
        """The final screening; None while screenings or the adjudication are missing."""
        if len(self.annotations) < self.required:
            return None
        if self.adjudication is not None:
            return self.adjudication.screening
        return None if self.triggers else self.annotations[0].screening

    @property
    def exclusion(self) -> str | None:
        """Why responses to the question are not annotated; None where they are."""
        if not self.decides:
            return None
        if self.final is None:
            return AWAITING_SCREENING
        return None if self.final.eligible else f"{INELIGIBLE} ({self.final.code})"

    @property
    def open_reason(self) -> str | None:
        """Why there is no final screening yet; None where there is one."""
        return None if self.final is not None else _open_reason(len(self.annotations), self.required)

    @property
    def records(self) -> Iterator[ScreeningAnnotation]:
        """Lines of the exported file; one line without annotator where nothing is finished."""
        yield from self.annotations or [
            ScreeningAnnotation(
                self.question_id,
                self.required,
                benchmark=self.benchmark,
                decides=self.decides,
                queued=self.queued,
            )
        ]
        if self.adjudication is not None:
            yield self.adjudication


@dataclass(frozen=True, slots=True)
class SetAsideWork:
    """A pass of a task that went to another person before it was finished; a line of ``drafts.jsonl``."""

    question_id: str
    response_id: str | None
    """None where a question was screened."""
    annotator: str
    adjudicates: bool
    pass_name: str
    submitted: bool
    """False for a draft."""
    entries: tuple[Mapping[str, str], ...]
    at: str


MIN_SECONDS, MIN_SECONDS_PER_ENTRY = 2.0, 1.0
"""Times below which a pass counts as fast: for a pass, and for each of its entries (steps)."""


@dataclass(frozen=True, slots=True)
class PassTime:
    """The time that a person took for a pass; a line of ``times.jsonl``."""

    question_id: str | None
    """None for a family."""
    response_id: str | None
    annotator: str
    adjudicates: bool
    pass_name: str
    opened: str
    """Time at which the pass was first shown."""
    submitted: str
    seconds: float
    """Time between the two, breaks included."""
    entries: int
    """Number of entries: steps, or 1."""
    fast: bool
    """Whether the pass was submitted faster than a person can read and answer."""


class AnnotationSet(NamedTuple):
    """All annotations of a project or of imported files."""

    responses: tuple[ResponseAnnotations, ...] = ()
    questions: tuple[QuestionAnnotations, ...] = ()
    set_aside: tuple[SetAsideWork, ...] = ()
    """Unfinished work of people whose tasks went to others. No result uses it."""
    times: tuple[PassTime, ...] = ()
    """Times of all submitted passes; empty for imported files."""

    @property
    def eligible_responses(self) -> tuple[ResponseAnnotations, ...]:
        """The responses without those to ineligible questions."""
        return tuple(response for response in self.responses if not response.ineligible)


Record = TypeVar("Record", Annotation, ScreeningAnnotation)
Label = TypeVar("Label", Judgment, QuestionScreening)


def group_annotations(rows: Iterable[Annotation], screenings: Iterable[ScreeningAnnotation] = ()) -> AnnotationSet:
    """Group records by response and by question, in the order in which these first occur."""
    by_response: dict[str, list[Annotation]] = {}
    for row in rows:
        by_response.setdefault(row.response_id, []).append(row)
    by_question: dict[str, list[ScreeningAnnotation]] = {}
    for screening in screenings:
        by_question.setdefault(screening.question_id, []).append(screening)
    questions = tuple(_question(group) for group in by_question.values())
    exclusions = {question.question_id: question.exclusion for question in questions}
    return AnnotationSet(
        tuple(_response(group, exclusions.get(group[0].question_id)) for group in by_response.values()), questions
    )


def _response(rows: Sequence[Annotation], excluded: str | None) -> ResponseAnnotations:
    # Importing checks that all rows of a response agree in these columns; a project writes them from one row.
    first = rows[0]
    annotations, adjudication = _separate_adjudicator(rows)
    return ResponseAnnotations(
        response_id=first.response_id,
        question_id=first.question_id,
        kind=first.kind,
        required=first.asked,
        annotations=annotations,
        adjudication=adjudication,
        benchmark=first.benchmark,
        source=first.source,
        queued=first.queued,
        excluded=excluded,
    )


def _question(rows: Sequence[ScreeningAnnotation]) -> QuestionAnnotations:
    annotations, adjudication = _separate_adjudicator(rows)
    first = rows[0]
    return QuestionAnnotations(
        question_id=first.question_id,
        required=first.asked,
        annotations=annotations,
        adjudication=adjudication,
        benchmark=first.benchmark,
        decides=first.decides,
        queued=first.queued,
    )


def _explain_queued(triggers: tuple[AdjudicationTrigger, ...], *, queued: bool) -> tuple[AdjudicationTrigger, ...]:
    """Add the trigger of a case that was taken by an adjudicator before its difference was undone."""
    return (AdjudicationTrigger.AMENDMENT,) if queued and not triggers else triggers


def _separate_adjudicator(rows: Sequence[Record]) -> tuple[tuple[Record, ...], Record | None]:
    """Return the finished records by annotator, and that of the adjudicator."""
    finished = sorted((row for row in rows if row.annotator is not None), key=lambda row: row.annotator or "")
    adjudication = next((row for row in finished if row.adjudicates), None)
    return tuple(row for row in finished if not row.adjudicates), adjudication


def _open_reason(finished: int, required: int) -> str:
    if not finished:
        return NOT_FINISHED
    return AWAITING_ADJUDICATION if finished >= required else f"{finished} of {required} have finished"


def find_screening_disputes(screenings: Sequence[QuestionScreening]) -> tuple[AdjudicationTrigger, ...]:
    """Return why a question with several screenings needs adjudication; empty where all agree."""
    first, *others = screenings
    triggers = {trigger for other in others for trigger in compare_two_screenings(first, other)}
    return tuple(trigger for trigger in AdjudicationTrigger if trigger in triggers)


def rename_judge(label: Label, judge: str) -> Label:
    """Return a judgment or screening under another name of its judge."""
    return replace(label, judge=judge)
