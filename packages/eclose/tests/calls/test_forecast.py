"""What judging is expected to cost, from the requests alone."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import jsonschema_rs
import pytest

from eclose.calls.forecast import (
    CHAT_MODEL_HABITS,
    WORLD_MODEL_HABITS,
    count_words,
    estimate_request_usage,
    estimate_text_tokens,
    find_writing_habits,
    forecast_usage,
)
from eclose.calls.model import Decoding, ReplySchema, Request, TokenUsage
from eclose.calls.prices import ModelPrice
from eclose.calls.tokens import bound_request_usage
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.settings import JudgeSettings
from eclose.prompts.judge_questions import JOINT_JUDGE_QUESTIONS, JudgeQuestion, judge_reply_schema
from eclose.prompts.locked_texts import PromptMessage
from eclose.values.response import Trace
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.chat_requests import ChatRequest


def asked(profile="short-easy", seed=8, count=6, **settings):
    return [
        request
        for item in islice(make_world_items(profile, seed), count)
        for request in build_judge_requests(item.instance, item.response, JudgeSettings(**settings))
    ]


def billed(request):
    """What the world's server charges for it."""
    shape = {"name": request.schema.name, "schema": dict(request.schema.schema)}
    body = {
        "model": "world",
        "messages": list(request.messages),
        "response_format": {"type": "json_schema", "json_schema": shape},
    }
    chat = ChatRequest.of(body)
    reply = build_world_handlers().handler(chat.schema_name)(chat)
    jsonschema_rs.validate(dict(request.schema.schema), reply.content)
    return TokenUsage(chat.prompt_tokens, len(reply.text.split()))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("the film", 2),
        ("internationally", 3),  # fifteen letters, seven a token
        ("in 1994.", 6),  # a word, four digits, a sign
        ('{"aligned": true}', 5),  # signs by the run: {" and ": and }
        ("東京", 2),
    ],
)
def test_tokens_are_words_in_pieces_digits_and_signs(text, tokens):
    assert estimate_text_tokens(text) == tokens


def test_what_is_read_is_counted_as_the_world_counts_it_to_the_word():
    for request in asked():
        assert estimate_request_usage(request, WORLD_MODEL_HABITS).prompt_tokens == billed(request).prompt_tokens


@pytest.mark.slow
@pytest.mark.parametrize("joint", [False, True])
def test_what_is_written_is_expected_within_a_tenth_or_so_over_many(joint):
    every = asked("hotpot", 9, 20, joint=joint)
    expected = sum(estimate_request_usage(request, WORLD_MODEL_HABITS).completion_tokens for request in every)
    actual = sum(billed(request).completion_tokens for request in every)
    assert 0.85 < expected / actual < 1.15


@pytest.mark.parametrize(
    "question", [question for question in JOINT_JUDGE_QUESTIONS if question is not JudgeQuestion.SOUNDNESS]
)
def test_a_reply_without_steps_is_as_long_as_its_form_and_its_texts(question):
    every = [request for request in asked() if request.schema.name == question]
    short = replace(WORLD_MODEL_HABITS, texts={})
    assert every
    for request in every:
        # {"reason": "", "pursued": "", "aligned": true}: two words for each field.
        assert estimate_request_usage(request, short).completion_tokens == 2 * len(request.schema.schema["properties"])
        assert estimate_request_usage(request, replace(short, texts={"reason": 7})).completion_tokens == (
            2 * len(request.schema.schema["properties"]) + 7
        )


