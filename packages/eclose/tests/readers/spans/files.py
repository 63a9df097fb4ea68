"""Traces for tests: the files of real producers, and OTLP made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"
QUESTION = "In which city was the architect of the Alma bridge born?"
DOCUMENT = "The Alma bridge was designed by Ada Rowe, who was born in Lund."
ANSWER = "1. Ada Rowe designed the bridge.\nFinal answer: Lund"


def encode_value(value: Any) -> dict[str, Any]:
    """Return an OTLP AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [encode_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": encode_attributes(value)}}
    return {"stringValue": value}


def encode_attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return OTLP's list of keys and values."""
    return [{"key": key, "value": encode_value(value)} for key, value in attributes.items()]


def make_span(trace: int, span: int, parent: int | None, name: str, **attributes: Any) -> dict[str, Any]:
    """Return a span of OTLP JSON; underscores in the names of attributes stand for dots."""
    record: dict[str, Any] = {
        "traceId": f"{trace:032x}",
        "spanId": f"{span:016x}",
        "name": name,
        "startTimeUnixNano": str(1_794_910_000_000_000_000 + span),
        "attributes": encode_attributes({key.replace("__", "."): value for key, value in attributes.items()}),
    }
    return record if parent is None else {**record, "parentSpanId": f"{parent:016x}"}


def make_trace(trace: int = 1, **root: Any) -> list[dict[str, Any]]:
    """Return a root, a retriever and a model's call by OpenInference, children before parents as exporters write."""
    kind = "openinference__span__kind"
    content = {"input__value": QUESTION, "output__value": ANSWER, **root}
    return [
        make_span(trace, 2, 1, "search", **{kind: "RETRIEVER", "retrieval__documents__0__document__content": DOCUMENT}),
        make_span(trace, 3, 1, "chat", **{kind: "LLM", "llm__model_name": "m-1", "output__value": ANSWER}),
        make_span(trace, 1, None, "qa", **{kind: "CHAIN"}, **content),
    ]


def wrap_spans(*spans: dict[str, Any]) -> dict[str, Any]:
    """Return a line of OTLP JSON."""
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def write_lines(path: Path, *records: Any) -> Path:
    """Write records as JSON Lines; texts are written as they are."""
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
