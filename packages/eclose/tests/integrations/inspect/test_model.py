"""A model of Inspect's providers as one of ours: what it says, and every way in which it says nothing."""

from __future__ import annotations

import asyncio
import json
import traceback

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

import httpx2
import openai
from inspect_ai.model import ContentText, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.util import LimitExceededError
from inspect_ai.util._json import json_schema_dump
from typer.testing import CliRunner

from eclose.calls.client import CallSettings
from eclose.calls.http.endpoint import format_server_name
from eclose.calls.http.failures import UNKNOWN_USAGE, CallFailure, CallFailureKind
from eclose.calls.inspect_model import InspectModel, InspectModelRef, build_inspect_config
from eclose.calls.model import Decoding, FinishReason, ReplySchema, Request, TokenUsage
from eclose.cli.main import app
from eclose.errors import SettingError
from eclose.files import jsonl
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.prompts.judge_questions import JudgeQuestion, judge_reply_schema
from eclose.values.judgment import Judgment
from eclose.values.model_family import same_model_family
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.integrations.inspect.running import WARNINGS, WORLD, planted, said, world

pytestmark = WARNINGS

MESSAGES = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it so?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "And this?"},
)
SHAPE = {
    "type": "object",
    "properties": {"closed": {"type": "boolean"}},
    "required": ["closed"],
    "additionalProperties": False,
}
PLAIN = Request(MESSAGES)
SHAPED = Request(MESSAGES, schema=ReplySchema("judge_closure", SHAPE))


def model_of(answer):
    """A model that calls the function with the messages and the configuration it is sent."""

    def output(messages, _tools, _choice, config):
        reply = answer(messages, config)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return InspectModel(get_model("mockllm/judge", custom_outputs=output))


def complete(answer, request=PLAIN):
    return asyncio.run(model_of(lambda *_: answer).complete(request))


def failure(answer, request=PLAIN):
    with pytest.raises(CallFailure) as raised:
        complete(answer, request)
    assert raised.value.__cause__ is None
    return raised.value


@pytest.mark.slow
def test_a_reply_with_its_usage():
    model = model_of(lambda *_: said("Yes."))
    reply = asyncio.run(model.complete(PLAIN))
    assert (reply.text, reply.finish, reply.usage) == ("Yes.", FinishReason.STOP, TokenUsage(7, 3))
    assert model.name == "inspect/mockllm/judge"


@pytest.mark.slow
def test_tokens_out_of_a_cache_were_read_too():
    output = said("Yes.")
    output.usage = ModelUsage(
        input_tokens=7, output_tokens=3, total_tokens=110, input_tokens_cache_read=60, input_tokens_cache_write=40
    )
    assert complete(output).usage == TokenUsage(107, 3, 60)


