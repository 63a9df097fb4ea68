"""Langfuse: rows of the export of observations, and the JSON of one trace with its observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eclose.errors import RecordError
from eclose.readers.spans.content import find_document_list
from eclose.readers.spans.otlp import DamagedSpanError
from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import Span, SpanContent, SpanKind, SpanStatus, as_text, first_attribute, read_sort_key

# Exports to storage write names with underscores, the interface and the API write them in camel case.
TRACE = ("trace_id", "traceId")
PARENT = ("parent_observation_id", "parentObservationId")
START = ("start_time", "startTime")
END = ("end_time", "endTime")
MODEL = ("provided_model_name", "providedModelName", "model", "model_id")
FILE_NAMES = ("path", "key", "file", "name")
KINDS = {
    "AGENT": SpanKind.AGENT,
    "CHAIN": SpanKind.CHAIN,
    "SPAN": SpanKind.CHAIN,
    "GENERATION": SpanKind.LLM,
    "RETRIEVER": SpanKind.RETRIEVER,
    "TOOL": SpanKind.TOOL,
}
SWITCH = "export the field group io, and do not mask or drop input and output in the traced program"


def list_manifest(record: Mapping[str, Any]) -> list[str]:
    """Return the files of observations that the manifest of an export lists; empty where the record is no manifest."""
    files = record.get("files")
    if not isinstance(files, list):
        return []
    names = (first_attribute(file, FILE_NAMES) if isinstance(file, Mapping) else file for file in files)
    return [name for name in names if isinstance(name, str) and "observations" in name]


def read_record(record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield the observation of a row, or a trace with its observations as spans."""
    observations = record.get("observations")
    if not isinstance(observations, list):
        yield _read_observation(record, None)
        return
    trace_id = as_text(record.get("id"))
    if trace_id is None:
        raise RecordError("id: the trace has none")
    if not all(isinstance(observation, Mapping) for observation in observations):
        raise RecordError("observations: should be a list of objects")
    # The trace has input and output of its own, so it is the root above its observations.
    root = Span(trace_id, trace_id, None, str(record.get("name") or ""), "SPAN", attributes=dict(record))
    # As its end: spans are sorted by their starts where all have one.
    yield replace(root, end=read_sort_key(record.get("timestamp")))
    for observation in observations:
        yield _read_observation(observation, trace_id)


def _read_observation(record: Mapping[str, Any], root: str | None) -> Span | RecordError:
    trace_id = as_text(first_attribute(record, TRACE)) or root
    span_id = as_text(record.get("id"))
    if trace_id is None:
        return RecordError("trace_id: is missing or not a text")
    if span_id is None:
        return DamagedSpanError("id: is missing or not a text", trace_id)
    parent = first_attribute(record, PARENT)
    if parent is not None and not isinstance(parent, str):
        return DamagedSpanError("parent_observation_id: should be a text", trace_id)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent or root,
        name=str(record.get("name") or ""),
        kind=str(record.get("type") or ""),
        start=read_sort_key(first_attribute(record, START)),
        end=read_sort_key(first_attribute(record, END)),
        attributes={name: value for name, value in record.items() if value is not None},
        status=SpanStatus.ERROR if record.get("level") == "ERROR" else SpanStatus.UNSET,
    )


def read_content(span: Span) -> SpanContent:
    """Return the content of an observation; input and output are texts or JSON."""
    kind = KINDS.get(span.kind.upper(), SpanKind.OTHER)
    output = parse_json_text(span.attributes.get("output"))
    return SpanContent(
        kind,
        input=parse_json_text(span.attributes.get("input")),
        output=output,
        documents=find_document_list(output) if kind is SpanKind.RETRIEVER else None,
        model=as_text(first_attribute(span.attributes, MODEL)),
    )
