"""Memory of reading instances: it hardly grows with the file.

Validates files of 10k, 100k and 1M small instances, each in a process of its own, and reports the peak memory
beyond what the same process needs for ten records. The last line is the figure as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

SIZES = (10_000, 100_000, 1_000_000)
GOAL = 100
TEXT = "The river crosses a small town whose bridge was built by an engineer."


def write_instances(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(instance(number)) + "\n")


def instance(number: int) -> dict[str, object]:
    """Make a question with four short passages, about 600 bytes as a line."""
    passages = [{"id": str(index), "title": f"Town {number + index}", "text": TEXT} for index in range(4)]
    return {
        "id": f"question-{number}",
        "question": f"Where was the engineer of the bridge of town {number} born?",
        "evidence": passages,
        "reference_answer": f"City {number % 977}",
        "support_ids": ["0", "2"],
        "hops": 2,
    }


def validate(path: Path) -> None:
    """Check the file as ``eclose data validate`` does; print peak memory in bytes and seconds as JSON."""
    from eclose.readers.load import check_question_file, scan_instances  # noqa: PLC0415 - belongs to the child alone

    start = time.perf_counter()
    report = check_question_file(scan_instances(path), limit=20)
    seconds = time.perf_counter() - start
    if not report.passed:
        raise SystemExit(f"{path}: {report.counts}")
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"peak": peak, "seconds": seconds, "records": report.counts.accepted}))


def measure(folder: Path, count: int) -> tuple[int, float]:
    """Measure peak memory and seconds of a fresh process."""
    path = folder / f"{count}.jsonl"
    write_instances(path, count)
    child = subprocess.run([sys.executable, __file__, str(path)], check=True, capture_output=True, text=True)
    path.unlink()
    report = json.loads(child.stdout)
    assert report["records"] == count
    return report["peak"], report["seconds"]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        idle, _ = measure(folder, 10)
        print(f"{'records':>9}  {'MiB beyond 10 records':>21}  {'bytes/record':>12}  {'records/s':>9}")
        for count in SIZES:
            peak, seconds = measure(folder, count)
            per_record = (peak - idle) / count
            print(f"{count:>9,}  {(peak - idle) / 2**20:>21.1f}  {per_record:>12.1f}  {count / seconds:>9,.0f}")
    holds = per_record < GOAL
    return print_result(
        name="memory of validating instances",
        value=round(per_record, 1),
        unit="bytes/record",
        goal=f"< {GOAL}",
        holds=holds,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        validate(Path(sys.argv[1]))
    else:
        sys.exit(main())
