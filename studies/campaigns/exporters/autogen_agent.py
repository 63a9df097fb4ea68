"""AutoGen: the result of one agent and of a team that ends at a text, and its own OpenTelemetry spans."""

from __future__ import annotations

import asyncio

import scene
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def search(query: str) -> list:
    """Search the library for passages."""
    return scene.search(query)


def make_agent(style: str) -> AssistantAgent:
    client = OpenAIChatCompletionClient(model=scene.MODEL, base_url=scene.find_model(style), api_key=scene.KEY)
    return AssistantAgent("librarian", client, tools=[search], max_tool_iterations=5)


async def main() -> None:
    scene.open_spans("own_spans")
    result = await make_agent("tools").run(task=scene.QUESTION)
    scene.write_record("agent_result", result.model_dump(mode="json"))
    ending = TextMentionTermination("TERMINATE") | MaxMessageTermination(12)
    team = RoundRobinGroupChat([make_agent("terminate")], termination_condition=ending)
    result = await team.run(task=scene.QUESTION)
    scene.write_record("team_result", result.model_dump(mode="json"))


asyncio.run(main())
