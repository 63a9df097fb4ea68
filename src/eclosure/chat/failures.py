"""What came back from a model server, read once: a reply, or what went wrong.

``classify`` is a pure function of what arrived: no clock, no network, no memory. It accepts exactly one thing, a
finished completion of the wanted shape, and repairs nothing: a reply that had to be mended is one the model never gave.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, Never

from eclosure.chat.model import Finish, Reply, Request, TokenLogprob, Usage
from eclosure.errors import EclosureError, UserError
from eclosure.store.jsontext import JsonObject, parse_object

if TYPE_CHECKING:
    from pydantic import SecretStr

LONGEST_PROBLEM = 300
"""Characters of what a server said that go into a message: enough to act on, never a whole body."""
LONGEST_RAW = 2**20
"""Characters of a body that are kept with a failure."""
UNKNOWN_USAGE = Usage(0, 0)
"""What a server that reports no usage is recorded with. No real call reads nothing, so it cannot be mistaken."""
_READ_FOR_PROBLEM = 20_000
"""Characters in which the problem is looked for: pages begin with a good deal of style."""
_LONG_KEY = 300
_SHORTEST_KEY = 8
"""Shorter keys (``none``, ``EMPTY``) are placeholders; blotting them out would spoil ordinary words."""


class FailureKind(StrEnum):
    """Why a call gave no reply that can be used; decides who may try again."""

    RATE_LIMIT = "rate_limit"
    """Turned away for now: says nothing about the record."""
    CONNECTION = "connection"
    """The server could not be reached, or hung up before it answered."""
    TIMEOUT = "timeout"
    TRANSIENT = "transient"
    """The service failed: 5xx, a reply cut off on the way, or a page that is no completion."""
    DENIED = "denied"
    """No request will be answered until somebody mends the key, the account or the address."""
    PERMANENT = "permanent"
    """This request will never be answered as it is."""
    REFUSAL = "refusal"
    LENGTH = "length"
    EMPTY = "empty"
    INVALID = "invalid"
    """The model answered, but not in the wanted shape."""

    @property
    def semantic(self) -> bool:
        """Whether the model itself answered badly: asking again then shifts the distribution of what is accepted."""
        return self in _SEMANTIC


_SEMANTIC = frozenset({FailureKind.REFUSAL, FailureKind.LENGTH, FailureKind.EMPTY, FailureKind.INVALID})


class CallFailure(EclosureError):  # noqa: N818 (an outcome of a call, kept and counted like a reply)
    """A call without a usable reply. The message is short and holds no key; what was said is kept beside it."""

    def __init__(
        self,
        kind: FailureKind,
        problem: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        reply: Reply | None = None,
        raw: str | None = None,
        unpaid: bool = False,
    ) -> None:
        self.kind = kind
        self.problem = problem
        self.status = status
        self.retry_after = retry_after
        """Seconds to wait before the next request, as the server wants it."""
        self.reply = reply
        """What the model said where it said something: never to be accepted, but counted and kept."""
        self.raw = raw
        """The body as it came, without the key."""
        self.unpaid = unpaid
        """Whether the provider certainly charges nothing. Where nobody knows, this is False."""
        super().__init__(f"{kind}: {problem}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class ReplyTooLarge(Exception):  # noqa: N818
    """A body was longer than allowed; reading stopped there."""


def classify(
    outcome: Answer | Exception,
    request: Request,
    *,
    by_tool: bool = False,
    now: float = 0.0,
    key: SecretStr | None = None,
) -> Reply | CallFailure:
    """The reply, or why there is none. ``now`` is the time in seconds, for a Retry-After that is a date."""
    secret = key.get_secret_value() if key is not None else ""
    try:
        if isinstance(outcome, Exception):
            return _of_exception(outcome, secret)
        if 200 <= outcome.status < 300:
            return _Reading(outcome, request, by_tool, now, secret).reply()
        return _of_status(outcome, now, secret)
    except CallFailure as failure:
        # The frames it came through hold the key, and would be shown with their variables by some tools.
        failure.__context__ = None
        return failure.with_traceback(None)


def scrub(text: str, secret: str = "", most: int = LONGEST_RAW) -> str:
    """The beginning of a text, without the key and without what looks like one."""
    window = text[:most]
    if len(secret) >= _SHORTEST_KEY:
        window = window.replace(secret, "[key]")
    window = _KEYLIKE.sub("[key]", window)
    # Where the window cut a key in two, its first half lies at the end.
    return window if len(text) <= most else window[: -max(len(secret), _LONG_KEY)]


_KEYLIKE = re.compile(r"\b(?:sk|pk|gsk|xai|hf|key)[-_][A-Za-z0-9_\-]{16,}|(?<=Bearer )\S+", re.IGNORECASE)


def excerpt(text: str, secret: str = "") -> str:
    """A short, single-line piece of what a server said."""
    plain = " ".join(_TAG.sub(" ", scrub(text, secret, _READ_FOR_PROBLEM)).split())
    return plain if len(plain) <= LONGEST_PROBLEM else plain[:LONGEST_PROBLEM] + " …"


_TAG = re.compile(r"<[^<>]{0,500}>")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``Retry-After`` as seconds or as a date; None where nothing is said.

    A date is held against the server's own ``Date`` where there is one, so that a clock that is wrong on either side
    never brings us back too early.
    """
    with suppress(KeyError, ValueError):
        return _wait(float(headers["retry-after-ms"]) / 1000)
    told = headers.get("retry-after", "").strip()
    with suppress(ValueError):
        return _wait(float(told))
    try:
        then = parsedate_to_datetime(told).timestamp()
    except ValueError:
        return None
    with suppress(KeyError, ValueError):
        now = parsedate_to_datetime(headers["date"]).timestamp()
    return max(0.0, then - now)


