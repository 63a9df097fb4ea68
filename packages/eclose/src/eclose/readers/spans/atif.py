"""ATIF, the trajectory format of Harbor and NeMo: one record is one trajectory with its steps in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.spans.span import (
    Span,
    SpanContent,
    SpanKind,
    as_text,
    first_attribute,
    read_sort_key,
    require_mapping,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACE = ("trajectory_id", "session_id")
KINDS = {"agent": SpanKind.AGENT, "llm": SpanKind.LLM, "tool": SpanKind.TOOL}
SWITCH = "let the agent write the message of every step"


def read_record(record: Mapping[str, Any]) -> Iterator[Span | RecordError]:
    """Yield a trajectory as a root span, one span for each step of the agent and one for each observation."""
    trace_id = as_text(first_attribute(record, TRACE))
    steps = record.get("steps")
    if trace_id is None:
        raise RecordError("session_id: is missing")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise RecordError("steps: should be a list of objects")
    agent = require_mapping(record.get("agent"), "agent")
    questions = [{"role": "user", "content": step.get("message")} for step in steps if step.get("source") == "user"]
    replies = [step.get("message") for step in steps if step.get("source") == "agent"]
    # The last step of the agent is its answer, unless it only calls a tool.
    answer = replies[-1] if replies else None
    root = {"input": questions, "output": answer, "model": agent.get("model_name"), "agent": dict(agent)}
    times = [step.get("timestamp") for step in steps if step.get("source") == "agent"]
    end = read_sort_key(times[-1] if times else None)
    yield Span(trace_id, "0", None, str(agent.get("name") or ""), "agent", end=end, attributes=root)
    for number, step in enumerate(steps, start=1):
        if step.get("source") == "agent":
            yield from _read_step(step, number, trace_id, agent)


def _read_step(step: Mapping[str, Any], number: int, trace_id: str, agent: Mapping[str, Any]) -> Iterator[Span]:
    reply = {"role": "assistant", "content": step.get("message"), "reasoning_content": step.get("reasoning_content")}
    attributes = {"output": [reply], "model": step.get("model_name") or agent.get("model_name")}
    yield Span(trace_id, str(number), "0", "step", "llm", start=f"{number:06}", attributes=attributes)
    results = require_mapping(step.get("observation"), f"steps[{number - 1}].observation").get("results") or []
    if not isinstance(results, list):
        raise RecordError(f"steps[{number - 1}].observation.results: should be a list")
    for index, result in enumerate(results):
        content = result.get("content") if isinstance(result, Mapping) else result
        yield Span(
            trace_id,
            f"{number}.{index}",
            "0",
            "observation",
            "tool",
            start=f"{number:06}.{index:06}",
            attributes={"output": _join(content) if isinstance(content, list) else content},
        )


def _join(parts: Iterable[Any]) -> str:
    """Return the texts of a result in parts; images are left out."""
    return "\n".join(part["text"] for part in parts if isinstance(part, Mapping) and as_text(part.get("text")))


def read_content(span: Span) -> SpanContent:
    """Return the content of a span that ``read_record`` made."""
    attributes = span.attributes
    return SpanContent(
        KINDS[span.kind], attributes.get("input"), attributes.get("output"), model=as_text(attributes.get("model"))
    )
