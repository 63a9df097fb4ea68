"""Why a call gave no reply: the kinds, the exception that carries one, and what errors of transport and service say.

No clock, no network, no memory: what went wrong is a function of what arrived. Keys are blotted out on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite

from eclose.errors import EcloseError, UserError
from eclose.models.interface import Reply, Usage
from eclose.store.records.strict_json import parse_object

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
    TOO_LONG = "too_long"
    """It does not fit into this model's context."""
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


class CallFailure(EcloseError):  # noqa: N818 (an outcome of a call, kept and counted like a reply)
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
class HttpResponse:
    """What a server sent."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class UnreadableBody(Exception):  # noqa: N818
    """A body that is too large, damaged or in an encoding not known here: trouble on the way, not an answer."""


def mask(text: str, secret: str) -> str:
    """Return a text with the key replaced by ``[key]``; nothing else is changed."""
    return text.replace(secret, "[key]") if len(secret) >= _SHORTEST_KEY else text


def scrub(text: str, secret: str = "", most: int = LONGEST_RAW) -> str:
    """Return the beginning of a text, without the key and without what looks like one."""
    window = _KEYLIKE.sub("[key]", mask(text[:most], secret))
    # Where the window cut a key in two, its first half lies at the end.
    return window if len(text) <= most else window[: -max(len(secret), _LONG_KEY)]


_KEYLIKE = re.compile(r"\b(?:sk|pk|gsk|xai|hf|key)[-_][A-Za-z0-9_\-]{16,}|(?<=Bearer )\S+", re.IGNORECASE)


def excerpt(text: str, secret: str = "") -> str:
    """A short, single-line piece of what a server said."""
    plain = " ".join(_TAG.sub(" ", scrub(text, secret, _READ_FOR_PROBLEM)).split())
    return plain if len(plain) <= LONGEST_PROBLEM else plain[:LONGEST_PROBLEM] + " …"


_TAG = re.compile(r"<[^<>]{0,500}>")


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
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


def classify_exception(error: Exception, secret: str) -> CallFailure:
    """What an exception of the client says. Its cause decides: the transport calls a hang-up a time-out, for one."""
    chain = list(iterate_causes(error))
    # By name, because two HTTP libraries lie below the client, and reading a failure should not import them.
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    told = excerpt(str(chain[-1]) or type(chain[-1]).__name__, secret)
    if "UnreadableBody" in names:
        return CallFailure(FailureKind.TRANSIENT, f"the reply cannot be read ({told}).")
    if "ClientPayloadError" in names or "ReadError" in names:
        return CallFailure(FailureKind.TRANSIENT, f"the reply was cut off on the way ({told}).")
    if names & {"ClientConnectorError", "ConnectError", "ConnectionTimeoutError"}:
        return CallFailure(FailureKind.CONNECTION, f"the server cannot be reached ({told}).", unpaid=True)
    if names & {"ServerTimeoutError", "ReadTimeout"}:
        return CallFailure(FailureKind.TIMEOUT, f"the server stopped answering ({told}).")
    if names & {"ClientConnectionError", "APIConnectionError", "NetworkError", "OSError"}:
        return CallFailure(FailureKind.CONNECTION, f"the server hung up before it answered ({told}).")
    return CallFailure(FailureKind.TRANSIENT, f"the server does not speak HTTP as it should ({told}).")


def iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it came from, and so on."""
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
_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|available) context|context (?:length|size|window)|(?:prompt|input) is too long"
    r"|maximum number of tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content_filter|content_policy|content management policy|moderation|flagged", re.IGNORECASE)


def classify_status(answer: HttpResponse, now: float, secret: str) -> CallFailure:
    """What a status other than 2xx says, and the body with it."""
    text = _text(answer.body)
    told = excerpt(_error_message(answer.body) or text, secret) or "no reason given"
    # A page is a proxy's: whatever words it uses, it is not the model that speaks.
    said = "" if _is_page(answer.headers, text) else text[:LONGEST_RAW]
    kind, advice = _kind_of_status(answer.status, said), _ADVICE.get(answer.status, "")
    if 300 <= answer.status < 400:
        target = excerpt(answer.headers.get("location", "elsewhere"), secret)
        told, advice = f"redirects are not followed, and this one leads to {target}.", "Use the final base URL."
    return CallFailure(
        kind,
        f"HTTP {answer.status}: {told} {advice}".rstrip(),
        status=answer.status,
        retry_after=parse_retry_after(answer.headers, now),
        raw=scrub_body(answer.body, secret),
        unpaid=True,
    )


def _kind_of_status(status: int, text: str) -> FailureKind:
    if status == 429 and _NO_MONEY.search(text):
        return FailureKind.DENIED
    if status == 429 and _TOO_LARGE.search(text):
        return FailureKind.PERMANENT
    if status in (400, 403) and _FILTERED.search(text):
        return FailureKind.REFUSAL
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return FailureKind.TOO_LONG
    if 300 <= status < 400:
        return FailureKind.DENIED
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    return FailureKind.PERMANENT if 400 <= status < 500 else FailureKind.TRANSIENT


def _is_page(headers: Mapping[str, str], text: str) -> bool:
    return "html" in headers.get("content-type", "").lower() or text[:100].lstrip("\ufeff \t\r\n").startswith("<")


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


def scrub_body(body: bytes, secret: str) -> str:
    """A body as it is kept with a failure."""
    return scrub(_text(body), secret)
