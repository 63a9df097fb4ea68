"""Bodies of an OpenAI-compatible server: completions, streams, log probabilities and errors.

No clock and no random id enters a body: equal requests get equal bytes. Only the tokens that
a prompt cache reports depend on the requests before.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose_world.server.chat_requests import ChatRequest, ScriptedReply

# A token is a word with the blanks before it: tokens joined give the text, and their number is its word count.
_TOKEN = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")
_IMPOSSIBLE = -9999.0
"""Log probability of an impossible token, as the protocol writes it: JSON has no infinity."""
_FINGERPRINT = "eclose-world"


@dataclass(frozen=True, slots=True)
class EncodedReplyBody:
    """An encoded reply and its token counts."""

    data: bytes
    content_type: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


def encode_completion(request: ChatRequest, reply: ScriptedReply, cached_tokens: int | None = None) -> EncodedReplyBody:
    """Return the body of a reply, streamed or complete, cut at the requested number of tokens.

    The usage names the prompt tokens that were read from a cache, unless they are None (a server without a cache).
    """
    cut_reply = _cut_reply(reply, request.max_tokens)
    # Words stand for tokens.
    prompt_tokens, completion_tokens = request.prompt_tokens, len(cut_reply.text.split())
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    if request.stream:
        data, content_type = _stream(request, cut_reply, usage), "text/event-stream"
    else:
        data, content_type = _encode(_complete_body(request, cut_reply, usage)), "application/json"
    return EncodedReplyBody(data, content_type, prompt_tokens, completion_tokens, cached_tokens or 0)


def encode_error_body(message: str, *, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """Return the body of an error."""
    return _encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _cut_reply(reply: ScriptedReply, max_tokens: int | None) -> ScriptedReply:
    """Return the reply as text, cut after so many words."""
    cut = replace(reply, content=reply.text)
    # split(None, n) yields n + 1 parts only if there are more than n words.
    if max_tokens is None or len(cut.text.split(None, max_tokens)) <= max_tokens:
        return cut
    return replace(cut, content="".join(_tokens(cut)[:max_tokens]), finish_reason="length")


def _complete_body(request: ChatRequest, reply: ScriptedReply, usage: dict[str, Any]) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **_message(request, reply)},
        "logprobs": _logprobs(request, reply) if request.logprobs else None,
        "finish_reason": reply.finish_reason,
    }
    return _envelope(request, "chat.completion", [choice]) | {"usage": usage}


def _envelope(request: ChatRequest, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{_digest(request)}",
        "object": kind,
        # No clock: equal requests give equal bytes.
        "created": 0,
        "model": request.model,
        "system_fingerprint": _FINGERPRINT,
        "choices": choices,
    }


def _message(request: ChatRequest, reply: ScriptedReply) -> dict[str, Any]:
    """Return content, tool call or refusal. A forced tool call ends with ``stop``, as OpenAI's do."""
    if reply.refusal is not None:
        return {"content": None, "refusal": reply.refusal}
    if request.by_tool and reply.text:
        function = {"name": request.schema_name, "arguments": reply.text}
        call = {"id": f"call_{_digest(request)}", "type": "function", "function": function}
        return {"content": None, "refusal": None, "tool_calls": [call]}
    return {"content": reply.text, "refusal": None}


def _digest(request: ChatRequest) -> str:
    return request.key.removeprefix("sha256:")[:24]


def _logprobs(request: ChatRequest, reply: ScriptedReply) -> dict[str, Any]:
    """Return log probabilities: the handler's distribution for the first token, certainty for all others."""
    entries = [_entry(token, {token: 1.0}, request.top_logprobs) for token in _tokens(reply)]
    if reply.first_token is not None and entries:
        entries[0] = _entry(entries[0]["token"], reply.first_token, request.top_logprobs)
    return {"content": entries, "refusal": None}


def _tokens(reply: ScriptedReply) -> list[str]:
    """Return the text in tokens; the first is one of the distribution where there is one."""
    starts = [token for token in reply.first_token or () if reply.text.startswith(token)]
    # The longest match: "Yes." rather than "Yes".
    first = max(starts, key=len, default="")
    remaining = _TOKEN.findall(reply.text, len(first))
    return [first, *remaining] if first else remaining


def _entry(token: str, distribution: Mapping[str, float], most: int) -> dict[str, Any]:
    likely = sorted(distribution.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    return {
        **_score_token(token, distribution[token]),
        "top_logprobs": [_score_token(other, probability) for other, probability in likely],
    }


def _score_token(token: str, probability: float) -> dict[str, Any]:
    logprob = log(probability) if probability > 0 else _IMPOSSIBLE
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}


def _stream(request: ChatRequest, reply: ScriptedReply, usage: dict[str, Any]) -> bytes:
    chunks = [_chunk(request, {"role": "assistant", "content": ""})]
    chunks += [_chunk(request, delta, logprobs) for delta, logprobs in _deltas(request, reply)]
    chunks.append(_chunk(request, {}, finish_reason=reply.finish_reason))
    if request.include_usage:
        chunks.append(_envelope(request, "chat.completion.chunk", []) | {"usage": usage})
    return b"".join(b"data: " + _encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _deltas(request: ChatRequest, reply: ScriptedReply) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield the text word by word; a refusal or a tool call in one piece."""
    message = _message(request, reply)
    if message["content"] is None:
        for call in message.get("tool_calls", ()):
            call["index"] = 0
        yield {name: value for name, value in message.items() if value is not None}, None
        return
    entries = _logprobs(request, reply)["content"] if request.logprobs else None
    for index, token in enumerate(_tokens(reply)):
        yield {"content": token}, {"content": [entries[index]], "refusal": None} if entries else None


def _chunk(
    request: ChatRequest,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return _envelope(request, "chat.completion.chunk", [choice])


def _encode(value: dict[str, Any]) -> bytes:
    # Escaped ASCII also carries lone surrogates, which UTF-8 cannot encode.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
