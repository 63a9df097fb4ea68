"""Failures of calls: their kinds, the exception that carries one, and the classification of errors and HTTP statuses.

Classification is a pure function of what arrived. API keys are masked in every text.
"""

from __future__ import annotations

import base64
import html
import json
import re
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from math import isfinite
from urllib.parse import quote

from eclose.calls.model import Reply, TokenUsage
from eclose.errors import EcloseError, UserError
from eclose.files.json_reader import parse_json_object

MAX_PROBLEM_CHARS = 300
"""Largest number of characters of a server's text in a message."""
LONGEST_RAW = 2**20
"""Largest number of characters of a body that is stored with a failure."""
UNKNOWN_USAGE = TokenUsage(0, 0)
"""Stands for a usage that the server did not report. Every real call has prompt tokens, so it is unambiguous."""
_READ_FOR_PROBLEM = 20_000
"""Characters of a body that are searched for a message: HTML pages begin with long style sheets."""
# Characters that are dropped where a text is cut, as many as a key may have.
_LONG_KEY = 300
_SHORTEST_KEY = 8
"""Shorter keys (``none``, ``EMPTY``) are placeholders; masking them would damage ordinary words."""


class CallFailureKind(StrEnum):
    """Why a call gave no usable reply; decides whether it is retried."""

    RATE_LIMIT = "rate_limit"
    """Refused for now because of a limit; independent of the record."""
    CONNECTION = "connection"
    """The server could not be reached, or closed the connection before it answered."""
    TIMEOUT = "timeout"
    TRANSIENT = "transient"
    """The service failed: 5xx, a truncated body, or a body that is not a completion."""
    DENIED = "denied"
    """Every request is refused until the key, the account or the base URL is corrected."""
    PERMANENT = "permanent"
    """This request is refused every time."""
    TOO_LONG = "too_long"
    """The request does not fit into the model's context."""
    REFUSAL = "refusal"
    LENGTH = "length"
    EMPTY = "empty"
    INVALID = "invalid"
    """The model answered, but the reply does not match the schema."""

    @property
    def semantic(self) -> bool:
        """Whether the model itself answered unusably: asking again shifts the distribution of accepted replies."""
        return self in _SEMANTIC


_SEMANTIC = frozenset({CallFailureKind.REFUSAL, CallFailureKind.LENGTH, CallFailureKind.EMPTY, CallFailureKind.INVALID})