def _wait(seconds: float) -> float | None:
    return seconds if isfinite(seconds) and seconds >= 0 else None


# --- errors of transport and service -----------------------------------------------------------------------------


def _of_exception(error: Exception, secret: str) -> CallFailure:
    """What an exception of the client says. Its cause decides: the transport calls a hang-up a time-out, for one."""
    chain = list(_causes(error))
    # By name, because two HTTP libraries lie below the client, and reading a failure should not import them.
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    told = excerpt(str(chain[-1]) or type(chain[-1]).__name__, secret)
    if "ReplyTooLarge" in names:
        return CallFailure(FailureKind.INVALID, f"{told} Lower max_tokens, or allow longer replies.")
    if "ClientPayloadError" in names or "ReadError" in names:
        return CallFailure(FailureKind.TRANSIENT, f"the reply was cut off on the way ({told}).")
    if names & {"ClientConnectorError", "ConnectError", "ConnectionTimeoutError"}:
        return CallFailure(FailureKind.CONNECTION, f"the server cannot be reached ({told}).", unpaid=True)
    if names & {"ServerTimeoutError", "ReadTimeout"}:
        return CallFailure(FailureKind.TIMEOUT, f"the server stopped answering ({told}).")
    if names & {"ClientConnectionError", "APIConnectionError", "NetworkError", "OSError"}:
        return CallFailure(FailureKind.CONNECTION, f"the server hung up before it answered ({told}).")
    return CallFailure(FailureKind.TRANSIENT, f"the server does not speak HTTP as it should ({told}).")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


_KIND_OF_STATUS = {
    401: FailureKind.DENIED,
    402: FailureKind.DENIED,
    403: FailureKind.DENIED,
    404: FailureKind.DENIED,
    408: FailureKind.TIMEOUT,
    409: FailureKind.TRANSIENT,
    425: FailureKind.TRANSIENT,
    429: FailureKind.RATE_LIMIT,
    501: FailureKind.DENIED,
}
_ADVICE = {
    401: "Check the API key.",
    402: "Check the provider's account.",
    403: "Check what this API key may do.",
    404: "Check the base URL and the model's name.",
    413: "Shorten the request.",
}
# What is said in the body may outweigh the status: each of these was met at a large provider.
_NO_MONEY = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_FILTERED = re.compile(r"content_filter|content_policy|content management policy|moderation|flagged", re.IGNORECASE)