def test_every_step_more_is_an_entry_more():
    (soundness,) = (request for request in asked(count=1) if request.schema.name == JudgeQuestion.SOUNDNESS)
    bare = replace(WORLD_MODEL_HABITS, supported=0.0)
    material = json.loads(soundness.messages[-1]["content"])

    def expected(steps, habits=bare):
        schema = judge_reply_schema(JudgeQuestion.SOUNDNESS, tuple(str(number) for number in range(1, steps + 1)))
        return estimate_request_usage(
            replace(soundness, schema=ReplySchema(JudgeQuestion.SOUNDNESS, schema)), habits
        ).completion_tokens

    # {"steps": { … }} with a name and three fields of two words an entry; an empty object is one word.
    assert [expected(steps) for steps in (0, 1, 2, 5)] == [2, 8, 15, 36]
    length = sum(count_words(passage["text"]) for passage in material["evidence"]) / len(material["evidence"])
    quoted = replace(WORLD_MODEL_HABITS, supported=1.0)
    # Instead of null: {"passage": 1, "quote": " … "}.
    assert expected(4, quoted) == pytest.approx(expected(4) + 4 * (3 + length), abs=1)


def test_nobody_is_expected_to_write_more_than_allowed():
    request = asked(max_tokens=5)[1]
    assert estimate_request_usage(request, WORLD_MODEL_HABITS).completion_tokens == 5
    plain = Request((PromptMessage(role="user", content="Say it."),), Decoding(max_tokens=9))
    assert estimate_request_usage(plain, WORLD_MODEL_HABITS) == TokenUsage(2, 9)
    odd = replace(request, messages=(PromptMessage(role="user", content="no JSON"),))
    assert estimate_request_usage(odd, WORLD_MODEL_HABITS).prompt_tokens == 2
    assert (
        estimate_request_usage(
            replace(odd, messages=(PromptMessage(role="user", content="[]"),)), WORLD_MODEL_HABITS
        ).prompt_tokens
        == 1
    )


def test_a_forecast_adds_up_and_never_exceeds_its_bound():
    every = asked()
    price = ModelPrice.of(1, 4)
    usage = forecast_usage(every, price, CHAT_MODEL_HABITS)
    assert usage.calls == len(every)
    assert usage.prompt_tokens == sum(
        estimate_request_usage(request, CHAT_MODEL_HABITS).prompt_tokens for request in every
    )
    assert usage.completion_tokens == sum(
        estimate_request_usage(request, CHAT_MODEL_HABITS).completion_tokens for request in every
    )
    assert usage.cost == price.cost(TokenUsage(usage.prompt_tokens, usage.completion_tokens))
    assert usage.most_prompt_tokens == sum(bound_request_usage(request).prompt_tokens for request in every)
    assert usage.prompt_tokens < usage.most_prompt_tokens
    assert usage.completion_tokens < usage.most_completion_tokens == 4096 * len(every)
    assert usage.cost < usage.most_cost
    assert usage.cached_cost is None
    unpriced = forecast_usage(iter(every), None, CHAT_MODEL_HABITS)
    assert (unpriced.calls, unpriced.cost, unpriced.most_cost) == (len(every), None, None)


def test_a_forecast_counts_what_prompts_have_in_common():
    """A second judge question about the same evidence begins like the first one of its kind, and no other."""
    item = next(iter(make_world_items("hotpot", 8)))
    texts = [replace(item.response, trace=Trace(item.response.trace.steps[:-1])), item.response]
    every = [
        request for response in texts for request in build_judge_requests(item.instance, response, JudgeSettings())
    ]
    alone = forecast_usage(every[:1], None, CHAT_MODEL_HABITS)
    assert alone.cached_tokens == 0
    price = ModelPrice.of(1, 4, 0.1)
    both = forecast_usage(every, price, CHAT_MODEL_HABITS)
    assert 0.2 * both.prompt_tokens < both.cached_tokens < 0.6 * both.prompt_tokens
    usage = TokenUsage(both.prompt_tokens, both.completion_tokens, both.cached_tokens)
    assert both.cached_cost == price.cost(usage) < both.cost


def test_the_worlds_model_is_known_by_its_name():
    assert find_writing_habits("127.0.0.1:8000/world") is WORLD_MODEL_HABITS
    assert find_writing_habits("openai/gpt-x") is CHAT_MODEL_HABITS
    assert find_writing_habits("openai/worldly") is CHAT_MODEL_HABITS
