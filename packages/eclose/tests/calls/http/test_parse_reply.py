"""A corpus of bad replies: each is classified as expected, and none is accepted."""

from __future__ import annotations

import json
import ssl
from typing import Any

import aiohttp
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from eclose.calls.http.failures import (
    MAX_PROBLEM_CHARS,
    CallFailure,
    CallFailureKind,
    HttpResponse,
    UnreadableBody,
    parse_retry_after,
)
from eclose.calls.http.parse_reply import _warn_of_usage, find_schema_error, parse_http_reply
from eclose.calls.model import Decoding, FinishReason, Reply, ReplySchema, Request, TokenLogprob, TokenUsage
from eclose.calls.paid_once import encode_stored_answer

CANARY = "sk-canary-0123456789abcdef0123456789"
JSON = {"content-type": "application/json"}
STEP = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "sound", "code"],
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 9},
        "sound": {"type": "boolean"},
        "code": {"enum": ["L1", "L2", None]},
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["steps"],
    "properties": {"steps": {"type": "array", "minItems": 1, "items": STEP}},
}
GOOD = '{"steps": [{"id": 1, "sound": true, "code": null}, {"id": 2, "sound": false, "code": "L1"}]}'
PLAIN = Request(({"role": "user", "content": "hello"},))
WANTED = Request(PLAIN.messages, schema=ReplySchema("verdict", SCHEMA))
SCORED = Request(PLAIN.messages, Decoding(top_logprobs=2))


