"""CrewAI: the output of a crew whose model calls tools, of one whose model writes a log, and OpenInference's spans."""

from __future__ import annotations

import json
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_TRACKING": "true", "OTEL_SDK_DISABLED": "false"}

import scene
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor


@tool("search")
def search(query: str) -> str:
    """Search the library for passages."""
    return scene.search_text(query)


instrumentor = CrewAIInstrumentor()
for style in ("tools", "react"):
    instrumentor.instrument(tracer_provider=scene.open_spans(f"openinference-{style}"))
    model = LLM(model=f"openai/{scene.MODEL}", base_url=scene.find_model(style), api_key=scene.KEY)
    if style == "react":
        type(model).supports_function_calling = lambda _: False
    agent = Agent(role="librarian", goal="Answer.", backstory="You read.", tools=[search], llm=model)
    task = Task(description=scene.QUESTION, expected_output="The answer.", agent=agent)
    result = Crew(agents=[agent], tasks=[task]).kickoff()
    scene.write_record(f"crew_output-{style}", {"question": scene.QUESTION, **json.loads(result.model_dump_json())})
    instrumentor.uninstrument()
