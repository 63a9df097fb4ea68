"""The forms in which a chat completion is requested: what differs between servers that speak the same protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eclose.models.interface import Request
    from eclose.models.openai.failures import CallFailure


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between servers that speak the same protocol."""

    by_tool: bool = False
    """Whether a structured reply is had as a forced tool call, where the server knows no json_schema."""
    limit: str = "max_tokens"
    """What the bound on new tokens is called. The old name is known to every server but OpenAI's newest models."""
    template: bool = True
    """Whether the server lets its chat template be told something; one that does not has no thinking to turn off."""

    def after(self, failure: CallFailure) -> Dialect | None:
        """Return the form to try after a refusal; None where the form is not at fault."""
        told = (failure.raw or "") if failure.status in (400, 422) else ""
        if not self.by_tool and ("response_format" in told or "json_schema" in told):
            return replace(self, by_tool=True)
        if self.limit == "max_tokens" and "max_completion_tokens" in told:
            return replace(self, limit="max_completion_tokens")
        if self.template and "chat_template_kwargs" in told:
            return replace(self, template=False)
        return None

    def body(self, model: str, request: Request) -> dict[str, Any]:
        """Return the body of a request as it is sent."""
        decoding = request.decoding
        body: dict[str, Any] = {
            "model": model,
            "messages": list(request.messages),
            self.limit: decoding.max_tokens,
            "temperature": decoding.temperature,
        }
        if decoding.top_p != 1.0:
            body["top_p"] = decoding.top_p
        if (seed := request.seed) is not None:
            body["seed"] = seed
        if decoding.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": decoding.top_logprobs}
        if decoding.thinking is not None and self.template:
            # As vLLM, SGLang and llama.cpp take it; templates without such a switch ignore it.
            body["chat_template_kwargs"] = {"enable_thinking": decoding.thinking}
        if decoding.effort is not None:
            body["reasoning_effort"] = decoding.effort
        return body | self._shape(request)

    def _shape(self, request: Request) -> dict[str, Any]:
        if request.schema is None:
            return {}
        name, schema = request.schema.name, request.schema.schema
        if not self.by_tool:
            wanted = {"name": name, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": wanted}}
        return {
            "tools": [{"type": "function", "function": {"name": name, "parameters": schema}}],
            "tool_choice": {"type": "function", "function": {"name": name}},
        }