def envelope(content: Any = GOOD, finish: Any = "stop", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {"id": "c", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, JSON | (headers or {}), data)


def called(name: str = "verdict", arguments: Any = GOOD) -> list[dict[str, Any]]:
    return [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]


def failed(status: int, message: str = "no", **error: Any) -> HttpResponse:
    return answer({"error": {"message": message, **error}}, status)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


SENT = httpx2.Request("POST", "http://127.0.0.1/v1", headers={"authorization": f"Bearer {CANARY}"})
KEY = aiohttp.client_reqrep.ConnectionKey("h", 1, False, True, None, None, None)
HTML = b"<!DOCTYPE html>\n<html><head><title>502</title></head><body><h1>502 Bad Gateway</h1></body></html>"
K = CallFailureKind

STRUCTURED: dict[str, tuple[Any, CallFailureKind]] = {
    "cut after the brace": (envelope("{"), K.INVALID),
    "cut in a key": (envelope(GOOD[:5]), K.INVALID),
    "cut in a list": (envelope(GOOD[:40]), K.INVALID),
    "last brace missing": (envelope(GOOD[:-1]), K.INVALID),
    "prose before": (envelope("Here you are: " + GOOD), K.INVALID),
    "prose after": (envelope(GOOD + "\nI hope this helps!"), K.INVALID),
    "fenced": (envelope(f"```json\n{GOOD}\n```"), K.INVALID),
    "said twice": (envelope(f"{GOOD}\n{GOOD}"), K.INVALID),
    "thinking aloud": (envelope(f"<think>hm</think>{GOOD}"), K.INVALID),
    "key twice": (envelope('{"steps": [], "steps": [{"id": 1, "sound": true, "code": null}]}'), K.INVALID),
    "key twice inside": (envelope('{"steps": [{"id": 1, "sound": false, "sound": true, "code": null}]}'), K.INVALID),
    "NaN": (envelope('{"steps": [{"id": NaN, "sound": true, "code": null}]}'), K.INVALID),
    "Infinity": (envelope('{"steps": [{"id": Infinity, "sound": true, "code": null}]}'), K.INVALID),
    "a number too large": (envelope('{"steps": [{"id": 1e999, "sound": true, "code": null}]}'), K.INVALID),
    "ten thousand digits": (envelope('{"steps": [{"id": ' + "9" * 10_000 + ', "sound": true}]}'), K.INVALID),
    "unknown code": (envelope(GOOD.replace("L1", "L9")), K.INVALID),
    "code in small letters": (envelope(GOOD.replace("L1", "l1")), K.INVALID),
    "zero width in a code": (envelope(GOOD.replace("L1", "L\u200b1")), K.INVALID),
    "zero width in a key": (envelope(GOOD.replace("sound", "so\u200bund")), K.INVALID),
    "zero width before": (envelope("\u200b" + GOOD), K.INVALID),
    "byte order mark before": (envelope("\ufeff" + GOOD), K.INVALID),
    "field missing": (envelope('{"steps": [{"id": 1, "code": null}]}'), K.INVALID),
    "field too many": (envelope(GOOD.replace('"id": 1', '"id": 1, "note": "x"')), K.INVALID),
    "text for truth": (envelope(GOOD.replace("true", '"true"')), K.INVALID),
    "one for truth": (envelope(GOOD.replace("true", "1")), K.INVALID),
    "truth for a number": (envelope(GOOD.replace('"id": 1', '"id": true')), K.INVALID),
    "number out of range": (envelope(GOOD.replace('"id": 1', '"id": 10')), K.INVALID),
    "no steps": (envelope('{"steps": []}'), K.INVALID),
    "a list": (envelope("[1]"), K.INVALID),
    "a text": (envelope('"yes"'), K.INVALID),
    "null": (envelope("null"), K.INVALID),
    "single quotes": (envelope(GOOD.replace('"', "'")), K.INVALID),
    "comma at the end": (envelope(GOOD[:-2] + ",]}"), K.INVALID),
    "a comment": (envelope(GOOD[:-1] + "/* done */}"), K.INVALID),
    "nested without end": (envelope('{"steps":' + "[" * 100_000), K.INVALID),
    "half a character": (envelope(GOOD.replace("L1", "\\ud800")), K.INVALID),
    "half a character, raw": (envelope("\ud800" + GOOD), K.INVALID),
    "a tool nobody offered": (envelope(None, "tool_calls", tool_calls=called("rm")), K.INVALID),
    "a tool instead of content": (envelope(None, tool_calls=called()), K.INVALID),
    "a tool beside content": (envelope(GOOD, tool_calls=called()), K.INVALID),
    "content in parts": (envelope([{"type": "text", "text": GOOD}]), K.INVALID),
    "no reason to end": (envelope(finish=None), K.INVALID),
    "an unknown end": (envelope(finish="eos"), K.INVALID),
    "an end of another type": (envelope(finish={"stop": 1}), K.INVALID),
    "length, yet whole": (envelope(finish="length"), K.LENGTH),
    "length, cut": (envelope(GOOD[:30], "length"), K.LENGTH),
    "length, nothing": (envelope("", "length"), K.LENGTH),
    "max_tokens": (envelope(finish="max_tokens"), K.LENGTH),
    "refused": (envelope(None, refusal="I can't."), K.REFUSAL),
    "refused, yet content": (envelope(GOOD, refusal="I can't."), K.REFUSAL),
    "filtered": (envelope(None, "content_filter"), K.REFUSAL),
    "filtered, yet content": (envelope(GOOD, "content_filter"), K.REFUSAL),
    "empty": (envelope(""), K.EMPTY),
    "nothing": (envelope(None), K.EMPTY),
    "blanks": (envelope(" \n\t "), K.EMPTY),
    "zero width alone": (envelope("\u200b\ufeff\u2060"), K.EMPTY),
    "no choices": ({"id": "c"}, K.TRANSIENT),
    "choices null": ({"choices": None}, K.TRANSIENT),
    "choices empty": ({"choices": []}, K.TRANSIENT),
    "two choices": ({"choices": envelope()["choices"] * 2}, K.TRANSIENT),
    "choice no object": ({"choices": ["yes"]}, K.TRANSIENT),
    "no message": ({"choices": [{"finish_reason": "stop"}]}, K.TRANSIENT),
    "text completion": ({"choices": [{"text": GOOD, "finish_reason": "stop"}]}, K.TRANSIENT),
    "error in the choice": ({"choices": [{**envelope()["choices"][0], "error": {"code": 502}}]}, K.TRANSIENT),
    "ended with error": (envelope(finish="error"), K.TRANSIENT),
    "a bare list": ([GOOD], K.TRANSIENT),
    "no body": (b"", K.TRANSIENT),
    "byte order mark before all": (b"\xef\xbb\xbf" + json.dumps(envelope()).encode(), K.TRANSIENT),
    "not UTF-8": (json.dumps(envelope()).encode("utf-16"), K.TRANSIENT),
    "a stray byte": (b'{"choices": "\xff"}', K.TRANSIENT),
    "key twice in the body": (b'{"choices": [], ' + json.dumps(envelope()).encode()[1:], K.TRANSIENT),
    "ten megabytes of blanks": (b" " * 10_000_000, K.TRANSIENT),
    "ten megabytes of text": (envelope("a" * 10_000_000), K.INVALID),
    "error with 200": ({"error": {"message": "upstream", "code": 502}}, K.TRANSIENT),
    "rate limit with 200": ({"error": {"message": "slow down", "code": 429}}, K.RATE_LIMIT),
    "rate limit as a text with 200": ({"error": {"message": "slow down", "code": "429"}}, K.RATE_LIMIT),
    "bad request with 200": ({"error": {"message": "too long", "code": 400}}, K.PERMANENT),
    "error without a code": ({"error": "something broke"}, K.TRANSIENT),
}

OTHERS: dict[str, tuple[HttpResponse | Exception, CallFailureKind]] = {
    "page with 200": (HttpResponse(200, {"content-type": "text/html"}, HTML), K.TRANSIENT),
    "JSON called a page": (answer(envelope(), headers={"content-type": "text/html"}), K.TRANSIENT),
    "a stream": (answer(b"data: {}\n\n", headers={"content-type": "text/event-stream"}), K.TRANSIENT),
    "no content type": (HttpResponse(200, {}, json.dumps(envelope()).encode()), K.TRANSIENT),
    "no content": (answer(b"", 204), K.TRANSIENT),
    "502 page": (HttpResponse(502, {"content-type": "text/html"}, HTML), K.TRANSIENT),
    "500": (failed(500), K.TRANSIENT),
    "503": (failed(503), K.TRANSIENT),
    "529": (failed(529, "overloaded"), K.TRANSIENT),
    "a good body with 500": (answer(envelope(), 500), K.TRANSIENT),
    "400": (failed(400), K.PERMANENT),
    "context too long": (failed(400, code="context_length_exceeded"), K.TOO_LONG),
    "vLLM, too long": (
        failed(400, "This model's maximum context length is 4096 tokens. You requested 5000."),
        K.TOO_LONG,
    ),
    "llama.cpp, too long": (failed(400, "the request exceeds the available context size"), K.TOO_LONG),
    "Anthropic, too long": (failed(400, "prompt is too long: 210000 tokens > 200000 maximum"), K.TOO_LONG),
    "filtered with 400": (failed(400, code="content_filter"), K.REFUSAL),
    "flagged with 403": (failed(403, "Your input was flagged."), K.REFUSAL),
    "401": (failed(401), K.DENIED),
    "402": (failed(402), K.DENIED),
    "403": (failed(403), K.DENIED),
    "404": (failed(404), K.DENIED),
    "408": (failed(408), K.TIMEOUT),
    "409": (failed(409), K.TRANSIENT),
    "413": (failed(413), K.PERMANENT),
    "422": (failed(422), K.PERMANENT),
    "429": (failed(429), K.RATE_LIMIT),
    "429 for want of money": (failed(429, code="insufficient_quota"), K.DENIED),
    "429 for one request": (failed(429, "Request too large for gpt-x on tokens per min"), K.PERMANENT),
    "redirect": (answer(b"", 307, {"location": "http://elsewhere/"}), K.DENIED),
    "unreachable": (
        caused(openai.APIConnectionError(request=SENT), aiohttp.ClientConnectorError(KEY, OSError(111, "refused"))),
        K.CONNECTION,
    ),
    "hung up": (caused(openai.APITimeoutError(SENT), aiohttp.ServerDisconnectedError()), K.CONNECTION),
    "reset": (caused(openai.APIConnectionError(request=SENT), aiohttp.ClientOSError(104, "reset")), K.CONNECTION),
    "not certified": (
        aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError(1, "self-signed certificate")),
        K.DENIED,
    ),
    "slow to connect": (caused(openai.APITimeoutError(SENT), aiohttp.ConnectionTimeoutError()), K.CONNECTION),
    "silent": (caused(openai.APITimeoutError(SENT), aiohttp.SocketTimeoutError()), K.TIMEOUT),
    "cut off": (caused(openai.APIConnectionError(request=SENT), aiohttp.ClientPayloadError()), K.TRANSIENT),
    "cut off, httpx": (caused(openai.APIConnectionError(request=SENT), httpx2.ReadError("eof")), K.TRANSIENT),
    "unreachable, httpx": (caused(openai.APIConnectionError(request=SENT), httpx2.ConnectError("x")), K.CONNECTION),
    "not HTTP": (aiohttp.ClientError("bad status line"), K.TRANSIENT),
    "too large": (UnreadableBody("the body is longer than 8 bytes."), K.TRANSIENT),
    "flagged by a page": (HttpResponse(403, {"content-type": "text/html"}, b"<html>flagged</html>"), K.DENIED),
    "too long, by a page": (HttpResponse(413, {}, b" <!DOCTYPE html>maximum context length"), K.PERMANENT),
    "the engine was shut down": (answer(envelope("half of", "abort")), K.TRANSIENT),
}
CORPUS = {name: (answer(body), kind) for name, (body, kind) in STRUCTURED.items()} | OTHERS


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus(name):
    outcome, kind = CORPUS[name]
    result = parse_http_reply(outcome, WANTED, key=SecretStr(CANARY))
    assert isinstance(result, CallFailure), f"accepted: {result}"
    assert result.kind is kind
    assert len(str(result)) <= MAX_PROBLEM_CHARS + 200
    assert str(result).endswith((".", "…", "}")) or result.status is None or result.status != 200
    if result.kind.semantic and isinstance(outcome, HttpResponse) and outcome.status == 200:
        assert result.reply is not None
        assert result.raw is not None


