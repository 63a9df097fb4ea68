"""Dialects of traces, and their detection by keys."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.readers.spans import langfuse, langsmith, mlflow, otlp

if TYPE_CHECKING:
    from collections.abc import Mapping


class TraceDialect(StrEnum):
    """A notation of traces."""

    OTLP = "otlp"
    """OpenTelemetry, with the conventions for generative AI or those of OpenInference."""
    MLFLOW = "mlflow"
    LANGFUSE = "langfuse"
    LANGSMITH = "langsmith"
    ATIF = "atif"


def detect_trace_dialect(record: Mapping[str, Any]) -> TraceDialect | None:
    """Return the dialect of a record by its keys; None where it is not of a trace."""
    context, data, version = record.get("context"), record.get("data"), record.get("schema_version")
    ids = (("traceId", "spanId"), ("trace_id", "span_id"), ("context.trace_id", "context.span_id"))
    in_context = isinstance(context, dict) and {"trace_id", "span_id"} <= context.keys()
    is_langfuse_row = any(key in record for key in langfuse.PARENT) and any(key in record for key in langfuse.TRACE)
    signs = (
        (TraceDialect.OTLP, in_context or any(key in record for key in otlp.RESOURCE_KEYS)),
        (TraceDialect.OTLP, any(trace in record and span in record for trace, span in ids)),
        (TraceDialect.MLFLOW, isinstance(record.get("info"), dict) and isinstance(data, dict) and "spans" in data),
        (TraceDialect.MLFLOW, bool(mlflow.parse_trace_column(record))),
        (TraceDialect.LANGSMITH, "run_type" in record and bool({"trace_id", "parent_run_id"} & record.keys())),
        (TraceDialect.LANGSMITH, langsmith.ORDER in record),
        (TraceDialect.LANGFUSE, is_langfuse_row),
        (TraceDialect.LANGFUSE, isinstance(record.get("observations"), list) and "id" in record),
        (TraceDialect.LANGFUSE, bool(langfuse.list_manifest(record))),
        (TraceDialect.ATIF, isinstance(version, str) and version.startswith("ATIF")),
    )
    return next((dialect for dialect, holds in signs if holds), None)
