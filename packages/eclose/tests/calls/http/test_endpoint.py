"""The client over real HTTP: against the world's server with its faults, and against servers that behave worse."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import time
import traceback
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from eclose.calls.http.endpoint import (
    MODEL_PROVIDERS,
    Endpoint,
    ModelRoute,
    ServerAddress,
    check_base_url,
    find_model_route,
    open_endpoint,
)
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import Decoding, Reply, ReplySchema, Request, TokenUsage
from eclose.errors import SettingError
from eclose_world.server.app import open_model_server
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.http.site import site
from tests.serving import always, leaning, only_line, registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CANARY = "canary.0123456789abcdef.canary"
SCHEMA = {
    "type": "object",
    "required": ["aligned", "steps", "seen"],
    "properties": {
        "aligned": {"type": "boolean"},
        "steps": {"type": "array", "items": {"type": "object", "required": ["id", "sound"]}},
        "seen": {"type": "string"},
    },
    "additionalProperties": False,
}
VERDICT = ReplySchema("verdict", SCHEMA)
K = CallFailureKind


def request(text: str = "hello there", **more: Any) -> Request:
    return Request(({"role": "user", "content": text},), **more)


def run(main: Awaitable[Any], within: float = 30.0) -> Any:
    async def guarded() -> Any:
        return await asyncio.wait_for(main, within)

    return asyncio.run(guarded())


def endpoint(base_url: str, **settings: Any) -> Endpoint:
    return Endpoint(ModelRoute(base_url, "world", SecretStr(CANARY)), **{"deadline": 10.0, **settings})


async def failure_of(call: Awaitable[Reply]) -> CallFailure:
    with pytest.raises(CallFailure) as raised:
        await call
    return raised.value


@asynccontextmanager
async def wire(speak: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that reads a little and then says what it likes, HTTP or not."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(100)
            await speak(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def completion(content: str = "fine", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}


# --- the world's server ------------------------------------------------------------------------------------------


def test_text_and_structured_replies():
    async def main() -> None:
        async with open_model_server(registry()) as server, endpoint(server.base_url) as model:
            assert model.name == f"{server.base_url.removeprefix('http://').removesuffix('/v1')}/world"
            assert await model.complete(request()) == Reply("hello there", "stop", TokenUsage(2, 2))  # type: ignore[arg-type]
            reply = await model.complete(request("what?", schema=VERDICT))
            assert json.loads(reply.text) == {"aligned": True, "steps": [{"id": 1, "sound": True}], "seen": "what?"}

    run(main())


def test_log_probabilities():
    async def main() -> None:
        async with open_model_server(registry(leaning)) as server, endpoint(server.base_url) as model:
            reply = await model.complete(request(decoding=Decoding(top_logprobs=2)))
            assert reply.logprobs is not None
            assert [token for token, _ in reply.logprobs[0].alternatives] == ["Yes", "No"]
            assert (await model.complete(request())).logprobs is None

    run(main())


FAULTS = {
    ServerFault.RATE_LIMIT: K.RATE_LIMIT,
    ServerFault.SERVER_ERROR: K.TRANSIENT,
    ServerFault.UNAVAILABLE: K.TRANSIENT,
    ServerFault.BAD_GATEWAY: K.TRANSIENT,
    ServerFault.HTML: K.TRANSIENT,
    ServerFault.DROP: K.CONNECTION,
    ServerFault.HANG: K.TIMEOUT,
    ServerFault.TRUNCATED: K.LENGTH,
    ServerFault.MALFORMED: K.INVALID,
    ServerFault.WRONG_SHAPE: K.INVALID,
    ServerFault.REFUSAL: K.REFUSAL,
    ServerFault.EMPTY: K.EMPTY,
    ServerFault.SLOW: K.TIMEOUT,
    ServerFault.CUT: K.TRANSIENT,
    ServerFault.GZIP_PAGE: K.TRANSIENT,
    ServerFault.ENCODED: K.TRANSIENT,
    ServerFault.OVERSIZED: K.TRANSIENT,
    ServerFault.BOMB: K.TRANSIENT,
}


def test_every_fault_is_expected_to_be_of_some_kind():
    assert set(ServerFault) - set(FAULTS) == {ServerFault.GZIP}  # a reply that is only compressed is read


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.timing
def test_every_fault_of_the_world_is_one_attempt_of_the_right_kind(fault):
    deadline = 0.5 if FAULTS[fault] is K.TIMEOUT else 10.0

    async def main() -> None:
        behaviour = always(fault, slow_seconds=20.0, hang_seconds=20.0, retry_after=3.0)
        async with (
            open_model_server(registry(), behaviour) as server,
            endpoint(server.base_url, deadline=deadline) as model,
        ):
            start = time.monotonic()
            failure = await failure_of(model.complete(request(schema=VERDICT)))
            assert failure.kind is FAULTS[fault]
            assert time.monotonic() - start < deadline + 2.0
            assert only_line(server)["received"] == 1
            # Whatever the server charges for is not called free here.
            assert not (failure.unpaid and only_line(server)["paid"])
            assert failure.retry_after == (3.0 if fault is ServerFault.RATE_LIMIT else None)

    run(main())


def test_a_connection_lost_while_idle_is_not_tried_again_in_secret():
    async def main() -> None:
        behaviour = ServerBehaviour(faults={ServerFault.DROP: 0.5}, seed=3, max_faults_per_key=1)
        async with (
            open_model_server(registry(), behaviour) as server,
            endpoint(server.base_url) as model,
        ):
            outcomes = [
                await asyncio.gather(model.complete(request(f"q{i}")), return_exceptions=True) for i in range(20)
            ]
            dropped = sum(isinstance(outcome, CallFailure) for (outcome,) in outcomes)
            assert 0 < dropped < 20
            assert all(line["received"] == 1 for line in server.bill()["requests"].values())

    run(main())


def test_there_are_as_many_connections_as_calls_in_flight():
    async def main() -> None:
        async with (
            open_model_server(registry(), ServerBehaviour(latency=0.5)) as server,
            endpoint(server.base_url) as model,
        ):
            await asyncio.gather(*(model.complete(request(f"q{i}")) for i in range(150)))
            assert server.bill()["totals"]["peak_in_flight"] == 150

    run(main())


# --- deadlines and sizes -----------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def _stall(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(20)


async def _half_a_head(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    await asyncio.sleep(20)


async def _headers_for_ever(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for number in range(10_000):
        writer.write(b"X-%d: a\r\n" % number)
        await writer.drain()
        await asyncio.sleep(0.1)


async def _byte_by_byte(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.1)


async def _chunks_for_ever(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("speak", [_stall, _half_a_head, _headers_for_ever, _byte_by_byte, _chunks_for_ever])
@pytest.mark.timing
def test_the_deadline_ends_everything_and_disturbs_nobody(speak):
    async def main() -> None:
        async with (
            wire(speak) as slow,
            open_model_server(registry()) as server,
            endpoint(slow, deadline=0.5) as stuck,
            endpoint(server.base_url) as quick,
        ):
            start = time.monotonic()
            call = asyncio.create_task(failure_of(stuck.complete(request())))
            await asyncio.sleep(0)
            assert (await quick.complete(request())).text
            assert not call.done()
            assert (await call).kind is K.TIMEOUT
            assert 0.5 <= time.monotonic() - start < 2.5
            assert (await failure_of(stuck.complete(request()))).kind is K.TIMEOUT

    run(main())


def test_a_body_without_end_is_left_at_the_limit():
    sent = 0

    async def pour(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            sent += 0x10000
            await writer.drain()

    async def main() -> None:
        async with wire(pour) as url, endpoint(url, largest_reply=300_000) as model:
            failure = await failure_of(model.complete(request()))
            assert (failure.kind, failure.unpaid) == (K.TRANSIENT, False)
            assert "300,000 bytes" in str(failure)

    run(main())
    assert sent < 20_000_000


@pytest.mark.parametrize(
    ("status", "kind"), [(200, K.TRANSIENT), (500, K.TRANSIENT), (401, K.DENIED), (429, K.RATE_LIMIT)]
)
@pytest.mark.parametrize("encoding", [None, "gzip", "br", "x-none"])
def test_the_status_decides_before_a_body_that_cannot_be_read(status, kind, encoding):
    body = b" " * 10_000_000 if encoding in (None, "gzip") else b"compressed by a stranger"
    headers = {"Retry-After": "7"} | ({} if encoding is None else {"Content-Encoding": encoding})

    async def large(_: web.Request) -> web.Response:
        data = gzip.compress(body) if encoding == "gzip" else body
        return web.Response(body=data, status=status, headers=headers, content_type="application/json")

    async def main() -> None:
        async with site(large) as url, endpoint(url) as model:
            failure = await failure_of(model.complete(request()))
            assert failure.kind is kind
            assert not failure.kind.semantic
            if status != 200:
                assert (failure.status, failure.retry_after, failure.unpaid) == (status, 7.0, True)

    run(main())


COMPRESSED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": lambda data: zlib.compress(data)[2:-4],  # without its frame, as some servers send it
}


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_compressed_reply_is_read(encoding):
    async def compressed(_: web.Request) -> web.Response:
        data = COMPRESSED[encoding](json.dumps(completion("x" * 100_000)).encode())
        return web.Response(body=data, headers={"Content-Encoding": encoding}, content_type="application/json")

    async def main() -> None:
        async with site(compressed) as url, endpoint(url) as model:
            assert (await model.complete(request())).text == "x" * 100_000

    run(main())


def test_a_compressed_error_says_what_it_says():
    async def compressed(_: web.Request) -> web.Response:
        error = {"error": {"message": "This model's maximum context length is 4096 tokens."}}
        response = web.json_response(error, status=400)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def main() -> None:
        async with site(compressed) as url, endpoint(url) as model:
            failure = await failure_of(model.complete(request()))
            assert failure.kind is K.TOO_LONG
            assert "4096 tokens" in str(failure)

    run(main())


@pytest.mark.parametrize("data", [gzip.compress(json.dumps(completion()).encode())[:-20], b"not gzip at all", b""])
def test_a_compressed_reply_that_is_damaged_is_trouble_on_the_way(data):
    async def damaged(_: web.Request) -> web.Response:
        return web.Response(body=data, headers={"Content-Encoding": "gzip"}, content_type="application/json")

    async def main() -> None:
        async with site(damaged) as url, endpoint(url) as model:
            assert (await failure_of(model.complete(request()))).kind is K.TRANSIENT

    run(main())


@pytest.mark.slow
def test_a_bomb_is_not_unpacked():
    """200 MB on 200 kB: what is held in memory stays near the limit."""
    peaks = []

    async def main() -> None:
        behaviour = always(ServerFault.BOMB, oversized_bytes=200_000_000)
        async with open_model_server(registry(), behaviour) as server, endpoint(server.base_url) as model:
            await failure_of(model.complete(request()))  # the server makes its body
            tracemalloc.start()
            failure = await failure_of(model.complete(request()))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert failure.kind is K.TRANSIENT
            assert "8,388,608 bytes" in str(failure)

    run(main())
    assert peaks[0] < 40_000_000


def test_a_reply_that_was_only_compressed_is_an_answer():
    async def main() -> None:
        async with (
            open_model_server(registry(), always(ServerFault.GZIP)) as server,
            endpoint(server.base_url) as model,
        ):
            assert (await model.complete(request())).text == "hello there"
            assert only_line(server)["received"] == 1

    run(main())


@pytest.mark.parametrize("status", [400, 403])
def test_a_page_that_speaks_of_moderation_is_no_refusal_of_the_model(status):
    async def page(_: web.Request) -> web.Response:
        text = "<html><body>Your request was flagged. Contact moderation.</body></html>"
        return web.Response(text=text, status=status, content_type="text/html")

    async def main() -> None:
        async with site(page) as url, endpoint(url) as model:
            assert not (await failure_of(model.complete(request()))).kind.semantic

    run(main())


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"\x00" * 5000])
def test_servers_of_another_trade(said):
    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async def main() -> None:
        async with wire(talk) as url, endpoint(url, deadline=5) as model:
            assert (await failure_of(model.complete(request()))).kind in (K.CONNECTION, K.TRANSIENT)

    run(main())


def test_nobody_there():
    async def main() -> None:
        async with wire(_stall) as url:
            pass
        async with endpoint(url) as model:
            failure = await failure_of(model.complete(request()))
            assert (failure.kind, failure.unpaid) == (K.CONNECTION, True)

    run(main())


# --- where requests go, and with what ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status):
    reached = []

    async def trap(asked: web.Request) -> web.Response:
        reached.append(dict(asked.headers))
        return web.json_response(completion())

    async def main() -> None:
        async with site(trap) as elsewhere:
            target = elsewhere.replace("127.0.0.1", "localhost")

            async def bounce(_: web.Request) -> web.Response:
                return web.Response(status=status, headers={"Location": f"{target}/chat/completions"})

            async with site(bounce) as url, endpoint(url) as model:
                failure = await failure_of(model.complete(request()))
                assert (failure.kind, failure.status) == (K.DENIED, status)
                assert "localhost" in str(failure)

    run(main())
    assert reached == []


def test_only_what_is_needed_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: secret\nAuthorization: Bearer other")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-secret")
    requests: list[web.Request] = []
    bodies = []

    async def look(asked: web.Request) -> web.Response:
        requests.append(asked)
        bodies.append(await asked.json())
        return web.json_response(completion())

    decoding = Decoding(max_tokens=9, temperature=0.5, top_p=0.9, seed=7)

    async def main() -> None:
        async with site(look) as url, endpoint(url) as model:
            await model.complete(request(decoding=decoding))
            await model.complete(request(decoding=decoding, replica=1))
            await model.complete(request(decoding=decoding, replica=2))
            await model.complete(request())

    run(main())
    names = {name.lower() for name in requests[0].headers}
    allowed = {"host", "accept", "content-type", "content-length", "authorization", "user-agent", "accept-encoding"}
    assert names == allowed
    assert requests[0].headers["Authorization"] == f"Bearer {CANARY}"
    assert requests[0].path_qs == "/v1/chat/completions"
    messages = [{"role": "user", "content": "hello there"}]
    sent = {"model": "world", "messages": messages, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7}
    assert bodies[0] == sent
    assert bodies[3] == {"model": "world", "messages": messages, "max_tokens": 512, "temperature": 0.0}
    seeds = [body["seed"] for body in bodies[:3]]
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in seeds)


# --- dialects ----------------------------------------------------------------------------------------------------


def refusing(word: str) -> tuple[list[dict[str, Any]], Callable[[web.Request], Awaitable[web.Response]]]:
    """A server that takes anything but one field."""
    bodies: list[dict[str, Any]] = []

    async def handle(asked: web.Request) -> web.Response:
        body = await asked.json()
        bodies.append(body)
        if word in body:
            error = {"message": f"Unsupported parameter: '{word}'. Try max_completion_tokens.", "param": word}
            if word == "response_format":
                error["message"] = "response_format of type json_schema is not supported"
            return web.json_response({"error": error}, status=400)
        if "tools" not in body:
            return web.json_response(completion())
        arguments = json.dumps({"aligned": True, "steps": [], "seen": ""})
        call = {"id": "1", "type": "function", "function": {"name": "verdict", "arguments": arguments}}
        return web.json_response(completion(None, tool_calls=[call]))  # type: ignore[arg-type]

    return bodies, handle


def test_a_server_without_json_schema_is_asked_by_tool_and_remembered():
    bodies, handle = refusing("response_format")

    async def main() -> None:
        async with site(handle) as url, endpoint(url) as model:
            for _ in range(3):
                assert json.loads((await model.complete(request(schema=VERDICT))).text)["aligned"] is True
            assert (await model.complete(request())).text == "fine"

    run(main())
    assert ["response_format" in body for body in bodies] == [True, False, False, False, False]
    assert bodies[1]["tool_choice"] == {"type": "function", "function": {"name": "verdict"}}
    assert bodies[1]["tools"][0]["function"]["parameters"] == SCHEMA
    assert "tools" not in bodies[4]
    assert bodies[0]["response_format"]["json_schema"] == {"name": "verdict", "schema": SCHEMA, "strict": True}


def test_a_model_that_wants_the_new_name_of_the_limit():
    bodies, handle = refusing("max_tokens")

    async def main() -> None:
        async with site(handle) as url, endpoint(url) as model:
            await model.complete(request())
            await model.complete(request())

    run(main())
    assert ["max_tokens" in body for body in bodies] == [True, False, False]
    assert bodies[2]["max_completion_tokens"] == 512


def test_effort_is_sent_where_it_is_asked_for_and_never_left_out_in_silence():
    bodies, handle = refusing("reasoning_effort")

    async def main() -> None:
        async with site(handle) as url, endpoint(url) as model:
            await model.complete(request())
            with pytest.raises(CallFailure):
                await model.complete(request(decoding=Decoding(effort="high")))

    run(main())
    assert [body.get("reasoning_effort") for body in bodies[:1]] == [None]
    assert {body.get("reasoning_effort") for body in bodies[1:]} == {"high"}


def test_the_world_takes_both_forms():
    async def main() -> None:
        async with open_model_server(registry()) as server, endpoint(server.base_url) as model:
            direct = await model.complete(request(schema=VERDICT))
            model._dialect = type(model._dialect)(by_tool=True)
            assert (await model.complete(request(schema=VERDICT))).text == direct.text

    run(main())


def test_a_refusal_of_something_else_is_final():
    async def main() -> None:
        async with open_model_server(registry()) as server, endpoint(server.base_url) as model:
            failure = await failure_of(model.complete(request(schema=ReplySchema("unknown", SCHEMA))))
            assert failure.kind is K.PERMANENT
            assert server.bill()["totals"]["received"] == 2  # once by schema, once by tool, and no more

    run(main())


# --- the key -----------------------------------------------------------------------------------------------------


def _places(word: str, text: str) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(word), text)]


async def described(model: Endpoint) -> str:
    """All that a call leaves behind for somebody to print."""
    parts = [f"{model!r} {model} {model._route!r} {vars(model)!r}"]
    try:
        await model.complete(request(schema=VERDICT))
    except CallFailure as failure:
        parts += traceback.TracebackException.from_exception(failure, capture_locals=True).format()
        parts.append(f"{failure!r} {failure.raw} {vars(failure)} {failure.__cause__!r} {failure.__context__!r}")
    return "\n".join(parts)


@pytest.mark.slow
def test_the_key_is_in_the_header_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    descriptions: list[str] = []

    async def gossip(asked: web.Request) -> web.Response:
        message = f"your key {asked.headers['Authorization'].removeprefix('Bearer ')} is wrong"
        error = {"error": {"message": message, "code": asked.headers["Authorization"]}}
        return web.json_response(error, status=int(asked.path.split("/")[2]), headers={"X-Request-Id": "1"})

    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        async with site(gossip) as url:
            for status in (400, 401, 429, 500):
                async with endpoint(f"{url}/{status}".replace("/v1/", "/s/")) as model:
                    descriptions.append(await described(model))
        for fault in (None, *ServerFault):
            behaviour = always(fault, slow_seconds=9.0, hang_seconds=9.0) if fault else ServerBehaviour()
            async with (
                open_model_server(registry(), behaviour) as server,
                endpoint(server.base_url, deadline=0.3) as model,
            ):
                descriptions.append(await described(model))
        async with endpoint("http://127.0.0.1:9") as model:
            descriptions.append(await described(model))

    run(main(), 60)
    written = "\n".join([*descriptions, caplog.text, *(repr(record.__dict__) for record in caplog.records)])
    assert len(descriptions) == 4 + 1 + len(ServerFault) + 1
    leaks = [written[max(0, position - 150) : position + 40] for position in _places(CANARY, written)]
    assert leaks[:3] == []
    assert _places("[key]", written)


# --- routes ------------------------------------------------------------------------------------------------------

OWN = "http://127.0.0.1:8642/v1"


@pytest.mark.parametrize(
    ("name", "environ", "expected"),
    [
        ("openai/gpt-x", {"OPENAI_API_KEY": "a"}, ("https://api.openai.com/v1", "gpt-x", "a", "openai/gpt-x")),
        ("gpt-x", {"OPENAI_API_KEY": "a"}, ("https://api.openai.com/v1", "gpt-x", "a", "openai/gpt-x")),
        (
            "openai/gpt-x",
            {"OPENAI_API_KEY": "a", "OPENAI_BASE_URL": OWN + "/"},
            (OWN, "gpt-x", "a", "127.0.0.1:8642/gpt-x"),
        ),
        ("Qwen/Qwen3-8B", {"OPENAI_BASE_URL": OWN}, (OWN, "Qwen/Qwen3-8B", None, "127.0.0.1:8642/Qwen/Qwen3-8B")),
        (
            "groq/llama",
            {"GROQ_API_KEY": "g", "OPENAI_API_KEY": "a"},
            (MODEL_PROVIDERS["groq"].base_url, "llama", "g", "groq/llama"),
        ),
        (
            "groq/llama",
            {"GROQ_API_KEY": "g", "OPENAI_BASE_URL": OWN},
            (MODEL_PROVIDERS["groq"].base_url, "llama", "g", "groq/llama"),
        ),
        (
            "openrouter/a/b",
            {"OPENROUTER_API_KEY": "o"},
            (MODEL_PROVIDERS["openrouter"].base_url, "a/b", "o", "openrouter/a/b"),
        ),
        ("ollama/qwen3", {"OPENAI_API_KEY": "a"}, (MODEL_PROVIDERS["ollama"].base_url, "qwen3", None, "ollama/qwen3")),
        (
            "m",
            {"ECLOSE_BASE_URL": OWN, "ECLOSE_API_KEY": "e", "OPENAI_API_KEY": "a"},
            (OWN, "m", "e", "127.0.0.1:8642/m"),
        ),
        # The key of one provider is not for another server.
        ("m", {"ECLOSE_BASE_URL": OWN, "OPENAI_API_KEY": "a"}, (OWN, "m", None, "127.0.0.1:8642/m")),
        (OWN, {"OPENAI_API_KEY": "a"}, (OWN, "", None, "127.0.0.1:8642/")),
    ],
)
def test_routes(name, environ, expected):
    route = find_model_route(name, environ=environ)
    key = route.key.get_secret_value() if route.key else None
    assert (route.base_url, route.model, key, route.name) == expected


@pytest.mark.parametrize("key", ["abc\r", "\ufeffabc", " abc\n"])
def test_a_key_is_stripped_of_what_a_file_adds(key):
    route = find_model_route("openai/gpt-x", environ={"OPENAI_API_KEY": key})
    assert route.key is not None
    assert route.key.get_secret_value() == "abc"


@pytest.mark.parametrize("variable", ["ECLOSE_API_KEY", "GROQ_API_KEY", "AZURE_OPENAI_AD_TOKEN"])
@pytest.mark.parametrize("character", ["\r", "\n", "é", " ", "\x00", "\udcff"])
def test_a_key_that_no_header_can_hold_is_refused_by_its_variable(variable, character):
    name = {"ECLOSE_API_KEY": OWN, "GROQ_API_KEY": "groq/m"}.get(variable, "azure/m")
    environ = {variable: f"sk-0123456789{character}abc", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}
    with pytest.raises(SettingError, match=f"{variable}: character 14 of 17 is U\\+") as raised:
        find_model_route(name, environ=environ)
    assert "0123" not in str(raised.value)


def test_a_request_that_cannot_be_encoded_or_sent_is_unpaid():
    async def main() -> None:
        async with wire(_stall) as url:
            async with endpoint(url) as model:
                failure = await failure_of(model.complete(request("half a \ud83c character")))
                assert (failure.kind, failure.unpaid) == (K.PERMANENT, True)
            async with Endpoint(ModelRoute(url, "world", SecretStr("a key\r\nx: y"))) as model:
                failure = await failure_of(model.complete(request()))
                assert (failure.kind, failure.unpaid) == (K.DENIED, True)
                assert "a key" not in str(failure)

    run(main())


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:8642/v1", "127.0.0.1:8642"),
        ("http://127.0.0.1:8643/v1", "127.0.0.1:8643"),
        ("http://[::1]:8642/v1", "[::1]:8642"),
        ("https://models.example/v1", "models.example"),
        ("https://models.example/team-a/v1", "models.example~team-a"),
        ("https://models.example/team-b/v1", "models.example~team-b"),
        ("https://models.example/team-b/v2", "models.example~team-b~v2"),
    ],
)
def test_two_servers_have_two_names(url, name):
    assert find_model_route("m", base_url=url, environ={}).name == f"{name}/m"


def test_a_server_goes_by_the_name_it_is_given():
    moved = ServerAddress("http://127.0.0.1:9999/v1", "127.0.0.1:8642")
    assert (
        find_model_route("m", base_url=moved, environ={}).name == find_model_route("m", base_url=OWN, environ={}).name
    )
    environ = {"ECLOSE_SERVER_NAME": "box", "OPENAI_API_KEY": "a"}
    assert find_model_route(OWN, environ=environ).name == "box/"
    assert find_model_route("openai/gpt-x", environ=environ).name == "openai/gpt-x"
    for name in ("a/b", "a b", "a@b", "\x1b"):
        with pytest.raises(SettingError, match="ECLOSE_SERVER_NAME"):
            find_model_route("m", base_url=ServerAddress(OWN, name), environ={})


def test_a_run_that_sends_nothing_needs_no_key():
    route = find_model_route("openai/gpt-x", environ={}, keyless=True)
    assert (route.key, route.name) == (None, "openai/gpt-x")


def test_arguments_come_first():
    environ = {"ECLOSE_BASE_URL": "http://other/v1", "ECLOSE_API_KEY": "other"}
    route = find_model_route("openai/gpt-x", base_url=OWN, key=SecretStr("mine"), environ=environ)
    assert (route.base_url, route.model) == (OWN, "openai/gpt-x")
    assert route.key == SecretStr("mine")


@pytest.mark.parametrize(
    ("name", "environ", "problem"),
    [
        ("openai/gpt-x", {}, "Set OPENAI_API_KEY"),
        ("groq/llama", {"OPENAI_API_KEY": "a"}, "Set GROQ_API_KEY"),
        # The key of one's own server is not for a provider, be it the one that is meant where none is named.
        ("groq/llama", {"ECLOSE_API_KEY": "e"}, "Set GROQ_API_KEY"),
        ("gpt-x", {"ECLOSE_API_KEY": "e"}, "Set OPENAI_API_KEY"),
        ("Qwen/Qwen3-8B", {"OPENAI_API_KEY": "a"}, "no provider 'Qwen'.*inspect/PROVIDER/MODEL"),
    ],
)
def test_routes_that_lead_nowhere(name, environ, problem):
    with pytest.raises(SettingError, match=problem):
        find_model_route(name, environ=environ)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host/v1",
        "http:///v1",
        "//host/v1",
        "host/v1",
        "",
        "http://user:password@host/v1",
        "https://host/v1?key=secret",
        "https://host/v1#secret",
        "http://169.254.169.254/latest",
        "http://[fe80::1]/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://2852039166/v1",
        "http://0xa9fea9fe/v1",
        "http://host:port/v1",
        "http://[::1/v1",
    ],
)
def test_addresses_no_key_is_sent_to(url):
    with pytest.raises(SettingError) as raised:
        check_base_url(url)
    assert "password" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_only_model_of_a_server_needs_no_name():
    async def main() -> None:
        async with (
            open_model_server(registry()) as server,
            await open_endpoint(find_model_route(server.base_url, environ={})) as model,
        ):
            assert model.name.endswith("/world")
            assert (await model.complete(request())).text == "hello there"

        async def several(_: web.Request) -> web.Response:
            return web.json_response({"object": "list", "data": [{"id": "a"}, {"id": "b"}]})

        async with site(several) as url:
            with pytest.raises(SettingError, match="serves a, b"):
                await open_endpoint(ModelRoute(url, ""))
        with pytest.raises(
            SettingError, match=r"127\.0\.0\.1:9/v1: cannot connect: .*Is the server running"
        ) as refused:
            await open_endpoint(ModelRoute("http://127.0.0.1:9/v1", ""))
        assert "timed out" not in str(refused.value)
        async with wire(_stall) as url:
            with pytest.raises(SettingError, match=r"no answer within 0\.3 s"):
                await open_endpoint(ModelRoute(url, ""), 0.3)

        async def page(asked: web.Request) -> web.Response:
            return web.Response(text="<h1>no</h1>", status=int(asked.path.split("/")[2]), content_type="text/html")

        async with site(page) as url:
            for status in (200, 403, 502):
                with pytest.raises(SettingError, match="cannot list its models"):
                    await open_endpoint(ModelRoute(f"{url}/{status}".replace("/v1/", "/s/"), ""))
        with pytest.raises(SettingError, match="no model is named"):
            Endpoint(ModelRoute(OWN, ""))

    run(main())


def test_a_deadline_that_lets_nothing_through_is_refused():
    with pytest.raises(SettingError, match="deadline"):
        endpoint(OWN, deadline=0)
