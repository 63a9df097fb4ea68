"""Questions to answer, a model server that answers them as a test wants it, and the command as a user runs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from eclose.calls.client import CallSettings
from eclose.calls.run import RunOptions
from eclose.files.jsonl import write_records
from eclose.generation import GenerateSettings
from eclose.generation import generate_responses as run
from eclose.prompts.response_prompt import parse_question_message
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from eclose_world.server.chat_requests import ChatRequest

FREE = CallSettings(unpriced=True)


def questions(path, count=12, ids=None):
    """A file of questions of the world."""
    from dataclasses import replace

    instances = [item.instance for item in islice(make_world_items("short-easy", 3), count)]
    if ids is not None:
        instances = [replace(instance, id=id_) for instance, id_ in zip(instances, ids, strict=True)]
    write_records(path, instances)
    return instances


def world(request: ChatRequest) -> ScriptedReply:
    """What the world itself says."""
    return build_world_handlers().handler(None)(request)


def recipe(folder, **settings):
    """The words that give a command these settings, in a file of the folder."""
    path = folder / "recipe.yaml"
    path.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()), "utf-8")
    return ["--recipe", str(path)]


def asked(request: ChatRequest) -> str:
    """The question of a request."""
    message = parse_question_message(request.messages[-1]["content"])
    assert message is not None
    return message[0]


def server(handler: Callable[[ChatRequest], ScriptedReply] = world, behaviour: Any = None) -> ModelServerThread:
    registry = HandlerRegistry()
    registry.register(None, handler)
    return ModelServerThread(registry, behaviour)


def paid(server: ModelServerThread) -> int:
    return server.bill(keys=False)["totals"]["paid"]


def generate(instances, server, out, settings=None, calls=FREE, model=None, **more):
    """The function, from a script."""
    from eclose.calls.resolve import find_model_ref

    model_ref = model or find_model_ref("world", base_url=server.base_url, environ={"ECLOSE_SERVER_NAME": "127.0.0.1"})
    return asyncio.run(run(instances, model_ref, out, settings or GenerateSettings(), calls, RunOptions(**more)))


def command(*words, **environment):
    return [sys.executable, "-m", "eclose.cli.main", "generate", *map(str, words)], {**os.environ, **environment}


def ran(*words, cwd=None, **environment):
    """The command, to its end."""
    arguments, env = command(*words, **environment)
    return subprocess.run(arguments, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def started(*words, **environment):
    """The command, under way."""
    arguments, env = command(*words, **environment)
    return subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
