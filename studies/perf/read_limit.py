"""Cost of a gate and of a diagnosis with its page against what a user would write instead: a query of the same files.

The demonstration is repeated under new ids, with the manifests of its judge. DuckDB joins responses and judgments and
computes two rates by system; the gate and the diagnosis read the same files in processes of their own, in the same
minutes, and the gate also the labels of the run in Parquet. No figure has imports in it. DuckDB is not a dependency:

    python -m pip install --target duck duckdb
    PYTHONPATH=duck python studies/perf/read_limit.py                       # 12,000 responses
    PYTHONPATH=duck python studies/perf/read_limit.py --responses 120000    # the measurement; writes about 600 MB

With ``--folder`` the files are kept, and used again where they are there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

import eclose
from eclose.api import gate as run_gate
from eclose.demo import DemoRun
from eclose.diagnosis.label_file import write_labels
from eclose.diagnosis.run_counts import count_runs
from eclose.files.jsonl import encode_json_line, read_records
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.report import write as report_write
from eclose.report.formats.file_formats import ReportFormat
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS = 3
GOALS = {"gate": 4.0, "gate_parquet": 4.0, "diagnose": 10.0}
"""Largest ratios to the CPU time of the query."""
IMPORTED = (run_gate, report_write)
QUERY = """
WITH judged AS (
    SELECT response_id, aligned AND closed AS sufficient,
        list_bool_and([step.sound FOR step IN steps IF coalesce(step.substantive, true)]) AS sound
    FROM read_json('{folder}/judgments.jsonl', format = 'newline_delimited')
), answered AS (
    SELECT id, instance_id, source.model AS system
    FROM read_json('{folder}/responses.jsonl', format = 'newline_delimited')
)
SELECT system, count(*), count(DISTINCT instance_id), avg((sound AND sufficient)::INT),
    avg((sound AND NOT sufficient)::INT)
FROM judged JOIN answered ON id = response_id GROUP BY system
"""


def write_run(folder: Path, responses: int) -> None:
    """Repeat the records of the demonstration under new ids, and write the manifests that judging them would write."""
    demo = folder.parent / "demo"
    DemoRun(demo).write()
    folder.mkdir()
    instances = list(read_records(demo / INSTANCES_FILE, Instance))
    answers = list(read_records(demo / RESPONSES_FILE, Response))
    judgments = list(read_records(demo / JUDGMENTS_FILE, Judgment))
    times = range(-(-responses // len(answers)))
    names = (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)
    copies: tuple[Iterable[Any], ...] = (
        (replace(record, id=f"{record.id}#{number}") for number in times for record in instances),
        (
            replace(record, id=f"{record.id}#{number}", instance_id=f"{record.instance_id}#{number}")
            for number in times
            for record in answers
        ),
        (replace(record, response_id=f"{record.response_id}#{number}") for number in times for record in judgments),
    )
    for name, records in zip(names, copies, strict=True):
        with (folder / name).open("wb") as file:
            file.writelines(encode_json_line(record) + b"\n" for record in records)
    questions, answered, judged = (folder / name for name in names)
    counts = RecordCounts(len(answers) * len(times), len(answers) * len(times))
    Manifest("world instances", {}, {}, hash_files([questions]), counts).write(f"{questions}.manifest.json")
    made_from = hash_files([questions, answered])
    Manifest("judge", {}, made_from, hash_files([judged]), counts).write(f"{judged}.manifest.json")


def measure(command: str, folder: str) -> None:
    """Run the query, the gate or the diagnosis with its page, and print CPU seconds."""
    figures: dict[str, float] = {}
    if command == "query":
        # Not a dependency.
        duckdb = importlib.import_module("duckdb")
        start = time.process_time()
        duckdb.sql(QUERY.format(folder=folder)).fetchall()
    elif command in ("gate", "gate_parquet"):
        importlib.import_module("pyarrow.dataset")
        start = time.process_time()
        eclose.gate(f"{folder}/labels.parquet" if command == "gate_parquet" else folder, min_trr=0.5)
    elif command == "labels":
        start = time.process_time()
        labels = count_runs([Path(folder)]).labels
        columns = (getattr(labels, name) for name in labels.__dataclass_fields__)
        figures["bytes_a_response"] = sum(getattr(column, "nbytes", 0) for column in columns) / len(labels)
    else:
        with tempfile.TemporaryDirectory() as out:
            start = time.process_time()
            eclose.diagnose(folder).report(out, [ReportFormat.HTML])
    print(json.dumps({"cpu_s": time.process_time() - start, **figures}))


def run_measurement(command: str, folder: Path) -> dict[str, float]:
    """Measure in a process of its own, since DuckDB and numpy keep memory and threads."""
    words = [sys.executable, __file__, "--measure", command, str(folder)]
    output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, float] = json.loads(output.splitlines()[-1])
    return measured


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--responses", type=int, default=12_000)
    parser.add_argument("--folder", type=Path, help="Folder of the files; a temporary one by default.")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return 0
    if importlib.util.find_spec("duckdb") is None:
        print("DuckDB is missing: python -m pip install --target duck duckdb, and then PYTHONPATH=duck")
        return 1
    commands = ("query", "labels", *GOALS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / f"run-{options.responses}"
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_run(folder, options.responses)
        if not (folder / "labels.parquet").exists():
            write_labels(folder, folder / "labels.parquet")
        # In turn, and the least of each: other programs only ever add to a figure.
        rounds = [{command: run_measurement(command, folder) for command in commands} for _ in range(ROUNDS)]
    cpu = {command: min(each[command]["cpu_s"] for each in rounds) for command in commands}
    print(", ".join(f"{command} {seconds:.2f} s" for command, seconds in cpu.items()))
    codes = [
        print_result(
            name=f"{command} of {options.responses:,} responses against a query of the same files",
            value=round(cpu[command] / cpu["query"], 2),
            unit="times the CPU time of DuckDB",
            goal=f"<= {goal:g}",
            holds=cpu[command] <= goal * cpu["query"],
            cpu_s={name: round(seconds, 2) for name, seconds in cpu.items()},
            bytes_a_response=round(rounds[0]["labels"]["bytes_a_response"], 1),
        )
        for command, goal in GOALS.items()
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
