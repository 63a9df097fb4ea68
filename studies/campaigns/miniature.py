"""The paper's study in miniature: families of the world, two small backbones, the world's oracle as judge.

Makes families and questions of three profiles and the second backbone, serves the judge and runs the plan
``recipes/experiment/miniature.yaml`` of eclose-train, one seed after the other. When all cells of the main comparison
are judged, simulated annotators label two samples over HTTP, one to audit the results and one to validate the oracle
and a judge that errs. Every part that is finished is kept, so the run may be stopped and started again; the report
shows what is there.

    python studies/campaigns/miniature.py --out runs/miniature

``--cells`` names an archive of finished cells: those in it are taken in, and those made here are added, with the wall
times of their stages in a table beside it. So the study may be made in several sittings. Two processes with one thread
each, on one folder and each with some of the cells (``--only``), get more done than one with two threads.

``--variant`` trains E-Closure on the second backbone with other settings instead, which a later run shows on the page.

On two idle cores this takes up to six hours. Without arguments, an untuned backbone answers three questions.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import chain, islice, starmap
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.api.evaluate import evaluate
from eclose.calls.client import CallSettings
from eclose.calls.local.weights import load_adapter, load_causal_model, load_tokenizer
from eclose.files.jsonl import write_records
from eclose.files.run_folder import JUDGMENTS_FILE
from eclose.values.response import UNTUNED_METHOD
from eclose_train.experiment.audit import sample_audit
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import init_experiment
from eclose_train.experiment.plan import read_plan
from eclose_train.experiment.results import REPORT_FOLDER, report_experiment
from eclose_train.experiment.run import run_experiment
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from studies.campaigns.annotators.sample_labels import label_sample
from studies.campaigns.miniature_study.cells import hash_backbones, save_cells, take_cells
from studies.campaigns.miniature_study.page import format_page
from studies.campaigns.miniature_study.variants import VARIANTS, run_variant
from studies.campaigns.natural_failures import Settings, train_generator
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eclose.values.family import Family
    from eclose.values.instance import Instance
    from eclose_train.experiment.cells import StageTask
    from eclose_train.experiment.folder import Experiment

PLAN = Path(__file__).parents[2] / "packages" / "eclose-train" / "recipes" / "experiment" / "miniature.yaml"
QUESTION_KINDS = {"short-easy": "bridge", "short-hard": "3hop", "confusable-short": "bridge"}
"""Kind of the questions of each profile. Of comparisons and computations these models get hardly a step right."""
TRAIN_SEED, DEVELOPMENT_SEED, QUESTION_SEED, SWITCH_SEED, WARM_SEED = 21, 22, 23, 24, 25
"""World seeds. Each gives another world, so no question of one file occurs in another."""
STAGE_TIMES_FILE = "stage_times.csv"
PAGE_FILE = "reproduction.md"
"""The paper's claims on this study."""
JUDGE_SECONDS = 600.0
"""Longest time to wait while another process on the same folder judges."""
JUDGE_NOISE = 0.05
"""Rate of wrong labels of the judge that errs."""
FIRST_BACKBONE, SECOND_BACKBONE = "SmolLM2-135M", "SmolLM2-warm"


@dataclass(frozen=True)
class Sizes:
    """Number of families and questions of each profile, and updates of the second backbone."""

    train: int = 20
    development: int = 1
    switch: int = 8
    questions: int = 16
    warm_updates: int = 120


AUDIT_QUESTIONS = Sizes.questions // 2
"""Questions of a profile that people see for each backbone; both together see all of them."""


def take_families(seed: int, count: int) -> Iterator[Family]:
    """Yield families of all profiles in turn, so many of each."""

    def choose(profile: str, kind: str) -> Iterator[Family]:
        return islice((family for family in make_world_families(profile, seed) if family.source.kind == kind), count)

    return chain.from_iterable(zip(*starmap(choose, QUESTION_KINDS.items()), strict=True))


def take_questions(seed: int, count: int) -> Iterator[Instance]:
    """Yield so many questions of each profile."""
    for profile, kind in QUESTION_KINDS.items():
        instances = (item.instance for item in make_world_items(profile, seed))
        yield from islice((instance for instance in instances if instance.kind == kind), count)


