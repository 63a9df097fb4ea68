"""Checks of every request (host, origin, method, size) and security headers of every response.

Plain ASGI middleware around the whole application, so that error pages and static files are covered too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose.annotation.audit_log import current_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 512 * 1024
"""Largest body in bytes, enough for a form with some thousand steps."""

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
    # Pages differ by person, and a shared cache would mix them up.
    b"cache-control": b"no-store",
}
# One year, in seconds.
_TLS = {b"strict-transport-security": b"max-age=31536000; includeSubDomains"}
_READS = frozenset({"GET", "HEAD"})


class SecurityMiddleware:
    """ASGI middleware that checks requests and adds headers to responses."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], tls: bool) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._headers = _ALWAYS | (_TLS if tls else {})

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
                message = {**message, "headers": [*others, *self._headers.items()]}
            await send(message)

        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (refusal := self._find_refusal(scope, headers)) is not None:
            _LOG.warning("%s: a request was refused with %s", current_timestamp(), refusal[0])
            await _send_text(send_with_headers, *refusal)
            return
        body = _LimitedBody(receive)
        await self._app(scope, body.receive, send_with_headers)

    def _find_refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Return status and message where a request must be refused, else None."""
        method = scope["method"]
        if _split_host(f"//{headers.get(b'host', '')}")[0] not in self._hosts:
            # Against DNS rebinding: a foreign page could otherwise reach this server under its own host name.
            return 421, "This server does not answer to that host name."
        if "\0" in scope["path"]:
            # PostgreSQL fails on queries with NUL.
            return 404, "There is nothing here."
        if method in _READS:
            return None
        if method != "POST":
            return 405, "This method is not allowed here."
        if not _same_origin(headers, headers[b"host"]):
            return 403, "This form comes from another page."
        # Chunked bodies have no length and are refused; browsers send forms with one.
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
    return origin is None or _split_host(origin)[1] == host.lower()


def _split_host(url: str) -> tuple[str | None, str | None]:
    """Return the host name, and the host name with its port; None for both where the URL is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None, None
    return parts.hostname, parts.netloc.lower()


class _LimitedBody:
    """Body of a request that is cut off at the size limit, whatever length its header states."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._size = receive, 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        return {"type": "http.disconnect"} if self._size > MAX_BODY_BYTES else message


async def _send_text(send: Send, status: int, message: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": message.encode()})
