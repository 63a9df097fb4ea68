"""One question to a judging model: how it is asked, how often, and what becomes of an answer that is none."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eclosure.chat.failures import CallFailure, FailureKind
from eclosure.chat.model import ChatModel, Decoding, ReplySchema, Request
from eclosure.errors import SettingError
from eclosure.protocol.judging import JOINT_PARTS, Asked, Question, UnreadableReplyError, guideline_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How responses are judged. All of it decides what is asked, so all of it belongs to a run's identity."""

    reference_free: bool = False
    """Whether the reference is left out: completeness and correctness are then not judged."""
    joint: bool = False
    """Whether everything is asked in one call. Cheaper, and the judge sees what it should not use."""
    repeat: int = 1
    """How often every question is asked; the label is what most of the answers say."""
    effort: str | None = None
    """How hard a judge that thinks shall think, in its provider's words: low, medium, high."""
    attempts: int = 2
    """How often a judge is asked that answers in the wrong shape, about the wrong steps or with a false quote."""
    max_tokens: int = 4096
    temperature: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if min(self.attempts, self.max_tokens, self.repeat) < 1:
            raise SettingError("a judge is asked at least once, for at least one token.")

    @property
    def identity(self) -> dict[str, Any]:
        """For manifests: the settings and what every question's guideline says."""
        questions = (*JOINT_PARTS, *([Question.JOINT] if self.joint else []))
        return asdict(self) | {"guidelines": {str(question): guideline_hash(question) for question in questions}}

    @property
    def decoding(self) -> Decoding:
        """As the model is told. Repetitions have a seed, so that they are different draws to a server that draws."""
        seed = 0 if self.repeat > 1 else None
        return Decoding(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed, effort=self.effort)


@dataclass(frozen=True, slots=True)
class Said:
    """What a judge said, or why there is nothing to go by."""

    value: Any = None
    reason: str | None = None


def request_of(question: Asked, settings: JudgeSettings, replica: int = 0, attempt: int = 0) -> Request:
    """The question as it is sent."""
    schema = ReplySchema(question.question, question.schema)
    return Request(question.messages, settings.decoding, schema, replica, attempt, question.guideline)


async def ask(
    model: ChatModel,
    question: Asked,
    settings: JudgeSettings,
    read: Callable[[Mapping[str, Any]], Any],
    replica: int = 0,
) -> Said:
    """What the model says, as ``read`` understands it. An answer that is none is asked for again, under another key.

    What is not the model's doing (a server that is down, a time-out) is raised, so that it is asked again instead of
    being counted.
    """
    problem = ""
    for attempt in range(settings.attempts):
        try:
            reply = await model.complete(request_of(question, settings, replica, attempt))
            return Said(read(json.loads(reply.text)))  # of the right shape by now, or it would have been a failure
        except UnreadableReplyError as error:
            problem = error.kind
        except CallFailure as failure:
            if failure.kind is FailureKind.TOO_LONG:
                return Said(reason=str(failure.kind))  # another question about this response may fit
            if not failure.kind.semantic:
                raise
            problem = str(failure.kind)
    return Said(reason=problem)