def write_data(folder: Path, sizes: Sizes) -> None:
    """Write the families and questions that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Iterable[Any]] = {
        "train.jsonl": take_families(TRAIN_SEED, sizes.train),
        "development.jsonl": take_families(DEVELOPMENT_SEED, sizes.development),
        "switch.jsonl": take_families(SWITCH_SEED, sizes.switch),
        "questions.jsonl": take_questions(QUESTION_SEED, sizes.questions),
    }
    for name, records in files.items():
        if not (folder / name).is_file():
            write_records(folder / name, records)


def write_backbones(folder: Path, sizes: Sizes) -> None:
    """Write the weights of both backbones; the second is the generator of natural failures, merged.

    It was trained on all views of families of another world, so it writes responses before it is tuned.
    """
    if not (folder / FIRST_BACKBONE / "config.json").is_file():
        save_weights(load_causal_model(packaged_weights(), dtype="float32"), folder / FIRST_BACKBONE)
    if (folder / SECOND_BACKBONE / "config.json").is_file():
        return
    settings = Settings(folder / "warm-run", updates=sizes.warm_updates, families_per_update=1)
    families = list(take_families(WARM_SEED, -(-sizes.warm_updates // len(QUESTION_KINDS))))[: sizes.warm_updates]
    adapter = train_generator(settings, packaged_weights(), families)
    model = load_adapter(load_causal_model(packaged_weights(), dtype="float32"), str(adapter))
    save_weights(model.merge_and_unload(), folder / SECOND_BACKBONE)


def prepare(out: Path, sizes: Sizes) -> None:
    """Write data and backbones; a second process on the same folder waits for them."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "prepare.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_data(out / "data", sizes)
        write_backbones(out / "weights", sizes)


def save_weights(model: Any, folder: Path) -> None:
    """Write weights and tokenizer as a folder that appears whole."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    model.save_pretrained(unfinished)
    load_tokenizer(packaged_weights()).save_pretrained(unfinished)
    unfinished.rename(folder)


class StageClock:
    """Prints each stage that begins, and appends its wall time to a table when it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = 0.0

    def begin(self, task: StageTask, number: int, total: int) -> None:
        """Print the stage that begins."""
        print(f"{number} of {total}: {task.cell}, {task.stage}", file=sys.stderr, flush=True)
        self._began = perf_counter()

    def end(self, task: StageTask, problem: str | None) -> None:
        """Append cell, stage and seconds of a finished stage; one that was cut off counts from its last start."""
        if problem is not None or task.source is not None:
            return
        row = f"{task.cell},{task.stage},{perf_counter() - self._began:.1f}\n"
        with self._path.open("a") as file:
            file.write(row if file.tell() else f"cell,stage,seconds\n{row}")


def run_miniature(
    out: Path, only: Sequence[str], cells: Path | None = None, seeds: Sequence[int] = ()
) -> tuple[int, int, list[str]]:
    """Run the plan and report what is finished; return finished and planned stages, and the problems.

    Args:
        out: Folder of the study.
        only: Filters of the cells to run; all by default.
        cells: Archive of cells to take in and to add to.
        seeds: Seeds of a smaller study; those of the plan by default.
    """
    plan = read_plan(shutil.copy(PLAN, out / "plan.yaml"))
    plan = replace(plan, seeds=list(seeds) or plan.seeds)
    backbones = hash_backbones(out / "weights")
    if cells is not None and cells.is_file():
        runs = take_cells(cells, out / "cells", backbones)
        plan = replace(plan, runs=[run for run in runs if run.seed is None or run.seed in plan.seeds])
    problems: list[str] = []
    times = out / STAGE_TIMES_FILE if cells is None else cells.with_name(STAGE_TIMES_FILE)
    clock = StageClock(times)
    with ModelServerThread(build_world_handlers()) as server:
        # The judge is known by its name, so any free port will do.
        plan = replace(plan, judge=replace(plan.judge, base_url=server.base_url))
        experiment = init_experiment(plan, out / "experiment")

        def end_stage(task: StageTask, problem: str | None) -> None:
            clock.end(task, problem)
            if cells is not None and task.stage is Stage.SWITCH and problem is None:
                save_cells(experiment, cells, backbones)

        # A seed after the other, so that a run that is cut off has compared all methods.
        parts = [only] if only else [[f"method={UNTUNED_METHOD}"], *([f"seed={seed}"] for seed in plan.seeds)]
        for part in parts:
            result = run_experiment(experiment, part, wait=JUDGE_SECONDS, on_stage=clock.begin, on_result=end_stage)
            problems += [
                f"{row.task.cell}, {row.task.stage}: {row.problem}" for row in (*result.failed, *result.waiting)
            ]
    finished = sum(task.is_finished(experiment.folder) for task in experiment.tasks)
    judgments: dict[str, Path] = {}
    # People see responses of the main comparison; ablations may be missing.
    compared = [task for task in experiment.tasks if task.cell.method in plan.methods and task.stage is Stage.JUDGE]
    if all(task.is_finished(experiment.folder) for task in compared):
        experiment, judgments = add_people(experiment, out)
    if is_reportable(experiment):
        report_experiment(experiment, out / REPORT_FOLDER, judgments)
        report_backbones(experiment, out)
        (out / PAGE_FILE).write_text(format_page(out, times), "utf-8")
    return finished, len(experiment.tasks), problems


