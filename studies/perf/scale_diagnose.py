"""Memory and CPU of diagnosing and gating a run too large to hold: JSON Lines, labels in Parquet, object storage.

A folder with the responses of ``diagnosis.py`` is written, over 3 datasets and 9 models with 10 responses for each
question. Each form of it is diagnosed with its report and gated, each in a process of its own, which reports its CPU
time and its greatest memory beyond that of an interpreter with the same imports. All forms must give the same files
to the last byte. A subset is also diagnosed in memory, and must give the same numbers.

    python studies/perf/scale_diagnose.py                          # 20,000 responses
    python studies/perf/scale_diagnose.py --responses 1000000      # the full measurement; writes about 2 GB
    python studies/perf/scale_diagnose.py --url s3://bucket/labels.parquet    # also there; see AWS_ENDPOINT_URL
    python studies/perf/scale_diagnose.py --forms labels           # some of the forms

With ``--folder`` the files are kept, and used again where they are there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.api.gate import gate
from eclose.api.results import diagnose
from eclose.diagnosis import run_counts
from eclose.diagnosis.diagnose import diagnose_cases, diagnose_labels
from eclose.diagnosis.label_file import write_labels
from eclose.diagnosis.run_counts import count_runs
from eclose.files.jsonl import encode_json_line
from eclose.files.parquet import open_filesystem
from eclose.readers.judged_run import read_judged_cases
from eclose.report.formats.file_formats import ReportFormat
from eclose.values.response import ResponseSource
from studies.perf.diagnosis import BENCHMARKS, MODELS, judge_examples
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.readers.judged_run import JudgedCase

RESPONSES, PER_QUESTION, SUBSET = 20_000, 10, 100_000
MEMORY_GOAL, CPU_GOAL = 300.0, 480.0
FULL = 1_000_000
"""Responses that the goals are for."""


def write_run(folder: Path, responses: int) -> None:
    """Write the three files of a judged run, in constant memory."""
    folder.mkdir(parents=True, exist_ok=True)
    examples = list(judge_examples())
    questions = max(1, responses // PER_QUESTION)
    names = ("instances.jsonl", "responses.jsonl", "judgments.jsonl")
    files = [(folder / name).open("wb") for name in names]
    for number, case in enumerate(islice(cycle(examples), questions)):
        instance = replace(case.instance, id=f"q{number}", benchmark=BENCHMARKS[number % 3])
        files[0].write(encode_json_line(instance) + b"\n")
    for number, case in enumerate(islice(cycle(examples), responses)):
        source = ResponseSource(f"model-{number // questions % MODELS}")
        response = replace(case.response, id=f"r{number}", instance_id=f"q{number % questions}", source=source)
        files[1].write(encode_json_line(response) + b"\n")
        files[2].write(encode_json_line(replace(case.judgment, response_id=response.id)) + b"\n")
    for file in files:
        file.close()


def _memory_mb() -> float:
    """Return the greatest resident memory of this process so far."""
    # Not ru_maxrss: a new process inherits the one of the process that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(command: str, run: str) -> None:
    """Diagnose or gate a run, and print CPU seconds, memory beyond the imports and what came out."""
    # Any size counts as large here, so that small runs exercise the same code.
    run_counts.LARGE_RUN = 0
    before, start = _memory_mb(), time.process_time()
    figures = {"outcome": str(gate(run, min_trr=0.1).outcome)} if command == "gate" else _diagnose(run)
    seconds = round(time.process_time() - start, 1)
    print(json.dumps({"cpu_s": seconds, "memory_mb": round(_memory_mb() - before, 1), **figures}))


def _diagnose(run: str) -> dict[str, Any]:
    """Return the size of a diagnosis and a digest of its report."""
    formats = [format_ for format_ in ReportFormat if format_ is not ReportFormat.FIGURES]
    with tempfile.TemporaryDirectory() as folder:
        results = diagnose(run)
        files = results.report(folder, formats)
        digest = hashlib.sha256(b"".join(files[name].read_bytes() for name in sorted(files)))
    return {
        "responses": len(results),
        "questions": results.diagnosis.overall.questions,
        "listed": len(results.cases),
        "report_sha256": digest.hexdigest()[:16],
    }


def run_measurement(run: str) -> dict[str, Any]:
    """Measure each command in a process of its own, as users start them; of memory the greater is taken."""
    figures: dict[str, Any] = {"memory_mb": 0.0}
    for command in ("diagnose", "gate"):
        words = [sys.executable, __file__, "--measure", command, run]
        clock = time.perf_counter()
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        measured = json.loads(output.splitlines()[-1])
        memory = max(figures["memory_mb"], measured.pop("memory_mb"))
        times = {f"{command}_cpu_s": measured.pop("cpu_s"), f"{command}_wall_s": round(time.perf_counter() - clock)}
        figures |= {**times, **measured, "memory_mb": memory}
    return figures


def copy_labels(labels: Path, url: str) -> None:
    """Copy a table of labels to object storage."""
    from pyarrow import fs  # noqa: PLC0415 - an extra

    files, path = open_filesystem(url)
    fs.copy_files(str(labels), path, source_filesystem=fs.LocalFileSystem(), destination_filesystem=files)


def measure_forms(folder: Path, responses: int, forms: Sequence[str], url: str | None) -> dict[str, Any]:
    """Measure the labels in Parquet, in object storage, and JSON Lines, as far as they are asked for."""
    run, labels = folder / "run", folder / "labels.parquet"
    if not run.exists():
        write_run(run, responses)
    if not labels.exists():
        write_labels(run, labels)
    if "object_storage" in forms:
        copy_labels(labels, url or "")
    places = {"labels": labels, "object_storage": url, "json_lines": run}
    figures = {}
    for form in forms:
        figures[form] = run_measurement(str(places[form]))
        print(f"{form}: {figures[form]}", flush=True)
    return figures


def equals_memory(folder: Path, responses: int) -> bool:
    """Return whether the diagnosis of files and of a table of labels equals the one of all cases in memory."""
    if not folder.exists():
        write_run(folder, responses)
    labels = folder / "labels.parquet"
    if not labels.exists():
        write_labels(folder, labels)
    cases: tuple[JudgedCase, ...] = read_judged_cases(folder).cases
    in_memory = diagnose_cases(cases)
    return all(in_memory == diagnose_labels(count_runs([run]).labels) for run in (folder, labels))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--responses", type=int, default=RESPONSES)
    parser.add_argument("--folder", type=Path, help="Folder of the files; a temporary one by default.")
    parser.add_argument("--url", help="Address in object storage for a third form of the run.")
    parser.add_argument("--forms", nargs="+", choices=["labels", "object_storage", "json_lines"])
    parser.add_argument(
        "--subset", type=int, default=SUBSET, help="Responses that are also diagnosed in memory; 0 leaves it out."
    )
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        command, run = options.measure
        measure(command, run)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        subset = min(options.subset, options.responses)
        same = None
        if subset:
            same = equals_memory(folder / "subset", subset)
            print(f"{subset:,} responses streamed and in memory: {'equal' if same else 'DIFFERENT'}", flush=True)
        possible = {"labels": True, "object_storage": options.url, "json_lines": True}
        chosen = options.forms or [form for form, available in possible.items() if available]
        forms = measure_forms(folder, options.responses, chosen, options.url)
    memory = max(figures["memory_mb"] for figures in forms.values())
    cpu = max(max(figures["diagnose_cpu_s"], figures["gate_cpu_s"]) for figures in forms.values())
    # One form alone has nothing to be compared with.
    bytes_equal = len({figures["report_sha256"] for figures in forms.values()}) == 1 if len(forms) > 1 else None
    # The time goal is for a million responses; a smaller run has a share of it, and some seconds for its intervals.
    allowed = CPU_GOAL * min(1, options.responses / FULL) + 20
    return print_result(
        name=f"diagnose and gate {options.responses:,} responses without holding them",
        value=memory,
        unit="MB beyond the interpreter",
        goal=f"<= {MEMORY_GOAL:g} MB, <= {CPU_GOAL:g} s CPU for 1,000,000, equal to the result in memory, same bytes",
        holds=memory <= MEMORY_GOAL
        and cpu <= (CPU_GOAL if options.responses >= FULL else allowed)
        and same is not False
        and bytes_equal is not False,
        cpu_s=cpu,
        equal=same,
        same_bytes=bytes_equal,
        forms=forms,
    )


if __name__ == "__main__":
    sys.exit(main())
