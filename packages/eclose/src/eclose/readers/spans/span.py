"""Spans, the common form into which every dialect of traces is read."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eclose.errors import RecordError


class SpanKind(StrEnum):
    """Kind of operation of a span, as far as the assembly of cases needs it."""

    AGENT = "agent"
    CHAIN = "chain"
    LLM = "llm"
    RETRIEVER = "retriever"
    RERANKER = "reranker"
    TOOL = "tool"
    OTHER = "other"
    """Embeddings, guardrails, evaluators and web requests, which are not part of a response."""


class SpanStatus(StrEnum):
    """Status with which a span ended."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span, such as a message of an older instrumentation."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of a trace, with the attributes as its dialect names them."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str = ""
    """Kind as the file names it, such as ``RETRIEVER``; empty where the dialect stores it in the attributes."""
    start: str = ""
    """Sort key within the trace: nanoseconds with leading zeros, an ISO date, or the store's own order."""
    end: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    status: SpanStatus = SpanStatus.UNSET

    def to_json(self) -> str:
        """Return the span as one line of JSON: a list of its fields, which is twice as fast as an object."""
        events = [[event.name, event.attributes] for event in self.events]
        head = [self.trace_id, self.span_id, self.parent_id, self.name, self.kind, self.start, self.end]
        # Parquet tables hold dates and decimals, which are kept as texts. Half of a surrogate pair stays an escape.
        return json.dumps([*head, self.attributes, events, self.status], default=str)

    @classmethod
    def from_json(cls, line: str) -> Span:
        """Return the span of a line that ``to_json`` wrote."""
        values: list[Any] = json.loads(line)
        events = tuple(SpanEvent(*event) for event in values[-2])
        trace_id, span_id, parent_id, name, kind, start, end, attributes = values[:-2]
        return cls(trace_id, span_id, parent_id, name, kind, start, end, attributes, events, SpanStatus(values[-1]))


@dataclass(frozen=True, slots=True)
class SpanContent:
    """Input, output and documents of a span, in the shape that its producer chose."""

    kind: SpanKind
    input: Any = None
    """Text, list of messages, or any JSON value."""
    output: Any = None
    documents: list[Any] | None = None
    """Documents of a retriever or reranker; None where none were recorded."""
    model: str | None = None

    @property
    def captured(self) -> bool:
        """Whether the span has an input, an output or documents."""
        return any(value not in (None, "", [], {}) for value in (self.input, self.output, self.documents))


def first_attribute(attributes: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the value of the first attribute that is present and not empty."""
    return next((attributes[name] for name in names if attributes.get(name) not in (None, "", [], {})), None)


def as_text(value: Any) -> str | None:
    """Return a non-blank text, or None for any other value."""
    return value if isinstance(value, str) and value.strip() else None


def read_id(value: Any, name: str, *, size: int) -> str:
    """Return an id of ``size`` bytes in hexadecimal, from hexadecimal with or without 0x, or from base64.

    Raises:
        RecordError: The id is missing, is not a text, or is zero throughout, which OpenTelemetry forbids.
    """
    if not isinstance(value, str) or not value:
        raise RecordError(f"{name}: is missing or not a text")
    text = value.removeprefix("0x")
    # Base64 writes three bytes in four characters.
    if len(text) == -(-size // 3) * 4 and len(text) != 2 * size:
        try:
            text = base64.b64decode(text, validate=True).hex()
        except (binascii.Error, ValueError) as error:
            raise RecordError(f"{name}: {value!r} is neither hexadecimal nor base64") from error
    if not text.strip("0"):
        raise RecordError(f"{name}: is all zeros, which marks an invalid id")
    return text.lower()


def read_parent_id(value: Any, *, size: int) -> str | None:
    """Return the id of the parent; None for a root, which some producers write as an empty or zero id."""
    if value in (None, "") or (isinstance(value, str) and not value.removeprefix("0x").strip("0")):
        return None
    return read_id(value, "parent id", size=size)


def read_sort_key(value: Any) -> str:
    """Return a time as a text that sorts: nanoseconds with leading zeros, other notations unchanged."""
    if isinstance(value, bool) or value is None:
        return ""
    text = str(value)
    return text.zfill(20) if text.isdigit() else text


def require_mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return a JSON object of a record, or an empty one for None; raise RecordError for any other value."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RecordError(f"{name}: should be an object")
    return value


def collect_indexed(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the items of a list that is spread over attributes, such as ``prefix.0.document.content``.

    The keys of each item keep their dots. A list under the prefix itself is returned as it is.

    >>> collect_indexed({"docs.1.text": "b", "docs.0.text": "a"}, "docs")
    [{'text': 'a'}, {'text': 'b'}]
    """
    whole = attributes.get(prefix)
    if isinstance(whole, list):
        return [dict(item) for item in whole if isinstance(item, Mapping)]
    items: dict[int, dict[str, Any]] = {}
    start = f"{prefix}."
    for name, value in attributes.items():
        if name.startswith(start):
            index, _, rest = name[len(start) :].partition(".")
            if index.isascii() and index.isdigit():
                items.setdefault(int(index), {})[rest] = value
    return [items[index] for index in sorted(items)]
