"""Spans of OpenTelemetry files: OTLP as JSON Lines or protobuf-JSON, the SDK's own JSON, and rows of span tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eclose.errors import RecordError
from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import (
    Span,
    SpanEvent,
    SpanStatus,
    read_id,
    read_parent_id,
    read_sort_key,
    require_mapping,
)

TRACE_BYTES = 16
SPAN_BYTES = 8
# Grafana Tempo calls the list "batches"; the protobuf names are accepted with underscores by every JSON parser of it.
RESOURCE_KEYS = ("resourceSpans", "resource_spans", "batches")
_SCOPE_KEYS = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_STATUS = {
    "1": SpanStatus.OK,
    "2": SpanStatus.ERROR,
    "OK": SpanStatus.OK,
    "ERROR": SpanStatus.ERROR,
    "STATUS_CODE_OK": SpanStatus.OK,
    "STATUS_CODE_ERROR": SpanStatus.ERROR,
}
# Nesting of AnyValue beyond which no producer goes.
_MAX_DEPTH = 64


def read_otlp_record(record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield the spans of a record; a damaged span is an error in its place, with its trace where that is readable."""
    key = next((key for key in RESOURCE_KEYS if key in record), None)
    if key is None:
        yield read_span_or_error(record)
        return
    for resource in _list(record[key], key):
        scope_key = next((name for name in _SCOPE_KEYS if name in resource), _SCOPE_KEYS[0])
        for scope in _list(resource.get(scope_key), scope_key):
            for span in _list(scope.get("spans"), "spans"):
                yield read_span_or_error(span)


def _list(value: Any, name: str) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise RecordError(f"{name}: should be a list of objects")
    return value


class DamagedSpanError(RecordError):
    """A span that cannot be read, though its trace is known."""

    def __init__(self, problem: str, trace_id: str) -> None:
        super().__init__(problem)
        self.trace_id = trace_id


def read_span_or_error(record: Mapping[str, Any]) -> Span | RecordError:
    """Return a span of any OpenTelemetry notation, or the error that took its place."""
    trace_id: str | None = None
    try:
        ids = _Ids(record)
        trace_id = read_id(ids.trace, "trace id", size=TRACE_BYTES)
        return _read_span(record, ids, trace_id)
    except RecordError as error:
        return error if trace_id is None else DamagedSpanError(error.problem, trace_id)


class _Ids:
    """The ids of a span: beside the name (OTLP), under ``context`` (SDK), or in columns (tables of spans)."""

    __slots__ = ("parent", "span", "trace")

    def __init__(self, record: Mapping[str, Any]) -> None:
        context = record.get("context")
        context = context if isinstance(context, Mapping) else {}
        self.trace = _first(record, "traceId", "trace_id", "context.trace_id") or context.get("trace_id")
        self.span = _first(record, "spanId", "span_id", "context.span_id") or context.get("span_id")
        self.parent = _first(record, "parentSpanId", "parent_span_id", "parent_id", "parentId")


def _read_span(record: Mapping[str, Any], ids: _Ids, trace_id: str) -> Span:
    status = record.get("status")
    code = _first(status, "code", "status_code") if isinstance(status, Mapping) else record.get("status_code", status)
    events = record.get("events")
    return Span(
        trace_id=trace_id,
        span_id=read_id(ids.span, "span id", size=SPAN_BYTES),
        parent_id=read_parent_id(ids.parent, size=SPAN_BYTES),
        name=str(record.get("name") or ""),
        kind=str(record.get("span_kind") or ""),
        start=read_sort_key(_first(record, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")),
        end=read_sort_key(_first(record, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")),
        attributes=_read_attributes(record),
        events=tuple(_read_event(event) for event in _list(parse_json_text(events), "events")),
        status=_STATUS.get(str(code), SpanStatus.UNSET),
    )


def _first(record: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if (value := record.get(name)) is not None:
            return value
    return None


def _read_attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes, from OTLP's list of keys and values, an object, or columns called ``attributes.NAME``."""
    attributes = parse_json_text(record.get("attributes"))
    columns = {
        name.removeprefix("attributes."): value
        for name, value in record.items()
        if name.startswith("attributes.") and value is not None
    }
    if isinstance(attributes, list):
        return {**_decode_pairs(attributes, 0), **columns}
    return {**require_mapping(attributes, "attributes"), **columns}


def _read_event(event: Mapping[str, Any]) -> SpanEvent:
    return SpanEvent(str(event.get("name") or ""), _read_attributes(event))


def _decode_pairs(pairs: list[Any], depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        if not isinstance(pair, Mapping) or not isinstance(pair.get("key"), str):
            raise RecordError("attributes: should be a list of {key, value}")
        values[pair["key"]] = _decode_value(pair.get("value"), depth)
    return values


def _decode_value(value: Any, depth: int) -> Any:
    """Return an OTLP AnyValue as JSON; 64-bit integers are texts there."""
    if depth > _MAX_DEPTH:
        raise RecordError("attributes: are nested too deeply")
    if not isinstance(value, Mapping):
        raise RecordError("attributes: a value should be an object such as {stringValue: ...}")
    for name, item in value.items():
        kind = name.replace("_v", "V")
        if kind in ("arrayValue", "kvlistValue"):
            items = require_mapping(item, kind).get("values") or []
            if not isinstance(items, list):
                raise RecordError(f"attributes: {kind}.values should be a list")
            if kind == "kvlistValue":
                return _decode_pairs(items, depth + 1)
            return [_decode_value(part, depth + 1) for part in items]
        if kind == "intValue":
            try:
                return int(item)
            except (TypeError, ValueError) as error:
                raise RecordError("attributes: an intValue is not a whole number") from error
        return item
    return None
