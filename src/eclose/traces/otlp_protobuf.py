"""OTLP requests in protobuf, as OTLP JSON."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eclose.errors import RecordError, UserError


def decode_trace_request(body: bytes) -> dict[str, Any]:
    """Return a protobuf request as OTLP JSON, with ids in hexadecimal.

    Raises:
        RecordError: The bytes are not a request with traces.
        UserError: The package that knows the messages is not installed.
    """
    try:
        json_format, errors = import_module("google.protobuf.json_format"), import_module("google.protobuf.message")
        service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    except ImportError as missing:
        raise UserError(
            "protobuf needs opentelemetry-proto at the collector. Run: pip install 'eclose[otel]'; or let the program "
            "send JSON with OTEL_EXPORTER_OTLP_PROTOCOL=http/json."
        ) from missing
    try:
        message = service.ExportTraceServiceRequest.FromString(body)
    except errors.DecodeError as error:
        raise RecordError("the request is not protobuf of OTLP traces.") from error
    record: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=True)
    # MessageToDict writes bytes in base64, as protobuf's JSON does; OTLP's JSON has hexadecimal ids instead.
    for resource, resource_json in zip(message.resource_spans, record.get("resourceSpans", ()), strict=True):
        for scope, scope_json in zip(resource.scope_spans, resource_json.get("scopeSpans", ()), strict=True):
            for span, span_json in zip(scope.spans, scope_json.get("spans", ()), strict=True):
                _write_hexadecimal(span, span_json)
    return record


def _write_hexadecimal(span: Any, span_json: dict[str, Any]) -> None:
    for name, value in (("traceId", span.trace_id), ("spanId", span.span_id), ("parentSpanId", span.parent_span_id)):
        if value:
            span_json[name] = value.hex()
    for link, link_json in zip(span.links, span_json.get("links", ()), strict=True):
        link_json |= {"traceId": link.trace_id.hex(), "spanId": link.span_id.hex()}


def encode_status(code: int, message: str) -> bytes:
    """Return a ``google.rpc.Status``: field 1 is the code, field 2 the message."""
    text = message.encode()
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """Return a number in base 128, lowest digits first; the high bit says that more follow."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))
