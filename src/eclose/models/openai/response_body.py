"""Bodies of HTTP responses: decompressed and bounded by their decoded size.

An unreadable body raises ``UnreadableBody`` with a status of 2xx. With any other status it ends early, because the
status decides the failure and the body only explains it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import aiohttp
import httpx2

from eclose.models.openai.failures import UnreadableBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_GZIP = frozenset({"gzip", "x-gzip"})
_DEFLATE = "deflate"
_PIECE = 2**16
"""Decoded bytes per step of a decompressor."""
# A negative window means deflate data without a zlib header.
_RAW = -zlib.MAX_WBITS
_READ_ERRORS = (UnreadableBody, httpx2.HTTPError, aiohttp.ClientError)


def bound_response_body(response: httpx2.Response, most: int) -> None:
    """Replace the stream of a response by one that decodes it and ends after ``most`` decoded bytes."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    # The header is removed, or the client would decode the decoded body again.
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    response.stream = _Body(response.stream, encoding, most, strict=response.is_success)


class _Body(httpx2.AsyncByteStream):
    """A decoded body of bounded size; without ``strict`` it ends where it becomes unreadable."""

    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str, most: int, *, strict: bool) -> None:
        self._stream = stream
        self._encoding = encoding
        self._most = most
        self._strict = strict

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the decoded body in pieces."""
        try:
            async for piece in self._pieces():
                yield piece
        except _READ_ERRORS:
            if self._strict:
                raise

    async def _pieces(self) -> AsyncIterator[bytes]:
        size, decoder = 0, _decoder(self._encoding)
        async for chunk in self._stream:
            for piece in decoder.decode(chunk):
                size += len(piece)
                # Checked piece by piece: 200 kB of gzip can hold 200 MB.
                if size > self._most:
                    raise UnreadableBody(f"the body is longer than {self._most:,} bytes.")
                yield piece
        decoder.finish()

    async def aclose(self) -> None:
        """Release the connection."""
        await self._stream.aclose()


def _decoder(encoding: str) -> _Identity | _Inflater:
    if encoding in ("identity", ""):
        return _Identity()
    if encoding in _GZIP or encoding == _DEFLATE:
        return _Inflater(zlib.MAX_WBITS if encoding == _DEFLATE else zlib.MAX_WBITS | 16)
    raise UnreadableBody(f"the body has the content encoding {encoding[:40]!r}, which is not supported.")


class _Identity:
    """A body that is not compressed."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def finish(self) -> None:
        """Accept any end."""


class _Inflater:
    """A body compressed by gzip or deflate, decoded in pieces of bounded size."""

    def __init__(self, bits: int) -> None:
        self._inflate = zlib.decompressobj(bits)
        self._may_be_raw = bits == zlib.MAX_WBITS
        """Whether nothing is decoded yet of a deflate stream, which some servers send without the zlib header."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        full = False  # a full piece may leave output in the decompressor although all input is consumed
        while (chunk or full) and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(chunk, _PIECE)
            except zlib.error as error:
                if not self._may_be_raw:
                    raise UnreadableBody(f"the compressed body is damaged ({error}).") from error
                self._inflate, self._may_be_raw = zlib.decompressobj(_RAW), False
                continue
            self._may_be_raw = False
            chunk, full = self._inflate.unconsumed_tail, len(piece) == _PIECE
            yield piece

    def finish(self) -> None:
        """Raise unless the compressed stream came to its end."""
        if not self._inflate.eof:
            raise UnreadableBody("the compressed body was cut off.")
