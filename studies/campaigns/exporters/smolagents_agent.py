"""smolagents: full steps of an agent that calls tools and of one that writes code, and OpenInference's spans."""

from __future__ import annotations

import scene
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def search(query: str) -> list:
    """Search the library for passages.

    Args:
        query: What to look for.
    """
    return scene.search(query)


SmolagentsInstrumentor().instrument(tracer_provider=scene.open_spans("openinference"))
for name, kind, style in (("tools", ToolCallingAgent, "tools"), ("code", CodeAgent, "code")):
    model = OpenAIServerModel(scene.MODEL, api_base=scene.find_model(style, name), api_key=scene.KEY)
    agent = kind(tools=[search], model=model, verbosity_level=0)
    agent.run(scene.QUESTION)
    scene.write_record(f"full_steps-{name}", {"steps": agent.memory.get_full_steps(), "question": scene.QUESTION})
