"""OpenTelemetry semantic conventions for generative AI, and the names that came before or beside them.

The conventions are in development and moved to a repository of their own in 2026, so the names are kept here instead of
being imported. Vercel's AI SDK (``ai.*``) and OpenLLMetry (``traceloop.*``) write into the same spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import SpanContent, SpanKind, as_text, collect_indexed, first_attribute

if TYPE_CHECKING:
    from eclose.readers.spans.span import Span

OPERATION = "gen_ai.operation.name"
INPUT = ("gen_ai.input.messages", "ai.prompt.messages", "ai.prompt", "gen_ai.prompt", "traceloop.entity.input")
# Pydantic AI names its result, which an output tool may have taken, apart from the messages.
OUTPUT = ("final_result", "gen_ai.output.messages", "ai.response.text", "gen_ai.completion", "traceloop.entity.output")
INDEXED_INPUT = "gen_ai.prompt"
INDEXED_OUTPUT = "gen_ai.completion"
DOCUMENTS = "gen_ai.retrieval.documents"
QUERY = "gen_ai.retrieval.query.text"
TOOL_RESULT = ("gen_ai.tool.call.result", "ai.toolCall.result", "traceloop.entity.output")
MODEL = ("gen_ai.response.model", "gen_ai.request.model", "ai.model.id")
KINDS = {
    "chat": SpanKind.LLM,
    "generate_content": SpanKind.LLM,
    "text_completion": SpanKind.LLM,
    "ai.generateText.doGenerate": SpanKind.LLM,
    "ai.streamText.doStream": SpanKind.LLM,
    "completion": SpanKind.LLM,
    "invoke_agent": SpanKind.AGENT,
    "invoke_workflow": SpanKind.AGENT,
    "ai.generateText": SpanKind.AGENT,
    "ai.streamText": SpanKind.AGENT,
    "agent": SpanKind.AGENT,
    "workflow": SpanKind.CHAIN,
    "task": SpanKind.CHAIN,
    "execute_tool": SpanKind.TOOL,
    "ai.toolCall": SpanKind.TOOL,
    "tool": SpanKind.TOOL,
    "retrieval": SpanKind.RETRIEVER,
    "search_memory": SpanKind.RETRIEVER,
}
KIND_NAMES = (OPERATION, "ai.operationId", "traceloop.span.kind", "llm.request.type")
SWITCH = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY and "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental in the traced program"
)


def read_content(span: Span) -> SpanContent:
    """Return the content of a span by the conventions for generative AI."""
    attributes: dict[str, Any] = {}
    # Instrumentations before 2026 put messages into events; a span attribute of the same name is newer.
    for event in span.events:
        attributes.update(event.attributes)
    attributes.update(span.attributes)
    kind = next((KINDS[name] for key in KIND_NAMES if (name := str(attributes.get(key))) in KINDS), SpanKind.OTHER)
    documents = parse_json_text(attributes.get(DOCUMENTS))
    return SpanContent(
        kind,
        input=first_attribute(attributes, INPUT) or collect_indexed(attributes, INDEXED_INPUT) or attributes.get(QUERY),
        output=first_attribute(attributes, TOOL_RESULT if kind is SpanKind.TOOL else OUTPUT)
        or collect_indexed(attributes, INDEXED_OUTPUT),
        documents=documents if isinstance(documents, list) else None,
        model=as_text(first_attribute(attributes, MODEL)),
    )
