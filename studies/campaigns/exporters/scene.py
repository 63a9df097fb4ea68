"""What every agent is given: a question, a search tool, the address of its model, and a folder for its exports."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

SCENE = json.loads(Path(os.environ["SCENE"]).read_text("utf-8"))
QUESTION: str = SCENE["question"]
OUT = Path(os.environ["EXPORTS"])
MODEL = "gpt-4o-mini"
KEY = "none"


def find_model(style: str = "tools", name: str = "") -> str:
    """Return the address of a model that has not answered yet; ``style`` says how it calls its tools."""
    return f"{os.environ['MODELS']}/{style}/{name or style}-{os.getpid()}/v1"


def search(query: str) -> list[dict[str, str]]:
    """Search the library for passages."""
    return next((found for words, found in SCENE["results"].items() if words in query), [])


def search_text(query: str) -> str:
    """Search the library for passages."""
    return json.dumps(search(query))


def write_record(name: str, record: Any) -> None:
    """Write a record as one line of JSON."""
    (OUT / f"{name}.jsonl").write_text(json.dumps(record, default=str) + "\n", "utf-8")


def open_spans(name: str) -> TracerProvider:
    """Return a tracer provider that writes its spans as JSON Lines."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(str(OUT / f"{name}.jsonl"))))
    trace.set_tracer_provider(provider)
    return provider
