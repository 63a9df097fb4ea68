"""Models of Inspect's providers behind the model interface of eclose.

Outputs are parsed by the same rules as replies over HTTP: a refusal, a truncated reply and a violated schema are
failures with a kind, never a label. Errors of Inspect itself and bugs are raised unchanged.
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

from eclose.calls.http.failures import (
    CallFailure,
    CallFailureKind,
    HttpResponse,
    excerpt_server_text,
    find_secret_texts,
    iterate_exception_causes,
    mask_secrets,
)
from eclose.calls.http.parse_reply import parse_http_reply
from eclose.errors import SettingError, UserError
from eclose.prompts.structured import inline_schema_definitions
from eclose.values.identity import content_hash
from eclose.values.response import ResponseSource

if TYPE_CHECKING:
    from inspect_ai.model import ChatCompletionChoice, ChatMessage, GenerateConfig, Model, ModelOutput

    from eclose.calls.model import ChatModel, Reply, Request
    from eclose.prompts.locked_texts import PromptMessage

INSPECT_PREFIX = "inspect/"
"""Prefix of the names of models that are called through Inspect."""

# Stop reasons of Inspect that the OpenAI protocol names otherwise.
_FINISH_REASONS = {"max_tokens": "length", "model_length": "length"}
# Arguments with such names are never written to a file.
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
# Errors of provider clients by class name, because the clients are not imported here.
_TRANSPORT = frozenset({"APIConnectionError", "ClientError", "TransportError", "NetworkError"})
_TIMEOUTS = frozenset({"APITimeoutError", "AttemptTimeoutError", "StreamIdleTimeoutError", "TimeoutException"})


class InspectModel:
    """A ``ChatModel`` behind one of Inspect's providers."""

    def __init__(self, model: Model, name: str | None = None) -> None:
        self._model = model
        self.name = name or f"{INSPECT_PREFIX}{model}"
        """Name of the model in records."""

    async def complete(self, request: Request) -> Reply:
        """Return the reply; raise ``CallFailure`` where it cannot be used."""
        # A repeated or retried question needs a new reply, not the one in Inspect's cache.
        caching: dict[str, Any] = {"cache": False} if request.attempt or request.replica else {}
        try:
            output = await self._model.generate(
                build_inspect_messages(request.messages), config=build_inspect_config(request), **caching
            )
        except Exception as error:
            outcome: Reply | CallFailure | None = self._classify(error, request)
            if outcome is None:
                outcome = self._mask_key(error)
            if outcome is None:
                raise
        else:
            outcome = parse_http_reply(_to_http_response(output), request, key=self._key)
        if isinstance(outcome, CallFailure):
            # "from None", because the text of the client's error may contain the key.
            raise outcome from None
        return outcome

    @property
    def _key(self) -> SecretStr | None:
        key = getattr(self._model.api, "api_key", None)
        return SecretStr(key) if isinstance(key, str) else None

    def _mask_key(self, error: Exception) -> CallFailure | None:
        secrets = () if self._key is None else find_secret_texts(self._key.get_secret_value())
        text = "\n".join(str(cause) for cause in iterate_exception_causes(error))
        if mask_secrets(text, secrets) == text:
            return None
        return CallFailure(CallFailureKind.PERMANENT, f"{type(error).__name__}: {excerpt_server_text(text, secrets)}")

    def _classify(self, error: Exception, request: Request) -> Reply | CallFailure | None:
        chain = list(iterate_exception_causes(error))
        # Inspect can be configured to raise refusals; the output is then attached to the error.
        if (output := getattr(error, "output", None)) is not None:
            return parse_http_reply(_to_http_response(output), request, key=self._key)
        # The status may be on any error of the chain: Inspect and the clients wrap each other's errors.
        for cause in chain:
            if (status := _status(cause)) is not None:
                return parse_http_reply(HttpResponse(status, _headers(cause), _body(cause)), request, key=self._key)
        names = {base.__name__ for cause in chain for base in type(cause).__mro__}
        if names & _TIMEOUTS or isinstance(chain[-1], TimeoutError):
            return CallFailure(CallFailureKind.TIMEOUT, f"no complete reply in time ({type(chain[-1]).__name__}).")
        return parse_http_reply(error, request, key=self._key) if names & _TRANSPORT else None


