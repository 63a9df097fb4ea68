"""Parse the response of a model server: a reply, or the failure that explains why there is none.

Only a finished completion that matches the schema is accepted. Nothing is repaired: a repaired reply is one that the
model never gave.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Never

from eclose.calls.http.failures import (
    UNKNOWN_USAGE,
    CallFailure,
    CallFailureKind,
    HttpResponse,
    classify_http_exception,
    classify_http_status,
    excerpt_failure_body,
    excerpt_server_text,
    find_secret_texts,
    mask_secrets,
)
from eclose.calls.model import FinishReason, Reply, Request, TokenLogprob, TokenUsage
from eclose.calls.tokens import bound_request_usage
from eclose.errors import UserError
from eclose.files.json_reader import JsonObject, parse_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema_rs import Validator
    from pydantic import SecretStr

_log = logging.getLogger(__name__)


def parse_http_reply(
    outcome: HttpResponse | Exception,
    request: Request,
    *,
    by_tool: bool = False,
    now: float = 0.0,
    key: SecretStr | None = None,
) -> Reply | CallFailure:
    """Return the reply, or the failure. ``now`` is the time in seconds, for a ``Retry-After`` with a date."""
    secrets = () if key is None else find_secret_texts(key.get_secret_value())
    try:
        if isinstance(outcome, Exception):
            return classify_http_exception(outcome, secrets)
        if 200 <= outcome.status < 300:
            return _ReplyParser(outcome, request, by_tool, now, secrets).parse()
        return classify_http_status(outcome, now, secrets)
    except CallFailure as failure:
        # The frames of its traceback hold the key, and some error reporters print local variables.
        failure.__context__ = None
        return failure.with_traceback(None)


_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSAL,
}
_SERVICE_ABORTS = ("error", "abort")
"""Finish reasons of gateways and vLLM for a reply that the service, not the model, stopped."""
_TOOL_FINISHES = frozenset({"stop", "tool_calls", "function_call"})
# White space, zero-width characters, direction marks and soft hyphens: a reply of these alone is empty.
_INVISIBLE = re.compile(r"[\s\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\u00ad]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class _ReplyParser:
    """Parser of one response. A broken envelope is a failure of the service, a broken text one of the model."""

    response: HttpResponse
    request: Request
    by_tool: bool
    now: float
    secrets: Sequence[str]
    reply: Reply | None = None

    def parse(self) -> Reply:
        """Return the reply; raise ``CallFailure`` with the reason where there is none."""
        envelope = self._envelope()
        choice = self._choice(envelope)
        message: JsonObject = choice["message"]
        finish = str(choice.get("finish_reason"))
        text, logprobs = self._text_of(message), _logprobs(choice)
        if text is not None and any(secret in text for secret in self.secrets):
            text, logprobs = mask_secrets(text, self.secrets), None  # the tokens would spell the key
        reason = _FINISH_REASONS.get(finish, FinishReason.OTHER)
        if self.by_tool and finish in _TOOL_FINISHES:
            reason = FinishReason.STOP  # servers end a forced tool call with any of these
        # Set before the checks, so that a refused reply is stored with its usage: it was paid for.
        self.reply = Reply(text or "", reason, _usage(envelope, self.request), logprobs)
        self._check_end(reason, finish, message)
        self._check_text(text, message)
        return self.reply

    def _envelope(self) -> JsonObject:
        kind = self.response.headers.get("content-type", "").partition(";")[0].strip().lower()
        # A proxy may answer 200 with an HTML page.
        if kind != "application/json" and not kind.endswith("+json"):
            self._fail(CallFailureKind.TRANSIENT, f"the server sent {kind or 'no content type'}, not JSON")
        try:
            envelope = parse_json_object(self.response.body)
        except UserError as error:
            self._fail(CallFailureKind.TRANSIENT, f"the body {error}")
        if envelope.get("error"):
            self._fail_inside(envelope["error"])
        return envelope

    def _fail_inside(self, error: object) -> Never:
        """Raise the failure for a status of 200 with an error in the body; the error's code replaces the status."""
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, str) and code.isdecimal():
            code = int(code)
        # Without a usable code it is treated as a bad gateway, which is retried.
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise classify_http_status(replace(self.response, status=status), self.now, self.secrets)

    def _choice(self, envelope: JsonObject) -> JsonObject:
        choices = envelope.get("choices")
        # One choice is requested; of several, none could be preferred.
        if not isinstance(choices, list) or len(choices) != 1:
            self._fail(
                CallFailureKind.TRANSIENT, "the body does not have exactly one choice, so it is not a completion"
            )
        choice = choices[0]
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            self._fail(CallFailureKind.TRANSIENT, "the body has no message, so it is not a completion")
        if choice.get("error") or choice.get("finish_reason") in _SERVICE_ABORTS:
            self._fail(CallFailureKind.TRANSIENT, "the service stopped in the middle of the reply")
        return choice

    def _text_of(self, message: JsonObject) -> str | None:
        if not self.by_tool:
            content = message.get("content")
            return content if isinstance(content, str) else None
        calls = message.get("tool_calls")
        with suppress(KeyError, IndexError, TypeError):
            function = calls[0]["function"]  # type: ignore[index]
            is_requested = self.request.schema is not None and function["name"] == self.request.schema.name
            if is_requested and len(calls) == 1 and isinstance(function["arguments"], str):  # type: ignore[arg-type]
                return str(function["arguments"])
        return None

    def _check_end(self, reason: FinishReason, finish: str, message: JsonObject) -> None:
        if reason is FinishReason.REFUSAL or message.get("refusal"):
            refusal = message.get("refusal") or "stopped by a content filter"
            self._fail(
                CallFailureKind.REFUSAL,
                f"the model refused to answer: {excerpt_server_text(str(refusal), self.secrets)}",
            )
        if reason is FinishReason.LENGTH:
            limit = self.request.decoding.max_tokens
            self._fail(CallFailureKind.LENGTH, f"the reply was cut off after max_tokens = {limit}. Allow more")
        if reason is not FinishReason.STOP:
            shown_finish = excerpt_server_text(finish, self.secrets)
            self._fail(CallFailureKind.INVALID, f"the reply ended with {shown_finish!r}, not with 'stop'")

    def _check_text(self, text: str | None, message: JsonObject) -> None:
        if message.get("tool_calls") and (not self.by_tool or text is None):
            self._fail(CallFailureKind.INVALID, "the model called a tool that was not requested")
        if text is None and message.get("content") and not isinstance(message["content"], str):
            self._fail(CallFailureKind.INVALID, "the content is not text")
        if text is None and self.by_tool and message.get("content"):
            self._fail(CallFailureKind.INVALID, "the model wrote text instead of calling the tool")
        if text is None or _INVISIBLE.fullmatch(text):
            self._fail(CallFailureKind.EMPTY, "the reply has no text")
        if _SURROGATE.search(text):
            self._fail(CallFailureKind.INVALID, "the reply holds half a character (a lone surrogate)")
        if self.request.schema is not None and (problem := find_schema_error(text, self.request.schema.schema)):
            self._fail(CallFailureKind.INVALID, f"the reply {excerpt_server_text(problem, self.secrets)}")
        if self.request.decoding.top_logprobs is not None and self.reply is not None and not self.reply.logprobs:
            self._fail(CallFailureKind.INVALID, "the server reported no log-probabilities, though they were requested")

    def _fail(self, kind: CallFailureKind, problem: str) -> Never:
        raw = excerpt_failure_body(self.response.body, self.secrets)
        raise CallFailure(kind, f"{problem.rstrip('.')}.", status=self.response.status, reply=self.reply, raw=raw)


