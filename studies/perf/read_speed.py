"""CPU time of reading rows of a table and spans of traces, as ``eclose judge`` does before it asks a model.

Rows in RAGAS columns and spans of OpenTelemetry are read into the files of questions and responses; parsing the same
file as JSON, which no reader can do without, is measured beside it in the same process. The least of some rounds
counts: other programs only ever add to a figure.

    python studies/perf/read_speed.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result
from studies.perf.trace_spans import write_spans

ROWS, SPANS, ROUNDS = 20_000, 20_000, 3
ROWS_GOAL, SPANS_GOAL = 4.0, 20_000
PEOPLE = ("Ada Rowe", "Bela Lind", "Carl Moe", "Dora Quist", "Emil Strand", "Frida Holm")
TOWNS = ("Lund", "Malmö", "Oslo", "Turku", "Bergen", "Uppsala")
REPLIES = (
    "The bridge was designed by {one}. She was born in {town}. {other} worked with her. Therefore it is {town}.",
    "1. The bridge was designed by {one}.\n2. {one} was born in {town}.\nFinal answer: {town}",
    "{town}. According to the documents, the bridge was designed by {one} [1]. {other} only reviewed the plans [2].",
    "Based on the context, the engineer is {one}, who was born in {town} before {other}.\n\n**Answer:** {town}",
)
"""A conclusion, the layout of the prompt, an answer that opens its reply, and a line that names it."""


def write_rows(path: Path, count: int) -> None:
    """Write rows with three passages and a reply of some sentences each."""
    rng = Random(3)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            (one, other), town = rng.sample(PEOPLE, 2), rng.choice(TOWNS)
            row = {
                "user_input": f"Where was the engineer of bridge {number} born?",
                "retrieved_contexts": [
                    f"{one} designed the bridge {number} of the town. It has three arches and was paid by the guild.",
                    f"{one} was born in {town} as the daughter of a miller. {other} reviewed the plans.",
                    f"The town {number} lies at a river. It has {number} inhabitants and a market on Tuesdays.",
                ],
                "response": REPLIES[number % len(REPLIES)].format(one=one, other=other, town=town),
                "reference": town,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def measure(path: Path) -> None:
    """Read the file, and print the CPU seconds of this and of parsing it, and the cases, as JSON."""
    from eclose.judging.inputs import find_judge_inputs  # noqa: PLC0415 - belongs to the child alone

    start = time.process_time()
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
    parsed = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        counts = find_judge_inputs(path, Path(out)).counts
    seconds = time.process_time() - parsed
    cases = min(count.accepted for count in counts.values())
    print(json.dumps({"cpu_s": seconds, "json_s": parsed - start, "cases": cases}))


def run_rounds(path: Path, cases: int) -> tuple[float, float]:
    """Return the least CPU seconds of reading the file, and of parsing it, each round in a process of its own."""
    words = [sys.executable, __file__, "--measure", str(path)]
    outputs = [subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout for _ in range(ROUNDS)]
    rounds = [json.loads(output) for output in outputs]
    if {each["cases"] for each in rounds} != {cases}:
        raise SystemExit(f"{path.name}: {rounds[0]['cases']:,} cases in place of {cases:,}")
    return min(each["cpu_s"] for each in rounds), min(each["json_s"] for each in rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        measure(options.measure)
        return 0
    with tempfile.TemporaryDirectory() as name:
        rows, spans = Path(name) / "rows.jsonl", Path(name) / "spans.jsonl"
        write_rows(rows, ROWS)
        write_spans(spans, SPANS)
        row_seconds, row_json = run_rounds(rows, ROWS)
        span_seconds, span_json = run_rounds(spans, SPANS // 10)
    codes = [
        print_result(
            name=f"reading {ROWS:,} rows of a table into questions and responses",
            value=round(row_seconds, 2),
            unit=f"s of CPU; parsing them as JSON {row_json:.2f} s",
            goal=f"<= {ROWS_GOAL:g}",
            holds=row_seconds <= ROWS_GOAL,
            times_json=round(row_seconds / row_json, 1),
        ),
        print_result(
            name=f"reading {SPANS:,} spans of OpenTelemetry into questions and responses",
            value=round(SPANS / span_seconds),
            unit=f"spans a second of CPU; parsing them as JSON {SPANS / span_json:,.0f}",
            goal=f">= {SPANS_GOAL:,}",
            holds=span_seconds * SPANS_GOAL <= SPANS,
            times_json=round(span_seconds / span_json, 1),
        ),
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
