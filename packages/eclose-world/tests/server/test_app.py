"""The scripted model over real HTTP, asked by the stock OpenAI client."""

from __future__ import annotations

import asyncio
import json
import time
from math import exp
from typing import Any

import openai
import pytest

from eclose.errors import SettingError, UserError
from eclose_world.server.app import ModelServer, ModelServerThread
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.serving import VERDICT, VERDICT_TOOL, always, ask, leaning, only_line, registry, run_with

# What is said


def test_plain_text_with_its_usage() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        reply = await ask(client, "three short words")
        assert reply.choices[0].message.content == "three short words"
        assert reply.choices[0].finish_reason == "stop"
        assert reply.choices[0].logprobs is None
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (3, 3, 6)
        totals = server.bill()["totals"]
        assert (totals["received"], totals["paid"]) == (1, 1)
        assert (totals["prompt_tokens"], totals["completion_tokens"]) == (3, 3)

    run_with(body)


def test_a_prompt_cache_bills_what_began_an_earlier_prompt() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        beginning = "word " * 200  # 1,000 characters, 250 tokens of four
        cached = []
        for text in ("short", "short", beginning + "first", beginning + "second", "other " + beginning):
            reply = await ask(client, text)
            assert reply.usage.prompt_tokens_details is not None
            cached.append(reply.usage.prompt_tokens_details.cached_tokens)
        assert cached[:3] + cached[4:] == [0, 0, 0, 0]
        assert 0 < cached[3] < 200
        assert server.bill()["totals"]["cached_tokens"] == cached[3]

    run_with(body, ServerBehaviour(prompt_cache=100))


def test_structured_reply_is_json_text() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        reply = await ask(client, "é?", response_format=VERDICT)
        assert json.loads(reply.choices[0].message.content) == {
            "aligned": True,
            "steps": [{"id": 1, "sound": True}],
            "seen": "é?",
        }

    run_with(body)


def test_tool_call_carries_the_same_reply() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        message = (await ask(client, **VERDICT_TOOL)).choices[0].message
        (call,) = message.tool_calls
        assert message.content is None
        assert call.function.name == "verdict"
        assert json.loads(call.function.arguments)["aligned"] is True

    run_with(body)


def test_first_token_probabilities() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        choice = (await ask(client, logprobs=True, top_logprobs=3)).choices[0]
        first, *rest = choice.logprobs.content
        assert {top.token: round(exp(top.logprob), 9) for top in first.top_logprobs} == {
            "Yes": 0.7,
            "No": 0.2,
            "Maybe": 0.1,
        }
        assert sum(exp(top.logprob) for top in first.top_logprobs) == pytest.approx(1)
        assert (first.token, exp(first.logprob)) == ("Yes", pytest.approx(0.7))
        assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
        assert all(entry.logprob == 0 for entry in rest)
        fewer = (await ask(client, logprobs=True, top_logprobs=1)).choices[0].logprobs.content[0]
        assert [top.token for top in fewer.top_logprobs] == ["Yes"]

    run_with(body, text=leaning)


def test_models_are_listed_and_any_name_is_answered() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        assert [model.id async for model in client.models.list()] == ["world"]
        reply = await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "a"}])
        assert reply.model == "other"

    run_with(body)


def test_max_tokens_ends_a_reply() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        cut = await ask(client, "one two three four", max_tokens=2)
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("one two", "length")
        assert cut.usage.completion_tokens == 2
        whole = await ask(client, "one two three four", max_completion_tokens=4)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two three four", "stop")

    run_with(body)


def test_streams_say_the_same() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        chunks = [chunk async for chunk in await ask(client, stream=True, stream_options={"include_usage": True})]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello there"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.total_tokens == 4
        called = [chunk async for chunk in await ask(client, stream=True, **VERDICT_TOOL)]
        (call,) = [call for chunk in called for call in chunk.choices[0].delta.tool_calls or ()]
        assert json.loads(call.function.arguments)["aligned"] is True
        await ask(client)
        assert sorted(line["received"] for line in server.bill()["requests"].values()) == [1, 2]

    run_with(body)


def test_a_request_gets_the_same_bytes_again() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        first = await client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "a"}]
        )
        again = await client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "a"}]
        )
        assert first.text == again.text
        (key,) = server.bill()["requests"]
        assert [reply.headers["x-request-id"] for reply in (first, again)] == [f"{key}/1", f"{key}/2"]

    run_with(body)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "nonsense", "schema": {}}}},
            "unknown schema 'nonsense'. Known schemas: broken, verdict.",
        ),
        ({"n": 2}, "n > 1"),
        ({"response_format": {"type": "json_object"}}, "response_format must be"),
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"extra_headers": {"X-Attempt": "0"}}, "X-Attempt"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_reason(extra: dict[str, Any], told: str) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.BadRequestError, match="400") as raised:
            await ask(client, **extra)
        assert told in raised.value.body["message"]
        assert server.bill()["totals"]["rejected"] == server.bill()["totals"]["received"] == 1
        assert server.bill()["requests"] == {}

    run_with(body)


def test_a_handlers_mistake_does_not_pass_for_the_models(caplog: pytest.LogCaptureFixture) -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "broken", "schema": {}}}
        with pytest.raises(openai.InternalServerError) as raised:
            await ask(client, response_format=form)
        assert raised.value.body["type"] == "handler_error"
        assert (only_line(server)["errors"], only_line(server)["paid"]) == (1, 0)

    run_with(body)
    assert "the handler of broken failed" in caplog.text