@pytest.mark.slow
def test_what_is_asked_arrives():
    calls = []

    def answer(messages, config):
        calls.append((messages, config))
        return said('{"closed": true}')

    decoding = Decoding(max_tokens=9, temperature=0.5, top_p=0.9, seed=4, effort="low", thinking=False)
    request = Request(MESSAGES, decoding, SHAPED.schema)
    assert json.loads(asyncio.run(model_of(answer).complete(request)).text) == {"closed": True}
    ((messages, config),) = calls
    assert [(message.role, message.text) for message in messages] == [
        (message["role"], message["content"]) for message in MESSAGES
    ]
    assert (config.max_tokens, config.temperature, config.top_p, config.seed) == (9, 0.5, 0.9, 4)
    assert (config.reasoning_effort, config.extra_body) == (
        "low",
        {"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert (config.response_schema.name, config.response_schema.strict) == ("judge_closure", True)


STEPS = ("1", "2")


@pytest.mark.parametrize("question", [question for question in JudgeQuestion if question is not JudgeQuestion.JOINT])
def test_the_shape_of_a_reply_comes_through_whole(question):
    schema = judge_reply_schema(question, STEPS)
    config = build_inspect_config(Request(MESSAGES, schema=ReplySchema(question, schema)))
    sent_schema = json_schema_dump(config.response_schema.json_schema)
    # Inspect knows no definitions: the schema of a step stands where it is used.
    if question in (JudgeQuestion.SOUNDNESS, JudgeQuestion.SOUNDNESS_WINDOW):
        assert sent_schema["properties"]["steps"]["properties"] == dict.fromkeys(STEPS, schema["$defs"]["step"])
        assert sent_schema["properties"]["steps"]["required"] == list(STEPS)
    else:
        assert sent_schema == schema


def test_another_draw_has_another_seed_and_is_not_taken_from_a_cache():
    seeds = {
        build_inspect_config(Request(MESSAGES, Decoding(seed=4), None, replica, attempt)).seed
        for replica in range(3)
        for attempt in range(3)
    }
    assert len(seeds) == 9
    calls = []

    class Kept:
        async def generate(self, _messages, **settings):
            calls.append(settings.get("cache", "as configured"))
            return said("Yes.")

        class api:  # noqa: N801
            api_key = None

    for request in (PLAIN, Request(MESSAGES, replica=1), Request(MESSAGES, attempt=1)):
        asyncio.run(InspectModel(Kept()).complete(request))
    assert calls == ["as configured", False, False]


def test_what_inspect_does_not_take_is_said():
    with pytest.raises(SettingError, match="Inspect rejects these settings"):
        build_inspect_config(Request(MESSAGES, Decoding(effort="furious")))


@pytest.mark.parametrize(
    ("output", "request_", "kind"),
    [
        (said("Yes, bec", "max_tokens"), PLAIN, CallFailureKind.LENGTH),
        (said("", "model_length"), PLAIN, CallFailureKind.LENGTH),
        (said("I will not.", "content_filter"), PLAIN, CallFailureKind.REFUSAL),
        (said('{"closed": true}', "content_filter"), SHAPED, CallFailureKind.REFUSAL),
        (said([ContentText(text="I will not.", refusal=True)]), PLAIN, CallFailureKind.REFUSAL),
        (said(" \n"), PLAIN, CallFailureKind.EMPTY),
        (said("Yes.", "unknown"), PLAIN, CallFailureKind.INVALID),
        (said("Yes.", "tool_calls"), PLAIN, CallFailureKind.INVALID),
        (said("Yes."), SHAPED, CallFailureKind.INVALID),
        (said('```json\n{"closed": true}\n```'), SHAPED, CallFailureKind.INVALID),
        (said('{"closed": "true"}'), SHAPED, CallFailureKind.INVALID),
        (said('{"closed": true, "closed": false}'), SHAPED, CallFailureKind.INVALID),
        (said("Yes."), Request(MESSAGES, Decoding(top_logprobs=2)), CallFailureKind.INVALID),
        (ModelOutput(model="m", usage=ModelUsage()), PLAIN, CallFailureKind.TRANSIENT),
    ],
)
def test_a_reply_that_is_none_has_a_kind(output, request_, kind):
    call_failure = failure(output, request_)
    assert call_failure.kind is kind
    if output.choices:
        assert call_failure.reply.text == output.completion
        assert call_failure.reply.usage == TokenUsage(7, 3)


def test_no_usage_is_not_nothing_used():
    class Silent:
        async def generate(self, _messages, **_):
            return ModelOutput.from_content("m", "Yes.")

        class api:  # noqa: N801
            api_key = None

    assert asyncio.run(InspectModel(Silent()).complete(PLAIN)).usage is UNKNOWN_USAGE


def status_error(status, message="no", **headers):
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    response = httpx2.Response(status, headers=headers, json={"error": {"message": message}}, request=request)
    return openai.APIStatusError(message, response=response, body=None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (status_error(429), CallFailureKind.RATE_LIMIT),
        (status_error(429, "insufficient_quota"), CallFailureKind.DENIED),
        (status_error(401), CallFailureKind.DENIED),
        (status_error(400), CallFailureKind.PERMANENT),
        (status_error(400, "content_filter"), CallFailureKind.REFUSAL),
        (status_error(503), CallFailureKind.TRANSIENT),
        (openai.APIConnectionError(request=httpx2.Request("POST", "http://127.0.0.1")), CallFailureKind.CONNECTION),
        (openai.APITimeoutError(request=httpx2.Request("POST", "http://127.0.0.1")), CallFailureKind.TIMEOUT),
    ],
)
def test_an_error_of_a_provider_has_a_kind(error, kind):
    assert failure(error).kind is kind


def test_how_long_to_wait_is_kept_and_the_key_is_not():
    model = model_of(lambda *_: status_error(429, "key abcdefgh12345 is too fast", **{"retry-after": "7"}))
    model._model.api.api_key = "abcdefgh12345"
    with pytest.raises(CallFailure) as raised:
        asyncio.run(model.complete(PLAIN))
    assert raised.value.retry_after == 7
    assert "abcdefgh" not in f"{raised.value} {raised.value.raw}"


@pytest.mark.parametrize("error", [LimitExceededError("token", value=2, limit=1), RuntimeError("a bug"), KeyError("x")])
def test_what_is_no_providers_doing_is_raised_as_it_is(error):
    with pytest.raises(type(error)):
        complete(error)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, ServerFault.RATE_LIMIT, ServerFault.WRONG_SHAPE])
