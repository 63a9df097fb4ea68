"""Requests and replies of the scripted model, and the registry of its handlers.

Covers the request side of the OpenAI chat protocol; HTTP, faults and the world's facts are handled elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never, TypeAlias

from eclose.errors import UserError
from eclose.prompts.locked_texts import PromptMessage
from eclose.values.identity import content_hash

# Fields that do not change the question to the model. Of the metadata only `replica` counts.
_TRANSPORT_ONLY = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "user",
    }
)
MOST_TOP_LOGPROBS = 20


class BadRequest(UserError):  # noqa: N818 (the protocol's own word for it)
    """A request the server cannot answer; the client gets the reason with status 400."""

    def __init__(self, problem: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        self.param = param
        self.code = code
        super().__init__(problem)


def compute_request_key(body: Mapping[str, Any]) -> str:
    """Return the identity of a request: all that the model sees, nothing about transport.

    Of ``metadata`` only ``replica`` counts: it repeats a question on purpose and so names another draw, while run names
    and record ids do not change the request.
    """
    content = {name: value for name, value in body.items() if name not in _TRANSPORT_ONLY}
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and "replica" in metadata:
        content["metadata"] = {"replica": metadata["replica"]}
    return content_hash(content)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion request. Handlers do not see the attempt, so replies cannot depend on it."""

    key: str
    """See :func:`compute_request_key`; the seed of a handler's random choices."""
    model: str
    messages: tuple[PromptMessage, ...]
    schema_name: str | None
    """Name of the requested structured reply; None for plain text."""
    schema: Mapping[str, Any] | None
    by_tool: bool
    """Whether the structured reply is requested as the arguments of a tool call."""
    temperature: float | None
    max_tokens: int | None
    seed: int | None
    logprobs: bool
    top_logprobs: int
    stream: bool
    body: Mapping[str, Any]
    """The request as received."""

    @classmethod
    def read(cls, body: bytes) -> ChatRequest:
        """Parse a request from its bytes."""
        try:
            return cls.of(json.loads(body, parse_constant=_not_json))
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not JSON the model can read: {error}", code="invalid_json") from None

    @classmethod
    def of(cls, body: object) -> ChatRequest:
        """Check a request; every field that the server acts on is either supported or refused."""
        if not isinstance(body, Mapping):
            raise BadRequest("the body must be a JSON object.", code="invalid_json")
        # Samples are separate requests, so that each can be cached, retried and billed.
        if _integer(body, "n") not in (None, 1):
            raise BadRequest("n > 1 is not offered. Send one request per sample, told apart by metadata.replica.")
        schema_name, schema, by_tool = _requested_schema(body)
        return cls(
            key=compute_request_key(body),
            model=_text(body, "model"),
            messages=_messages(body.get("messages")),
            schema_name=schema_name,
            schema=schema,
            by_tool=by_tool,
            temperature=_temperature(body),
            max_tokens=_max_tokens(body),
            seed=_integer(body, "seed"),
            logprobs=_flag(body, "logprobs"),
            top_logprobs=_top_logprobs(body),
            stream=_flag(body, "stream"),
            body=body,
        )

    def draw(self, seed: int) -> tuple[int, ...]:
        """Return the seeds of a handler's random errors: its own, and the request's where it has one."""
        return (seed,) if self.seed is None else (seed, self.seed)

    @property
    def prompt_tokens(self) -> int:
        """Length of the conversation in words, which stand for tokens here."""
        return sum(len(message["content"].split()) for message in self.messages)

    @property
    def include_usage(self) -> bool:
        """Whether a streamed reply ends with its usage."""
        options = self.body.get("stream_options")
        return isinstance(options, Mapping) and options.get("include_usage") is True


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply of the scripted model."""

    content: str | Mapping[str, Any]
    """Text, or a value that is sent as JSON text."""
    finish_reason: str = "stop"
    first_token: Mapping[str, float] | None = None
    """Probabilities of the first token, such as ``{"Yes": 0.9, "No": 0.1}``; the text starts with one of them."""
    refusal: str | None = None
    """The refusal text of a reply without content."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a distribution that does not fit the text."""
        if self.first_token is None:
            return
        if not (isinstance(self.content, str) and self.content.startswith(tuple(self.first_token))):
            raise ValueError(f"the text {self.content!r} begins with none of the tokens {sorted(self.first_token)}")
        if min(self.first_token.values()) < 0 or sum(self.first_token.values()) > 1 + 1e-9:
            raise ValueError(f"not probabilities of one token: {dict(self.first_token)}")

    @property
    def text(self) -> str:
        """The content as text."""
        if isinstance(self.content, str):
            return self.content
        return json.dumps(self.content, ensure_ascii=False, allow_nan=False)


