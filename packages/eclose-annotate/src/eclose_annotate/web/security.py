"""Checks of every request (host, origin, method, size, load) and security headers of every response.

Plain ASGI middleware around the whole application, so that error pages and static files are covered too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose_annotate.events import current_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 512 * 1024
"""Largest body in bytes, enough for a form with some thousand steps."""
MAX_REQUESTS = 300
"""Requests in progress at the same time; further ones get 503 instead of filling the memory."""

# Scripts and styles only from files of this server; no inline code, no frames, no plugins.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
# Pages differ by person, and a shared cache would mix them up. Static files state their own rule.
_NO_STORE = (b"cache-control", b"no-store")
# One year, in seconds.
_TLS = {b"strict-transport-security": b"max-age=31536000; includeSubDomains"}
STATIC_PATH, ONE_TIME_PATH = "/static/", "/open/"


class SecurityMiddleware:
    """ASGI middleware that checks requests and adds headers to responses.

    ``hosts`` are the values of the Host header that name this server, with the port where a browser sends one. Further
    requests are refused where ``most`` are in progress.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], tls: bool, most: int = MAX_REQUESTS) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._headers = _ALWAYS | (_TLS if tls else {})
        self._most, self._active = most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] == "websocket":
            # The application has no websockets, and the checks below cover HTTP only.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Headers of the middleware replace those of the application.
                others = [(name, value) for name, value in message["headers"] if name.lower() not in self._headers]
                if not scope["path"].startswith(STATIC_PATH):
                    others = [(name, value) for name, value in others if name.lower() != _NO_STORE[0]]
                if not any(name.lower() == _NO_STORE[0] for name, _ in others):
                    others.append(_NO_STORE)
                message = {**message, "headers": [*others, *self._headers.items()]}
            elif scope["method"] == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (refusal := self._find_refusal(scope, headers)) is not None:
            _LOG.warning("%s: a request was refused with %s", current_timestamp(), refusal[0])
            await _send_text(send_with_headers, *refusal)
            return
        self._active += 1
        try:
            # HEAD is answered as GET; the server sends its headers without the body.
            inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self._app(inner, _limit_body(receive), send_with_headers)
        finally:
            self._active -= 1

    def _find_refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Return status and message where a request must be refused, else None."""
        method, is_head = scope["method"], scope["method"] == "HEAD"
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy may read another length than this server, and take a part of the body for a second request.
            return 400, "This request has two lengths."
        if headers.get(b"host", "").lower() not in self._hosts:
            # Against DNS rebinding: a foreign page could otherwise reach this server under its own host name.
            return 421, "This server does not answer to that host name."
        if "\0" in scope["path"]:
            # PostgreSQL fails on queries with NUL.
            return 404, "There is nothing here."
        if self._active >= self._most:
            return 503, "The server is busy. Try again in a moment."
        # A look at a link that works once must not use it up.
        if (is_head and scope["path"].startswith(ONE_TIME_PATH)) or method not in ("GET", "HEAD", "POST"):
            return 405, "This method is not allowed here."
        return self._find_form_refusal(headers) if method == "POST" else None

    def _find_form_refusal(self, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Return status and message where a form must be refused, else None."""
        if not _same_origin(headers, headers[b"host"]):
            return 403, "This form comes from another page."
        # Chunked bodies have no known length and are refused; browsers send forms with one.
        length = headers.get(b"content-length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY_BYTES:
            return 413, "This form is too large."
        return None


def _same_origin(headers: dict[bytes, str], host: str) -> bool:
    """Return whether a form comes from a page of this server, by Sec-Fetch-Site or else by Origin.

    Clients that send neither are no browsers, and cross-site requests need one: they are accepted.
    """
    if (site := headers.get(b"sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = headers.get(b"origin")
    return origin is None or _read_host(origin) == host.lower()


def _read_host(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return None


def _limit_body(receive: Receive) -> Receive:
    """Return the body of a request, cut off at the size limit, whatever length its header states."""
    size = 0

    async def receive_part() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        return {"type": "http.disconnect"} if size > MAX_BODY_BYTES else message

    return receive_part


async def _send_text(send: Send, status: int, message: str) -> None:
    # The rest of a refused request is not read: it must not be taken for the next one.
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": message.encode()})
