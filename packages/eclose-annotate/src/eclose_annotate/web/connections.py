"""Limits of connections: time limits for headers and bodies, and room for new requests while others are slow.

The server has one pool of connections. Without limits, a few hundred clients that send half a request would keep all
other people out. A connection whose request is not complete is closed after some seconds; where many are incomplete at
once, the oldest is closed for each new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Time limits in seconds, and the number of incomplete requests."""

    header_seconds: float = 10.0
    """Longest time from the start of a request to the end of its headers."""
    body_seconds: float = 30.0
    """Longest time from the end of the headers to the end of the body."""
    incomplete: int = 200
    """Connections without a complete request, idle ones included. Beyond it, the oldest is closed."""


class _Phase(Enum):
    IDLE = "idle"
    """Between two requests; the keep-alive limit of uvicorn applies."""
    HEADERS = "headers"
    BODY = "body"
    COMPLETE = "complete"


def limited_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Return the protocol class of a server with these limits; the class holds the connections of that server."""

    class LimitedProtocol(_LimitedProtocol):
        incomplete: ClassVar[dict[_LimitedProtocol, None]] = {}

    LimitedProtocol.limits = limits
    return LimitedProtocol


class _LimitedProtocol(H11Protocol):
    limits: ClassVar[ConnectionLimits]
    incomplete: ClassVar[dict[_LimitedProtocol, None]]
    """Connections without a complete request, in the order in which they entered their phase."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._phase = _Phase.COMPLETE
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The time runs from the connection on, also for a client that sends nothing at all.
        self._enter(_Phase.HEADERS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(_Phase.COMPLETE)
        super().connection_lost(exc)

    def _follow(self) -> None:
        if self.transport.is_closing():
            self._enter(_Phase.COMPLETE)
        elif self.conn.their_state is h11.IDLE:
            has_begun = self._phase is _Phase.HEADERS or bool(self.conn.trailing_data[0])
            self._enter(_Phase.HEADERS if has_begun else _Phase.IDLE)
        else:
            self._enter(_Phase.BODY if self.conn.their_state is h11.SEND_BODY else _Phase.COMPLETE)

    def _enter(self, phase: _Phase) -> None:
        if phase is self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.incomplete.pop(self, None)
        if phase is _Phase.COMPLETE:
            return
        self.incomplete[self] = None
        if len(self.incomplete) > self.limits.incomplete:
            next(iter(self.incomplete))._drop()
        if phase is not _Phase.IDLE:
            seconds = self.limits.header_seconds if phase is _Phase.HEADERS else self.limits.body_seconds
            self._timer = self.loop.call_later(seconds, self._drop)

    def _drop(self) -> None:
        self._enter(_Phase.COMPLETE)
        # Without an answer: the client has not asked anything yet. A waiting handler sees a disconnected client.
        self.transport.abort()
