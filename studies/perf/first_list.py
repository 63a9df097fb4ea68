"""From `pip install` to the list of what to fix, on one's own responses as JSON Lines, OTLP and a DataFrame.

Everything happens in an empty folder, in a fresh virtual environment with the wheel. The judge comes with the product
(`eclose world serve`) and is started beforehand; creating the environment and pip are not timed. At most five commands,
or lines of Python, and three minutes each; the list must name every response that the judge found unreliable. The last
line is the figure as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from studies.perf.first_minutes import run
from studies.perf.first_verdict import PORT, fetch_wheels, serve_judge, write_traces
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_GOAL = 180.0
STEPS_GOAL = 5
JUDGE = f"http://127.0.0.1:{PORT}/v1"
DATA_FRAME = f"""\
import pandas as pd, eclose
rows = pd.read_json("rows.jsonl", lines=True)
results = eclose.evaluate(rows, judge="{JUDGE}", calls=eclose.CallSettings(unpriced=True))
print(len(results.failures()), "to fix:", pd.DataFrame(results.failures()))
"""


def write_rows(traces: Path, rows: Path) -> None:
    """Write the responses of traces as rows with a column of one's own."""
    from eclose.readers.load import scan_cases  # noqa: PLC0415

    with rows.open("w", encoding="utf-8") as file:
        for number, (question, response) in enumerate(scan_cases(traces)):
            assert question.value is not None
            assert response.value is not None
            row = {
                "ticket": f"T-{number}",
                "question": question.value.question,
                "contexts": [passage.text for passage in question.value.evidence],
                "response": response.value.completion,
            }
            file.write(json.dumps(row) + "\n")


def read_list(folder: Path, words: list[str]) -> int:
    """Run commands in the folder; return the number of rows of the list."""
    programs = folder / "venv" / "bin"
    run([programs / "eclose", "judge", *words, "--judge", JUDGE, "--no-price", "--out", words[0] + ".run"], folder)
    out = run([programs / "eclose", "failures", words[0] + ".run", "--to", "jsonl"], folder)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert rows
    assert all(row["failure"] for row in rows)
    return len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        fetch_wheels(folder / "wheels")
        run([sys.executable, "-m", "venv", "venv"], folder)
        install = ["-m", "pip", "install", "--quiet", "--find-links", "wheels", "eclose[world]", "pandas"]
        run([folder / "venv" / "bin" / "python", *install], folder)
        write_traces(folder / "traces.jsonl")
        write_rows(folder / "traces.jsonl", folder / "rows.jsonl")
        (folder / "frame.py").write_text(DATA_FRAME)
        forms: dict[str, tuple[int, Callable[[], int]]] = {
            # Commands or lines after pip install, and the work.
            "JSON Lines": (2, lambda: read_list(folder, ["rows.jsonl"])),
            "OTLP": (2, lambda: read_list(folder, ["traces.jsonl"])),
            "DataFrame": (
                len(DATA_FRAME.splitlines()),
                lambda: int(run([folder / "venv" / "bin" / "python", "frame.py"], folder).split()[0]),
            ),
        }
        seconds, found = {}, {}
        with serve_judge(folder / "venv" / "bin" / "eclose", folder):
            for form, (steps, make_list) in forms.items():
                start = time.perf_counter()
                found[form] = make_list()
                seconds[form] = time.perf_counter() - start
                print(f"{form:>12}: {steps + 1} steps with pip install, {seconds[form]:5.1f} s, {found[form]} to fix")
    steps = 1 + max(steps for steps, _ in forms.values())
    longest = max(seconds.values())
    return print_result(
        name="from pip install to the list of what to fix, the slowest of three forms",
        value=round(longest, 1),
        unit=f"s without pip, {steps} commands or lines at most; {found}",
        goal=f"<= {SECONDS_GOAL:g} s in <= {STEPS_GOAL}",
        holds=longest <= SECONDS_GOAL and steps <= STEPS_GOAL and len(set(found.values())) == 1,
    )


if __name__ == "__main__":
    sys.exit(main())
