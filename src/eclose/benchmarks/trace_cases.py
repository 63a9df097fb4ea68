"""Conversion of the cases in trace files to instances with their responses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from eclose.benchmarks import conversion
from eclose.core import parse_trace
from eclose.core.instance import Instance
from eclose.core.response import ResponseSource
from eclose.errors import UserError
from eclose.store.records.json_reader import read_json_objects
from eclose.store.records.jsonl import ReadRecord
from eclose.traces.cases import NO_DOCUMENTS, TraceCase
from eclose.traces.detection import TraceDialect, detect_trace_dialect
from eclose.traces.load import detect_pretty_trace, scan_traces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.benchmarks.import_settings import ImportSettings
    from eclose.core.response import SpanRef


def scan_trace_cases(
    path: Path, settings: ImportSettings, dialect: TraceDialect | None = None
) -> Iterator[ReadRecord[ConvertedRecord]]:
    """Yield the cases of a trace file as instances with responses; every trace is a case, a reason, or an error.

    Args:
        path: The file of traces.
        settings: Which spans are cases, and names that the file leaves out.
        dialect: Notation of the file; None to detect it from the keys of its first readable record.

    Raises:
        UserError: The file as a whole cannot be read, or is not of traces.
    """
    for record in scan_traces(path, dialect or _detect_dialect(path), settings.cases):
        if record.value is None:
            yield cast("ReadRecord[ConvertedRecord]", record)
        elif (converted := convert_trace_case(record.value, settings)) is None:
            yield ReadRecord(f"{record.where}, trace {record.value.span.trace_id}", rejected=NO_DOCUMENTS)
        else:
            yield ReadRecord(record.where, value=converted, repairs=converted.repairs)


def _detect_dialect(path: Path) -> TraceDialect:
    if (pretty := detect_pretty_trace(path)) is not None:
        return pretty
    first = next((raw.value for raw in read_json_objects(path) if raw.value is not None), {})
    if (dialect := detect_trace_dialect(first)) is None:
        dialects = ", ".join(TraceDialect)
        raise UserError(f"{path}: is not a file of traces. Known are {dialects}, recognised by their keys.")
    return dialect


def convert_trace_case(case: TraceCase, settings: ImportSettings) -> ConvertedRecord | None:
    """Return a case as an instance with its response; None where it has no evidence."""
    repairs: list[str] = list(case.notes)
    parsed = parse_trace.parse_agent_trajectory(case.items, case.answer)
    passages = conversion.drop_blank_passages(conversion.build_passages(case.documents, repairs), None, repairs)
    instance = Instance("", case.question, passages, benchmark=settings.dataset)
    complete = parse_trace.add_observation_passages(instance, parsed.observations)
    if complete is not instance:
        repairs.append(parse_trace.OBSERVATIONS_ADDED_NOTE)
    if not complete.evidence:
        return None
    converted = conversion.finish_record_conversion(complete, repairs, case.span.store or "trace")
    model = case.model or settings.model
    response = parse_trace.build_response(
        parsed,
        converted.instance.id,
        case.items or None,
        case.answer,
        id=_response_id(case.span),
        source=None if model is None else ResponseSource(model),
    )
    return replace(converted, response=replace(response, span=case.span), notes=parsed.notes)


def _response_id(span: SpanRef) -> str:
    """Return the ids of trace and span; the root of a LangSmith trace has the id of the trace."""
    return span.trace_id if span.span_id in (None, span.trace_id) else f"{span.trace_id}-{span.span_id}"
