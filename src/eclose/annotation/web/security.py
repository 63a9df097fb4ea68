"""What holds for every request, whatever it asks for: where it comes from, how large it is, and what every answer says.

Written against ASGI itself, so that nothing is answered without it: neither errors nor static files.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eclose.annotation.audit_log import now

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)

LARGEST_BODY = 512 * 1024
"""Bytes of a form: some thousand steps."""

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
    # Pages hold what another person must not see, and a cache does not know who looks.
    b"cache-control": b"no-store",
}
_TLS = {b"strict-transport-security": b"max-age=31536000; includeSubDomains"}
_READS = frozenset({"GET", "HEAD"})


class Guard:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], tls: bool) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._headers = _ALWAYS | (_TLS if tls else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or turn it away."""
        if scope["type"] == "websocket":
            # Nothing here speaks it, and none of what follows would be asked of it.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name, value) for name, value in message["headers"] if name.lower() not in self._headers]
                message = {**message, "headers": [*own, *self._headers.items()]}
            await send(message)

        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (turned_away := self._refused(scope, headers)) is not None:
            _LOG.warning("%s: a request was turned away with %s", now(), turned_away[0])
            await _plain(answer, *turned_away)
            return
        body = _Counted(receive)
        await self._app(scope, body.receive, answer)

    def _refused(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Why a request is turned away before anybody looks at it."""
        method = scope["method"]
        if _place(f"//{headers.get(b'host', '')}")[0] not in self._hosts:
            # A foreign name that leads here is how a page elsewhere would reach a server on this machine.
            return 421, "This server is not known by that name."
        if "\0" in scope["path"]:
            # There is no such text in PostgreSQL, not even to look for.
            return 404, "There is nothing here."
        if method in _READS:
            return None
        if method != "POST":
            return 405, "This is not done here."
        if not _same_origin(headers, headers[b"host"]):
            return 403, "This form comes from another page."
        length = headers.get(b"content-length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > LARGEST_BODY:
            return 413, "This form is too large."
        return None


def _same_origin(headers: dict[bytes, str], host: str) -> bool:
    """Whether a form was sent from a page of ours. A browser says so in one of two ways; what is no browser may not."""
    if (site := headers.get(b"sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = headers.get(b"origin")
    return origin is None or _place(origin)[1] == host.lower()


def _place(address: str) -> tuple[str | None, str | None]:
    """The name of a host, and the name with its port; nothing where that cannot be read."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None, None
    return parts.hostname, parts.netloc.lower()


class _Counted:
    """A body that ends where it is too large, whatever its length was said to be."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._size = receive, 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        return {"type": "http.disconnect"} if self._size > LARGEST_BODY else message


async def _plain(send: Send, status: int, words: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})
