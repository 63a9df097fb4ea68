"""OpenInference, the conventions of Phoenix and its instrumentations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.readers.spans.span import SpanContent, SpanKind, as_text, collect_indexed, first_attribute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.readers.spans.span import Span

KIND = "openinference.span.kind"
INPUT = "input.value"
OUTPUT = "output.value"
INPUT_MESSAGES = "llm.input_messages"
OUTPUT_MESSAGES = "llm.output_messages"
RETRIEVED = "retrieval.documents"
RERANKED = "reranker.output_documents"
MODEL = ("llm.model_name", "gen_ai.request.model")
KINDS = {
    "AGENT": SpanKind.AGENT,
    "CHAIN": SpanKind.CHAIN,
    "LLM": SpanKind.LLM,
    "RETRIEVER": SpanKind.RETRIEVER,
    "RERANKER": SpanKind.RERANKER,
    "TOOL": SpanKind.TOOL,
}
SWITCH = (
    "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and the like in the traced program, or drop the "
    "TraceConfig that hides them"
)


def read_content(span: Span) -> SpanContent:
    """Return the content of a span by OpenInference."""
    attributes = span.attributes
    kind = KINDS.get(str(attributes.get(KIND) or span.kind).upper(), SpanKind.OTHER)
    documents = [_read_document(item) for item in collect_indexed(attributes, RERANKED)] or [
        _read_document(item) for item in collect_indexed(attributes, RETRIEVED)
    ]
    # The messages of a model say who wrote what; input.value repeats its request as one text.
    prompt = [_read_message(item) for item in collect_indexed(attributes, INPUT_MESSAGES)]
    reply = [_read_message(item) for item in collect_indexed(attributes, OUTPUT_MESSAGES)]
    return SpanContent(
        kind,
        input=prompt or attributes.get(INPUT),
        output=reply or attributes.get(OUTPUT),
        documents=documents or None,
        model=as_text(first_attribute(attributes, MODEL)),
    )


def _strip(item: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in item.items()}


def _read_document(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document; Phoenix's API spreads its metadata over keys such as ``document.metadata.title``."""
    document = _strip(item, "document.")
    prefix = "metadata."
    spread = {name.removeprefix(prefix): value for name, value in document.items() if name.startswith(prefix)}
    return {**document, "metadata": spread} if spread else document


def _read_message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its parts; their keys are dotted again, such as ``contents.0.message_content.text``."""
    message = _strip(item, "message.")
    parts = [_strip(part, "message_content.") for part in collect_indexed(message, "contents")]
    calls = [_strip(call, "tool_call.function.") for call in collect_indexed(message, "tool_calls")]
    return {"role": message.get("role"), "content": parts or message.get("content"), "tool_calls": calls}