def test_the_corpus_is_large():
    assert len(CORPUS) >= 40


def test_a_good_reply_is_accepted():
    reply = parse_http_reply(answer(envelope()), WANTED)
    assert reply == Reply(GOOD, FinishReason.STOP, TokenUsage(7, 3))
    assert parse_http_reply(answer(envelope("Hello.")), PLAIN) == Reply("Hello.", FinishReason.STOP, TokenUsage(7, 3))
    assert isinstance(
        parse_http_reply(answer(envelope(), headers={"content-type": "application/json; charset=utf-8"}), PLAIN), Reply
    )


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_a_forced_tool_call_is_a_structured_reply(finish):
    reply = parse_http_reply(answer(envelope(None, finish, tool_calls=called())), WANTED, by_tool=True)
    assert reply == Reply(GOOD, FinishReason.STOP, TokenUsage(7, 3))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"tool_calls": called("other")}, K.INVALID),
        ({"tool_calls": called() * 2}, K.INVALID),
        ({"tool_calls": called(arguments={"steps": []})}, K.INVALID),
        ({"tool_calls": called(arguments=GOOD[:-1])}, K.INVALID),
        ({"tool_calls": called(arguments="")}, K.EMPTY),
        ({"tool_calls": [{}]}, K.INVALID),
        ({"tool_calls": "verdict"}, K.INVALID),
        ({"content": GOOD}, K.INVALID),
        ({"content": ""}, K.EMPTY),
    ],
)
def test_a_bad_tool_call_is_refused(message, kind):
    result = parse_http_reply(answer(envelope(**{"content": None, **message})), WANTED, by_tool=True)
    assert isinstance(result, CallFailure)
    assert result.kind is kind


