"""OpenAI Agents SDK: items of a run over the Responses API and over Chat Completions, and OpenInference's spans."""

from __future__ import annotations

import asyncio

import scene
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_trace_processors
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor


@function_tool
def search(query: str) -> list[dict[str, str]]:
    """Search the library for passages."""
    return scene.search(query)


async def main() -> None:
    set_trace_processors([])
    OpenAIAgentsInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
    for name, kind in (("responses", OpenAIResponsesModel), ("chat", OpenAIChatCompletionsModel)):
        client = AsyncOpenAI(base_url=scene.find_model(name=name), api_key=scene.KEY)
        agent = Agent("librarian", instructions="Answer.", tools=[search], model=kind(scene.MODEL, client))
        result = await Runner.run(agent, scene.QUESTION)
        scene.write_record(f"to_input_list-{name}", {"messages": result.to_input_list()})
        scene.write_record(
            f"new_items-{name}",
            {
                "question": scene.QUESTION,
                "new_items": [{"type": item.type, "raw_item": _dump(item.raw_item)} for item in result.new_items],
                "final_output": result.final_output,
            },
        )


def _dump(item: object) -> object:
    return item.model_dump(mode="json") if hasattr(item, "model_dump") else item


asyncio.run(main())
