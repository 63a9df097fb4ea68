"""Transmission of a reply's body: complete, slow, cut off, compressed, or far too large."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from aiohttp import web

from eclose_world.server.faults import ServerBehaviour, ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 2**16
_UNKNOWN_ENCODING = "x-world"


async def send_body_with_fault(
    fault: ServerFault | None,
    request: web.Request,
    data: bytes,
    headers: dict[str, str],
    behaviour: ServerBehaviour,
    stopping: asyncio.Event,
) -> web.StreamResponse:
    """Send a body with the given transport fault; None sends it unchanged."""
    match fault:
        case ServerFault.SLOW:
            return await _send_slowly(request, data, headers, behaviour.slow_seconds, stopping)
        case ServerFault.CUT:
            return await _send_half(request, data, headers)
        case ServerFault.GZIP:
            return web.Response(body=gzip.compress(data), headers={**headers, "Content-Encoding": "gzip"})
        case ServerFault.ENCODED:
            return web.Response(body=data[::-1], headers={**headers, "Content-Encoding": _UNKNOWN_ENCODING})
        case ServerFault.OVERSIZED:
            return await _send_oversized(request, headers, behaviour.oversized_bytes)
        case ServerFault.BOMB:
            body = _bomb(behaviour.oversized_bytes)
            return web.Response(body=body, headers={**headers, "Content-Encoding": "gzip"})
        case _:
            return web.Response(body=data, headers=headers)


def close_connection(request: web.Request) -> None:
    """Close the connection of a request. ``close`` still sends what was written before, ``abort`` would not."""
    if request.transport is not None:
        request.transport.close()


async def _send_slowly(
    request: web.Request, data: bytes, headers: dict[str, str], seconds: float, stopping: asyncio.Event
) -> web.StreamResponse:
    """Send the body in small pieces over so many seconds, with a pause before each."""
    # At least ten pieces, and four a second.
    size = ceil(len(data) / max(10, ceil(4 * seconds)))
    starts = range(0, len(data), size)
    response = web.StreamResponse(headers=headers)
    response.content_length = len(data)
    with suppress(ConnectionError):
        await response.prepare(request)
        for start in starts:
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), seconds / len(starts))
            await response.write(data[start : start + size])
    return response


async def _send_half(request: web.Request, data: bytes, headers: dict[str, str]) -> web.StreamResponse:
    """Announce the whole body, send half of it, close the connection."""
    response = web.StreamResponse(headers=headers)
    # The length is announced in full, so the client sees a broken connection and not a short body.
    response.content_length = len(data)
    with suppress(ConnectionError):
        await response.prepare(request)
        await response.write(data[: len(data) // 2])
    close_connection(request)
    return response


async def _send_oversized(request: web.Request, headers: dict[str, str], size: int) -> web.StreamResponse:
    """Send a JSON object of so many bytes; stop when the client leaves."""
    response = web.StreamResponse(headers=headers)
    response.content_length = size
    with suppress(ConnectionError):
        await response.prepare(request)
        for piece in _pieces(size):
            await response.write(piece)
    return response


def _pieces(size: int) -> Iterator[bytes]:
    """Yield a JSON object of so many bytes (at least 2) in pieces; nearly all of it is blanks."""
    yield b"{"
    for start in range(0, size - 2, _PIECE):
        yield b" " * min(_PIECE, size - 2 - start)
    yield b"}"


@lru_cache(maxsize=4)
def _bomb(size: int) -> bytes:
    # Blanks compress by a factor of about 1,000, which is what makes the bomb small on the wire.
    return gzip.compress(b"".join(_pieces(size)))