@pytest.mark.parametrize("finish", [None, "eos", {"stop": 1}, ["stop"], True])
@pytest.mark.parametrize("by_tool", [False, True])
def test_a_good_reply_that_did_not_end_well_is_refused(finish, by_tool):
    body = envelope(None, finish, tool_calls=called()) if by_tool else envelope(GOOD, finish)
    result = parse_http_reply(answer(body), WANTED, by_tool=by_tool)
    assert isinstance(result, CallFailure)
    assert result.kind is K.INVALID


def test_an_error_with_200_says_when_to_come_again_too():
    body = {"error": {"message": "slow down", "code": 429}}
    result = parse_http_reply(answer(body, headers={"retry-after": "7"}), WANTED)
    assert isinstance(result, CallFailure)
    assert (result.status, result.retry_after) == (429, 7.0)


def test_a_reply_cut_at_any_byte_is_refused():
    for end in range(len(GOOD)):
        result = parse_http_reply(answer(envelope(GOOD[:end])), WANTED)
        assert isinstance(result, CallFailure)
        assert result.kind is (K.INVALID if end else K.EMPTY)
    body = json.dumps(envelope()).encode()
    for end in range(len(body)):
        result = parse_http_reply(answer(body[:end]), WANTED)
        assert isinstance(result, CallFailure)
        assert result.kind is K.TRANSIENT


