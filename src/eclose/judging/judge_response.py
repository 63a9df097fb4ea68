"""One response before a judging model: one call for each question with its own disclosure, or all of them in one.

A criterion the model could not be brought to judge has no label and a reason; the others keep theirs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.structured import Answer, ask_structured, build_request
from eclose.core.instance import Instance
from eclose.core.judgment import NO_ANSWER, NO_REFERENCE, NO_TRACE, REFERENCE_FREE, Criterion, Judgment
from eclose.core.response import Response
from eclose.judging.majority import settle
from eclose.judging.settings import JudgeSettings
from eclose.protocol import disclosure
from eclose.protocol.judging import JOINT_PARTS, QUESTIONS, Question, asked, read_steps
from eclose.protocol.structured import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from eclose.models.interface import ChatModel, Request
    from eclose.protocol.disclosure import Disclosure, Whole
    from eclose.protocol.structured import Asked


async def judge_response(
    instance: Instance, response: Response, model: ChatModel, settings: JudgeSettings | None = None, *, replica: int = 0
) -> Judgment:
    """What the model says of a response, with a reason wherever it does not say anything."""
    settings = settings or JudgeSettings()
    case = _Case(instance, response, settings)
    asking = case.jointly if settings.joint else case.separately
    said = await _all(*(asking(model, replica + number) for number in range(settings.repeat)))
    return settle([_judgment(case, model.name, answers) for answers in said])


def requests(instance: Instance, response: Response, settings: JudgeSettings) -> Iterator[Request]:
    """Everything a judge is asked about a response, if it answers at the first attempt."""
    case = _Case(instance, response, settings)
    for replica in range(settings.repeat):
        if settings.joint:
            yield build_request(asked(case.whole, case.questions), settings.decoding, replica)
        else:
            for question in case.questions:
                yield build_request(asked(case.shown(question)), settings.decoding, replica)


@dataclass(frozen=True, slots=True)
class _Case:
    """A response before a judge."""

    instance: Instance
    response: Response
    settings: JudgeSettings

    @property
    def whole(self) -> Whole:
        return disclosure.whole(self.instance, self.response, reference_free=self.settings.reference_free)

    @property
    def questions(self) -> list[Question]:
        """Those that can be asked at all."""
        never = {QUESTIONS[criterion] for criterion in self.unasked}
        return [question for question in JOINT_PARTS if question not in never]

    @property
    def unasked(self) -> dict[Criterion, str]:
        """Why a criterion cannot be judged whoever judges it."""
        found = ((criterion, self._against(criterion)) for criterion in Criterion)
        return {criterion: reason for criterion, reason in found if reason is not None}

    def _against(self, criterion: Criterion) -> str | None:
        if criterion is not Criterion.CORRECTNESS and not self.response.trace.steps:
            return NO_TRACE
        if criterion in (Criterion.CLOSURE, Criterion.CORRECTNESS) and self.response.answer is None:
            return NO_ANSWER
        if criterion in (Criterion.COMPLETENESS, Criterion.CORRECTNESS):
            if self.settings.reference_free:
                return REFERENCE_FREE
            if self.instance.reference_answer is None:
                return NO_REFERENCE
        return None

    def shown(self, question: Question) -> Disclosure:
        """What a judge of one question sees."""
        if question is Question.SUFFICIENCY:
            return disclosure.sufficiency(self.instance)
        shown = _DISCLOSED[question](self.instance, self.response)
        assert shown is not None
        return shown

    async def separately(self, model: ChatModel, replica: int) -> dict[Question, Answer]:
        """One call for each question, which sees no more than it may."""
        questions = self.questions
        said = await _all(*(self._ask_one(question, model, replica) for question in questions))
        return dict(zip(questions, said, strict=True))

    async def _ask_one(self, question: Question, model: ChatModel, replica: int) -> Answer:
        shown = self.shown(question)
        read = partial(_read, question, shown)
        return await self._ask(model, asked(shown), read, replica)

    async def _ask(self, model: ChatModel, question: Asked, read: Callable[[Any], Any], replica: int) -> Answer:
        settings = self.settings
        return await ask_structured(model, question, read, decoding=settings.decoding, attempts=settings.attempts, replica=replica)

    async def jointly(self, model: ChatModel, replica: int) -> dict[Question, Answer]:
        """One call for all; a part that cannot be read makes the judge try again, and is left open in the end."""
        questions, whole = self.questions, self.whole
        latest: dict[Question, Answer] = {}

        def read(told: Mapping[str, Any]) -> dict[Question, Answer]:
            for question in questions:
                latest[question] = _part(question, whole, told[question.part])
            if unread := next((said for said in latest.values() if said.reason is not None), None):
                raise UnreadableReplyError(unread.reason or "", unread.problem)
            return latest

        said = await self._ask(model, asked(whole, questions), read, replica)
        return latest or dict.fromkeys(questions, said)


_DISCLOSED: Mapping[Question, Callable[[Instance, Response], Disclosure | None]] = {
    Question.SOUNDNESS: disclosure.soundness,
    Question.ALIGNMENT: disclosure.alignment,
    Question.CLOSURE: disclosure.closure,
    Question.COMPLETENESS: disclosure.completeness,
    Question.CORRECTNESS: disclosure.correctness,
}


def _part(question: Question, whole: Whole, told: Mapping[str, Any]) -> Answer:
    try:
        return Answer(_read(question, whole, told))
    except UnreadableReplyError as error:
        return Answer(reason=error.kind, problem=str(error))


def _read(question: Question, shown: Disclosure, told: Mapping[str, Any]) -> Any:
    if question is not Question.SOUNDNESS:
        return told
    assert isinstance(shown, disclosure.Soundness | disclosure.Whole)
    return read_steps(shown, told)


async def _all(*asking: Awaitable[Any]) -> list[Any]:
    """Everything that was asked, once all have come back: what is under way may be paid for."""
    found = await asyncio.gather(*asking, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


LONGEST_REASON = 300
"""Characters of a reason: enough to act on, never a whole reply."""


def _reason(answer: Answer) -> str:
    """``invalid: 'aligned' is a required property``: the kind, then what was wrong with the last reply."""
    return f"{answer.reason}: {answer.problem}"[:LONGEST_REASON] if answer.problem else str(answer.reason)


def _judgment(case: _Case, judge_name: str, said: Mapping[Question, Answer]) -> Judgment:
    told = {question: one.value for question, one in said.items() if one.reason is None}
    answers = {name: said[question] for name, question in QUESTIONS.items() if question in said}
    failed = {name: _reason(answer) for name, answer in answers.items() if answer.reason is not None}
    unjudged = case.unasked | failed

    def label(question: Question, name: str) -> Any:
        return told[question][name] if question in told else None

    reasons = {name: label(question, "reason") for name, question in QUESTIONS.items() if name != "L"}
    return Judgment(
        case.response.id,
        judge_name,
        told.get(Question.SOUNDNESS, ()),
        aligned=label(Question.ALIGNMENT, "aligned"),
        closed=label(Question.CLOSURE, "closed"),
        complete=label(Question.COMPLETENESS, "complete"),
        correct=label(Question.CORRECTNESS, "correct"),
        unjudged={criterion: unjudged[criterion] for criterion in Criterion if criterion in unjudged},
        reasons={criterion: reason for criterion, reason in reasons.items() if reason},
        pursued=label(Question.ALIGNMENT, "pursued") or None,
        established=label(Question.CLOSURE, "established") or None,
        evidence_sufficient=label(Question.SUFFICIENCY, "sufficient"),
        missing_evidence=label(Question.SUFFICIENCY, "missing"),
    )
