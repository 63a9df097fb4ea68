"""One structured question to a model: how often it is asked, and what becomes of an answer that is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.models.interface import Decoding, ReplySchema, Request
from eclose.models.openai.failures import CallFailure, FailureKind
from eclose.protocol.structured import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.models.interface import ChatModel
    from eclose.protocol.structured import Asked


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said, or why there is nothing to go by."""

    value: Any = None
    reason: str | None = None
    """The kind of failure: one of a few, to be counted."""
    problem: str = ""
    """What was wrong with the last reply."""


def build_request(question: Asked, decoding: Decoding, replica: int = 0, attempt: int = 0) -> Request:
    """The question as it is sent."""
    schema = ReplySchema(question.name, question.schema)
    return Request(question.messages, decoding, schema, replica, attempt, question.guideline)


async def ask_structured(
    model: ChatModel,
    question: Asked,
    read: Callable[[Mapping[str, Any]], Any],
    *,
    decoding: Decoding,
    attempts: int = 1,
    replica: int = 0,
) -> Answer:
    """What the model says, as ``read`` understands it. An answer that is none is asked for again, under another key.

    What is not the model's doing (a server that is down, a time-out) is raised, so that it is asked again instead of
    being counted.
    """
    kind = problem = ""
    for attempt in range(attempts):
        try:
            reply = await model.complete(build_request(question, decoding, replica, attempt))
            return Answer(read(json.loads(reply.text)))  # of the right shape by now, or it would have been a failure
        except UnreadableReplyError as error:
            kind, problem = error.kind, str(error)
        except CallFailure as failure:
            if failure.kind is FailureKind.TOO_LONG:
                return Answer(
                    reason=str(failure.kind), problem=failure.problem
                )  # another question about the same thing may fit
            if not failure.kind.semantic:
                raise
            kind, problem = str(failure.kind), failure.problem
    return Answer(reason=kind, problem=problem)