def test_what_a_bad_reply_cost_is_known():
    result = parse_http_reply(answer(envelope(GOOD[:30], "length")), WANTED)
    assert isinstance(result, CallFailure)
    assert result.reply == Reply(GOOD[:30], FinishReason.LENGTH, TokenUsage(7, 3))
    assert not result.unpaid


def test_a_usage_that_cannot_be_is_noted(caplog):
    _warn_of_usage.cache_clear()
    for _ in range(3):
        parse_http_reply(answer(envelope() | {"usage": {"prompt_tokens": 10**30, "completion_tokens": 1}}), WANTED)
    (record,) = caplog.records
    assert "worst case" in record.getMessage()


def test_a_long_prompt_is_counted_as_it_is_told():
    long = Request(({"role": "user", "content": "x" * 300_000},))
    usage = {"prompt_tokens": 2_500_000, "completion_tokens": 700_000}
    reply = parse_http_reply(answer(envelope("fine") | {"usage": usage}), long)
    assert isinstance(reply, Reply)
    assert reply.usage == TokenUsage(2_500_000, 700_000)


ECHO = f"Your key is {CANARY}, keep it."


@pytest.mark.parametrize(
    "body",
    [
        envelope(ECHO),
        envelope(ECHO, "length"),
        envelope(None, "stop", refusal=ECHO),
        envelope(None, ECHO),
        envelope(None, "stop", tool_calls=called(arguments=ECHO)),
    ],
)
@pytest.mark.parametrize("by_tool", [False, True])
def test_a_reply_that_holds_the_key_is_kept_without_it(body, by_tool):
    result = parse_http_reply(answer(body), PLAIN, by_tool=by_tool, key=SecretStr(CANARY))
    stored = encode_stored_answer(f"sha256:{'0' * 64}", result, cost=0).body.decode()
    assert CANARY not in f"{result!r} {result} {stored}"
    if isinstance(result, Reply):
        assert result.text == "Your key is [key], keep it."


def test_tokens_that_spell_the_key_are_not_kept():
    body = envelope(ECHO)
    tokens = [{"token": part, "logprob": -1.0, "top_logprobs": []} for part in ("Your key is ", CANARY[:9], CANARY[9:])]
    body["choices"][0]["logprobs"] = {"content": tokens}
    result = parse_http_reply(answer(body), PLAIN, key=SecretStr(CANARY))
    assert isinstance(result, Reply)
    assert result.logprobs is None


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": True},
        "7",
        {"prompt_tokens": 10**30, "completion_tokens": 1},
        {"prompt_tokens": 7, "completion_tokens": 10**12},
        {"prompt_tokens": 2**63, "completion_tokens": 2**63},
    ],
)
def test_a_usage_nobody_can_read_is_unknown(usage):
    reply = parse_http_reply(answer(envelope() | {"usage": usage}), WANTED)
    assert isinstance(reply, Reply)
    assert reply.usage == TokenUsage(0, 0)


@pytest.mark.parametrize(
    ("report", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"cache_read_input_tokens": 5}, 5),
        ({"prompt_cache_hit_tokens": 6}, 6),
        ({"prompt_tokens_details": {"cached_tokens": None}, "cache_read_input_tokens": 3}, 3),
        ({"prompt_tokens_details": None}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 8}}, 0),  # more than the prompt has
        ({"prompt_tokens_details": {"cached_tokens": -1}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": True}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": "4"}}, 0),
    ],
)
def test_tokens_out_of_a_cache_are_counted_where_the_server_reports_them(report, cached):
    usage = {"prompt_tokens": 7, "completion_tokens": 3, **report}
    reply = parse_http_reply(answer(envelope() | {"usage": usage}), WANTED)
    assert isinstance(reply, Reply)
    assert reply.usage == TokenUsage(7, 3, cached)


