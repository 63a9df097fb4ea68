"""Kill an experiment repeatedly: its tables are those of an unbroken run, and a new seed runs the new cells alone.

SmolLM2-135M first learns a few families by heart, so that it answers in the layout. Then a grid of backbones, methods,
seeds and benchmarks is run unbroken, and again while it is killed with SIGKILL in all stages: in one process, and on
Snakemake, both at once. In the end all tables except recorded times must be equal byte for byte.

    python studies/campaigns/experiment_kills.py --full        2 x 2 x 2 x 2, ten kills for each engine
    python studies/campaigns/experiment_kills.py               1 x 1 x 1 x 1, three kills for each engine

Everything is done with one thread: sums of more threads differ in the last bits.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies and tests

import torch
import yaml

from eclose.files.jsonl import write_records
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import STAGE_FILE, Experiment, init_experiment
from eclose_train.experiment.results import report_experiment
from eclose_train.experiment.run import run_experiment
from eclose_train.training.api import train
from eclose_world.make.families import make_world_families
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights
from tests.experiment.plans import read_tables

TRAINING = {
    "use_cpu": True,
    "families_per_update": 1,
    "max_steps": 2,
    "warmup_steps": 0,
    "demonstrations": 0,
    "lora_rank": 4,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "steps",
    "save_steps": 1,
    "eval_strategy": "no",
    "disable_tqdm": True,
}
KILLED_STAGES = (Stage.TRAIN, Stage.GENERATE, Stage.JUDGE, Stage.SELECT, Stage.SWITCH)
ENGINES = ("local", "snakemake")


@dataclass(frozen=True)
class Settings:
    """Size of the study."""

    backbones: int
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    profiles: tuple[str, ...]
    kills: int
    families: int = 2
    """Families of each profile."""
    updates: int = 16
    """Updates in which the backbone learns the families by heart."""
    max_new_tokens: int = 120


SMALL = Settings(1, ("e_closure",), (1,), ("short-easy",), kills=3)
FULL = Settings(2, ("sft", "e_closure"), (1, 2), ("short-easy", "short-hard"), kills=10, updates=40)


def write_study(folder: Path, settings: Settings, judge: str) -> dict[str, Any]:
    """Write data and weights; return the values of the plan."""
    families = [
        family for profile in settings.profiles for family in islice(make_world_families(profile, 5), settings.families)
    ]
    write_records(folder / "families.jsonl", families)
    write_records(folder / "questions.jsonl", [family.source for family in families])
    learned = folder / "learned"
    settings_of_learning: dict[str, Any] = {
        **TRAINING,
        "model": packaged_weights(),
        "dtype": "float32",
        "method": "sft",
        "lora_rank": 0,
        "max_steps": settings.updates,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
    }
    train(folder / "families.jsonl", out=learned, **settings_of_learning)
    return {
        # The same weights with another learning rate are another backbone of the grid.
        "backbones": [
            {
                "name": f"SmolLM2-{number}",
                "weights": str(learned / "adapter"),
                "dtype": "float32",
                "learning_rate": 1e-4 / number,
            }
            for number in range(1, settings.backbones + 1)
        ],
        "methods": list(settings.methods),
        "seeds": list(settings.seeds),
        "train_families": "families.jsonl",
        "development_families": "families.jsonl",
        "questions": "questions.jsonl",
        "training": TRAINING,
        "max_new_tokens": settings.max_new_tokens,
        "selection_max_new_tokens": settings.max_new_tokens,
        "judge": {"model": "world", "base_url": judge, "server_name": "judge", "unpriced": True},
    }


def init_study(folder: Path, name: str, values: dict[str, Any]) -> Experiment:
    """Write the plan of a study and its experiment."""
    (folder / "plan.yaml").write_text(yaml.safe_dump(values))
    return init_experiment(folder / "plan.yaml", folder / name)


def start(experiment: Experiment, engine: str) -> subprocess.Popen[bytes]:
    """Start the command that runs an experiment; its output is in ``run.log``."""
    words = [sys.executable, "-m", "eclose.cli.main", "experiment", "run", str(experiment.folder)]
    words += ["--jobs", "2"] if engine == "snakemake" else []
    with (experiment.folder / "run.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)


def kill_in_stage(experiment: Experiment, engine: str, stage: Stage, delay: float) -> bool:
    """Run an experiment until it has begun a stage of a kind, and kill it; return whether it was killed."""
    begin = time.time()
    process = start(experiment, engine)
    tasks = [task for task in experiment.tasks if task.stage is stage]

    def has_begun() -> bool:
        paths = [task.folder(experiment.folder) / STAGE_FILE for task in tasks]
        return any(path.is_file() and path.stat().st_mtime >= begin for path in paths)

    while not has_begun() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(delay)
    if process.poll() is not None:
        return False
    process.kill()
    process.wait()
    return True


def run_with_kills(experiment: Experiment, engine: str, kills: int) -> Counter[str]:
    """Run an experiment to its end although it is killed; return the kills by stage."""
    draws = random.Random(7)
    killed: Counter[str] = Counter()
    for number in range(kills):
        stage = KILLED_STAGES[number % len(KILLED_STAGES)]
        killed[stage] += kill_in_stage(experiment, engine, stage, draws.uniform(0, 1.5))
    process = start(experiment, engine)
    if process.wait():
        sys.exit(f"{engine}: ended with {process.returncode}:\n{(experiment.folder / 'run.log').read_text()[-4_000:]}")
    return +killed


def measure(folder: Path, settings: Settings) -> int:
    """Run the study unbroken and killed, extend it by a seed, and print the result."""
    with ModelServerThread(build_world_handlers()) as judge:
        values = write_study(folder, settings, judge.base_url)
        whole = init_study(folder, "whole", values)
        result = run_experiment(whole)
        if result.failed:
            sys.exit(f"the unbroken run failed: {[problem.problem for problem in result.failed]}")
        report_experiment(whole)
        tables = read_tables(whole.folder / "report")
        broken = {engine: init_study(folder, engine, values) for engine in ENGINES}
        extended = init_study(folder, "whole", {**values, "seeds": [*settings.seeds, 99]})
        with ThreadPoolExecutor(len(ENGINES)) as pool:
            kills_by_engine = {
                engine: pool.submit(run_with_kills, experiment, engine, settings.kills)
                for engine, experiment in broken.items()
            }
            result = run_experiment(extended)
        alone = not result.failed and {task.cell.seed for task in result.finished} == {99}
        killed, equal = {}, {}
        for engine, experiment in broken.items():
            killed[engine] = dict(kills_by_engine[engine].result())
            report_experiment(experiment)
            equal[engine] = read_tables(experiment.folder / "report") == tables
    kills = sum(sum(counts.values()) for counts in killed.values())
    return print_result(
        name="experiment_kills",
        value=kills,
        unit="kills with SIGKILL",
        goal="tables as in an unbroken run, byte for byte, in one process and on Snakemake; a new seed runs alone",
        holds=all(equal.values()) and alone and kills > 0,
        killed=killed,
        equal=equal,
        stages=len(whole.tasks),
        tables=len(tables),
        new_seed_alone=alone,
        stages_of_new_seed=len(result.finished),
    )


def main() -> int:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the grid of 2 x 2 x 2 x 2 with ten kills for each engine")
    parser.add_argument("--out", type=Path, help="folder to keep; a temporary one by default")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    settings = FULL if arguments.full else SMALL
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        return measure(arguments.out.resolve(), settings)
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), settings)


if __name__ == "__main__":
    sys.exit(main())