def build_inspect_messages(messages: Sequence[PromptMessage]) -> list[ChatMessage]:
    """Return a conversation as messages of Inspect."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser  # noqa: PLC0415 - optional

    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return [kinds[message["role"]](content=message["content"]) for message in messages]


def build_inspect_config(request: Request) -> GenerateConfig:
    """Return the decoding parameters and the schema of a request as a configuration of Inspect."""
    from inspect_ai.model import GenerateConfig  # noqa: PLC0415 - optional

    decoding = request.decoding
    config: dict[str, Any] = {"max_tokens": decoding.max_tokens, "temperature": decoding.temperature}
    if decoding.top_p != 1.0:
        config["top_p"] = decoding.top_p
    if (seed := request.seed) is not None:
        config["seed"] = seed
    if decoding.top_logprobs is not None:
        config |= {"logprobs": True, "top_logprobs": decoding.top_logprobs}
    if request.schema is not None:
        # Inspect silently drops definitions and references of a schema.
        schema = inline_schema_definitions(request.schema.schema)
        config["response_schema"] = {"name": str(request.schema.name), "json_schema": schema, "strict": True}
    if decoding.effort is not None:
        config["reasoning_effort"] = decoding.effort
    if decoding.thinking is not None:
        # The switch of vLLM, SGLang and llama.cpp.
        config["extra_body"] = {"chat_template_kwargs": {"enable_thinking": decoding.thinking}}
    try:
        return GenerateConfig.model_validate(config)
    except ValidationError as invalid:
        raise SettingError(f"Inspect rejects these settings: {invalid.errors()[0]['msg']}.") from invalid


def _to_http_response(output: ModelOutput) -> HttpResponse:
    body: dict[str, Any] = {"choices": [_build_choice(choice, output.error) for choice in output.choices]}
    if (usage := output.usage) is not None:
        # Inspect counts cached prompt tokens separately; the protocol includes them.
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        body["usage"] = {
            "prompt_tokens": usage.input_tokens + cached,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.input_tokens_cache_read or 0},
        }
    return HttpResponse(200, {"content-type": "application/json"}, json.dumps(body).encode())


def _build_choice(choice: ChatCompletionChoice, error: str | None) -> dict[str, Any]:
    reason = choice.stop_reason
    message: dict[str, Any] = {"content": choice.message.text}
    if is_refused_output(choice):
        explanation = choice.stop_details.explanation if choice.stop_details is not None else None
        message["refusal"] = explanation or error or choice.message.text or "stopped by a content filter"
    if choice.message.tool_calls:
        message["tool_calls"] = [call.function for call in choice.message.tool_calls]
    logprobs = None if choice.logprobs is None else choice.logprobs.model_dump(mode="json")
    return {"message": message, "finish_reason": _FINISH_REASONS.get(reason, reason), "logprobs": logprobs}


def is_refused_output(choice: ChatCompletionChoice) -> bool:
    """Return whether the model refused, by its stop reason or by a marked part of its message."""
    # Some providers end a refusal like any other reply and mark only the text.
    parts = choice.message.content
    marked = not isinstance(parts, str) and any(getattr(part, "refusal", None) for part in parts)
    return marked or choice.stop_reason == "content_filter"


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        # The ``code`` of some clients is no status: OpenAI's is a text such as ``rate_limit_exceeded``.
        if type(value) is int and 300 <= value < 600:
            return value
    return None


def _headers(error: BaseException) -> dict[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return {str(name).lower(): str(value) for name, value in dict(headers).items()}


def _body(error: BaseException) -> bytes:
    """Return the provider's message; Inspect's own message would repeat the full request."""
    content = getattr(getattr(error, "response", None), "content", None)
    if isinstance(content, bytes):
        return content
    return str(getattr(error, "provider_message", None) or error).encode("utf-8", "replace")


@dataclass(frozen=True)
class InspectModelRef:
    """A reference to a model by its name in Inspect, usable wherever eclose takes a model reference.

    Inspect's own retries are disabled, because the retry layer of eclose counts and records every attempt.
    """

    model: str
    base_url: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the provider, as after ``-M`` on Inspect's command line."""
    server: str | None = None
    """Name of the server at ``base_url``; None for its host, port and path."""

    @property
    def name(self) -> str:
        """Name of the model in records and calls, with the server and a hash of the arguments."""
        from eclose.calls.http.endpoint import format_server_name  # noqa: PLC0415 - needs the client, which logs do without

        server = self.server or (None if self.base_url is None else format_server_name(self.base_url))
        arguments = self._public_arguments
        digest = content_hash(arguments).removeprefix("sha256:")[:8] if arguments else None
        return "@".join(part for part in (f"{INSPECT_PREFIX}{self.model}", server, digest) if part)

    @property
    def _public_arguments(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.arguments.items() if not _SECRET.search(name)}

    @property
    def source(self) -> ResponseSource:
        """Source of the model's responses."""
        return ResponseSource(self.name)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that influences the responses, for the manifest of a run."""
        arguments = self._public_arguments
        # Secrets are left out: manifests are published, and a new key is not a new model.
        return {"model": self.name} | ({"arguments": arguments} if arguments else {})

    @property
    def thinking(self) -> bool | None:
        """Default of the thinking mode; None leaves it to the provider."""
        return None

    @asynccontextmanager
    async def open(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:
        """Open the model without retries and without records."""
        require_inspect()
        from inspect_ai.model import GenerateConfig, get_model  # noqa: PLC0415 - optional

        config = GenerateConfig(max_retries=0, attempt_timeout=ceil(deadline), max_connections=concurrency)
        # Without memoisation: Inspect would return a model that an earlier run has closed.
        model = get_model(self.model, base_url=self.base_url, config=config, memoize=False, **self.arguments)
        async with model as opened:
            yield InspectModel(opened, self.name)


def require_inspect() -> None:
    """Raise UserError with the install command where Inspect is missing."""
    if find_spec("inspect_ai") is None:
        raise UserError("this needs Inspect AI. Run: pip install 'eclose[inspect]'")
