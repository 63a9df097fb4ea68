"""Inspect run for real and offline: planted responses, and the world's exact judge over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, contextmanager
from itertools import islice

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai import eval_async
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from eclose.prompts.response_prompt import parse_question_message
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.judge import register_judge_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

WORLD = "openai-api/world/world"
# Inspect's own: an argument of tenacity's that got another name, and a stream it does not close.
WARNINGS = [
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <function MemoryObject:pytest.PytestUnraisableExceptionWarning"
    ),
]


def planted(count):
    """Questions of the world, each with a response that fails in another way, and what a judge must say of it."""
    cases = []
    plans = (FailurePlan(), *FAILURE_PLANS)
    for index, item in enumerate(islice(make_world_items("short-easy", 3), count)):
        rotated = (*plans[5 * index % len(plans) :], *plans)
        cases.append((item.instance, next(broken for plan in rotated if (broken := break_response(item, plan, "x")))))
    return cases


def said(text, stop="stop", **extra):
    """An output with its usage, which a scripted model would otherwise count with a vocabulary from the net."""
    usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
    choices = ModelOutput.from_content("mock", text, stop_reason=stop, **extra).choices
    return ModelOutput(model="mock", choices=choices, usage=usage)


def scripted(answer):
    """A model of Inspect's that says what the function makes of the last message."""
    return get_model("mockllm/model", custom_outputs=lambda messages, *_: answer(messages[-1].text))


def planted_answers(cases):
    """What the planted responses say, by the question asked."""
    by_question = {instance.question: broken.response.completion for instance, broken in cases}
    return lambda text: by_question[parse_question_message(text)[0]]


@contextmanager
def world(cases=(), behaviour=None, *, monkeypatch, seen=None):
    """A server that gives the planted responses and judges exactly, under the name ``openai-api/world/world``."""
    registry = HandlerRegistry()
    register_judge_handlers(registry)
    answer = planted_answers(cases)

    def respond(request):
        if seen is not None:
            seen.append(request)
        return ScriptedReply(answer(request.messages[-1]["content"]))

    registry.register(None, respond)
    with ModelServerThread(registry, behaviour) as server:
        monkeypatch.setenv("WORLD_API_KEY", "none")
        monkeypatch.setenv("WORLD_BASE_URL", server.base_url)
        yield server


def judge_at(server, **settings):
    """The judge at a server of this test: by name alone, Inspect would take the one of an earlier test."""
    return get_model(WORLD, base_url=server.base_url, memoize=False, **settings)


def run(task, folder, *served, **settings):
    """The log of an evaluation; models that are served are closed at its end, which Inspect leaves to its callers."""

    async def evaluate():
        async with AsyncExitStack() as stack:
            for model in served:
                await stack.enter_async_context(model)
            return await eval_async(task, log_dir=str(folder), **settings)

    (log,) = asyncio.run(evaluate())
    return log
