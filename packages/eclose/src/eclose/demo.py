"""A demonstration run: two systems answered questions of the world, and a judge with errors judged them.

Its records are shipped with the package, so that it needs no network, no key and no model. ``eclose_world.demo`` makes
them: the truth of every response is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.files.jsonl import ReadRecord, read_records
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep
from eclose.judging.settings import JudgeSettings
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

PEOPLE_FILE = "people.jsonl"
"""File of people's verdicts on some of the responses."""
PLANTED_FILE = "planted.jsonl"
"""File of the true verdicts on all responses, which only a made-up world has."""
RECORD_TYPES: Mapping[str, type[Any]] = {
    INSTANCES_FILE: Instance,
    RESPONSES_FILE: Response,
    PLANTED_FILE: SettledVerdict,
    PEOPLE_FILE: SettledVerdict,
    JUDGMENTS_FILE: Judgment,
}
"""Files of the demonstration in the order in which they are written, with the type of their records."""

QUESTION_COUNT = 300
SEED = 42
JUDGE_NAME = "world/judge"
JUDGE_ERROR_RATE = 0.03
"""Error rate of the judge, for each label."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The demonstration in the folder of a run."""

    folder: Path

    def write(self, *, force: bool = False) -> bool:
        """Write the files that are missing; return whether there were any."""
        *data_steps, judge_step = build_demo_steps(self.folder)
        to_copy = None in [step.claim(force=force) for step in data_steps]
        if to_copy:
            for step in data_steps:
                _copy_shipped_records(step)
        # Claimed after its inputs are written, which it hashes.
        to_judge = judge_step.claim(force=force) is None
        if to_judge:
            _copy_shipped_records(judge_step)
        return to_copy or to_judge


def build_demo_steps(folder: Path, questions: int = QUESTION_COUNT, seed: int = SEED) -> tuple[PipelineStep, ...]:
    """Return the steps that write the files, of which the last writes the judgments."""
    settings = {"questions": questions, "seed": seed}
    judge_settings = {
        "model": JUDGE_NAME, "errs": JUDGE_ERROR_RATE, "seed": seed, **JudgeSettings().identity
    }  # fmt: skip
    judged = (folder / INSTANCES_FILE, folder / RESPONSES_FILE)
    return tuple(
        PipelineStep("judge", judge_settings, judged, folder / name)
        if name == JUDGMENTS_FILE
        else PipelineStep(f"demo {Path(name).stem}", settings, (), folder / name)
        for name in RECORD_TYPES
    )


def find_shipped_file(name: str) -> Traversable:
    """Return the packed file of the package from which a file of the demonstration is copied."""
    return files("eclose") / "cli" / "examples" / "demo" / f"{name}.gz"


def _copy_shipped_records(step: PipelineStep) -> None:
    name = step.out.name
    with as_file(find_shipped_file(name)) as shipped:
        step.write(ReadRecord(name, value=record) for record in read_records(shipped, RECORD_TYPES[name]))
