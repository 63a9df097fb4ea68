"""MLflow: the JSON of ``Trace.to_json``, alone or in a table, and its attributes on spans that are sent over OTLP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.spans.otlp import DamagedSpanError, read_span_or_error
from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import SpanContent, SpanKind, as_text, first_attribute, require_mapping

if TYPE_CHECKING:
    from eclose.readers.spans.span import Span

KIND = "mlflow.spanType"
INPUTS = "mlflow.spanInputs"
OUTPUTS = "mlflow.spanOutputs"
MODEL = ("mlflow.llm.model", "gen_ai.response.model", "gen_ai.request.model")
TRACE = "trace"
"""Column with the JSON of a trace in the table that ``mlflow.search_traces`` returns."""
TRACE_IDS = ("trace_id", "request_id")
KINDS = {
    "AGENT": SpanKind.AGENT,
    "CHAIN": SpanKind.CHAIN,
    "WORKFLOW": SpanKind.CHAIN,
    "TASK": SpanKind.CHAIN,
    "LLM": SpanKind.LLM,
    "CHAT_MODEL": SpanKind.LLM,
    "RETRIEVER": SpanKind.RETRIEVER,
    "RERANKER": SpanKind.RERANKER,
    "TOOL": SpanKind.TOOL,
}
SWITCH = "trace with mlflow.<library>.autolog(), or call span.set_inputs and span.set_outputs in a span of your own"


def parse_trace_column(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the trace in a row of ``mlflow.search_traces``; an empty object where there is none."""
    trace = parse_json_text(record.get(TRACE))
    return trace if isinstance(trace, Mapping) and {"info", "data"} <= trace.keys() else {}


def read_record(record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield the spans of a trace, under the id by which MLflow's client finds it."""
    if TRACE in record:
        record = parse_trace_column(record)
        if not record:
            raise RecordError(f"{TRACE}: should be the JSON of a trace")
    info, data = require_mapping(record.get("info"), "info"), require_mapping(record.get("data"), "data")
    trace_id = as_text(first_attribute(info, TRACE_IDS))
    spans = data.get("spans")
    if trace_id is None:
        raise RecordError("info.trace_id: is missing")
    if not isinstance(spans, list) or not all(isinstance(span, Mapping) for span in spans):
        raise RecordError("data.spans: should be a list of objects")
    for item in spans:
        # Version 2 traces have ids such as tr-... within their spans, which OpenTelemetry does not allow.
        context = {**require_mapping(item.get("context"), "context"), "trace_id": None}
        span = read_span_or_error({**item, "trace_id": _ANY_TRACE, "traceId": None, "context": context})
        yield DamagedSpanError(span.problem, trace_id) if isinstance(span, RecordError) else _decode(span, trace_id)


_ANY_TRACE = "1" * 32


def _decode(span: Span, trace_id: str) -> Span:
    # MLflow stores every attribute as JSON text, a plain text with its quotes.
    attributes = {name: _unquote(value) for name, value in span.attributes.items()}
    return replace(span, trace_id=trace_id, attributes=attributes)


def _unquote(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 1 and value.startswith('"') and value.endswith('"'):
        parsed = parse_json_text(f"[{value}]")
        return parsed[0] if isinstance(parsed, list) else value
    return parse_json_text(value)


def read_content(span: Span) -> SpanContent:
    """Return the content of a span by MLflow's attributes."""
    attributes = {name: _unquote(span.attributes.get(name)) for name in (KIND, INPUTS, OUTPUTS, *MODEL)}
    kind = KINDS.get(str(attributes[KIND]).upper(), SpanKind.OTHER)
    outputs = attributes[OUTPUTS]
    has_documents = kind in (SpanKind.RETRIEVER, SpanKind.RERANKER) and isinstance(outputs, list)
    return SpanContent(
        kind,
        input=attributes[INPUTS],
        output=outputs,
        documents=outputs if has_documents else None,
        model=as_text(first_attribute(attributes, MODEL)) or _model_of(attributes[INPUTS]),
    )


def _model_of(inputs: Any) -> str | None:
    return as_text(inputs.get("model")) if isinstance(inputs, Mapping) else None
