"""The interface of chat models: requests with messages and decoding settings in, replies with usage out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from eclose.prompts.locked_texts import PromptMessage
from eclose.values.identity import hash_sort_key


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """The limit of new tokens was reached, so the end of the reply is missing."""
    REFUSAL = "refusal"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decoding settings of a request. The defaults are greedy, as in the paper's evaluation."""

    max_tokens: int = 512
    """Largest number of new tokens."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    top_logprobs: int | None = None
    """Number of alternatives to report per token; None for no log-probabilities."""
    thinking: bool | None = None
    """Whether a reasoning model reasons before it answers; None sends no such setting."""
    effort: str | None = None
    """Reasoning effort in the provider's own words, such as ``low``; None sends no such setting."""

    @property
    def plain(self) -> dict[str, Any]:
        """The settings as plain values, for records and call keys."""
        # Fields added after the first release of the format are left out where unset, so older calls keep their keys.
        settings = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in settings.items() if value is not None or name not in _ADDED_LATER}


_ADDED_LATER = frozenset({"thinking", "effort"})


@dataclass(frozen=True, slots=True)
class ReplySchema:
    """The JSON schema that a structured reply must match."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a request is sent for; it affects neither the reply nor the key."""

    step: str = ""
    """Name of the job."""
    record_id: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that decides a reply, except for the model."""

    messages: tuple[PromptMessage, ...]
    decoding: Decoding = field(default_factory=Decoding)
    schema: ReplySchema | None = None
    replica: int = 0
    """Number of an independent repeat of the same request; each replica is its own call."""
    attempt: int = 0
    """Number of unusable answers to this request so far; each attempt is its own call."""
    guideline: str | None = None
    """Hash of the locked prompt text that the messages were built from; None without such a text."""

    @property
    def seed(self) -> int | None:
        """Seed to send: the setting for the first draw, a derived seed of 31 bits for every replica and attempt."""
        # Sent unchanged, a fixed seed would make every repeat the same draw.
        seed, draw = self.decoding.seed, (self.replica, self.attempt)
        return seed if seed is None or draw == (0, 0) else int(hash_sort_key(seed, *draw)[:8], 16) >> 1


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of a prompt and of its reply."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that the server reports as read from its prompt cache; 0 also where it reports none."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of a reply with its log-probability and the likeliest alternatives."""

    token: str
    logprob: float
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a model."""

    text: str
    finish: FinishReason
    usage: TokenUsage
    logprobs: tuple[TokenLogprob, ...] | None = None


def identify_request(model: str, request: Request) -> dict[str, Any]:
    """Return everything that decides a reply as plain values; the hash of these is the key of the call.

    Paths, code and positions in files are not part of it: the same request to the same model has the same key on every
    machine.
    """
    return {
        "model": model,
        "messages": [dict(message) for message in request.messages],
        "decoding": request.decoding.plain,
        # A new entry here changes the key of every call, so replies that are already paid for would be paid again.
        "schema": None if request.schema is None else {"name": request.schema.name, "schema": request.schema.schema},
        "guideline": request.guideline,
        "replica": request.replica,
        "attempt": request.attempt,
    }


class ChatModel(Protocol):
    """A model that answers single requests, many of them concurrently."""

    @property
    def name(self) -> str:
        """Name of the model in records and call keys."""
        ...

    async def complete(self, request: Request) -> Reply:
        """Return the reply; raise ``CallFailure`` where there is none."""
        ...


class RunModel(ChatModel, Protocol):
    """A model of a run, whose calls are recorded with the record they are made for."""

    def for_record(self, context: CallContext) -> ChatModel:
        """Return the model for the calls of one job on one record."""
        ...


class LocalBatchModel(Protocol):
    """A model in this process that answers a batch of requests in one call."""

    @property
    def name(self) -> str:
        """Name of the model in records and call keys."""
        ...

    def complete_all(self, requests: Sequence[Request]) -> list[Reply]:
        """Return one reply per request, in order."""
        ...
