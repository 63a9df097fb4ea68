"""Request bodies of chat completions, in the variants that OpenAI-compatible servers accept."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose.prompts.locked_texts import PromptMessage

if TYPE_CHECKING:
    from eclose.calls.http.failures import CallFailure
    from eclose.calls.model import Request
    from eclose.files.json_reader import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestDialect:
    """The variant of the request body that a server accepts."""

    by_tool: bool = False
    """Whether a structured reply is requested as a forced tool call, for servers without ``json_schema``."""
    limit: str = "max_tokens"
    """Name of the limit on new tokens. OpenAI's newest models refuse ``max_tokens``; all other servers accept it."""
    template: bool = True
    """Whether the server accepts ``chat_template_kwargs``, which turn thinking off."""
    temperature: bool = True
    """Whether the model accepts ``temperature``; several reasoning models refuse every value."""
    seed: str | None = "seed"
    """Name of the seed; None where the server accepts none."""
    cache_marks: bool = False
    """Whether the server caches a prefix of the prompt only where the request marks its end with ``cache_control``."""

    def after(self, failure: CallFailure) -> RequestDialect | None:
        """Return the variant to try after a refusal; None where the refusal has another cause."""
        # Servers word refusals differently, but all name the field. Each change is made once, so the loop ends.
        message = (failure.raw or "") if failure.status in (400, 422) else ""
        # A strict mode may refuse a keyword of the schema without naming the field: "'additionalProperties' must be …".
        if not self.by_tool and any(word in message for word in ("response_format", "json_schema", "additionalProp")):
            return replace(self, by_tool=True)
        if self.limit == "max_tokens" and "max_completion_tokens" in message:
            return replace(self, limit="max_completion_tokens")
        if self.template and "chat_template_kwargs" in message:
            return replace(self, template=False)
        if self.temperature and _refuses(message, "temperature"):
            return replace(self, temperature=False)
        if self.seed is not None and _refuses(message, self.seed):
            return replace(self, seed=None)
        if self.cache_marks and "cache_control" in message:
            return replace(self, cache_marks=False)
        return None

    def warn_of_omission(self, before: RequestDialect, model: str) -> None:
        """Log the sampling settings that this variant leaves out and ``before`` sent: replies then vary."""
        temperature = ["temperature"] if before.temperature and not self.temperature else []
        seed = ["seed"] if before.seed is not None and self.seed is None else []
        if omitted := " and ".join(temperature + seed):
            _log.warning("%s refuses %s: requests are sent without it, so replies may vary.", model, omitted)

    def body(self, model: str, request: Request) -> dict[str, Any]:
        """Return the JSON body of a request."""
        decoding = request.decoding
        body: dict[str, Any] = {
            "model": model,
            "messages": [_mark_prefix(message) if self.cache_marks else message for message in request.messages],
            self.limit: decoding.max_tokens,
        }
        if self.temperature:
            body["temperature"] = decoding.temperature
        # Optional settings are sent only where they are set: the fewer fields, the fewer a server can refuse.
        if decoding.top_p != 1.0:
            body["top_p"] = decoding.top_p
        if (seed := request.seed) is not None and self.seed is not None:
            body[self.seed] = seed
        if decoding.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": decoding.top_logprobs}
        if decoding.thinking is not None and self.template:
            # The form of vLLM, SGLang and llama.cpp; templates without this switch ignore it.
            body["chat_template_kwargs"] = {"enable_thinking": decoding.thinking}
        if decoding.effort is not None:
            body["reasoning_effort"] = decoding.effort
        return body | self._schema_settings(request)

    def _schema_settings(self, request: Request) -> dict[str, Any]:
        if request.schema is None:
            return {}
        name, schema = request.schema.name, request.schema.schema
        if not self.by_tool:
            json_schema = {"name": name, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": json_schema}}
        return {
            "tools": [{"type": "function", "function": {"name": name, "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": name}},
        }


def _mark_prefix(message: PromptMessage) -> Any:
    """Return a system message as a text part with a mark; any other message as it is."""
    # The instructions of a question are the same for all records, so all that follows the first one reads them cached.
    if message["role"] != "system":
        return message
    part = {"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}
    return {"role": "system", "content": [part]}


def read_messages(body: JsonObject) -> tuple[PromptMessage, ...]:
    """Return the messages of a request body without the marks of a dialect."""
    contents = [(message["role"], message["content"]) for message in body["messages"]]
    return tuple(
        PromptMessage(role=role, content=content if isinstance(content, str) else content[0]["text"])
        for role, content in contents
    )


def _refuses(message: str, field: str) -> bool:
    """Return whether a server refuses a field itself; a value out of range is the user's to correct."""
    # The words must be near each other: some servers repeat the whole request in their message.
    before = rf"(?:unsupported|unrecogni[sz]ed|unknown|unexpected|extra_forbidden)[^.{{}}]{{0,60}}\b{field}\b"
    after = (
        rf"\b{field}\b[^.{{}}]{{0,60}}"
        r"(?:deprecated|not supported|unsupported|not permitted|not allowed|does not support)"
    )
    return re.search(f"{before}|{after}", message, re.IGNORECASE) is not None
