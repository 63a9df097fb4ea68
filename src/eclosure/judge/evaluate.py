"""One response before a judging model: one question for each criterion, each with its own disclosure.

A criterion the model could not be brought to judge has no label and a reason; the others keep theirs. What is not the
model's doing (a server that is down, a time-out) is raised, so that it is asked again instead of being counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclosure.chat.failures import CallFailure
from eclosure.chat.model import ChatModel, Decoding, ReplySchema, Request
from eclosure.core.instance import Instance
from eclosure.core.judgment import (
    NO_ANSWER,
    NO_REFERENCE,
    NO_TRACE,
    REFERENCE_FREE,
    Criterion,
    Judgment,
    StepJudgment,
)
from eclosure.core.response import Response
from eclosure.errors import SettingError
from eclosure.protocol import disclosure
from eclosure.protocol.judging import Asked, Question, UnreadableReplyError, asked, guideline_hash, read_steps

if TYPE_CHECKING:
    from eclosure.protocol.disclosure import Disclosure


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How responses are judged. All of it decides what is asked, so all of it belongs to a run's identity."""

    reference_free: bool = False
    """Whether the reference is left out: completeness and correctness are then not judged."""
    attempts: int = 2
    """How often a judge is asked that answers in the wrong shape, about the wrong steps or with a false quote."""
    max_tokens: int = 4096
    temperature: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.attempts < 1 or self.max_tokens < 1:
            raise SettingError("a judge is asked at least once, for at least one token.")

    @property
    def identity(self) -> dict[str, Any]:
        """For manifests: the settings and what every question's guideline says."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return settings | {"guidelines": {str(question): guideline_hash(question) for question in Question}}


class UnjudgedError(Exception):
    """A judge that could not be brought to judge; the message is a reason that can be counted."""


async def judge(
    instance: Instance, response: Response, model: ChatModel, settings: JudgeSettings | None = None, *, replica: int = 0
) -> Judgment:
    """What the model says of a response, with a reason wherever it does not say anything."""
    case = _Case(instance, response, model, settings or JudgeSettings(), replica)
    *criteria, sufficiency = await _all(*(case.decide(criterion) for criterion in Criterion), case.sufficiency())
    by_criterion = dict(zip(Criterion, criteria, strict=True))
    steps = by_criterion[Criterion.LOCAL_SOUNDNESS].value
    told = {criterion: answer.value for criterion, answer in by_criterion.items() if isinstance(answer.value, Mapping)}
    return Judgment(
        response.id,
        model.name,
        steps if isinstance(steps, tuple) else (),
        aligned=_label(told, Criterion.ALIGNMENT, "aligned"),
        closed=_label(told, Criterion.CLOSURE, "closed"),
        complete=_label(told, Criterion.COMPLETENESS, "complete"),
        correct=_label(told, Criterion.CORRECTNESS, "correct"),
        unjudged={criterion: answer.reason for criterion, answer in by_criterion.items() if answer.reason is not None},
        reasons={criterion: str(value["reason"]) for criterion, value in told.items() if value["reason"]},
        pursued=_label(told, Criterion.ALIGNMENT, "pursued") or None,
        established=_label(told, Criterion.CLOSURE, "established") or None,
        evidence_sufficient=None if sufficiency.value is None else sufficiency.value["sufficient"],
        missing_evidence=None if sufficiency.value is None else sufficiency.value["missing"],
    )


async def _all(*asking: Awaitable[_Decision]) -> list[_Decision]:
    """Everything that was asked, once all have come back: what is under way may be paid for."""
    found = await asyncio.gather(*asking, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if isinstance(one, _Decision)]


def _label(told: Mapping[Criterion, Mapping[str, Any]], criterion: Criterion, name: str) -> Any:
    return told[criterion][name] if criterion in told else None


@dataclass(frozen=True, slots=True)
class _Decision:
    """What was said, or why nothing was."""

    value: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """A response before a judge."""

    instance: Instance
    response: Response
    model: ChatModel
    settings: JudgeSettings
    replica: int

    async def decide(self, criterion: Criterion) -> _Decision:
        reason = _reason_against(criterion, self.instance, self.response, self.settings)
        if reason is not None:
            return _Decision(reason=reason)
        shown = _DISCLOSED[criterion](self.instance, self.response)
        assert shown is not None
        return await self._ask(shown)

    async def sufficiency(self) -> _Decision:
        return await self._ask(disclosure.sufficiency(self.instance))

    async def _ask(self, shown: Disclosure) -> _Decision:
        try:
            return _Decision(await ask(self.model, shown, self.settings, self.replica))
        except UnjudgedError as error:
            return _Decision(reason=str(error))


def _reason_against(
    criterion: Criterion, instance: Instance, response: Response, settings: JudgeSettings
) -> str | None:
    """Why a criterion cannot be judged whoever judges it."""
    if criterion is not Criterion.CORRECTNESS and not response.trace.steps:
        return NO_TRACE
    if criterion in (Criterion.CLOSURE, Criterion.CORRECTNESS) and response.answer is None:
        return NO_ANSWER
    if criterion in (Criterion.COMPLETENESS, Criterion.CORRECTNESS):
        if settings.reference_free:
            return REFERENCE_FREE
        if instance.reference_answer is None:
            return NO_REFERENCE
    return None


_DISCLOSED: Mapping[Criterion, Callable[[Instance, Response], Disclosure | None]] = {
    Criterion.LOCAL_SOUNDNESS: disclosure.soundness,
    Criterion.ALIGNMENT: disclosure.alignment,
    Criterion.CLOSURE: disclosure.closure,
    Criterion.COMPLETENESS: disclosure.completeness,
    Criterion.CORRECTNESS: disclosure.correctness,
}


def requests(instance: Instance, response: Response, settings: JudgeSettings) -> Iterator[Request]:
    """Everything a judge is asked about a response, if it answers at the first attempt."""
    yield _request(asked(disclosure.sufficiency(instance)), settings, 0, 0)
    for criterion, disclose in _DISCLOSED.items():
        if _reason_against(criterion, instance, response, settings) is None:
            shown = disclose(instance, response)
            assert shown is not None
            yield _request(asked(shown), settings, 0, 0)


async def ask(
    model: ChatModel, shown: Disclosure, settings: JudgeSettings, replica: int = 0
) -> Mapping[str, Any] | tuple[StepJudgment, ...]:
    """The model's judgement of what it is shown. An answer that is none is asked for again, under a key of its own."""
    question = asked(shown)
    problem = ""
    for attempt in range(settings.attempts):
        try:
            reply = await model.complete(_request(question, settings, replica, attempt))
            return _read(shown, reply.text)
        except UnreadableReplyError as error:
            problem = error.kind
        except CallFailure as failure:
            if not failure.kind.semantic:
                raise
            problem = str(failure.kind)
    raise UnjudgedError(problem)


def _request(question: Asked, settings: JudgeSettings, replica: int, attempt: int) -> Request:
    return Request(
        question.messages,
        Decoding(max_tokens=settings.max_tokens, temperature=settings.temperature),
        ReplySchema(question.question, question.schema),
        replica,
        attempt,
        question.guideline,
    )


def _read(shown: Disclosure, text: str) -> Mapping[str, Any] | tuple[StepJudgment, ...]:
    if isinstance(shown, disclosure.Soundness):
        return read_steps(shown, text)
    told: Mapping[str, Any] = json.loads(text)  # of the right shape by now, or it would have been a failure
    return told
