"""A loop over OpenAI's client: its messages, and the spans of two instrumentations.

Each has a span of the application above the calls, as a web request would be, and none of its own for the tool.
"""

from __future__ import annotations

import json
import os
import sys

import scene
from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the library for passages.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


def run(name: str) -> tuple[list, dict]:
    client = OpenAI(base_url=scene.find_model(name=name), api_key=scene.KEY)
    messages: list = [{"role": "user", "content": scene.QUESTION}]
    while True:
        completion = client.chat.completions.create(model=scene.MODEL, messages=messages, tools=[TOOL])
        message = completion.choices[0].message
        if not message.tool_calls:
            return messages, completion.model_dump(mode="json")
        messages.append(message.model_dump(mode="json", exclude_none=True))
        for call in message.tool_calls:
            found = scene.search_text(json.loads(call.function.arguments)["query"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


if sys.argv[1:] == ["otel"]:
    os.environ |= {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    provider = scene.open_spans("otel-genai")
    OpenAIInstrumentor().instrument(tracer_provider=provider)
else:
    from openinference.instrumentation.openai import OpenAIInstrumentor

    provider = scene.open_spans("openinference")
    OpenAIInstrumentor().instrument(tracer_provider=provider)
with provider.get_tracer("application").start_as_current_span("answer_question"):
    messages, completion = run("-".join(["loop", *sys.argv[1:]]))
scene.write_record("messages", {"messages": messages, "response": completion})
