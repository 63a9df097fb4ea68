"""The HTTP client of model servers, batches and trace stores, on aiohttp.

A client opens as many connections as it has requests in flight. Nothing is retried. Redirects are not followed, because
they may lead to another host, which would receive the key. Cookies are ignored, and bodies are bounded by their decoded
size.
"""

from __future__ import annotations

import json
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from eclose.calls.http.failures import (
    HttpResponse,
    UnencodableRequest,
    UnreadableBody,
    UnsentRequest,
    find_secret_texts,
)
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

HTTP_ERRORS = (aiohttp.ClientError, UnreadableBody, UnsentRequest)
"""What a request raises where there is no response, or none that can be read."""
LARGEST_BODY = 8 * 2**20
"""Default limit of a decoded body in bytes."""
_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
_PIECE = 2**16
"""Decoded bytes per step of a decompressor."""
_LARGE_BODY = 2**20
"""Bytes from which a body is sent in pieces, so that it does not block the event loop."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
# Compression is declined; some proxies compress anyway, which _decode handles.
_HEADERS = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "eclose"}


class HttpClient:
    """A client of one server. Use it in an ``async with``, or call ``aclose``."""

    def __init__(
        self,
        base_url: str,
        secret_headers: Mapping[str, str] | None = None,
        *,
        query: tuple[tuple[str, str], ...] = (),
        largest: int = LARGEST_BODY,
    ) -> None:
        headers = secret_headers or {}
        self.secrets = find_secret_texts(*headers.values())
        """Every text in which the secret headers may come back from the server."""
        self._base_url = base_url
        self._headers = CIMultiDict({**_HEADERS, **headers})
        self._json_headers = CIMultiDict({**_HEADERS, **headers, "content-type": "application/json"})
        self._query = query
        self._largest = largest
        self._proxy = _find_proxy(URL(base_url))
        self._ssl = _load_certificates() if base_url.startswith("https:") else True
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        form: aiohttp.FormData | None = None,
        query: tuple[tuple[str, str], ...] = (),
    ) -> HttpResponse:
        """Return the response to one request; raise one of ``HTTP_ERRORS`` where there is none.

        The body of an error response ends where it becomes unreadable, because its status decides.
        """
        async with self.stream(method, path, body, form=form, query=query) as response:
            return await response.read()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        form: aiohttp.FormData | None = None,
        query: tuple[tuple[str, str], ...] = (),
    ) -> AsyncIterator[StreamedResponse]:
        """Send one request, with a JSON body or a form; yield the response before its body is read."""
        data: bytes | BytesIO | aiohttp.FormData | None = form
        if body is not None:
            try:
                encoded = _ENCODER.encode(body).encode()
            except (RecursionError, TypeError, ValueError) as error:  # half a character, infinity
                raise UnencodableRequest(f"its content cannot be encoded: {error}") from None
            data = encoded if len(encoded) < _LARGE_BODY else BytesIO(encoded)
        url = URL(f"{self._base_url}{path}")
        if self._query or query:
            url = url.extend_query(self._query + query)
        if self._session is None:
            self._session = _open_session()
        try:
            response = await self._session.request(
                method,
                url,
                data=data,
                headers=self._headers if body is None else self._json_headers,
                allow_redirects=False,
                ssl=self._ssl,
                proxy=self._proxy,
            )
        except aiohttp.ClientError:
            raise
        except (TypeError, ValueError) as error:  # of a header or an address, before a connection is used
            raise UnsentRequest(str(error)) from None
        async with response:
            yield StreamedResponse(response.status, response.headers, _decode(response, self._largest))


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """Status and headers of a response, and its decoded body in pieces."""

    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    pieces: AsyncIterator[bytes]

    async def read(self) -> HttpResponse:
        """Return the response with its whole body."""
        body = bytearray()
        try:
            async for piece in self.pieces:
                body += piece
        except HTTP_ERRORS:
            if 200 <= self.status < 300:
                raise
        return HttpResponse(self.status, self.headers, bytes(body))


@cache
def _load_certificates() -> ssl.SSLContext:
    """Return the certificates of this process, which are read once because that takes .2 s."""
    context = ssl.create_default_context()
    chosen = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    if not chosen and not context.cert_store_stats()["x509_ca"]:
        import certifi  # noqa: PLC0415 - for systems without certificates of their own

        context.load_verify_locations(certifi.where())
    return context


def _find_proxy(url: URL) -> URL | None:
    proxies = getproxies()
    if not proxies or url.host is None or proxy_bypass(url.host):
        return None
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy.startswith(("http://", "https://")):
        raise SettingError(f"{url.scheme.upper()}_PROXY: only proxies with an http:// address can be used.")
    return URL(proxy) if proxy else None


def _open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # One connection for each request in flight: whoever calls bounds these.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        # aiohttp takes gzip that is cut off for whole, so _decode decompresses.
        auto_decompress=False,
        # Callers set a deadline for the whole call.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
    )


async def _decode(response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yield the decoded body in pieces; raise ``UnreadableBody`` where it is damaged or longer than ``most`` bytes."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    inflater, size = None if encoding in ("identity", "") else _Inflater(encoding), 0
    async for chunk in response.content.iter_any():
        for piece in (chunk,) if inflater is None else inflater.decode(chunk):
            size += len(piece)
            # Checked piece by piece: 200 kB of gzip can hold 200 MB.
            if size > most:
                raise UnreadableBody(f"the body is longer than {most:,} bytes.")
            yield piece
    if inflater is not None and not inflater.ended:
        raise UnreadableBody("the compressed body was cut off.")


class _Inflater:
    """A body compressed by gzip or deflate, decoded in pieces of bounded size."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise UnreadableBody(f"the body has the content encoding {encoding[:40]!r}, which is not supported.")
        self._may_be_raw = encoding == "deflate"
        """Whether nothing is decoded yet of a deflate stream, which some servers send without the zlib header."""
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS if self._may_be_raw else zlib.MAX_WBITS | 16)

    @property
    def ended(self) -> bool:
        """Whether the compressed stream came to its end."""
        return self._inflate.eof

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what a chunk decodes to."""
        full = False  # a full piece may leave output in the decompressor although all input is consumed
        while (chunk or full) and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(chunk, _PIECE)
            except zlib.error as error:
                if not self._may_be_raw:
                    raise UnreadableBody(f"the compressed body is damaged ({error}).") from error
                # A negative window means deflate data without a zlib header.
                self._inflate, self._may_be_raw = zlib.decompressobj(-zlib.MAX_WBITS), False
                continue
            self._may_be_raw = False
            chunk, full = self._inflate.unconsumed_tail, len(piece) == _PIECE
            yield piece
