"""LangSmith: runs as ``list_runs`` returns them and as the bulk export writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.spans.content import find_document_list
from eclose.readers.spans.otlp import DamagedSpanError
from eclose.readers.spans.selection import parse_json_text, resolve_pointer
from eclose.readers.spans.span import Span, SpanContent, SpanKind, SpanStatus, as_text, first_attribute, read_sort_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ORDER = "dotted_order"
KINDS = {
    "chain": SpanKind.CHAIN,
    "llm": SpanKind.LLM,
    "prompt": SpanKind.OTHER,
    "retriever": SpanKind.RETRIEVER,
    "tool": SpanKind.TOOL,
}
MODEL = (
    "/extra/metadata/ls_model_name",
    "/extra/invocation_params/model",
    "/extra/invocation_params/model_name",
)
SWITCH = "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS in the traced program, and export inputs and outputs"


def read_record(record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield the run of a record."""
    trace_id, span_id = _text(record.get("trace_id")), _text(record.get("id"))
    order = as_text(record.get(ORDER))
    if trace_id is None:
        # A root run of older exports has no trace_id; its own id is that of the trace.
        trace_id = span_id if record.get("parent_run_id") is None and order is None else None
    if trace_id is None:
        yield RecordError("trace_id: is missing or not a text")
    elif span_id is None:
        yield DamagedSpanError("id: is missing or not a text", trace_id)
    else:
        yield Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_id=_text(record.get("parent_run_id")),
            name=str(record.get("name") or ""),
            kind=str(record.get("run_type") or ""),
            start=order or read_sort_key(record.get("start_time")),
            end=read_sort_key(record.get("end_time")),
            attributes={name: value for name, value in record.items() if value is not None},
            status=SpanStatus.ERROR if record.get("error") else SpanStatus.UNSET,
        )


def _text(value: Any) -> str | None:
    # The SDK's runs have UUID objects, which a table keeps and JSON writes as texts.
    return str(value) if value not in (None, "") and not isinstance(value, dict | list | bool | float) else None


def read_content(span: Span) -> SpanContent:
    """Return the content of a run."""
    kind = KINDS.get(span.kind.lower(), SpanKind.OTHER)
    outputs = parse_json_text(span.attributes.get("outputs"))
    models = {pointer: resolve_pointer(dict(span.attributes), pointer) for pointer in MODEL}
    return SpanContent(
        kind,
        input=parse_json_text(span.attributes.get("inputs")),
        output=outputs,
        documents=find_document_list(outputs) if kind is SpanKind.RETRIEVER else None,
        model=as_text(first_attribute(models, MODEL)),
    )
