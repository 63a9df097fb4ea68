"""A model of one of Inspect's providers, asked as any other of ours.

What comes back is read by the same rules as a reply over HTTP: a refusal, a reply that was cut off, and one of the
wrong shape are failures with a kind, never a label. Inspect's own limits and our bugs are raised as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr, ValidationError

from eclose.core.identity import content_hash
from eclose.core.response import Source
from eclose.errors import SettingError, UserError
from eclose.models.openai.failures import CallFailure, FailureKind, HttpResponse, excerpt, iterate_causes, mask
from eclose.models.openai.parse_reply import parse_reply
from eclose.protocol.structured import inlined

if TYPE_CHECKING:
    from inspect_ai.model import ChatCompletionChoice, ChatMessage, GenerateConfig, Model, ModelOutput

    from eclose.models.interface import ChatModel, Decoding, Reply, Request
    from eclose.protocol.prompts import Message

PREFIX = "inspect/"
"""What the name of a model begins with that was asked through Inspect."""
PROVIDER = "eclose"
"""The provider, by Inspect's word, of the models in logs of ours."""

_FINISHES = {"max_tokens": "length", "model_length": "length"}
"""Where Inspect's word for the end of a reply is not the protocol's; the context's end is an end of length, too."""
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
"""Names of arguments that are never written down."""
_TRANSPORT = frozenset({"APIConnectionError", "ClientError", "TransportError", "NetworkError"})
_TIMEOUTS = frozenset({"APITimeoutError", "AttemptTimeoutError", "StreamIdleTimeoutError", "TimeoutException"})


class InspectModel:
    """A ``ChatModel`` behind one of Inspect's providers."""

    def __init__(self, model: Model, name: str | None = None) -> None:
        self._model = model
        self._name = name or f"{PREFIX}{model}"

    @property
    def name(self) -> str:
        """The name that records have for the model."""
        return self._name

    async def complete(self, request: Request) -> Reply:
        """The reply; a ``CallFailure`` where there is none that can be used."""
        # Whoever asks once more wants another answer, not the kept one.
        anew: dict[str, Any] = {"cache": False} if request.attempt or request.replica else {}
        try:
            output = await self._model.generate(
                chat_messages(request.messages), config=generate_config(request), **anew
            )
        except Exception as error:
            outcome: Reply | CallFailure | None = self._failure(error, request)
            if outcome is None:
                outcome = self._without_key(error)
            if outcome is None:
                raise
        else:
            outcome = parse_reply(_answer(output), request, key=self._key)
        if isinstance(outcome, CallFailure):
            # Without the client's own error behind it: that one may hold the key.
            raise outcome from None
        return outcome

    @property
    def _key(self) -> SecretStr | None:
        key = getattr(self._model.api, "api_key", None)
        return SecretStr(key) if isinstance(key, str) else None

    def _without_key(self, error: Exception) -> CallFailure | None:
        """Return a failure in place of an error whose text holds the key; None where it holds none."""
        secret = self._key.get_secret_value() if self._key is not None else ""
        text = "\n".join(str(cause) for cause in iterate_causes(error))
        if mask(text, secret) == text:
            return None
        return CallFailure(FailureKind.PERMANENT, f"{type(error).__name__}: {excerpt(text, secret)}")

    def _failure(self, error: Exception, request: Request) -> Reply | CallFailure | None:
        """What a provider's error means; None for one that is no provider's."""
        chain = list(iterate_causes(error))
        if (output := getattr(error, "output", None)) is not None:  # a refusal, where Inspect is told to raise them
            return parse_reply(_answer(output), request, key=self._key)
        for cause in chain:
            if (status := _status(cause)) is not None:
                return parse_reply(HttpResponse(status, _headers(cause), _body(cause)), request, key=self._key)
        names = {base.__name__ for cause in chain for base in type(cause).__mro__}
        if names & _TIMEOUTS or isinstance(chain[-1], TimeoutError):
            return CallFailure(FailureKind.TIMEOUT, f"no whole reply in time ({type(chain[-1]).__name__}).")
        return parse_reply(error, request, key=self._key) if names & _TRANSPORT else None


def chat_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """A conversation in Inspect's words."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser  # noqa: PLC0415 - optional

    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return [kinds[message["role"]](content=message["content"]) for message in messages]


def generate_config(request: Request) -> GenerateConfig:
    """How the reply is drawn, and its shape, in Inspect's words."""
    from inspect_ai.model import GenerateConfig  # noqa: PLC0415 - optional

    decoding = request.decoding
    told: dict[str, Any] = {"max_tokens": decoding.max_tokens, "temperature": decoding.temperature}
    if decoding.top_p != 1.0:
        told["top_p"] = decoding.top_p
    if (seed := request.seed) is not None:
        told["seed"] = seed
    if decoding.top_logprobs is not None:
        told |= {"logprobs": True, "top_logprobs": decoding.top_logprobs}
    if request.schema is not None:
        # Inspect drops definitions and references in silence.
        shape = {"name": str(request.schema.name), "json_schema": inlined(request.schema.schema), "strict": True}
        told["response_schema"] = shape
    try:
        return GenerateConfig.model_validate(told | _thinking(decoding))
    except ValidationError as invalid:
        raise SettingError(f"Inspect does not take this: {invalid.errors()[0]['msg']}.") from invalid


