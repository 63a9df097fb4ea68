"""The world's model over real HTTP: it answers the product's own prompt, and fails as often as asked."""

import asyncio

import pytest
from openai import AsyncOpenAI, BadRequestError

from eclose import Response, parse_completion
from eclose.errors import SettingError
from eclose.prompts.response_prompt import ResponsePrompt
from eclose_world.make.instances import make_world_item
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.request_handlers import (
    PLANS_BY_NAME,
    ModelFailureRates,
    break_response_at_rates,
    build_world_handlers,
)
from eclose_world.server.app import ModelServerThread

ITEMS = [make_world_item(profile, 21, index) for profile in ("2wiki", "hotpot") for index in range(12)]


def ask(server, messages):
    async def send():
        client = AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0)
        async with client:
            reply = await client.chat.completions.create(model="world", messages=messages)
            return reply.choices[0].message.content

    return asyncio.run(send())


def verdicts(server):
    prompt = ResponsePrompt()
    labels = []
    for item in ITEMS:
        text = ask(server, prompt.messages(item.instance.question, item.instance.evidence))
        labels.append(judge_by_oracle(item.instance, Response.from_completion("r", item.instance.id, text)).verdict)
    return labels


@pytest.mark.slow
def test_an_honest_model_is_always_reliable_and_right():
    with ModelServerThread(build_world_handlers()) as server:
        assert [(v.reliable, v.correct) for v in verdicts(server)] == [(True, True)] * len(ITEMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["answer_decoupling", "incomplete_reasoning", "L4"])
def test_a_failing_model_fails_as_asked(name):
    with ModelServerThread(build_world_handlers(ModelFailureRates({name: 1.0}))) as server:
        labels = verdicts(server)
    if name == "L4":
        assert sum(verdict.locally_sound is False for verdict in labels) >= len(ITEMS) - 2
    else:
        assert [verdict.failure_class for verdict in labels] == [name] * len(ITEMS)


def test_the_same_request_gets_the_same_reply():
    messages = ResponsePrompt(0).messages(ITEMS[0].instance.question, ITEMS[0].instance.evidence)
    with ModelServerThread(build_world_handlers(ModelFailureRates({"L1": 0.5}), seed=3)) as thread:
        first = [ask(thread, messages), ask(thread, messages)]
    with ModelServerThread(build_world_handlers(ModelFailureRates({"L1": 0.5}), seed=3)) as two:
        assert first == [ask(two, messages)] * 2


def test_a_question_it_cannot_answer_is_not_answered():
    messages = ResponsePrompt(0).messages("Why is the sky blue?", ITEMS[0].instance.evidence)
    with ModelServerThread(build_world_handlers()) as server:
        assert parse_completion(ask(server, messages)).answer == "not determined"


def test_a_prompt_that_is_not_ours_is_refused():
    with (
        ModelServerThread(build_world_handlers()) as server,
        pytest.raises(BadRequestError, match="not a question with passages"),
    ):
        ask(server, [{"role": "user", "content": "Hello"}])


@pytest.mark.parametrize("rates", [{"L9": 0.1}, {"L1": -0.1}, {"L1": 0.6, "L2": 0.6}])
def test_impossible_rates_are_refused(rates):
    with pytest.raises(SettingError):
        ModelFailureRates(rates)


@pytest.mark.slow
def test_rates_are_met():
    rates = ModelFailureRates({"answer_decoupling": 0.3, "L1": 0.2})
    responses = [break_response_at_rates(make_world_item("2wiki", 4, index), rates) for index in range(150)]
    decoupled = sum(response.plan.broken is not None for response in responses) / len(responses)
    unsound = sum(response.plan.local is not None for response in responses) / len(responses)
    assert abs(decoupled - 0.3) < 0.12
    assert abs(unsound - 0.2) < 0.1
    assert set(PLANS_BY_NAME) >= set(rates.rates)
