"""The paper's study in miniature: families of the world, two small backbones, the world's oracle as judge.

Makes families and questions of three profiles and the second backbone, serves the judge, runs the plan
``recipes/experiment/miniature.yaml`` and writes its report. Finished stages are kept, so the run may be stopped and
started again.

    python campaigns/miniature.py --out runs/miniature

On two idle cores this takes up to six hours. Without arguments, an untuned backbone answers three questions.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from campaigns.natural_failures import configure_small_training, load_with_new_adapter
from perf.result import print_result
from perf.tree_cost import packaged_weights

from eclose.experiments.folder import init_experiment
from eclose.experiments.plan import read_plan
from eclose.experiments.results import report_experiment
from eclose.experiments.run import run_experiment
from eclose.models.load_weights import load_causal_model, load_tokenizer
from eclose.store.records.jsonl import write_records
from eclose.training.trainer import EClosureTrainer
from eclose.world.make.families import make_world_families
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.core.family import Family
    from eclose.experiments.cells import StageTask

PLAN = Path(__file__).parents[1] / "recipes" / "experiment" / "miniature.yaml"
PROFILES = ("short-easy", "short-hard", "confusable-short")
TRAIN_SEED, DEVELOPMENT_SEED, QUESTION_SEED, WARM_SEED = 21, 22, 23, 24
"""World seeds. Each gives another world, so no question of one file occurs in another."""
FIRST_BACKBONE, SECOND_BACKBONE = "SmolLM2-135M", "SmolLM2-warm"


@dataclass(frozen=True)
class Sizes:
    """Number of families and questions of each profile, and updates of the second backbone."""

    train: int = 16
    development: int = 10
    questions: int = 30
    warm_updates: int = 40


def take_families(seed: int, count: int) -> Iterator[Family]:
    """Yield families of all profiles in turn."""
    streams = [islice(make_world_families(profile, seed), count) for profile in PROFILES]
    return chain.from_iterable(zip(*streams, strict=True))


def write_data(folder: Path, sizes: Sizes) -> None:
    """Write the families and questions that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    questions = chain.from_iterable(
        (item.instance for item in islice(make_world_items(profile, QUESTION_SEED), sizes.questions))
        for profile in PROFILES
    )
    files: dict[str, Iterable[Any]] = {
        "train.jsonl": take_families(TRAIN_SEED, sizes.train),
        "development.jsonl": take_families(DEVELOPMENT_SEED, sizes.development),
        "questions.jsonl": questions,
    }
    for name, records in files.items():
        if not (folder / name).is_file():
            write_records(folder / name, records)


def write_backbones(folder: Path, sizes: Sizes) -> None:
    """Write the weights of both backbones; the second learns the layout of responses from gold views."""
    if not (folder / FIRST_BACKBONE / "config.json").is_file():
        save_weights(load_causal_model(packaged_weights(), dtype="float32"), folder / FIRST_BACKBONE)
    if (folder / SECOND_BACKBONE / "config.json").is_file():
        return
    config = configure_small_training(
        folder / "warm-run",
        method="sft",
        seed=1,
        families_per_update=4,
        max_steps=sizes.warm_updates,
        save_strategy="no",
    )
    model = load_with_new_adapter(str(folder / FIRST_BACKBONE), config.seed)
    families = list(take_families(WARM_SEED, -(-sizes.warm_updates * 4 // len(PROFILES))))
    EClosureTrainer(model, config, families, processing_class=load_tokenizer(packaged_weights())).train()
    save_weights(model.merge_and_unload(), folder / SECOND_BACKBONE)


def save_weights(model: Any, folder: Path) -> None:
    """Write weights and tokenizer as a folder that appears whole."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    load_tokenizer(packaged_weights()).save_pretrained(unfinished)
    unfinished.rename(folder)


def print_stage(task: StageTask, number: int, total: int) -> None:
    """Print the stage that begins."""
    print(f"{number} of {total}: {task.cell}, {task.stage}", file=sys.stderr, flush=True)


def run_miniature(out: Path, only: Sequence[str]) -> tuple[int, int, list[str]]:
    """Run the plan and report what is finished; return finished and planned stages, and the problems."""
    plan = read_plan(shutil.copy(PLAN, out / "plan.yaml"))
    with ModelServerThread(build_world_handlers()) as server:
        # The judge is known by its name, so any free port will do.
        plan = replace(plan, judge=replace(plan.judge, base_url=server.base_url))
        experiment = init_experiment(plan, out / "experiment")
        result = run_experiment(experiment, only, on_stage=print_stage)
    finished = sum(task.is_finished(experiment.folder) for task in experiment.tasks)
    problems = [f"{row.task.cell}, {row.task.stage}: {row.problem}" for row in (*result.failed, *result.waiting)]
    report_experiment(experiment)
    return finished, len(experiment.tasks), problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, or its small version, and print the number of finished stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the study; without it, the small version")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help="as of eclose experiment run")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        sizes = Sizes() if options.out else Sizes(train=1, development=1, questions=1, warm_updates=1)
        only = options.only if options.out else ["method=backbone", f"backbone={SECOND_BACKBONE}"]
        write_data(out / "data", sizes)
        write_backbones(out / "weights", sizes)
        finished, planned, problems = run_miniature(out, only)
    for problem in problems:
        print(problem)
    return print_result(
        name="stages of the miniature study",
        value=finished,
        unit="stages",
        goal=f"= {planned}" if options.out else "small version: >= 1",
        holds=finished == planned if options.out else finished >= 1 and not problems,
    )


if __name__ == "__main__":
    sys.exit(main())