Handler: TypeAlias = Callable[[ChatRequest], ScriptedReply]
"""A model in code. It must answer from the request alone, so that a repeated question gets the same answer."""


class HandlerRegistry:
    """Handlers of requests, by the name of the requested schema."""

    def __init__(self) -> None:
        self._handlers: dict[str | None, Handler] = {}

    def register(self, schema_name: str | None, handler: Handler) -> None:
        """Add the handler of a schema; None stands for plain text."""
        if schema_name in self._handlers:
            raise ValueError(f"requests for {schema_name or 'plain text'} have a handler already")
        self._handlers[schema_name] = handler

    @property
    def schema_names(self) -> list[str]:
        """The schemas with a handler."""
        return sorted(name for name in self._handlers if name is not None)

    def handler(self, schema_name: str | None) -> Handler:
        """Return the handler of a schema; raise ``BadRequest`` that lists the known ones."""
        if (handler := self._handlers.get(schema_name)) is not None:
            return handler
        if schema_name is None:
            problem, param = "this model writes no plain text: ask for a schema.", "response_format"
        else:
            problem, param = f"unknown schema {schema_name!r}.", "response_format.json_schema.name"
        names = ", ".join(self.schema_names) or "none"
        raise BadRequest(f"{problem} Known schemas: {names}.", param=param, code="unknown_schema")


def _not_json(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON value")


def _requested_schema(body: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any] | None, bool]:
    """Return name and schema of the requested structured reply, and whether as a tool call."""
    # A forced tool call takes precedence over response_format.
    if (tool := _forced_tool(body)) is not None:
        return _text(tool, "name", inside="tools.function."), tool.get("parameters"), True
    form = body.get("response_format")
    if form is None or (isinstance(form, Mapping) and form.get("type") == "text"):
        return None, None, False
    schema = form.get("json_schema") if isinstance(form, Mapping) and form.get("type") == "json_schema" else None
    if not isinstance(schema, Mapping):
        raise BadRequest("response_format must be text or json_schema with a name.", param="response_format")
    return _text(schema, "name", inside="response_format.json_schema."), schema.get("schema"), False


def _forced_tool(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the function that must be called, None where the model is free to write text."""
    choice = body.get("tool_choice")
    if choice is None or choice in ("auto", "none"):
        return None
    tools = _objects(body.get("tools"), "tools")
    functions: list[Mapping[str, Any]] = [
        tool["function"] for tool in tools if isinstance(tool.get("function"), Mapping)
    ]
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        functions = [function for function in functions if function.get("name") == choice["function"].get("name")]
    elif choice != "required":
        functions = []
    # "required" with several functions would leave the choice to the model.
    if len(functions) != 1:
        raise BadRequest("tool_choice must name one function of tools.", param="tool_choice")
    return functions[0]


def _messages(value: object) -> tuple[PromptMessage, ...]:
    turns = _objects(value, "messages")
    if not turns:
        raise BadRequest("messages must not be empty.", param="messages")
    return tuple(
        PromptMessage(role=_text(turn, "role", inside="messages."), content=_join_content(turn.get("content")))
        for turn in turns
    )


def _join_content(content: object) -> str:
    """Return the text of a message: a string, nothing (a tool call), or parts that are all text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = _objects(content, "messages.content")
    return "".join(_text(part, "text", inside="messages.content.") for part in parts)


def _objects(value: object, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadRequest(f"{name} must be a list of objects.", param=name)
    return value


def _text(body: Mapping[str, Any], name: str, inside: str = "") -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{inside}{name} must be a text.", param=f"{inside}{name}")
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false.", param=name)
    return bool(value)


def _integer(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    # bool is a subclass of int in Python, but not a number in JSON.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise BadRequest(f"{name} must be a whole number.", param=name)
    return value


def _temperature(body: Mapping[str, Any]) -> float | None:
    value = body.get("temperature")
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise BadRequest("temperature must be a number.", param="temperature")
    return value


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    """Return the limit on the reply under its new or its old name."""
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    value = _integer(body, name)
    if value is not None and value < 1:
        raise BadRequest(f"{name} must be at least 1.", param=name)
    return value


def _top_logprobs(body: Mapping[str, Any]) -> int:
    value = _integer(body, "top_logprobs") or 0
    if value and not body.get("logprobs"):
        raise BadRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
    if not 0 <= value <= MOST_TOP_LOGPROBS:
        raise BadRequest(f"top_logprobs must be 0 to {MOST_TOP_LOGPROBS}.", param="top_logprobs")
    return value
