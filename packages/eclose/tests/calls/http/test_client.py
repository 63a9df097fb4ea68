"""Bodies in pieces of any size: decoded exactly, bounded, and never taken for whole when they are not."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from contextlib import suppress
from random import Random

import pytest
from aiohttp import web

from eclose.calls.http.client import HttpClient
from eclose.calls.http.failures import UnreadableBody
from tests.calls.http.site import site

RNG = Random(7)
TEXTS = [b"", b"x", b"{}" * 50_000, RNG.randbytes(200_000), b" " * 2**16, b" " * (2**16 + 258), b"ab" * 2**17]


def read(data: bytes, encoding: str | None, *, size: int = 1000, most: int = 10**7, status: int = 200) -> bytes:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={} if encoding is None else {"content-encoding": encoding})
        await response.prepare(request)
        with suppress(ConnectionError):  # the client leaves where it has read enough
            for start in range(0, len(data), size):
                await response.write(data[start : start + size])
        return response

    async def main() -> bytes:
        async with site(handle) as url, HttpClient(url, largest=most) as client:
            return (await client.send("GET", "/")).body

    return asyncio.run(main())


def raw(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


@pytest.mark.parametrize("encoding", [None, "identity", "gzip", "deflate", "raw"])
@pytest.mark.parametrize("size", [1000, 2**16, 10**7])
def test_every_text_comes_back(encoding, size):
    squeeze = {"gzip": gzip.compress, "deflate": zlib.compress, "raw": raw}.get(encoding or "", bytes)
    for text in TEXTS:
        assert read(squeeze(text), "deflate" if encoding == "raw" else encoding, size=size) == text


@pytest.mark.parametrize("squeeze", [gzip.compress, zlib.compress, raw])
def test_a_body_that_is_cut_anywhere_is_not_taken_for_whole(squeeze):
    whole = squeeze(b"a completion " * 20)
    encoding = "gzip" if squeeze is gzip.compress else "deflate"
    for end in range(len(whole)):
        with pytest.raises(UnreadableBody):
            read(whole[:end], encoding)


def test_the_bound_is_on_what_is_decoded():
    text = b" " * 100_000
    assert read(gzip.compress(text), "gzip", most=100_000) == text
    with pytest.raises(UnreadableBody, match="longer than 99,999 bytes"):
        read(gzip.compress(text), "gzip", most=99_999)


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "x" * 500])
def test_other_encodings_are_named(encoding):
    with pytest.raises(UnreadableBody, match="content encoding"):
        read(b"anything", encoding)


@pytest.mark.parametrize("encoding", [None, "gzip", "br"])
def test_the_body_of_an_error_ends_where_it_cannot_be_read(encoding):
    assert len(read(b"x" * 50_000, encoding, most=20_000, status=502)) <= 20_000