def run_variants(out: Path, names: Sequence[str]) -> tuple[int, int, list[str]]:
    """Run E-Closure with other settings; return finished and planned stages, and the problems."""
    clock = StageClock(out / "variant_times.csv")
    finished, problems = 0, []
    with ModelServerThread(build_world_handlers()) as server:
        plan = read_plan(shutil.copy(PLAN, out / "plan.yaml"))
        plan = replace(plan, judge=replace(plan.judge, base_url=server.base_url))
        for name in names:
            result = run_variant(plan, name, out, wait=JUDGE_SECONDS, on_stage=clock.begin, on_result=clock.end)
            finished += len(result.finished) + len(result.before)
            problems += [f"{name}, {row.task.stage}: {row.problem}" for row in (*result.failed, *result.waiting)]
    return finished, finished + len(problems), problems


def is_reportable(experiment: Experiment) -> bool:
    """Return whether a cell of the main comparison is judged; a sitting may have made ablations alone."""
    ablations = experiment.plan.ablations
    return any(
        task.stage is Stage.JUDGE and task.cell.method not in ablations and task.is_finished(experiment.folder)
        for task in experiment.tasks
    )


def report_backbones(experiment: Experiment, out: Path) -> None:
    """Report each backbone with judged responses alone."""
    for backbone in experiment.plan.backbones:
        ablated = experiment.plan.ablation_backbone == backbone.name
        plan = replace(
            experiment.plan,
            backbones=[backbone],
            runs=[run for run in experiment.plan.runs if run.backbone == backbone.name],
            ablations=experiment.plan.ablations if ablated else [],
            # People labelled responses of all backbones.
            labels=None,
            audit_labels=None,
        )
        alone = replace(experiment, plan=plan)
        if is_reportable(alone):
            report_experiment(alone, out / f"{REPORT_FOLDER}-{backbone.name}")


def add_people(experiment: Experiment, out: Path) -> tuple[Experiment, dict[str, Path]]:
    """Have two samples labelled, and one of them judged by a judge that errs.

    Returns:
        The experiment with labels of both samples, and the file of the erring judge by its name in tables.
    """
    seeds = experiment.plan.seeds
    files: dict[str, Any] = {}
    for key, seed in (("audit_labels", seeds[0]), ("labels", seeds[1])):
        sample_audit(experiment, out / key / "sample", questions=AUDIT_QUESTIONS, seed=seed, training_seed=seed)
        labelled = label_sample(out / key / "sample", out / key / "people")
        print(f"{key}: {labelled.labelled} responses labelled, left out: {dict(labelled.left_out)}", file=sys.stderr)
        files[key] = labelled.labels
    erring = out / "labels" / "judged"
    if not (erring / JUDGMENTS_FILE).is_file():
        with ModelServerThread(build_world_handlers(judge_noise=JUDGE_NOISE)) as server:
            judge = f"world-noise-{JUDGE_NOISE:g}"
            free = CallSettings(unpriced=True)
            evaluate(out / "labels" / "sample", judge=judge, base_url=server.base_url, out=erring, calls=free)
    plan = replace(experiment.plan, **files)
    return init_experiment(plan, experiment.folder), {"judge that errs": erring / JUDGMENTS_FILE}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, or its small version, and print the number of finished stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the study; without it, the small version")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help="as of eclose experiment run")
    parser.add_argument("--cells", type=Path, metavar="FILE.tar.gz", help="archive of finished cells")
    parser.add_argument(
        "--seed", action="append", type=int, default=[], help="seed of a smaller study; may be repeated"
    )
    parser.add_argument(
        "--variant", action="append", default=[], choices=list(VARIANTS), help="run this variant instead; repeatable"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        sizes = Sizes() if options.out else Sizes(train=1, development=1, switch=1, questions=1, warm_updates=1)
        only = options.only if options.out else ["method=backbone", f"backbone={SECOND_BACKBONE}"]
        prepare(out, sizes)
        if options.variant:
            finished, planned, problems = run_variants(out, options.variant)
        else:
            finished, planned, problems = run_miniature(out, only, options.cells, options.seed)
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