class CallFailure(EcloseError):  # noqa: N818 (an outcome of a call, kept and counted like a reply)
    """A call without a usable reply. The message is short and without keys; ``reply`` and ``raw`` hold the details."""

    def __init__(
        self,
        kind: CallFailureKind,
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
        """Seconds to wait before the next request, as requested by the server; None without such a request."""
        self.reply = reply
        """The unusable reply, where there is one: stored and counted, never accepted."""
        self.raw = raw
        """The received body with keys masked."""
        self.unpaid = unpaid
        """Whether the provider certainly charges nothing; False where that is unknown."""
        super().__init__(f"{kind}: {problem}")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Status, headers and body of an HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class UnreadableBody(Exception):  # noqa: N818
    """A body that is too large, damaged or in an unsupported encoding: a transport failure, not a reply."""


class UnsentRequest(Exception):  # noqa: N818
    """A request that no server can receive, because of an address or header; nothing was sent."""


class UnencodableRequest(UnsentRequest):
    """A request that cannot be written as JSON in UTF-8, because of its own content; nothing was sent."""


@lru_cache(maxsize=64)
def find_secret_texts(*values: str) -> tuple[str, ...]:
    """Return every text in which the values of secret headers may come back, the longest first."""
    words = {word for value in values for word in (value, *value.split())}
    for word in tuple(words):
        with suppress(Base64Error, UnicodeDecodeError):  # name and password of a login
            login = base64.b64decode(word, validate=True).decode()
            words |= {login, *login.split(":")}
    texts = {text for word in words if len(word) >= _SHORTEST_KEY for text in _encode_secret(word)}
    return tuple(sorted(texts, key=len, reverse=True))


def _encode_secret(word: str) -> Iterator[str]:
    data = word.encode("utf-8", "surrogatepass")
    yield from (word, quote(word, safe=""), html.escape(word), json.dumps(word)[1:-1], data.hex())
    # In base64 a text looks different at each of three offsets; its ends also depend on what stands around it.
    for offset, start in enumerate((0, 2, 3)):
        end = (offset + len(data)) * 8 // 6
        yield base64.b64encode(bytes(offset) + data).decode()[start:end]
        yield base64.urlsafe_b64encode(bytes(offset) + data).decode()[start:end]


def mask_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text with each of the secrets replaced by ``[key]``; nothing else is changed."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


def _excerpt_without_keys(text: str, secrets: Sequence[str] = (), most: int = LONGEST_RAW) -> str:
    """Return the beginning of a text, with the secrets and everything that looks like a key masked."""
    window = _KEYLIKE.sub("[key]", mask_secrets(text[:most], secrets))
    # A key that the window cuts in two is not matched: drop as many characters as a key may have.
    return window if len(text) <= most else window[: -max(len(max(secrets, key=len, default="")), _LONG_KEY)]


# Prefixes of the providers' keys, and any bearer token: a body may hold a key other than the one sent.
_KEYLIKE = re.compile(
    r"\b(?:sk|pk|gsk|xai|hf|key|fw|tgp)[-_][A-Za-z0-9_\-]{16,}|\b(?:ya29\.|AIza|ABSK)[\w.+/=\-]{16,}|(?<=Bearer )\S+",
    re.IGNORECASE,
)


def excerpt_server_text(text: str, secrets: Sequence[str] = ()) -> str:
    """Return the beginning of a server's text on one line, without HTML tags and keys."""
    plain = " ".join(_TAG.sub(" ", _excerpt_without_keys(text, secrets, _READ_FOR_PROBLEM)).split())
    return plain if len(plain) <= MAX_PROBLEM_CHARS else plain[:MAX_PROBLEM_CHARS] + " …"


_TAG = re.compile(r"<[^<>]{0,500}>")


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait from ``retry-after-ms`` or ``Retry-After`` (seconds or a date); None without them.

    A date is compared with the server's own ``Date`` header where there is one, so that a wrong clock on either side
    cannot shorten the wait.
    """
    with suppress(KeyError, ValueError):
        return _wait(float(headers["retry-after-ms"]) / 1000)
    value = headers.get("retry-after", "").strip()
    with suppress(ValueError):
        return _wait(float(value))
    try:
        then = parsedate_to_datetime(value).timestamp()
    except ValueError:
        return None
    with suppress(KeyError, ValueError):
        now = parsedate_to_datetime(headers["date"]).timestamp()
    return max(0.0, then - now)


def _wait(seconds: float) -> float | None:
    return seconds if isfinite(seconds) and seconds >= 0 else None


def classify_http_exception(error: Exception, secrets: Sequence[str]) -> CallFailure:
    """Return the failure for an exception of the HTTP client."""
    chain = list(iterate_exception_causes(error))
    # The causes decide: the transport reports a closed connection as a time-out, for example. Classes are compared by
    # name, because two HTTP libraries lie below the client and classification imports neither.
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    reason = excerpt_server_text(str(chain[-1]) or type(chain[-1]).__name__, secrets)
    if "UnsentRequest" in names:
        kind = CallFailureKind.PERMANENT if "UnencodableRequest" in names else CallFailureKind.DENIED
        return CallFailure(kind, f"the request cannot be sent ({reason}).", unpaid=True)
    # From the most specific class to the most general: the chain of nearly every failure has an APIConnectionError too.
    if names & {"CertificateError", "SSLCertVerificationError", "ClientConnectorCertificateError"}:
        return CallFailure(
            CallFailureKind.DENIED, f"the certificate of the server is not accepted ({reason}).", unpaid=True
        )
    if "UnreadableBody" in names:
        return CallFailure(CallFailureKind.TRANSIENT, f"the reply cannot be read ({reason}).")
    if "ClientPayloadError" in names or "ReadError" in names:
        return CallFailure(CallFailureKind.TRANSIENT, f"the reply was cut off on the way ({reason}).")
    if names & {"ClientConnectorError", "ConnectError", "ConnectionTimeoutError"}:
        return CallFailure(CallFailureKind.CONNECTION, f"the server cannot be reached ({reason}).", unpaid=True)
    if names & {"ServerTimeoutError", "ReadTimeout"}:
        return CallFailure(CallFailureKind.TIMEOUT, f"the server stopped answering ({reason}).")
    if names & {"ClientConnectionError", "APIConnectionError", "NetworkError", "OSError"}:
        return CallFailure(
            CallFailureKind.CONNECTION, f"the server closed the connection before it answered ({reason})."
        )
    return CallFailure(CallFailureKind.TRANSIENT, f"the response is not valid HTTP ({reason}).")


def iterate_exception_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


# 401 to 404 and 501 concern every request alike, so they stop a run: a wrong base URL or model name gives 404.
_KIND_OF_STATUS = {
    401: CallFailureKind.DENIED,
    402: CallFailureKind.DENIED,
    403: CallFailureKind.DENIED,
    404: CallFailureKind.DENIED,
    408: CallFailureKind.TIMEOUT,
    409: CallFailureKind.TRANSIENT,
    425: CallFailureKind.TRANSIENT,
    429: CallFailureKind.RATE_LIMIT,
    501: CallFailureKind.DENIED,
}
_ADVICE = {
    401: "Check the API key.",
    402: "Check the provider's account.",
    403: "Check the permissions of this API key.",
    404: "Check the base URL and the model's name.",
    413: "Shorten the request.",
}
# The body may outweigh the status: each of these was observed at a large provider.
_NO_MONEY = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
_BROKEN_REPLY = re.compile(r"json_validate_failed|tool_use_failed")
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|available) context|context (?:length|size|window)|(?:prompt|input) is too long"
    r"|maximum number of tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content_filter|content_policy|content management policy|moderation|flagged", re.IGNORECASE)
_BODY_KINDS = (
    # An exhausted account and a request above the limit are answered with 429 too, but waiting helps neither.
    ((429,), _NO_MONEY, CallFailureKind.DENIED),
    ((429,), _TOO_LARGE, CallFailureKind.PERMANENT),
    # Anthropic refuses an empty account with 400.
    ((400,), _NO_CREDIT, CallFailureKind.DENIED),
    # Groq checks the reply of a model against the schema itself.
    ((400,), _BROKEN_REPLY, CallFailureKind.INVALID),
    ((400, 403), _FILTERED, CallFailureKind.REFUSAL),
    ((400, 413, 422), _TOO_LONG, CallFailureKind.TOO_LONG),
)
"""Kinds that the words of a body decide for these statuses; the first match counts."""


def classify_http_status(response: HttpResponse, now: float, secrets: Sequence[str]) -> CallFailure:
    """Return the failure for a response with a status other than 2xx, from its status and body."""
    text = response.body.decode("utf-8", "replace")
    message = excerpt_server_text(_error_message(response.body) or text, secrets) or "no reason given"
    # An HTML page comes from a proxy, so its words say nothing about the model.
    is_page = "html" in response.headers.get("content-type", "").lower()
    is_page = is_page or text[:100].lstrip("\ufeff \t\r\n").startswith("<")
    body_text = "" if is_page else text[:LONGEST_RAW]
    kind, advice = _kind_of_status(response.status, body_text), _ADVICE.get(response.status, "")
    if 300 <= response.status < 400:
        target = excerpt_server_text(response.headers.get("location", "elsewhere"), secrets)
        message, advice = f"redirects are not followed, and this one leads to {target}.", "Use the final base URL."
    return CallFailure(
        kind,
        f"HTTP {response.status}: {message} {advice}".rstrip(),
        status=response.status,
        retry_after=parse_retry_after(response.headers, now),
        raw=excerpt_failure_body(response.body, secrets),
        unpaid=True,
    )


def _kind_of_status(status: int, text: str) -> CallFailureKind:
    kind = next((kind for statuses, words, kind in _BODY_KINDS if status in statuses and words.search(text)), None)
    if kind is not None:
        return kind
    if 300 <= status < 400:
        return CallFailureKind.DENIED
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    return CallFailureKind.PERMANENT if 400 <= status < 500 else CallFailureKind.TRANSIENT


def _error_message(body: bytes) -> str | None:
    """Return the message in an error body, which providers nest differently; None without one."""
    text = body.strip()
    # Google sends a list with the error object in it.
    if text.startswith(b"[") and text.endswith(b"]"):
        text = text[1:-1]
    try:
        fields = parse_json_object(text)
    except UserError:
        return None
    error = fields.get("error", fields)
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def excerpt_failure_body(body: bytes, secrets: Sequence[str]) -> str:
    """Return the text of a body as it is stored with a failure: bounded, keys masked."""
    return _excerpt_without_keys(body.decode("utf-8", "replace"), secrets)
