"""What people said as records, one for each person and response: out of a project, or made elsewhere.

All results rest on these alone, so whoever has the file has what is needed to work out every figure again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from eclose.annotation.adjudication import Settled, Trigger, screening_triggers, settle, triggers
from eclose.annotation.collect import Screened
from eclose.annotation.forms import Kind
from eclose.core.judgment import Judgment, Screening
from eclose.core.response import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NOBODY = "nobody has finished"
WAITS = "waits for adjudication"


@dataclass(frozen=True, slots=True)
class Annotation:
    """One person's judgment of one response; a line of ``annotations.jsonl``."""

    response_id: str
    question_id: str
    kind: Kind
    """``response`` where steps were judged one by one, ``short`` where the trace was judged as a whole."""
    asked: int
    """How many people were to judge the response, adjudicators apart."""
    annotator: str | None = None
    """None in the one line of a response that nobody has finished."""
    judgment: Judgment | None = None
    """As first submitted: agreement rests on this."""
    amended: Judgment | None = None
    """As it was changed later, where the lead allowed it."""
    adjudicates: bool = False
    """Whether this person settled what the others disagreed about."""
    reference_seen_before: bool = False
    """Whether this adjudicator had met the question in another response."""
    benchmark: str | None = None
    source: Source | None = None

    @property
    def final(self) -> Judgment:
        """What holds of it."""
        found = self.amended or self.judgment
        assert found is not None  # only of those who finished
        return found


@dataclass(frozen=True, slots=True)
class ScreeningAnnotation:
    """What one person said of a question; a line of ``screening-annotations.jsonl``."""

    question_id: str
    asked: int
    annotator: str | None = None
    screening: Screening | None = None
    amended: Screening | None = None
    adjudicates: bool = False
    benchmark: str | None = None

    @property
    def final(self) -> Screening:
        """What holds of it."""
        found = self.amended or self.screening
        assert found is not None  # only of those who finished
        return found


@dataclass(frozen=True)
class ToldResponse:
    """A response and all that people said of it."""

    response_id: str
    question_id: str
    kind: Kind
    asked: int
    said: tuple[Annotation, ...] = ()
    """Those who finished, adjudicators apart, in the order of their names."""
    adjudicated: Annotation | None = None
    benchmark: str | None = None
    source: Source | None = None

    @property
    def first(self) -> tuple[Judgment, ...]:
        """What each said before anybody changed anything."""
        return tuple(one.judgment for one in self.said if one.judgment is not None)

    @property
    def complete(self) -> bool:
        """Whether all who were asked have finished."""
        return len(self.said) >= self.asked

    @cached_property
    def triggers(self) -> tuple[Trigger, ...]:
        """Why an adjudicator must look; nothing before all have finished, and where one person alone was asked."""
        return triggers([one.final for one in self.said]) if self.complete and len(self.said) > 1 else ()

    @cached_property
    def settled(self) -> Settled | None:
        """What holds in the end; None while somebody is still to look."""
        last = None if self.adjudicated is None else self.adjudicated.final
        return settle([one.final for one in self.said], last, wanted=max(self.asked, len(self.said)))

    @property
    def open(self) -> str | None:
        """Why nothing holds yet."""
        return None if self.settled is not None else _open(len(self.said), self.asked)

    @property
    def rows(self) -> Iterator[Annotation]:
        """The lines of the file."""
        yield from self.said or [
            Annotation(
                self.response_id, self.question_id, self.kind, self.asked, benchmark=self.benchmark, source=self.source
            )
        ]
        if self.adjudicated is not None:
            yield self.adjudicated


@dataclass(frozen=True)
class ToldQuestion:
    """A question and all that screeners said of it."""

    question_id: str
    asked: int
    said: tuple[ScreeningAnnotation, ...] = ()
    adjudicated: ScreeningAnnotation | None = None
    benchmark: str | None = None

    @property
    def first(self) -> tuple[Screening, ...]:
        """What each said before anybody changed anything."""
        return tuple(one.screening for one in self.said if one.screening is not None)

    @cached_property
    def triggers(self) -> tuple[Trigger, ...]:
        """Why a third must look."""
        if len(self.said) < max(2, self.asked):
            return ()
        first, *others = (one.final for one in self.said)
        found = {trigger for other in others for trigger in screening_triggers(first, other)}
        return tuple(trigger for trigger in Trigger if trigger in found)

    @cached_property
    def settled(self) -> Screening | None:
        """What holds in the end; None while somebody is still to look."""
        said = tuple(one.final for one in self.said)
        last = None if self.adjudicated is None else self.adjudicated.final
        return Screened(self.question_id, {}, self.asked, said, last).settled

    @property
    def open(self) -> str | None:
        """Why nothing holds yet."""
        return None if self.settled is not None else _open(len(self.said), self.asked)

    @property
    def rows(self) -> Iterator[ScreeningAnnotation]:
        """The lines of the file."""
        yield from self.said or [ScreeningAnnotation(self.question_id, self.asked, benchmark=self.benchmark)]
        if self.adjudicated is not None:
            yield self.adjudicated


def _open(finished: int, asked: int) -> str:
    if not finished:
        return NOBODY
    return WAITS if finished >= asked else f"{finished} of {asked} have finished"


class Told(NamedTuple):
    """Everything that people said."""

    responses: tuple[ToldResponse, ...] = ()
    questions: tuple[ToldQuestion, ...] = ()


Row = TypeVar("Row", Annotation, ScreeningAnnotation)
One = TypeVar("One", Judgment, Screening)


def responses_of(annotations: Iterable[Annotation]) -> tuple[ToldResponse, ...]:
    """Annotations by response, in the order in which responses first come."""
    by_response: dict[str, list[Annotation]] = {}
    for one in annotations:
        by_response.setdefault(one.response_id, []).append(one)
    return tuple(_response(rows) for rows in by_response.values())


def _response(rows: Sequence[Annotation]) -> ToldResponse:
    any_ = rows[0]
    said, last = _split(rows)
    return ToldResponse(
        any_.response_id, any_.question_id, any_.kind, any_.asked, said, last, any_.benchmark, any_.source
    )


def questions_of(annotations: Iterable[ScreeningAnnotation]) -> tuple[ToldQuestion, ...]:
    """Annotations by question, in the order in which questions first come."""
    by_question: dict[str, list[ScreeningAnnotation]] = {}
    for one in annotations:
        by_question.setdefault(one.question_id, []).append(one)
    return tuple(_question(rows) for rows in by_question.values())


def _question(rows: Sequence[ScreeningAnnotation]) -> ToldQuestion:
    said, last = _split(rows)
    return ToldQuestion(rows[0].question_id, rows[0].asked, said, last, rows[0].benchmark)


def _split(rows: Sequence[Row]) -> tuple[tuple[Row, ...], Row | None]:
    """Those who were asked first, by name, and the adjudicator."""
    there = sorted((one for one in rows if one.annotator is not None), key=lambda one: one.annotator or "")
    last = next((one for one in there if one.adjudicates), None)
    return tuple(one for one in there if not one.adjudicates), last


def by(judge: str, said: One) -> One:
    """The same under another name."""
    return replace(said, judge=judge)
