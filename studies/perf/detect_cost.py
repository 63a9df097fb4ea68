"""Cost of a linear verifier: responses per CPU second, and memory over 100,000 streamed responses.

A verifier is trained on families of the world. Its speed is the CPU time of scoring alone, with the cache of parsed
texts empty at the start, one thread, and four responses to each question. Memory is the peak of a process that scores a
folder of 100,000 responses with ``eclose detect``, beyond that of one with 1,000. The last line is the figure as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

# Before numpy is loaded: its threads would add CPU time of their own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from studies.perf.result import print_result

if TYPE_CHECKING:
    from eclose_train.verifier.linear import VerifierInput

PROFILES = ("short-hard", "musique")
FAMILIES = 40
QUESTIONS = 100
RESPONSES_PER_QUESTION = 4
STREAMED = 100_000
SPEED_GOAL = 1_500
GROWTH_GOAL = 60
"""Mebibytes by which the peak may grow: ids, offsets and digests of all responses are held in memory."""


def make_inputs(profile: str) -> list[VerifierInput]:
    """Return responses to questions of the world: reliable ones and the three kinds of gap."""
    from eclose.values.verdict import FailureClass  # noqa: PLC0415
    from eclose_train.verifier.linear import VerifierInput  # noqa: PLC0415
    from eclose_world.faulty.broken_responses import FailurePlan, break_response  # noqa: PLC0415
    from eclose_world.make.instances import make_world_item  # noqa: PLC0415

    plans = [FailurePlan(), *(FailurePlan(None, broken) for broken in list(FailureClass)[:3])]
    inputs = []
    for index in range(QUESTIONS):
        item = make_world_item(profile, 101, index)
        broken = [break_response(item, plan, "cost") for plan in plans]
        inputs += [
            VerifierInput(
                item.instance.question, row.response.trace.texts, row.response.answer or "", item.instance.evidence
            )
            for row in broken
            if row is not None
        ]
    return inputs


def train(folder: Path) -> Path:
    from eclose.files.jsonl import write_records  # noqa: PLC0415
    from eclose_train.verifier.fit import train_verifier  # noqa: PLC0415
    from eclose_world.make.families import make_world_families  # noqa: PLC0415

    families = (family for profile in PROFILES for family in islice(make_world_families(profile, 7), FAMILIES))
    write_records(folder / "families.jsonl", families)
    return train_verifier(folder / "families.jsonl", folder / "verifier").folder


def measure_speed(verifier_folder: Path, profile: str) -> float:
    """Return responses per CPU second, the best of three passes: other processes only ever slow it down."""
    from eclose_train.verifier import words  # noqa: PLC0415
    from eclose_train.verifier.features import index_evidence  # noqa: PLC0415
    from eclose_train.verifier.score import load_verifier  # noqa: PLC0415

    verifier, inputs = load_verifier(verifier_folder), make_inputs(profile)
    seconds = []
    for _ in range(3):
        words.parse_text.cache_clear()
        index_evidence.cache_clear()
        start = time.process_time()
        verifier.score(inputs)
        seconds.append(time.process_time() - start)
    return len(inputs) / min(seconds)


def write_run(folder: Path, count: int) -> Path:
    """Write a folder of responses of the world, each with steps of its own: repeated ones would be parsed once."""
    from eclose.files.jsonl import write_records  # noqa: PLC0415
    from eclose.values.response import Response, Trace  # noqa: PLC0415
    from eclose_world.make.instances import make_world_item  # noqa: PLC0415

    items = [make_world_item("short-hard", 101, index) for index in range(QUESTIONS)]
    inputs = make_inputs("short-hard")
    questions = {item.instance.question: item.instance.id for item in items}
    write_records(folder / "instances.jsonl", (item.instance for item in items))
    write_records(
        folder / "responses.jsonl",
        (
            Response(
                f"r{number:07}",
                questions[row.question],
                Trace.of(*(f"{step} ({number})" for step in row.steps)),
                row.answer,
            )
            for number in range(count)
            for row in (inputs[number * len(inputs) // count],)
        ),
    )
    return folder


def score_folder(run: Path, verifier: Path) -> None:
    """Score as the command does; print peak memory in bytes and CPU seconds as JSON."""
    import eclose  # noqa: PLC0415

    start = time.process_time()
    result = eclose.detect(run, detector="verifier", verifier=verifier)
    seconds = time.process_time() - start
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"peak": peak, "seconds": seconds, "responses": result.manifest.counts.accepted}))


def measure_command(folder: Path, verifier: Path, count: int) -> tuple[float, float]:
    """Return the peak in mebibytes and the CPU seconds of a fresh process."""
    run = folder / str(count)
    run.mkdir()
    write_run(run, count)
    child = subprocess.run(
        [sys.executable, __file__, str(run), str(verifier)], check=True, capture_output=True, text=True
    )
    report = json.loads(child.stdout)
    assert report["responses"] == count
    return report["peak"] / 2**20, report["seconds"]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        verifier = train(folder)
        speeds = {profile: round(measure_speed(verifier, profile)) for profile in PROFILES}
        for profile, speed in speeds.items():
            print(f"{profile:>12}: {speed:>6,} responses per CPU second, all three heads")
        base, _ = measure_command(folder, verifier, 1_000)
        peak, seconds = measure_command(folder, verifier, STREAMED)
    print(f"{STREAMED:,} responses: {peak - base:.1f} MiB beyond 1,000, {STREAMED / seconds:,.0f} per CPU second")
    holds = speeds["short-hard"] >= SPEED_GOAL and peak - base <= GROWTH_GOAL
    return print_result(
        name="cost of a linear verifier",
        value=speeds["short-hard"],
        unit="responses per CPU second",
        goal=f">= {SPEED_GOAL}, and <= {GROWTH_GOAL} MiB more memory for {STREAMED:,} responses",
        holds=holds,
        long_context=speeds["musique"],
        mebibytes=round(peak - base, 1),
        whole_command=round(STREAMED / seconds),
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        score_folder(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