def test_log_probabilities():
    entry = {
        "token": "Yes",
        "logprob": -0.1,
        "top_logprobs": [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}],
    }
    body = envelope("Yes")
    body["choices"][0]["logprobs"] = {"content": [entry]}
    reply = parse_http_reply(answer(body), SCORED)
    assert isinstance(reply, Reply)
    assert reply.logprobs == (TokenLogprob("Yes", -0.1, (("Yes", -0.1), ("No", -2.4))),)
    for missing in (None, {}, {"content": None}, {"content": []}, {"content": [{"token": "Yes"}]}):
        body["choices"][0]["logprobs"] = missing
        result = parse_http_reply(answer(body), SCORED)
        assert isinstance(result, CallFailure), missing
        assert result.kind is K.INVALID


def test_what_is_certainly_free():
    free = {name for name, (outcome, _) in OTHERS.items() if parse_http_reply(outcome, PLAIN).unpaid}  # type: ignore[union-attr]
    assert {"500", "429", "400", "redirect", "unreachable", "slow to connect"} <= free
    assert not free & {"hung up", "reset", "silent", "cut off", "page with 200", "too large"}


# --- Retry-After -------------------------------------------------------------------------------------------------

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
THEN = 1792567680.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": DATE}, 60.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:26:00 GMT"}, 0.0),
        # Our clock says 60 s, the server's own says 90: we wait 90.
        ({"retry-after": DATE, "date": "Wed, 21 Oct 2026 07:26:30 GMT"}, 90.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Oct 2026"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert parse_retry_after(headers, THEN - 60) == seconds
    result = parse_http_reply(answer({"error": {"message": "x"}}, 429, headers), PLAIN, now=THEN - 60)
    assert isinstance(result, CallFailure)
    assert result.retry_after == seconds


# --- what must not be said ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [*range(270, 305, 5), *range(19_960, 20_005, 5), 2**20 - 20])
def test_a_key_in_a_body_is_nowhere(where):
    """Also where the message is cut in the middle of it."""
    message = "x" * where + CANARY + " is wrong"
    for outcome in (
        failed(401, message),
        HttpResponse(502, {}, message.encode()),
        answer(envelope(None, refusal=message)),
        answer(b"", 302, {"location": f"http://h/?key={CANARY}"}),
        openai.OpenAIError(message),
    ):
        result = parse_http_reply(outcome, WANTED, key=SecretStr(CANARY))
        assert isinstance(result, CallFailure)
        assert CANARY[:12] not in f"{result} {result!r} {result.raw} {result.args}"


def test_what_looks_like_a_key_is_blotted_out_even_if_it_is_not_ours():
    result = parse_http_reply(
        failed(401, "Incorrect API key provided: sk-proj-abcdefghijklmnopqrstuv. Bearer abc"), PLAIN
    )
    assert "abcdef" not in str(result)
    assert "Bearer [key]" in str(result)


def test_a_placeholder_key_spoils_no_words():
    assert "none of these" in str(parse_http_reply(failed(400, "none of these"), PLAIN, key=SecretStr("none")))


def test_a_body_is_never_told_whole():
    assert len(str(parse_http_reply(failed(400, "a" * 10_000), PLAIN))) < 400
    assert len(str(parse_http_reply(HttpResponse(500, {}, b"<p>" + b"a" * 10_000_000), PLAIN))) < 400


# --- structured replies ------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["steps", "id", "sound", "code"]), inner)
    ),
    max_leaves=8,
)


def by_hand(value: Any) -> bool:
    """The schema of these tests, written out."""
    if not isinstance(value, dict) or set(value) != {"steps"} or not isinstance(value["steps"], list):
        return False
    return bool(value["steps"]) and all(
        isinstance(step, dict)
        and set(step) == {"id", "sound", "code"}
        and isinstance(step["id"], (int, float))
        and not isinstance(step["id"], bool)
        and step["id"] == int(step["id"])
        and 1 <= step["id"] <= 9
        and isinstance(step["sound"], bool)
        and (step["code"] is None or step["code"] in ("L1", "L2"))
        for step in value["steps"]
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_shapes_against_a_check_by_hand(value):
    assert (find_schema_error(json.dumps(value), SCHEMA) is None) is by_hand(value)


def test_a_schema_does_not_fetch_anything():
    with pytest.raises(ValueError, match="must not refer to"):
        find_schema_error("{}", {"$ref": "http://127.0.0.1:9/schema.json"})