def _of_status(answer: Answer, now: float, secret: str) -> CallFailure:
    text = _text(answer.body)
    told = excerpt(_error_message(answer.body) or text, secret) or "no reason given"
    kind, advice = _kind_of_status(answer.status, text[:LONGEST_RAW]), _ADVICE.get(answer.status, "")
    if 300 <= answer.status < 400:
        target = excerpt(answer.headers.get("location", "elsewhere"), secret)
        told, advice = f"redirects are not followed, and this one leads to {target}.", "Use the final base URL."
    return CallFailure(
        kind,
        f"HTTP {answer.status}: {told} {advice}".rstrip(),
        status=answer.status,
        retry_after=retry_after(answer.headers, now),
        raw=_kept(answer.body, secret),
        unpaid=True,
    )


def _kind_of_status(status: int, text: str) -> FailureKind:
    if status == 429 and _NO_MONEY.search(text):
        return FailureKind.DENIED
    if status == 429 and _TOO_LARGE.search(text):
        return FailureKind.PERMANENT
    if status in (400, 403) and _FILTERED.search(text):
        return FailureKind.REFUSAL
    if 300 <= status < 400:
        return FailureKind.DENIED
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    return FailureKind.PERMANENT if 400 <= status < 500 else FailureKind.TRANSIENT


def _error_message(body: bytes) -> str | None:
    """The sentence in an error body; providers nest it differently."""
    try:
        error = parse_object(body).get("error")
    except UserError:
        return None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _kept(body: bytes, secret: str) -> str:
    return scrub(_text(body), secret)


# --- completions -------------------------------------------------------------------------------------------------

_FINISHED = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.REFUSAL,
}
_TOOL_FINISHES = frozenset({"stop", "tool_calls", "function_call"})
_NOTHING_SEEN = re.compile(r"[\s\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\u00ad]*")


class _Reading:
    """One body on its way to a reply. The envelope is the service's, so a broken one is the service's failure."""

    def __init__(self, answer: Answer, request: Request, by_tool: bool, now: float, secret: str) -> None:
        self._answer = answer
        self._request = request
        self._by_tool = by_tool
        self._now = now
        self._secret = secret
        self._said: Reply | None = None

    def reply(self) -> Reply:
        """The reply, or an error that says why there is none."""
        envelope = self._envelope()
        choice = self._choice(envelope)
        message: JsonObject = choice["message"]
        finish = str(choice.get("finish_reason"))
        text = self._text_of(message)
        ended = Finish.STOP if self._by_tool and finish in _TOOL_FINISHES else _FINISHED.get(finish, Finish.OTHER)
        self._said = Reply(text or "", ended, _usage(envelope), _logprobs(choice))
        self._check_end(ended, finish, message)
        self._check_text(text, message)
        return self._said

    def _envelope(self) -> JsonObject:
        kind = self._answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            self._fail(FailureKind.TRANSIENT, f"the server answered with {kind or 'no content type'}, not with JSON")
        try:
            envelope = parse_object(self._answer.body)
        except UserError as error:
            self._fail(FailureKind.TRANSIENT, f"the body {error}")
        if envelope.get("error"):
            self._fail_inside(envelope["error"])
        return envelope

    def _fail_inside(self, error: object) -> Never:
        """Some gateways answer 200 with an error in the body; its code then takes the place of the status."""
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise _of_status(replace(self._answer, status=status), self._now, self._secret)

    def _choice(self, envelope: JsonObject) -> JsonObject:
        choices = envelope.get("choices")
        if not isinstance(choices, list) or len(choices) != 1:
            self._fail(FailureKind.TRANSIENT, "the body has not exactly one choice, so it is no completion")
        choice = choices[0]
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            self._fail(FailureKind.TRANSIENT, "the body has no message, so it is no completion")
        if choice.get("error") or choice.get("finish_reason") == "error":
            self._fail(FailureKind.TRANSIENT, "the service broke off in the middle of the reply")
        return choice

    def _text_of(self, message: JsonObject) -> str | None:
        if not self._by_tool:
            content = message.get("content")
            return content if isinstance(content, str) else None
        calls = message.get("tool_calls")
        with suppress(KeyError, IndexError, TypeError):
            function = calls[0]["function"]  # type: ignore[index]
            named = self._request.schema is not None and function["name"] == self._request.schema.name
            if named and len(calls) == 1 and isinstance(function["arguments"], str):  # type: ignore[arg-type]
                return str(function["arguments"])
        return None

    def _check_end(self, ended: Finish, finish: str, message: JsonObject) -> None:
        if ended is Finish.REFUSAL or message.get("refusal"):
            told = message.get("refusal") or "stopped by a content filter"
            self._fail(FailureKind.REFUSAL, f"the model will not answer: {excerpt(str(told), self._secret)}")
        if ended is Finish.LENGTH:
            most = self._request.decoding.max_tokens
            self._fail(FailureKind.LENGTH, f"the reply was cut off after max_tokens = {most}. Allow more")
        if ended is not Finish.STOP:
            self._fail(FailureKind.INVALID, f"the reply ended with {excerpt(finish)!r}, not with 'stop'")

    def _check_text(self, text: str | None, message: JsonObject) -> None:
        if message.get("tool_calls") and (not self._by_tool or text is None):
            self._fail(FailureKind.INVALID, "the model called a tool it was not asked to call")
        if text is None and message.get("content") and not isinstance(message["content"], str):
            self._fail(FailureKind.INVALID, "the content is no text")
        if text is None and self._by_tool and message.get("content"):
            self._fail(FailureKind.INVALID, "the model wrote text instead of calling the tool")
        if text is None or _NOTHING_SEEN.fullmatch(text):
            self._fail(FailureKind.EMPTY, "the reply has no text")
        if not _storable(text):
            self._fail(FailureKind.INVALID, "the reply holds half a character (a lone surrogate)")
        if self._request.schema is not None and (problem := mismatch(text, self._request.schema.schema)):
            self._fail(FailureKind.INVALID, f"the reply {excerpt(problem, self._secret)}")
        if self._request.decoding.top_logprobs is not None and self._said is not None and not self._said.logprobs:
            self._fail(FailureKind.INVALID, "the server reported no log-probabilities, though they were asked for")

    def _fail(self, kind: FailureKind, problem: str) -> Never:
        raw = _kept(self._answer.body, self._secret)
        raise CallFailure(kind, f"{problem.rstrip('.')}.", status=self._answer.status, reply=self._said, raw=raw)


