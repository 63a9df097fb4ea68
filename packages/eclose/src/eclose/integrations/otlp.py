"""Scores as OTLP JSON: an event for each score, and an evaluator span for each response.

``gen_ai.evaluation.result`` events (OpenTelemetry GenAI) are log records parented to the judged span. Evaluator spans
(OpenInference) are traces of their own with a link to it.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from eclose.calls.http.failures import excerpt_server_text
from eclose.errors import RecordError, SettingError
from eclose.files.atomic import AtomicFile
from eclose.integrations.scores import (
    UNJUDGED_LABEL,
    Delivery,
    DeliveryStatus,
    ScoredResponse,
    ScoreName,
    VerdictScore,
    VerdictScoreTable,
    derive_hex_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EVENT_NAME = "gen_ai.evaluation.result"
SPAN_NAME = "eclose judge"
_BATCH = 100
"""Responses of one line of a file."""
_HEX = re.compile(r"[0-9a-f]+")
_INFO, _ERROR = 9, 17
"""Severity numbers of OpenTelemetry."""
_INTERNAL = 1
_STATUS_ERROR = 2


def export_otlp_file(table: VerdictScoreTable, target: str) -> Iterator[Delivery]:
    """Write the scores to a file of OTLP JSON Lines."""
    with AtomicFile(Path(target)) as file:
        for rows in table.batch_rows(_BATCH):
            for request in (build_log_request(table, rows), build_span_request(table, rows)):
                file.write(json.dumps(request, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            yield from (Delivery(row.response_id, len(row.scores)) for row in rows)


def count_accepted(
    rows: Sequence[ScoredResponse], logs: Mapping[str, Any], spans: Mapping[str, Any]
) -> Iterator[Delivery]:
    """Yield the deliveries of a batch that a server took in full or in part.

    Raises:
        RecordError: The reply does not say how many records were rejected.
    """
    rejected, problem = _read_partial_success(logs, "rejectedLogRecords")
    rejected_spans, span_problem = _read_partial_success(spans, "rejectedSpans")
    for row in rows:
        # The server does not say which records it rejected, so the first of the batch stand for them.
        refused = min(rejected, len(row.scores))
        rejected -= refused
        if refused:
            yield Delivery(row.response_id, refused, DeliveryStatus.REFUSED, f"rejected by the server: {problem}")
        if refused < len(row.scores):
            yield Delivery(row.response_id, len(row.scores) - refused)
    if rejected_spans:
        reason = f"{rejected_spans} evaluator spans rejected by the server: {span_problem}"
        yield Delivery(rows[0].response_id, 0, DeliveryStatus.REFUSED, reason)


def _read_partial_success(reply: Mapping[str, Any], name: str) -> tuple[int, str]:
    partial = reply.get("partialSuccess") or {}
    # 64-bit integers are texts in the JSON of protocol buffers; some servers write numbers.
    count = str(partial.get(name) or 0) if isinstance(partial, dict) else ""
    if not re.fullmatch(r"[0-9]{1,18}", count, re.ASCII):
        raise RecordError(f"the reply does not say how many records were rejected (partialSuccess.{name})")
    return int(count), excerpt_server_text(str(partial.get("errorMessage") or "no reason given"))


def parse_otlp_headers(text: str) -> dict[str, str]:
    """Return the headers in the variable of every OpenTelemetry exporter: name=value, separated by commas."""
    headers = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, equals, value = pair.partition("=")
        # Values are percent-encoded, as in the header Baggage.
        value = unquote(value.strip())
        if not equals or not re.fullmatch(r"[!#$%&'*+.^`|~\w-]+", name.strip(), re.ASCII) or not value.isprintable():
            raise SettingError(
                "OTEL_EXPORTER_OTLP_HEADERS: write name=value pairs, separated by commas and percent-encoded."
            )
        headers[name.strip().lower()] = value
    return headers


def build_log_request(table: VerdictScoreTable, rows: Sequence[ScoredResponse]) -> dict[str, Any]:
    """Return an export request with an event for each score of some responses."""
    records = [_build_event(table, row, score) for row in rows for score in row.scores]
    return _wrap(table, "resourceLogs", "scopeLogs", "logRecords", records)


def build_span_request(table: VerdictScoreTable, rows: Sequence[ScoredResponse]) -> dict[str, Any]:
    """Return an export request with an evaluator span for each of some responses."""
    spans = [_build_span(table, row) for row in rows]
    return _wrap(table, "resourceSpans", "scopeSpans", "spans", spans)


def _wrap(table: VerdictScoreTable, resources: str, scopes: str, name: str, entries: list[Any]) -> dict[str, Any]:
    resource = {"attributes": _encode({"service.name": "eclose", "service.version": table.version})}
    scope = {"scope": {"name": "eclose", "version": table.version}, name: entries}
    return {resources: [{"resource": resource, scopes: [scope]}]}


def _build_event(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    attributes = {
        "gen_ai.evaluation.name": str(score.name),
        "gen_ai.evaluation.score.value": None if score.number is None else float(score.number),
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": score.explanation or score.unjudged,
        "error.type": None if score.unjudged is None else UNJUDGED_LABEL,
        # Records with the same uid are duplicates by the conventions, so a second export changes nothing.
        "log.record.uid": score.id,
        **table.describe(row, score),
    }
    trace_id, span_id = to_otlp_ids(row)
    return {
        "timeUnixNano": str(table.judged_at),
        "observedTimeUnixNano": str(table.judged_at),
        "severityNumber": _INFO if score.unjudged is None else _ERROR,
        "eventName": EVENT_NAME,
        "attributes": _encode(attributes),
        "traceId": trace_id,
        "spanId": span_id,
    }


def _build_span(table: VerdictScoreTable, row: ScoredResponse) -> dict[str, Any]:
    attributes: dict[str, Any] = {"openinference.span.kind": "EVALUATOR", "gen_ai.request.model": row.judge}
    for number, score in enumerate(row.scores):
        values = {
            "name": str(score.name),
            "score": score.number,
            "label": score.label or UNJUDGED_LABEL,
            "explanation": score.explanation or score.unjudged,
            "annotator_kind": "LLM",
            "identifier": score.id,
            "metadata": json.dumps(table.describe(row, score), ensure_ascii=False),
        }
        attributes |= {f"trace.evaluations.{number}.evaluation.{name}": value for name, value in values.items()}
    trace_id, span_id = to_otlp_ids(row)
    key = f"{table.run_id} {row.response_id}"
    whole = next(score for score in row.scores if score.name is ScoreName.RELIABILITY)
    status = {} if whole.unjudged is None else {"code": _STATUS_ERROR, "message": f"unjudged: {whole.unjudged}"}
    return {
        # A trace of its own, so that the judged trace keeps its duration and its cost.
        "traceId": derive_hex_id(f"evaluator trace {key}", 32),
        "spanId": derive_hex_id(f"evaluator span {key}", 16),
        "name": SPAN_NAME,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(table.judged_at),
        "endTimeUnixNano": str(table.judged_at),
        "attributes": _encode(attributes),
        "links": [{"traceId": trace_id, "spanId": span_id}],
        "status": status,
    }


def to_otlp_ids(row: ScoredResponse) -> tuple[str, str]:
    """Return trace and span id of the judged span as 32 and 16 hexadecimal digits.

    UUIDs and the ids of MLflow hold the digits already. Ids in another notation are hashed.
    """
    return _to_hex(row.trace_id, 32), _to_hex(row.span_id or f"{row.trace_id} root", 16)


def _to_hex(text: str, length: int) -> str:
    digits = text.lower().removeprefix("tr-").removeprefix("0x")
    if len(digits) != length or not _HEX.fullmatch(digits):
        try:
            digits = uuid.UUID(text).hex
        except ValueError:
            digits = ""
    # An id of zeros is invalid in OpenTelemetry.
    return digits if len(digits) == length and digits.strip("0") else derive_hex_id(text, length)


def _encode(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as OTLP JSON; those without a value are left out."""
    return [{"key": name, "value": _encode_value(value)} for name, value in attributes.items() if value is not None]


def _encode_value(value: str | float) -> dict[str, Any]:
    if isinstance(value, int):
        # 64-bit integers are texts in the JSON of protocol buffers.
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
