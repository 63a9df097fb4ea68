"""Scores as OTLP JSON: an event for each score, and an evaluator span for each response.

``gen_ai.evaluation.result`` events (OpenTelemetry GenAI) are log records parented to the judged span. Evaluator spans
(OpenInference) are traces of their own with a link to it.
"""

from __future__ import annotations

import json
import re
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.integrations.export.scores import (
    UNJUDGED_LABEL,
    Delivery,
    DeliveryStatus,
    ScoredResponse,
    ScoreName,
    VerdictScore,
    VerdictScoreTable,
    derive_hex_id,
)
from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EVENT_NAME = "gen_ai.evaluation.result"
SPAN_NAME = "eclose judge"
_BATCH = 100
"""Responses of one request, or of one line of a file."""
_HEX = re.compile(r"[0-9a-f]+")
_INFO, _ERROR = 9, 17
"""Severity numbers of OpenTelemetry."""
_INTERNAL = 1
_STATUS_ERROR = 2


def is_url(target: str) -> bool:
    """Return whether a target is an address rather than a file."""
    return target.lower().startswith(("http://", "https://"))


def export_otlp(table: VerdictScoreTable, target: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    """Write the scores to a file of OTLP JSON Lines, or send them to an OTLP/HTTP endpoint."""
    if is_url(target):
        yield from _send(table, target, environ)
        return
    with AtomicFile(Path(target)) as file:
        for rows in table.batch_rows(_BATCH):
            for request in (build_log_request(table, rows), build_span_request(table, rows)):
                file.write(json.dumps(request, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            yield from (Delivery(row.response_id, len(row.scores)) for row in rows)


def _send(table: VerdictScoreTable, url: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    from eclose.integrations.export.http_client import StoreClient, StoreRefusal  # noqa: PLC0415 - an extra

    # The variable of every OpenTelemetry exporter: key=value, separated by commas.
    headers = _parse_headers(environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
    with ExitStack() as stack:
        client = stack.enter_context(StoreClient(url, headers, secret=max(headers.values(), key=len, default="")))
        for rows in table.batch_rows(_BATCH):
            try:
                logs = client.post("/v1/logs", build_log_request(table, rows))
                spans = client.post("/v1/traces", build_span_request(table, rows))
            except StoreRefusal as refusal:
                yield from (
                    Delivery(row.response_id, len(row.scores), DeliveryStatus.REFUSED, str(refusal)) for row in rows
                )
                continue
            yield from _count_accepted(rows, logs, spans)


def _count_accepted(
    rows: Sequence[ScoredResponse], logs: Mapping[str, Any], spans: Mapping[str, Any]
) -> Iterator[Delivery]:
    """Yield the deliveries of a batch that a server took in full or in part."""
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
    partial = reply.get("partialSuccess")
    if not isinstance(partial, dict):
        return 0, ""
    try:
        return int(partial.get(name) or 0), str(partial.get("errorMessage") or "no reason given")
    except (TypeError, ValueError):
        return 0, ""


def _parse_headers(text: str) -> dict[str, str]:
    headers = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError("OTEL_EXPORTER_OTLP_HEADERS: write name=value pairs, separated by commas.")
        headers[name.strip()] = value.strip()
    return headers


def build_log_request(table: VerdictScoreTable, rows: Sequence[ScoredResponse]) -> dict[str, Any]:
    """Return an export request with an event for each score of some responses."""
    records = [_build_event(table, row, score) for row in rows for score in row.scores]
    return {"resourceLogs": [{**_resource(table), "scopeLogs": [{**_scope(table), "logRecords": records}]}]}


def build_span_request(table: VerdictScoreTable, rows: Sequence[ScoredResponse]) -> dict[str, Any]:
    """Return an export request with an evaluator span for each of some responses."""
    spans = [_build_span(table, row) for row in rows]
    return {"resourceSpans": [{**_resource(table), "scopeSpans": [{**_scope(table), "spans": spans}]}]}


def _resource(table: VerdictScoreTable) -> dict[str, Any]:
    return {"resource": {"attributes": _encode({"service.name": "eclose", "service.version": table.version})}}


def _scope(table: VerdictScoreTable) -> dict[str, Any]:
    return {"scope": {"name": "eclose", "version": table.version}}


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