def test_a_run_of_ours_judges_through_inspect(tmp_path, monkeypatch, fault):
    """Over HTTP, with our retries and our ledger around it: planted labels come back whatever the line does."""
    cases = planted(4)
    jsonl.write_records(tmp_path / "instances.jsonl", (instance for instance, _ in cases))
    jsonl.write_records(tmp_path / "responses.jsonl", (broken.response for _, broken in cases))
    behaviour = None if fault is None else ServerBehaviour(faults={fault: 0.3}, max_faults_per_key=1)
    with world(behaviour=behaviour, monkeypatch=monkeypatch) as server:
        sources = find_judge_inputs(tmp_path, tmp_path)
        asyncio.run(
            judge_responses(
                sources,
                InspectModelRef(WORLD, base_url=server.base_url),
                tmp_path,
                calls=CallSettings(unpriced=True),
            )
        )
    judgments = {record.response_id: record for record in jsonl.read_records(tmp_path / "judgments.jsonl", Judgment)}
    for _, broken in cases:
        assert judgments[broken.response.id].verdict == broken.verdict
        assert judgments[broken.response.id].judge == f"inspect/{WORLD}@{format_server_name(server.base_url)}"


@pytest.mark.slow
def test_the_command_judges_through_inspect(tmp_path, monkeypatch):
    cases = planted(2)
    jsonl.write_records(tmp_path / "instances.jsonl", {instance.id: instance for instance, _ in cases}.values())
    jsonl.write_records(tmp_path / "responses.jsonl", [broken.response for _, broken in cases])
    with world(monkeypatch=monkeypatch) as server:
        words = ["judge", str(tmp_path), "--judge", f"inspect/{WORLD}", "--base-url", server.base_url, "--no-price"]
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    assert f"{len(cases)} received = {len(cases)} written" in result.output
    prices = CliRunner().invoke(app, [*words[:-1], "--budget", "1", "--force"])
    assert "price" in str(prices.exception)


def test_another_server_or_other_arguments_are_another_model():
    here, there = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1"
    named = [
        InspectModelRef("openai/m"),
        InspectModelRef("openai/m", here),
        InspectModelRef("openai/m", there),
        InspectModelRef("openai/m", here, {"responses_api": True}),
        InspectModelRef("openai/m", here, {"responses_api": False}),
    ]
    assert len({model.name for model in named}) == len(named)
    assert len({str(model.identity) for model in named}) == len(named)
    assert len({model.source for model in named}) == len(named)
    assert named[0].identity == {"model": "inspect/openai/m"}
    assert InspectModelRef("openai/m", there, server="127.0.0.1:8000").name == named[1].name
    assert same_model_family("inspect/openai/gpt-5", InspectModelRef("openai/gpt-5", here).name)


def test_a_key_among_the_arguments_is_written_down_nowhere():
    model = InspectModelRef("openai/m", None, {"api_key": "sk-secret-canary", "organization": "mine"})
    assert "canary" not in f"{model.name} {model.identity} {model.source}"
    assert model.identity["arguments"] == {"organization": "mine"}


def test_an_error_that_holds_the_key_is_told_without_it():
    canary = "canary.0123456789abcdef.canary"

    @modelapi(name="gossip")
    class Gossip(ModelAPI):
        async def generate(self, *_args, **_more):
            raise LookupError(f"no account for {self.api_key}")

    model = InspectModel(get_model("gossip/x", api_key=canary, memoize=False))
    with pytest.raises(CallFailure) as raised:
        asyncio.run(model.complete(Request(({"role": "user", "content": "x"},))))
    traceback_text = "".join(traceback.format_exception(raised.value))
    assert "no account for [key]" in traceback_text
    assert canary not in traceback_text
