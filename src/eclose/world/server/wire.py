"""Replies as an OpenAI-compatible server writes them: completions, streams, log probabilities and errors.

No clock and no random id enters a body: the same request gets the same bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.world.server.chat_requests import ChatRequest, ScriptedReply

# A token is a word with the blanks before it, so that tokens joined are the text and their number is its words.
_TOKEN = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")
_IMPOSSIBLE = -9999.0
"""The log probability of a token that cannot come, as the protocol writes it: JSON has no infinity."""
_FINGERPRINT = "eclose-world"


@dataclass(frozen=True, slots=True)
class ReplyBody:
    """A reply ready to be sent, and what it costs."""

    data: bytes
    content_type: str
    prompt_tokens: int
    completion_tokens: int


def write_completion(asked: ChatRequest, reply: ScriptedReply) -> ReplyBody:
    """The body of a good answer, streamed or whole, no longer than was asked for."""
    spoken = _within(reply, asked.max_tokens)
    prompt_tokens, completion_tokens = asked.prompt_tokens, len(spoken.text.split())
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if asked.stream:
        data, content_type = _stream(asked, spoken, usage), "text/event-stream"
    else:
        data, content_type = _encode(_whole(asked, spoken, usage)), "application/json"
    return ReplyBody(data, content_type, prompt_tokens, completion_tokens)


def write_error(message: str, *, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """The body of an error."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _within(reply: ScriptedReply, max_tokens: int | None) -> ScriptedReply:
    """The reply as text, cut after so many words."""
    spoken = replace(reply, content=reply.text)
    if max_tokens is None or len(spoken.text.split(None, max_tokens)) <= max_tokens:
        return spoken
    return replace(spoken, content="".join(_tokens(spoken)[:max_tokens]), finish_reason="length")


def _whole(asked: ChatRequest, spoken: ScriptedReply, usage: dict[str, int]) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **_message(asked, spoken)},
        "logprobs": _logprobs(asked, spoken) if asked.logprobs else None,
        "finish_reason": spoken.finish_reason,
    }
    return _envelope(asked, "chat.completion", [choice]) | {"usage": usage}


def _envelope(asked: ChatRequest, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{_digest(asked)}",
        "object": kind,
        "created": 0,
        "model": asked.model,
        "system_fingerprint": _FINGERPRINT,
        "choices": choices,
    }


def _message(asked: ChatRequest, spoken: ScriptedReply) -> dict[str, Any]:
    """Content, tool call or refusal. A forced tool call ends with ``stop``, as OpenAI's do."""
    if spoken.refusal is not None:
        return {"content": None, "refusal": spoken.refusal}
    if asked.by_tool and spoken.text:
        function = {"name": asked.schema_name, "arguments": spoken.text}
        call = {"id": f"call_{_digest(asked)}", "type": "function", "function": function}
        return {"content": None, "refusal": None, "tool_calls": [call]}
    return {"content": spoken.text, "refusal": None}


def _digest(asked: ChatRequest) -> str:
    return asked.key.removeprefix("sha256:")[:24]


def _logprobs(asked: ChatRequest, spoken: ScriptedReply) -> dict[str, Any]:
    """The first token has the distribution the handler gave; the scripted model is sure of all others."""
    entries = [_entry(token, {token: 1.0}, asked.top_logprobs) for token in _tokens(spoken)]
    if spoken.first_token is not None and entries:
        entries[0] = _entry(entries[0]["token"], spoken.first_token, asked.top_logprobs)
    return {"content": entries, "refusal": None}


def _tokens(spoken: ScriptedReply) -> list[str]:
    """The text in pieces; the first is a token of the distribution where there is one."""
    starts = [token for token in spoken.first_token or () if spoken.text.startswith(token)]
    first = max(starts, key=len, default="")
    rest = _TOKEN.findall(spoken.text, len(first))
    return [first, *rest] if first else rest


def _entry(token: str, distribution: Mapping[str, float], most: int) -> dict[str, Any]:
    likely = sorted(distribution.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    return {
        **_scored(token, distribution[token]),
        "top_logprobs": [_scored(other, probability) for other, probability in likely],
    }


def _scored(token: str, probability: float) -> dict[str, Any]:
    logprob = log(probability) if probability > 0 else _IMPOSSIBLE
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}


def _stream(asked: ChatRequest, spoken: ScriptedReply, usage: dict[str, int]) -> bytes:
    chunks = [_chunk(asked, {"role": "assistant", "content": ""})]
    chunks += [_chunk(asked, delta, logprobs) for delta, logprobs in _deltas(asked, spoken)]
    chunks.append(_chunk(asked, {}, finish_reason=spoken.finish_reason))
    if asked.include_usage:
        chunks.append(_envelope(asked, "chat.completion.chunk", []) | {"usage": usage})
    return b"".join(b"data: " + _encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _deltas(asked: ChatRequest, spoken: ScriptedReply) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Text word by word; a refusal or a tool call in one piece."""
    message = _message(asked, spoken)
    if message["content"] is None:
        for call in message.get("tool_calls", ()):
            call["index"] = 0
        yield {name: value for name, value in message.items() if value is not None}, None
        return
    entries = _logprobs(asked, spoken)["content"] if asked.logprobs else None
    for index, token in enumerate(_tokens(spoken)):
        yield {"content": token}, {"content": [entries[index]], "refusal": None} if entries else None


def _chunk(
    asked: ChatRequest,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return _envelope(asked, "chat.completion.chunk", [choice])


def _encode(value: dict[str, Any]) -> bytes:
    # ASCII with escapes is safe for lone surrogates too, which UTF-8 could not carry.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
