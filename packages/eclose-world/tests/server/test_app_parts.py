"""Requests, replies, draws, noise and the bill, without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from eclose.errors import SettingError
from eclose_world.server import wire
from eclose_world.server.bill import ServerBill
from eclose_world.server.chat_requests import (
    BadRequest,
    ChatRequest,
    HandlerRegistry,
    ScriptedReply,
    compute_request_key,
)
from eclose_world.server.faults import ServerBehaviour, ServerFault, hash_to_unit_interval

PLAIN: dict[str, Any] = {"model": "world", "messages": [{"role": "user", "content": "Is it so?"}]}


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {"title": name}}} for name in names]


# Requests


def test_a_request_is_read_once_and_whole() -> None:
    schema = {"type": "object"}
    body = PLAIN | {
        "response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}},
        "temperature": 0,
        "max_tokens": 7,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 5,
    }
    request = ChatRequest.read(json.dumps(body).encode())
    assert (request.schema_name, request.schema, request.by_tool) == ("verdict", schema, False)
    assert (request.temperature, request.max_tokens, request.seed) == (0, 7, 3)
    assert (request.logprobs, request.top_logprobs, request.stream) == (True, 5, False)
    assert request.messages == ({"role": "user", "content": "Is it so?"},)
    assert (request.prompt_tokens, request.body) == (3, body)


def test_parts_of_text_are_joined_and_missing_content_is_empty() -> None:
    turns = [{"role": "assistant", "content": None}, {"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]
    assert [turn["content"] for turn in ChatRequest.of(PLAIN | {"messages": turns}).messages] == ["", "aa"]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [(None, None), ("auto", None), ("none", None), ({"type": "function", "function": {"name": "b"}}, "b")],
)
def test_a_named_tool_is_a_schema(choice: object, wanted: str | None) -> None:
    request = ChatRequest.of(PLAIN | {"tools": tools("a", "b"), "tool_choice": choice})
    assert (request.schema_name, request.by_tool) == (wanted, wanted is not None)
    assert request.schema == ({"title": "b"} if wanted else None)


def test_a_required_tool_must_be_the_only_one() -> None:
    assert ChatRequest.of(PLAIN | {"tools": tools("a"), "tool_choice": "required"}).schema_name == "a"
    with pytest.raises(BadRequest, match="tool_choice"):
        ChatRequest.of(PLAIN | {"tools": tools("a", "b"), "tool_choice": "required"})


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"content": "who speaks?"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"model": ""},
        {"n": 2},
        {"n": True},
        {"seed": 1.5},
        {"temperature": "hot"},
        {"temperature": True},
        {"max_tokens": 0},
        {"max_completion_tokens": "7"},
        {"stream": "yes"},
        {"logprobs": 1},
        {"top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 21},
        {"response_format": "json"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"tools": tools("a"), "tool_choice": {"type": "function", "function": {"name": "b"}}},
        {"tools": tools("a"), "tool_choice": 3},
        {"tool_choice": "required"},
    ],
)
def test_odd_requests_are_refused_with_a_sentence(change: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"\.$"):
        ChatRequest.of(PLAIN | change)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe{}",
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"seed":NaN}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1e999}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest) as raised:
        ChatRequest.read(data)
    assert raised.value.code == "invalid_json"


def test_the_key_is_what_the_model_sees() -> None:
    key = compute_request_key(PLAIN)
    for same in (
        dict(reversed(PLAIN.items())),
        PLAIN | {"stream": True, "stream_options": {"include_usage": True}},
        PLAIN | {"user": "me", "store": False, "metadata": {"run": "7"}},
        PLAIN | {"metadata": None},
    ):
        assert compute_request_key(same) == key
    others = [
        PLAIN | {"model": "other"},
        PLAIN | {"messages": [{"role": "user", "content": "Is it so ?"}]},
        PLAIN | {"temperature": 0},
        PLAIN | {"seed": 1},
        PLAIN | {"metadata": {"replica": "1", "run": "7"}},
        PLAIN | {"metadata": {"replica": "2", "run": "7"}},
        PLAIN | {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    ]
    assert len({key, *map(compute_request_key, others)}) == 1 + len(others)


def test_a_lone_surrogate_survives() -> None:
    request = ChatRequest.read(b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}')
    body = json.loads(wire.encode_completion(request, ScriptedReply(request.messages[0]["content"])).data)
    assert body["choices"][0]["message"]["content"] == "\ud800"


# Replies


def test_who_answers_what() -> None:
    registry = HandlerRegistry()
    with pytest.raises(BadRequest, match=r"no plain text.*Known schemas: none\."):
        registry.handler(None)
    registry.register("b", lambda _: ScriptedReply("b"))
    registry.register("a", lambda _: ScriptedReply("a"))
    with pytest.raises(BadRequest, match=r"unknown schema 'c'\. Known schemas: a, b\."):
        registry.handler("c")
    with pytest.raises(ValueError, match="already"):
        registry.register("a", lambda _: ScriptedReply("again"))
    assert registry.handler("a")(ChatRequest.of(PLAIN)).text == "a"


def test_a_distribution_must_fit_its_text() -> None:
    with pytest.raises(ValueError, match="begins with none"):
        ScriptedReply("Perhaps", first_token={"Yes": 0.5, "No": 0.5})
    with pytest.raises(ValueError, match="begins with none"):
        ScriptedReply({"a": True}, first_token={"Yes": 1.0})
    for wrong in ({"Yes": 0.9, "No": 0.2}, {"Yes": 0.9, "No": -0.1}):
        with pytest.raises(ValueError, match="not probabilities"):
            ScriptedReply("Yes", first_token=wrong)


@pytest.mark.parametrize("text", ["", " ", "Yes", "Yes.", " two words ", "a\n\n b\tc\n"])
def test_tokens_joined_are_the_text(text: str) -> None:
    request = ChatRequest.of(PLAIN | {"logprobs": True, "top_logprobs": 2})
    first = {"Yes": 1.0, "No": 0.0} if text.startswith("Yes") else None
    choice = json.loads(wire.encode_completion(request, ScriptedReply(text, first_token=first)).data)["choices"][0]
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == text
    assert all(entry["bytes"] == list(entry["token"].encode()) for entry in choice["logprobs"]["content"])
    if first:
        assert [top["logprob"] for top in choice["logprobs"]["content"][0]["top_logprobs"]] == [0.0, -9999.0]


# Draws


def test_chance_is_uniform_and_fixed() -> None:
    draws = [hash_to_unit_interval("test", number) for number in range(10_000)]
    assert all(0 <= draw < 1 for draw in draws)
    # The standard deviation of the mean is 0.0029.
    assert abs(sum(draws) / len(draws) - 0.5) < 0.015
    # From an independent SHA-256 of the text ["test",0].
    assert draws[0] == int("910cb2064d46b", 16) / 16**13


def test_faults_come_at_their_rates_and_stop() -> None:
    rates = {ServerFault.RATE_LIMIT: 0.2, ServerFault.EMPTY: 0.1, ServerFault.CUT: 0.05}
    behaviour = ServerBehaviour(faults=rates, seed=1)
    drawn = Counter(behaviour.draw_fault(f"key {number}", 1) for number in range(10_000))
    for fault, rate in rates.items():
        assert abs(drawn[fault] / 10_000 - rate) < 0.02
    assert set(drawn) == {None, *rates}
    assert not any(behaviour.draw_fault(f"key {number}", 4) for number in range(100))
    # Attempts, seeds and keys are drawn apart.
    assert len({tuple(behaviour.draw_fault(f"key {n}", attempt) for n in range(50)) for attempt in (1, 2, 3)}) == 3
    other = ServerBehaviour(faults=rates, seed=2)
    assert [other.draw_fault(f"key {n}", 1) for n in range(50)] != [
        behaviour.draw_fault(f"key {n}", 1) for n in range(50)
    ]


def test_delays_lie_between_latency_and_jitter() -> None:
    behaviour = ServerBehaviour(latency=1, jitter=0.5)
    delays = [behaviour.draw_delay(f"key {number}", 1) for number in range(1_000)]
    assert 1 <= min(delays) < 1.05
    assert 1.45 < max(delays) < 1.5
    assert ServerBehaviour(latency=1).draw_delay("key", 1) == 1


def test_wrong_settings_are_all_named() -> None:
    with pytest.raises(SettingError) as raised:
        ServerBehaviour(
            flip_rate=1.5,
            latency=-1,
            max_concurrency=0,
            faults={"rain": 0.1, ServerFault.DROP: 0.6, ServerFault.HANG: float("nan"), ServerFault.CUT: 0.6},  # type: ignore[dict-item]
        )
    for name in ("flip_rate", "latency", "max_concurrency", "rain", "hang", "rate_limit"):
        assert name in str(raised.value)
    with pytest.raises(SettingError, match="more than 1"):
        ServerBehaviour(faults={ServerFault.DROP: 0.6, ServerFault.CUT: 0.6})


# Noise


def test_certain_flips_turn_every_boolean_and_nothing_else() -> None:
    reply = ScriptedReply({"a": True, "b": [False, {"c": True, "d": 1, "e": None, "f": "true"}]})
    flipped = ServerBehaviour(flip_rate=1.0).flip_labels(reply, "key").content
    assert flipped == {"a": False, "b": [True, {"c": False, "d": 1, "e": None, "f": "true"}]}
    assert reply.content == {"a": True, "b": [False, {"c": True, "d": 1, "e": None, "f": "true"}]}


def test_flips_depend_on_seed_key_and_path() -> None:
    reply = ScriptedReply({"flags": [True] * 200})

    def flags(seed: int, key: str) -> list[bool]:
        return dict(ServerBehaviour(flip_rate=0.25, seed=seed).flip_labels(reply, key).content)["flags"]  # type: ignore[arg-type]

    # 200 leaves at 0.25: 50 expected, standard deviation 6.1.
    assert 25 <= flags(0, "a").count(False) <= 75
    assert flags(0, "a") == flags(0, "a")
    assert flags(0, "a") != flags(1, "a") != flags(1, "b")


@pytest.mark.parametrize(
    ("text", "first", "other", "exchanged"),
    [
        ("Yes", {"Yes": 0.9, "No": 0.1}, "No", {"No": 0.9, "Yes": 0.1}),
        (" no, never", {" yes": 0.2, " no": 0.8}, " yes, never", {" no": 0.2, " yes": 0.8}),
        ("YES.", {"YES": 0.6, "Maybe": 0.4}, "NO.", {"NO": 0.6, "Maybe": 0.4}),
        ("Maybe", {"Maybe": 1.0}, "Maybe", {"Maybe": 1.0}),
    ],
)
def test_a_flipped_first_token(text: str, first: dict[str, float], other: str, exchanged: dict[str, float]) -> None:
    flipped = ServerBehaviour(flip_rate=1.0).flip_labels(ScriptedReply(text, first_token=first), "key")
    assert (flipped.content, flipped.first_token) == (other, exchanged)


def test_text_without_a_distribution_is_left_alone() -> None:
    assert ServerBehaviour(flip_rate=1.0).flip_labels(ScriptedReply("Yes"), "key") == ScriptedReply("Yes")


# The bill


def test_totals_are_sums_of_lines() -> None:
    bill = ServerBill()
    for key in ("a", "b", "a"):
        bill.get_line(key).receive(0.0)
    bill.get_line("a").pay(5, 2)
    bill.get_line("b").faulted[ServerFault.DROP] += 1
    bill.rejected += 1
    totals = bill.as_json()
    assert totals["requests"]["a"]["received"] == 2
    assert totals["requests"]["b"]["faulted"] == {"drop": 1}
    assert totals["totals"]["received"] == 4
    assert (totals["totals"]["paid"], totals["totals"]["prompt_tokens"]) == (1, 5)
    assert (totals["totals"]["completion_tokens"], totals["totals"]["faulted"]) == (2, {"drop": 1})


def test_coming_before_retry_after_is_noticed() -> None:
    line = ServerBill().get_line("a")
    line.not_before = 10.0
    for now in (9.9, 10.0, 11.0):
        line.receive(now)
    assert line.early == 1


# Imports


@pytest.mark.slow
def test_only_the_server_needs_aiohttp() -> None:
    script = """
import sys
sys.modules["aiohttp"] = None
import eclose_world.server.bill, eclose_world.server.faults, eclose_world.server.chat_requests, eclose_world.server.wire
try:
    import eclose_world.server.app
except ModuleNotFoundError as error:
    print(error.name)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert process.stdout == "aiohttp\n"