def _storable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _usage(envelope: JsonObject) -> Usage:
    told = envelope.get("usage")
    if not isinstance(told, dict):
        return UNKNOWN_USAGE
    prompt, completion = told.get("prompt_tokens"), told.get("completion_tokens")
    # A truth value is no number, although Python counts it among the integers.
    if type(prompt) is not int or type(completion) is not int or min(prompt, completion) < 0:
        return UNKNOWN_USAGE
    return Usage(prompt, completion)


def _logprobs(choice: JsonObject) -> tuple[TokenLogprob, ...] | None:
    try:
        return tuple(
            TokenLogprob(
                str(entry["token"]),
                float(entry["logprob"]),
                tuple((str(other["token"]), float(other["logprob"])) for other in entry.get("top_logprobs") or ()),
            )
            for entry in choice["logprobs"]["content"]
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


# --- structured replies ------------------------------------------------------------------------------------------


def mismatch(text: str, schema: Mapping[str, Any]) -> str | None:
    """Why the text is not JSON of that shape; None where it is. Nothing around the JSON is forgiven."""
    import jsonschema_rs  # noqa: PLC0415 - only structured replies need it

    try:
        value = parse_object(text.encode("utf-8"))
    except UserError as error:
        return str(error)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        return "holds a number or a character that cannot be written back (1e999, a lone surrogate)"
    # Compiled anew for each reply (0.05 ms): schemas may name the very steps of one response.
    validator = jsonschema_rs.validator_for(dict(schema), retriever=_no_network)
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(part) for part in error.instance_path) or "the object"
        return f"is not of the wanted shape: {error.message} at {where}"
    except ValueError as error:
        return f"cannot be checked: {error}"
    return None


def _no_network(uri: str) -> Never:
    raise ValueError(f"a schema must not refer to {uri}")
