"""Pydantic AI: all messages with a text and with an output tool, and its own OpenTelemetry spans."""

from __future__ import annotations

import json

import scene
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Answer(BaseModel):
    """The answer."""

    answer: str


Agent.instrument_all(InstrumentationSettings(tracer_provider=scene.open_spans("own_spans")))
for name, kind in (("text", str), ("output_tool", Answer)):
    provider = OpenAIProvider(base_url=scene.find_model(name=name), api_key=scene.KEY)
    agent = Agent(OpenAIChatModel(scene.MODEL, provider=provider), output_type=kind, tools=[scene.search])
    result = agent.run_sync(scene.QUESTION)
    scene.write_record(f"all_messages-{name}", {"messages": json.loads(result.all_messages_json())})