def test_unknown_paths_name_the_known_ones() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.NotFoundError, match="POST /v1/chat/completions"):
            await client.embeddings.create(model="world", input="a")
        assert (await client.get("/../healthz", cast_to=object)) == {"status": "ok"}

    run_with(body)


# Load, latency and the bill


@pytest.mark.slow
def test_the_bill_is_exact_under_load() -> None:
    rates = {ServerFault.RATE_LIMIT: 0.1, ServerFault.SERVER_ERROR: 0.1, ServerFault.EMPTY: 0.1, ServerFault.CUT: 0.1}

    async def until_answered(client: openai.AsyncOpenAI, text: str) -> int:
        for sent in range(1, 5):
            try:
                reply = await ask(client, text)
            except (openai.APIStatusError, openai.APIConnectionError):
                continue
            if reply.choices[0].message.content:
                return sent
        raise AssertionError("not answered in four attempts")

    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        sent = await asyncio.gather(*(until_answered(client, f"question {number % 100}") for number in range(200)))
        bill = server.bill()
        totals, lines = bill["totals"], bill["requests"].values()
        assert (len(lines), totals["distinct"]) == (100, 100)
        assert totals["received"] == sum(sent) == sum(line["received"] for line in lines)
        faulted = totals["faulted"]
        assert set(faulted) == set(rates)
        assert totals["paid"] == 200 + faulted["empty"] + faulted["cut"]
        assert totals["received"] == 200 + sum(faulted.values())
        assert totals["prompt_tokens"] == 2 * totals["paid"]
        # Whatever the order of arrival, an attempt's fate is that of its number.
        behaviour = ServerBehaviour(faults=rates, seed=4)
        for key, line in bill["requests"].items():
            fates = [behaviour.draw_fault(key, attempt) for attempt in range(1, line["received"] + 1)]
            assert line["faulted"] == {fate: fates.count(fate) for fate in fates if fate}

    run_with(body, ServerBehaviour(faults=rates, seed=4))


@pytest.mark.slow
def test_a_full_house_turns_away() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        replies = await asyncio.gather(*(ask(client, str(number)) for number in range(12)), return_exceptions=True)
        turned_away = [reply for reply in replies if isinstance(reply, openai.RateLimitError)]
        totals = server.bill()["totals"]
        assert 0 < len(turned_away) == totals["busy"] == 12 - totals["paid"]
        assert totals["peak_in_flight"] == 3
        assert totals["faulted"] == {}

    run_with(body, ServerBehaviour(max_concurrency=3, latency=0.5))


@pytest.mark.slow
def test_being_turned_away_is_no_attempt() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        inside = asyncio.create_task(ask(client, "inside"))
        while not server.bill()["in_flight"]:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError):
            await ask(client, "outside")
        with pytest.raises(openai.InternalServerError):
            await inside
        # Had the first one counted, this would be the second attempt and succeed.
        with pytest.raises(openai.InternalServerError):
            await ask(client, "outside")

    run_with(body, always(ServerFault.SERVER_ERROR, max_faults_per_key=1, max_concurrency=1, latency=0.5))


@pytest.mark.slow
def test_latency_is_kept() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        start = time.monotonic()
        await asyncio.gather(*(ask(client, str(number)) for number in range(10)))
        assert 0.2 <= time.monotonic() - start < 5
        assert server.bill()["totals"]["peak_in_flight"] > 1

    run_with(body, ServerBehaviour(latency=0.2, jitter=0.1))


def test_bill_over_http_and_its_reset() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.InternalServerError):
            await ask(client)
        await ask(client)
        bill: Any = await client.get("/../bill", cast_to=object)
        assert bill == server.bill()
        short: Any = await client.get("/../bill?keys=0", cast_to=object)
        assert "requests" not in short
        closed: Any = await client.post("/../bill/reset", cast_to=object)
        assert (closed, server.bill()["totals"]["received"]) == (bill, 0)
        with pytest.raises(openai.InternalServerError):
            await ask(client)

    run_with(body, always(ServerFault.SERVER_ERROR, max_faults_per_key=1))


@pytest.mark.slow
def test_flips_come_at_their_rate_and_stay() -> None:
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        async def flips() -> list[list[bool]]:
            texts = [
                (await ask(client, str(number), response_format=VERDICT)).choices[0].message.content
                for number in range(100)
            ]
            return [[not verdict["aligned"], not verdict["steps"][0]["sound"]] for verdict in map(json.loads, texts)]

        first = await flips()
        # 200 leaves at 0.3: 60 expected, standard deviation 6.5.
        assert 35 <= sum(map(sum, first)) <= 85
        # Leaves of one reply flip apart from each other.
        assert len({tuple(pair) for pair in first}) == 4
        assert await flips() == first

    run_with(body, ServerBehaviour(flip_rate=0.3))


# Starting and stopping


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(SettingError, match="loopback"), ModelServerThread(registry(), host=host):
        pass


def test_a_thread_serves_synchronous_code_and_leaves_nothing() -> None:
    with ModelServerThread(registry(), host="localhost") as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}])
            assert reply.choices[0].message.content == "a"
        assert server.bill(keys=False)["totals"]["paid"] == 1
        port = int(server.base_url.removesuffix("/v1").rsplit(":", 1)[1])
        with pytest.raises(SettingError, match="Use port 0"), ModelServerThread(registry(), port=port):
            pass
    with ModelServerThread(registry(), port=port):
        pass


def test_a_thread_must_be_started() -> None:
    with pytest.raises(UserError, match="with statement"):
        _ = ModelServerThread(registry()).base_url
