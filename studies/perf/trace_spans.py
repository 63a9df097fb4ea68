"""Memory of reading traces: it does not grow with the number of spans.

Reads OTLP files whose spans are scattered, ten a trace, each file in a process of its own, and reports the peak memory
beyond what the same process needs for a hundred spans.

    python studies/perf/trace_spans.py                     20,000 and 200,000 spans
    python studies/perf/trace_spans.py --spans 1000000     up to a million
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

SPANS_PER_TRACE = 10
OPEN_TRACES = 1_000
"""Traces that are under way at a time: the spans of each are that far apart in the file."""
GOAL = 100
TEXT = "The river crosses a small town whose bridge was built by an engineer."


def write_spans(path: Path, count: int) -> None:
    """Write spans as programs send them: many traces at once, roots last."""
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, count // SPANS_PER_TRACE, OPEN_TRACES):
            traces = range(first, min(first + OPEN_TRACES, count // SPANS_PER_TRACE))
            for number in range(SPANS_PER_TRACE, 0, -1):
                for trace in traces:
                    file.write(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [make_span(trace, number)]}]}]}))
                    file.write("\n")


def make_span(trace: int, number: int) -> dict[str, object]:
    """Return a span: the first is the root, the second a retriever, the others calls of a model."""
    if number == 1:
        values = {"openinference.span.kind": "CHAIN", "input.value": f"Where is {trace}?", "output.value": "There."}
    elif number == 2:
        values = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": f"{trace}: {TEXT}"}
    else:
        values = {"openinference.span.kind": "LLM", "output.value": f"Step {number}: {TEXT}"}
    span: dict[str, object] = {
        "traceId": f"{trace + 1:032x}",
        "spanId": f"{number:016x}",
        "name": "work",
        "startTimeUnixNano": str(1_794_910_000_000_000_000 + number),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()],
    }
    return span if number == 1 else {**span, "parentSpanId": f"{1:016x}"}


def read(path: Path) -> None:
    """Read the file as ``eclose judge`` does; print peak memory in bytes, seconds and cases as JSON."""
    from eclose.readers.load import scan_recorded_responses  # noqa: PLC0415 - belongs to the child alone

    start = time.perf_counter()
    cases = sum(record.value is not None for record in scan_recorded_responses(path))
    seconds = time.perf_counter() - start
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"peak": peak, "seconds": seconds, "cases": cases}))


def measure(folder: Path, count: int) -> tuple[int, float]:
    path = folder / "spans.jsonl"
    write_spans(path, count)
    process = subprocess.run([sys.executable, __file__, "--read", path], capture_output=True, text=True, check=True)
    result = json.loads(process.stdout)
    if result["cases"] != count // SPANS_PER_TRACE:
        raise SystemExit(f"{result['cases']} cases of {count // SPANS_PER_TRACE} traces")
    return result["peak"], result["seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=200_000)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        read(options.read)
        return 0
    with tempfile.TemporaryDirectory() as name:
        base, _ = measure(Path(name), 100)
        growth: dict[str, float] = {}
        for count in (options.spans // 10, options.spans):
            peak, seconds = measure(Path(name), count)
            growth[f"{count:,}"] = round((peak - base) / 2**20, 1)
            print(
                f"{count:>9,} spans: {growth[f'{count:,}']:6.1f} MB more than for 100, {count / seconds:,.0f} spans/s"
            )
    value = growth[f"{options.spans:,}"]
    return print_result(
        name=f"memory of reading {options.spans:,} spans",
        value=value,
        unit="MB beyond 100 spans",
        goal=f"< {GOAL}",
        holds=value < GOAL,
        growth=growth,
        spans_per_second=round(options.spans / seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
