"""What a chat model is: messages in, a reply out. Who answers, and how, is for the other modules of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol

from eclose.core.identity import hash_rank
from eclose.protocol.prompts import Message


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The model was done."""
    LENGTH = "length"
    """It ran into the limit of new tokens: what it would have said is not known."""
    REFUSAL = "refusal"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a reply is drawn. The defaults are greedy, as the paper evaluates."""

    max_tokens: int = 512
    """New tokens at most."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    top_logprobs: int | None = None
    """How many alternatives to report per token; None for no log-probabilities at all."""
    thinking: bool | None = None
    """Whether a model that can think before it answers shall do so; None leaves it to the server, unmentioned."""
    effort: str | None = None
    """How hard a model that thinks shall think, in its provider's words; None leaves it to the server."""

    @property
    def plain(self) -> dict[str, Any]:
        """As records and keys have it. What came later is left out where it is unset: earlier calls keep their keys."""
        later = {"thinking", "effort"}
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in told.items() if value is not None or name not in later}


@dataclass(frozen=True, slots=True)
class ReplySchema:
    """The shape a structured reply must have."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that decides a reply, apart from the model."""

    messages: tuple[Message, ...]
    decoding: Decoding = field(default_factory=Decoding)
    schema: ReplySchema | None = None
    replica: int = 0
    """Tells apart requests that are to be answered anew though they are the same."""
    attempt: int = 0
    """How often the model has answered this badly before."""
    guideline: str | None = None
    """The hash of the locked text that the messages were made from, where there is one."""

    @property
    def seed(self) -> int | None:
        """The first draw has the seed as it was given, every other one its own; 31 bits, which every server takes."""
        seed, draw = self.decoding.seed, (self.replica, self.attempt)
        return seed if seed is None or draw == (0, 0) else int(hash_rank(seed, *draw)[:8], 16) >> 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of a reply with its log-probability, and the likeliest alternatives."""

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said."""

    text: str
    finish: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None


def identify_request(model: str, request: Request) -> dict[str, Any]:
    """Everything that decides a reply, as plain values: what a call is known by.

    No path, no function, no place in a file: the same question to the same model is the same call wherever it is asked.
    """
    return {
        "model": model,
        "messages": [dict(message) for message in request.messages],
        "decoding": request.decoding.plain,
        "schema": None if request.schema is None else {"name": request.schema.name, "schema": request.schema.schema},
        "guideline": request.guideline,
        "replica": request.replica,
        "attempt": request.attempt,
    }


class ChatModel(Protocol):
    """A model that answers one request at a time, many at once in flight: a server."""

    @property
    def name(self) -> str:
        """What records say of who answered."""
        ...

    async def complete(self, request: Request) -> Reply:
        """The reply; raises when there is none."""
        ...


class ModelWrapper:
    """A model around another one: it goes by the other's name."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """What records say of who answered."""
        return self._model.name


class BatchModel(Protocol):
    """A model in this process, which is fastest when it answers many requests in one go."""

    @property
    def name(self) -> str:
        """What records say of who answered."""
        ...

    def complete_all(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order."""
        ...