def _usage(envelope: JsonObject, request: Request) -> TokenUsage:
    """Return the reported tokens; ``UNKNOWN_USAGE`` where there are none, or more than the request can use."""
    usage_fields = envelope.get("usage")
    if not isinstance(usage_fields, dict):
        return UNKNOWN_USAGE
    prompt, completion = usage_fields.get("prompt_tokens"), usage_fields.get("completion_tokens")
    # "type is int" because JSON true would pass isinstance(..., int).
    if type(prompt) is not int or type(completion) is not int or min(prompt, completion) < 0:
        return UNKNOWN_USAGE
    usage = TokenUsage(prompt, completion, _count_cached(usage_fields, prompt))
    if max(prompt, completion) > _ANY_USAGE:
        # Providers add prompts and reasoning tokens, but within bounds.
        worst = bound_request_usage(request)
        if prompt > _ANY_USAGE + 10 * worst.prompt_tokens or completion > _ANY_USAGE + 10 * worst.completion_tokens:
            _warn_of_usage()
            return UNKNOWN_USAGE
    return usage


def _count_cached(usage_fields: JsonObject, prompt: int) -> int:
    """Return the prompt tokens reported as read from a cache; 0 where the report is missing or impossible."""
    details = usage_fields.get("prompt_tokens_details")
    # OpenAI, vLLM and OpenRouter; gateways to Anthropic; DeepSeek.
    reports = (
        details.get("cached_tokens") if isinstance(details, dict) else None,
        usage_fields.get("cache_read_input_tokens"),
        usage_fields.get("prompt_cache_hit_tokens"),
    )
    cached = next((report for report in reports if type(report) is int), 0)
    # An impossible report lowers no cost: the call is charged at the full price.
    return cached if 0 <= cached <= prompt else 0


_ANY_USAGE = 1_000_000
"""Largest token count that is accepted for any request; larger ones are compared with the worst case of the request."""


@cache
def _warn_of_usage() -> None:
    _log.warning("the model server reports impossible token counts: such calls are charged at their worst case.")


def _logprobs(choice: JsonObject) -> tuple[TokenLogprob, ...] | None:
    try:
        logprobs = tuple(
            TokenLogprob(
                str(entry["token"]),
                float(entry["logprob"]),
                tuple((str(other["token"]), float(other["logprob"])) for other in entry.get("top_logprobs") or ()),
            )
            for entry in choice["logprobs"]["content"]
        )
        # JSON allows -1e999, which could not be stored.
        numbers = [number for token in logprobs for _, number in (("", token.logprob), *token.alternatives)]
        return logprobs if all(map(isfinite, numbers)) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def find_schema_error(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return why a text is not JSON of this schema; None where it is. No text around the JSON is allowed."""
    import jsonschema_rs  # noqa: PLC0415 - only structured replies need it

    try:
        value = parse_json_object(text.encode("utf-8"))
    except UserError as error:
        return str(error)
    try:
        # JSON allows 1e999, which Python parses as infinity, and escapes of half a character; neither can be stored.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        return "holds a number or a character that cannot be encoded (1e999, a lone surrogate)"
    # By its text, because a mapping cannot be the key of a cache.
    validator = _validator(json.dumps(schema))
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(part) for part in error.instance_path) or "the object"
        return f"does not match the schema: {error.message} at {where}"
    except ValueError as error:
        return f"cannot be checked: {error}"
    return None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    """Return the compiled validator of a schema; a run uses few schemas many times."""
    import jsonschema_rs  # noqa: PLC0415

    return jsonschema_rs.validator_for(json.loads(schema), retriever=_no_network)


def _no_network(uri: str) -> Never:
    raise ValueError(f"a schema must not refer to {uri}")
