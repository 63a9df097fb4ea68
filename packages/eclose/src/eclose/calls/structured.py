"""Ask a model a structured question: build the request, retry unusable answers, parse the reply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import Decoding, ReplySchema, Request
from eclose.prompts.structured import InconsistentReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eclose.calls.model import ChatModel
    from eclose.prompts.structured import PromptWithSchema

EARLY_DECISION = "verdict before reason"
"""Kind of a reply that decides before it gives its reason."""


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """The parsed answer to a structured question, or the reason why there is none."""

    value: Any = None
    """The answer as returned by the reader; None where there is none."""
    reason: str | None = None
    """Kind of failure, for counting; None for an answer."""
    problem: str = ""
    """Problem of the last reply."""


MAX_REASON_CHARS = 300
"""Longest reason for a missing label, in characters."""


def format_reason(answer: StructuredAnswer) -> str:
    """Return kind and problem of an unusable answer: ``invalid: 'aligned' is a required property``."""
    return f"{answer.reason}: {answer.problem}"[:MAX_REASON_CHARS] if answer.problem else str(answer.reason)


def build_structured_request(
    question: PromptWithSchema, decoding: Decoding, replica: int = 0, attempt: int = 0
) -> Request:
    """Return the request for a question."""
    schema = ReplySchema(question.name, question.schema)
    return Request(
        messages=question.messages,
        decoding=decoding,
        schema=schema,
        replica=replica,
        attempt=attempt,
        guideline=question.guideline,
    )


async def ask_structured(
    model: ChatModel,
    question: PromptWithSchema,
    read: Callable[[Mapping[str, Any]], Any],
    *,
    decoding: Decoding,
    attempts: int = 1,
    replica: int = 0,
) -> StructuredAnswer:
    """Return the answer as parsed by ``read``, after at most ``attempts`` requests.

    Each attempt is its own call with its own key. Failures of the service (server down, time-out) are raised, so that
    the record is tried again later instead of being counted as unanswered.
    """
    kind = problem = ""
    for attempt in range(attempts):
        try:
            reply = await model.complete(build_structured_request(question, decoding, replica, attempt))
            fields = json.loads(reply.text)  # the schema was checked by the endpoint
            _refuse_early_decision(fields)
            return StructuredAnswer(read(fields))
        except InconsistentReplyError as error:
            kind, problem = error.kind, str(error)
        except CallFailure as failure:
            if failure.kind is CallFailureKind.TOO_LONG:
                # No further attempt: the same request is too long every time. Other questions on the record may fit.
                return StructuredAnswer(reason=str(failure.kind), problem=failure.problem)
            if not failure.kind.semantic:
                raise
            kind, problem = str(failure.kind), failure.problem
    return StructuredAnswer(reason=kind, problem=problem)


def _refuse_early_decision(value: Any) -> None:
    """Raise where a decision is written before its reason, which then explains it afterwards and leads to nothing.

    Schemas put the reason first; a provider may order the keys otherwise.
    """
    if isinstance(value, dict) and "reason" in value:
        for name, decision in value.items():
            if name == "reason":
                break
            if isinstance(decision, bool) or name == "verdict":
                raise InconsistentReplyError(EARLY_DECISION, f"{name!r} is written before its reason.")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_early_decision(item)
