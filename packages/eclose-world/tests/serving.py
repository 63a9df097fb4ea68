"""A scripted model for tests of the server, and ways to ask it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import openai

from eclose_world.server.app import ModelServer, open_model_server
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply
from eclose_world.server.faults import ServerBehaviour, ServerFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eclose_world.server.chat_requests import ChatRequest

VERDICT = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}}}
VERDICT_TOOL = {
    "tools": [{"type": "function", "function": {"name": "verdict", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "verdict"}},
}


def echo(request: ChatRequest) -> ScriptedReply:
    return ScriptedReply(request.messages[-1]["content"])


def verdict(request: ChatRequest) -> ScriptedReply:
    return ScriptedReply(
        {"aligned": True, "steps": [{"id": 1, "sound": True}], "seen": request.messages[-1]["content"]}
    )


def leaning(request: ChatRequest) -> ScriptedReply:
    """Plain text that begins with a token it was not sure of."""
    return ScriptedReply("Yes, it is.", first_token={"Yes": 0.7, "No": 0.2, "Maybe": 0.1})


def broken(request: ChatRequest) -> ScriptedReply:
    return ScriptedReply({"set": {1, 2}})


def registry(text: Callable[[ChatRequest], ScriptedReply] = echo) -> HandlerRegistry:
    handlers = HandlerRegistry()
    handlers.register(None, text)
    handlers.register("verdict", verdict)
    handlers.register("broken", broken)
    return handlers


def run_with(
    body: Callable[[openai.AsyncOpenAI, ModelServer], Awaitable[None]],
    behaviour: ServerBehaviour | None = None,
    text: Callable[[ChatRequest], ScriptedReply] = echo,
    timeout: float = 10.0,
) -> None:
    async def main() -> None:
        async with (
            open_model_server(registry(text), behaviour) as server,
            openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=timeout) as client,
        ):
            await body(client, server)

    asyncio.run(asyncio.wait_for(main(), 30))


async def ask(client: openai.AsyncOpenAI, text: str = "hello there", **extra: Any) -> Any:
    return await client.chat.completions.create(model="world", messages=[{"role": "user", "content": text}], **extra)


def always(fault: ServerFault, **settings: Any) -> ServerBehaviour:
    return ServerBehaviour(faults={fault: 1.0}, **settings)


def only_line(server: ModelServer) -> dict[str, Any]:
    (line,) = server.bill()["requests"].values()
    return line
