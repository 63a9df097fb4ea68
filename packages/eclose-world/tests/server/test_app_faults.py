"""Each fault over real HTTP, as the stock OpenAI client meets it."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import openai
import pytest

from eclose_world.server.app import ModelServer, open_model_server
from eclose_world.server.faults import ServerFault
from tests.serving import VERDICT, VERDICT_TOOL, always, ask, only_line, registry, run_with


@pytest.mark.parametrize("as_date", [False, True])
def test_rate_limit_says_when_to_come_again(as_date: bool) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.RateLimitError) as raised:
            await ask(client)
        header = raised.value.response.headers["retry-after"]
        if as_date:
            assert 6 < parsedate_to_datetime(header).timestamp() - time.time() <= 8.5
        else:
            assert header == "7.5"
        assert only_line(server)["paid"] == only_line(server)["early"] == 0
        await ask(client)
        assert (only_line(server)["paid"], only_line(server)["early"]) == (1, 1)

    run_with(body, always(ServerFault.RATE_LIMIT, retry_after=7.5, retry_after_as_date=as_date, max_faults_per_key=1))


@pytest.mark.parametrize(
    ("fault", "status", "content_type"),
    [
        (ServerFault.SERVER_ERROR, 500, "application/json"),
        (ServerFault.UNAVAILABLE, 503, "application/json"),
        (ServerFault.BAD_GATEWAY, 502, "text/html"),
    ],
)
def test_server_errors(fault: ServerFault, status: int, content_type: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.InternalServerError) as raised:
            await ask(client)
        assert raised.value.status_code == status
        assert raised.value.response.headers["content-type"].startswith(content_type)
        assert (only_line(server)["paid"], only_line(server)["faulted"]) == (0, {fault: 1})

    run_with(body, always(fault))


@pytest.mark.parametrize(
    ("fault", "status", "encoding", "size", "paid"),
    [
        (ServerFault.GZIP_PAGE, 502, "gzip", None, 0),
        (ServerFault.GZIP, 200, "gzip", None, 1),
        (ServerFault.ENCODED, 200, "x-world", None, 1),
        (ServerFault.OVERSIZED, 200, None, 3_000_000, 1),
        (ServerFault.BOMB, 200, "gzip", 3_000_000, 1),
    ],
)
def test_bodies_that_are_compressed_or_too_large(fault, status, encoding, size, paid) -> None:
    async def main() -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
        async with (
            open_model_server(registry(), always(fault, oversized_bytes=3_000_000)) as server,
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.post(f"{server.base_url}/chat/completions", json=body) as response,
        ):
            data = await response.read()
            assert (response.status, response.headers.get("Content-Encoding")) == (status, encoding)
            plain = gzip.decompress(data) if encoding == "gzip" else data
            if fault is not ServerFault.ENCODED and status == 200:
                json.loads(plain)
            assert size in (None, len(plain))
            assert fault is not ServerFault.BOMB or len(data) < 100_000
            assert only_line(server)["paid"] == paid

    asyncio.run(main())


def test_an_outage_strikes_everybody_until_it_ends() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        server.outage = ServerFault.BAD_GATEWAY
        for _ in range(3):
            with pytest.raises(openai.InternalServerError):
                await ask(client)
        server.outage = None
        await ask(client)
        assert only_line(server)["paid"] == 1

    run_with(body)


def test_html_with_200_is_no_completion_and_free() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        reply = await client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "a"}]
        )
        assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (200, "text/html")
        assert reply.text.startswith("<!DOCTYPE html>")
        assert only_line(server)["paid"] == 0

    run_with(body, always(ServerFault.HTML))


@pytest.mark.parametrize(("fault", "paid"), [(ServerFault.DROP, 0), (ServerFault.CUT, 1)])
def test_dropped_connections(fault: ServerFault, paid: int) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.APIConnectionError) as raised:
            await ask(client)
        assert not isinstance(raised.value, openai.APITimeoutError)
        assert only_line(server)["paid"] == paid

    run_with(body, always(fault))


def test_cut_connection_had_sent_headers_and_half_the_body() -> None:
    async def main() -> None:
        async with open_model_server(registry(), always(ServerFault.CUT)) as server:
            host, port = server.base_url.removeprefix("http://").removesuffix("/v1").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            body = b'{"model":"m","messages":[{"role":"user","content":"a"}]}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s:%s\r\nContent-Length: %d\r\n\r\n"
                % (host.encode(), port.encode(), len(body))
                + body
            )
            head, _, sent = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            await writer.wait_closed()
            promised = int(next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")).split()[1])
            assert head.startswith(b"HTTP/1.1 200")
            assert len(sent) == promised // 2

    asyncio.run(asyncio.wait_for(main(), 10))


def test_hanging_lasts_until_the_client_leaves() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.APITimeoutError):
            await ask(client)
        for _ in range(100):
            if server.bill()["in_flight"] == 0:
                break
            await asyncio.sleep(0.02)
        assert server.bill()["in_flight"] == 0
        assert (only_line(server)["paid"], only_line(server)["faulted"]) == (0, {"hang": 1})

    run_with(body, always(ServerFault.HANG), timeout=0.2)


def test_hanging_is_bounded() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        start = time.monotonic()
        with pytest.raises(openai.APIConnectionError) as raised:
            await ask(client)
        assert not isinstance(raised.value, openai.APITimeoutError)
        assert 0.2 <= time.monotonic() - start < 5

    run_with(body, always(ServerFault.HANG, hang_seconds=0.2))


def test_stopping_does_not_wait_for_the_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eclose_world.server.app.SHUTDOWN_GRACE_SECONDS", 6.0)

    async def main() -> float:
        async with open_model_server(registry(), always(ServerFault.HANG)) as server:
            client = openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0)
            hanging = asyncio.create_task(ask(client))
            while not server.bill()["in_flight"]:
                await asyncio.sleep(0.01)
            start = time.monotonic()
        with pytest.raises(openai.APIConnectionError):
            await hanging
        await client.close()
        return time.monotonic() - start

    assert asyncio.run(asyncio.wait_for(main(), 10)) < 3


@pytest.mark.slow
def test_slow_bytes_arrive_slowly_and_whole() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        start = time.monotonic()
        reply = await ask(client)
        assert 0.4 <= time.monotonic() - start < 5
        assert reply.choices[0].message.content == "hello there"
        assert (only_line(server)["paid"], only_line(server)["faulted"]) == (1, {"slow": 1})

    run_with(body, always(ServerFault.SLOW, slow_seconds=0.4))


@pytest.mark.parametrize("form", [{"response_format": VERDICT}, VERDICT_TOOL], ids=["json_schema", "tool"])
@pytest.mark.parametrize("fault", [ServerFault.TRUNCATED, ServerFault.MALFORMED])
def test_spoiled_json_is_never_json(fault: ServerFault, form: dict[str, Any]) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        shapes = set()
        for number in range(30):
            choice = (await ask(client, f"number {number}", **form)).choices[0]
            calls = choice.message.tool_calls
            text = calls[0].function.arguments if calls else choice.message.content
            with pytest.raises(ValueError, match=r".+"):
                json.loads(text)
            assert choice.finish_reason == ("length" if fault is ServerFault.TRUNCATED else "stop")
            shapes.add(text[:1] + text[-1:])
        assert len(shapes) > 2
        assert server.bill()["totals"]["paid"] == 30

    run_with(body, always(fault))


def test_other_spoiled_replies() -> None:
    async def said(client: openai.AsyncOpenAI, fault: ServerFault, **extra: Any) -> Any:
        async with open_model_server(registry(), always(fault)) as server:
            choice = (await ask(client.with_options(base_url=server.base_url), **extra)).choices[0]
            assert only_line(server)["paid"] == 1
            return choice

    async def body(client: openai.AsyncOpenAI, _: ModelServer) -> None:
        refused = (await said(client, ServerFault.REFUSAL, response_format=VERDICT)).message
        assert (refused.content, bool(refused.refusal)) == (None, True)
        empty = await said(client, ServerFault.EMPTY, response_format=VERDICT)
        assert (empty.message.content, empty.message.refusal, empty.finish_reason) == ("", None, "stop")
        shape = await said(client, ServerFault.WRONG_SHAPE, response_format=VERDICT)
        assert list(json.loads(shape.message.content)) == ["unexpected"]
        text = await said(client, ServerFault.MALFORMED)
        assert "hello there" not in text.message.content

    run_with(body)


def test_a_client_that_keeps_trying_gets_through() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        for _ in range(3):
            with pytest.raises(openai.InternalServerError):
                await ask(client)
        assert (await ask(client)).choices[0].message.content == "hello there"
        assert only_line(server)["faulted"] == {"server_error": 3}

    run_with(body, always(ServerFault.SERVER_ERROR))


def test_the_client_may_number_its_attempts() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        for _ in range(5):
            with pytest.raises(openai.InternalServerError):
                await ask(client, extra_headers={"X-Attempt": "1"})
        assert await ask(client, extra_headers={"X-Attempt": "2"})

    run_with(body, always(ServerFault.SERVER_ERROR, max_faults_per_key=1))