def _thinking(decoding: Decoding) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if decoding.effort is not None:
        told["reasoning_effort"] = decoding.effort
    if decoding.thinking is not None:
        # As vLLM, SGLang and llama.cpp take it.
        told["extra_body"] = {"chat_template_kwargs": {"enable_thinking": decoding.thinking}}
    return told


def _answer(output: ModelOutput) -> HttpResponse:
    """Inspect's output as the body of a completion, to be read as every other one is."""
    body: dict[str, Any] = {"choices": [_choice(choice, output.error) for choice in output.choices]}
    if (usage := output.usage) is not None:
        # Inspect counts what was read from or written to a cache apart.
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        body["usage"] = {"prompt_tokens": usage.input_tokens + cached, "completion_tokens": usage.output_tokens}
    return HttpResponse(200, {"content-type": "application/json"}, json.dumps(body).encode())


def _choice(choice: ChatCompletionChoice, error: str | None) -> dict[str, Any]:
    reason = choice.stop_reason
    message: dict[str, Any] = {"content": choice.message.text}
    if refused(choice):
        told = choice.stop_details.explanation if choice.stop_details is not None else None
        message["refusal"] = told or error or choice.message.text or "stopped by a content filter"
    if choice.message.tool_calls:
        message["tool_calls"] = [call.function for call in choice.message.tool_calls]
    logprobs = None if choice.logprobs is None else choice.logprobs.model_dump(mode="json")
    return {"message": message, "finish_reason": _FINISHES.get(reason, reason), "logprobs": logprobs}


def refused(choice: ChatCompletionChoice) -> bool:
    """Whether the model will not answer. Some refusals end like any other reply, and only their text is marked."""
    parts = choice.message.content
    marked = not isinstance(parts, str) and any(getattr(part, "refusal", None) for part in parts)
    return marked or choice.stop_reason == "content_filter"


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error of a provider's client carries."""
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        if type(value) is int and 300 <= value < 600:
            return value
    return None


def _headers(error: BaseException) -> dict[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return {str(name).lower(): str(value) for name, value in dict(headers).items()}


def _body(error: BaseException) -> bytes:
    """What the provider said. Inspect's own message holds the whole request, so it is not taken."""
    content = getattr(getattr(error, "response", None), "content", None)
    if isinstance(content, bytes):
        return content
    return str(getattr(error, "provider_message", None) or error).encode("utf-8", "replace")


@dataclass(frozen=True)
class ThroughInspect:
    """A model by Inspect's name for it, for the runs of ours that take a named model.

    Inspect tries nothing again here: the patience around our calls does, and keeps the books.
    """

    model: str
    base_url: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What else the provider takes, as after ``-M`` on Inspect's command line."""
    server: str | None = None
    """The name of the server at ``base_url``; None for its host, port and path."""

    @property
    def name(self) -> str:
        """The name that records and calls have for the model: another one for another server or other arguments."""
        from eclose.models.openai.endpoint import server_name  # noqa: PLC0415 - needs the client, which logs do without

        server = self.server or (None if self.base_url is None else server_name(self.base_url))
        told = self._plain_arguments
        digest = content_hash(told).removeprefix("sha256:")[:8] if told else None
        return "@".join(part for part in (f"{PREFIX}{self.model}", server, digest) if part)

    @property
    def _plain_arguments(self) -> dict[str, str]:
        """The arguments as they may be written down: no keys, and nothing but text."""
        return {name: str(value) for name, value in self.arguments.items() if not _SECRET.search(name)}

    @property
    def source(self) -> Source:
        """Where responses come from."""
        return Source(self.name)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the responses, for the settings of a run."""
        told = self._plain_arguments
        return {"model": self.name} | ({"arguments": told} if told else {})

    @property
    def thinking(self) -> bool | None:
        """Left to the provider."""
        return None

    @asynccontextmanager
    async def opened(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:
        """The model as one that sends, without patience and without books."""
        require_inspect()
        from inspect_ai.model import GenerateConfig, get_model  # noqa: PLC0415 - optional

        config = GenerateConfig(max_retries=0, attempt_timeout=ceil(deadline), max_connections=concurrency)
        made = get_model(self.model, base_url=self.base_url, config=config, memoize=False, **self.arguments)
        async with made as model:
            yield InspectModel(model, self.name)


def require_inspect() -> None:
    """Raise with the line that installs it where Inspect is missing."""
    if find_spec("inspect_ai") is None:
        raise UserError("this needs Inspect AI. Run: pip install 'eclose[inspect]'")
