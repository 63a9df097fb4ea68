"""Run the stages of an experiment: one after the other in this process, or several at once on Snakemake.

Stopped at any moment, the same call goes on: a stage is finished when its own manifest is there, and every command
continues an interrupted run of its own. A stage that fails is recorded, and the other cells go on.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.calls.adapters import find_adapter_recipes
from eclose.calls.client import CallSettings
from eclose.calls.ledger.database import WriterLock
from eclose.calls.run import RunOptions
from eclose.calls.sync import run_coroutine
from eclose.errors import EcloseError, SettingError, UserError
from eclose.generation import GenerateSettings, SourceLabels, find_generator_model, generate_responses
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose_train.experiment.cells import (
    FAILURE_FILE,
    SWITCHES_FILE,
    ExperimentRun,
    Stage,
    StageProblem,
    StageTask,
    filter_tasks,
)
from eclose_train.experiment.folder import (
    STAGE_FILE,
    Experiment,
    find_judge,
    load_experiment,
    refuse_missing_inputs,
    write_failure,
    write_stage_file,
)
from eclose_train.experiment.imports import SELECTED_FOLDER, import_stage
from eclose_train.experiment.snakefile import run_snakemake
from eclose_train.training.api import SwitchSettings, select, switch_test, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose_train.experiment.plan import Backbone

LAUNCHER_LOG_FILE = "launcher.log"
_LOCK_SECONDS = 0.5
"""Time between two attempts to take a lock."""
_TERMINATED = 143
"""Exit code of an error that stands for SIGTERM."""


class BusyError(UserError):
    """Another process runs the stage, or judges with the same ledger."""


def run_stage(experiment: Experiment, task: StageTask, wait: float = 0.0) -> str | None:
    """Run a stage that no other process runs; a stage that is finished by then is left as it is.

    Another process that runs it is waited for as many seconds as ``wait`` says.

    Returns:
        The reason where the stage failed, which its folder also records; None where it is finished.

    Raises:
        BusyError: Another process still runs it.
        UserError: The process was asked to terminate.
    """
    folder = task.folder(experiment.folder)
    with (
        _take_lock(folder / STAGE_FILE, f"{task.cell}, {task.stage}", wait),
        _take_turn(experiment, task, wait),
    ):
        # Another process may have finished it between the look at its folder and the lock.
        if task.is_finished(experiment.folder):
            return None
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        write_stage_file(task, experiment.folder)
        try:
            _StageRunner(experiment, task).run()
        except Exception as error:
            if isinstance(error, UserError) and error.exit_code == _TERMINATED:
                raise  # the process is to end, and the stage goes on in the next run
            # A failed stage must not stop the other cells, whatever the reason; the traceback of a bug is kept.
            problem = str(error) if isinstance(error, EcloseError) else f"{type(error).__name__}: {error}"
            write_failure(task, experiment.folder, problem, traceback.format_exc())
            return problem
    return None


@contextmanager
def _take_lock(path: Path, purpose: str, wait: float) -> Iterator[None]:
    """Hold the lock of a file; raise BusyError where another process still holds it after ``wait`` seconds."""
    end = time.monotonic() + wait
    while True:
        try:
            lock = WriterLock(path, purpose)
            break
        except UserError as error:
            # Other errors, such as a folder that cannot be written, do not pass with time.
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            if time.monotonic() >= end:
                raise BusyError(str(error)) from error
            time.sleep(_LOCK_SECONDS)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _take_turn(experiment: Experiment, task: StageTask, wait: float) -> Iterator[None]:
    """Judge in turns where the ledger is a file, since a file admits one process at a time; a server admits many."""
    ledger = experiment.judge_ledger
    if task.stage is not Stage.JUDGE or not isinstance(ledger, Path):
        yield
        return
    with _take_lock(ledger.with_name(f"{ledger.name}.turn"), f"{task.cell}, {task.stage}", wait):
        yield


@dataclass(frozen=True)
class _StageRunner:
    """Calls the function of a stage with the settings of the plan."""

    experiment: Experiment
    task: StageTask

    def run(self) -> None:
        """Run the stage; raise where it ends without a result."""
        actions = {
            Stage.TRAIN: self._train,
            Stage.SELECT: self._select,
            Stage.GENERATE: self._generate,
            Stage.JUDGE: self._judge,
            Stage.SWITCH: self._switch,
        }
        if self.task.source is not None:
            import_stage(self.task, self.experiment.folder, self.experiment.plan.questions)
        else:
            actions[self.task.stage]()
        if not self.task.is_finished(self.experiment.folder):
            raise UserError(f"{self._folder}: the stage ended without a result; its files have the reasons.")

    @property
    def _folder(self) -> Path:
        return self.task.folder(self.experiment.folder)

    @property
    def _backbone(self) -> Backbone:
        return next(item for item in self.experiment.plan.backbones if item.name == self.task.cell.backbone)

    @property
    def _adapter(self) -> Path | None:
        if not self.task.cell.is_tuned:
            return None
        return self.task.needs[0].folder(self.experiment.folder) / SELECTED_FOLDER

    def _train(self) -> None:
        plan, cell = self.experiment.plan, self.task.cell
        assert cell.seed is not None
        # Trackers such as TensorBoard show a run under the name of its cell.
        settings = {"run_name": str(cell), **plan.training_settings(self._backbone, cell.method, cell.seed)}
        if plan.launcher is None:
            train(plan.train_families, out=self._folder, development=plan.development_families, **settings)
            return
        words = [*shlex.split(plan.launcher), "train", str(plan.train_families), f"--out={self._folder}"]
        words += [f"--development={plan.development_families}"]
        # Values of flags are YAML, and JSON is YAML.
        words += [f"--{name.replace('_', '-')}={json.dumps(value)}" for name, value in settings.items()]
        log = self._folder / LAUNCHER_LOG_FILE
        with log.open("ab") as output:
            ended = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, check=False)
        if ended.returncode:
            raise UserError(f"the launcher ended with exit code {ended.returncode}; its output is in {log}.")

    def _select(self) -> None:
        plan = self.experiment.plan
        selection = select(
            self.task.needs[0].folder(self.experiment.folder),
            plan.development_families,
            out=self._folder,
            engine=plan.engine,
            max_new_tokens=plan.selection_max_new_tokens,
        )
        if not selection.has_answers:
            raise UserError(f"{selection.warning}.")

    def _prompt_settings(self) -> dict[str, Any]:
        training = self.experiment.resolved[self.task.cell.backbone]
        prompt = training.prompt
        return {
            "demonstrations": prompt.demonstrations,
            "order": prompt.order,
            "max_length": training.training["max_length"],
        }

    def _generate(self) -> None:
        plan, cell, backbone = self.experiment.plan, self.task.cell, self._backbone
        recipes = find_adapter_recipes(self._adapter, None)
        model = find_generator_model(
            f"{plan.engine}:{backbone.weights}",
            adapter=self._adapter,
            revision=backbone.revision,
            dtype=backbone.dtype,
            recipes=recipes,
            labels=SourceLabels(cell.source.model, cell.source.method, cell.seed),
        )
        settings = GenerateSettings(max_new_tokens=plan.max_new_tokens, **self._prompt_settings())
        run_coroutine(
            generate_responses(
                plan.questions, model, self._folder, settings.as_trained(recipes), options=RunOptions(retry=True)
            )
        )

    def _judge(self) -> None:
        plan, judge = self.experiment.plan, self.experiment.plan.judge
        inputs = find_judge_inputs(self.task.needs[0].folder(self.experiment.folder), self._folder)
        calls = CallSettings(concurrency=judge.concurrency, budget=judge.budget, unpriced=judge.unpriced)
        # One ledger for all cells: a request that two cells share is sent and paid once.
        # A stage is run again only where it has no result, so all records that failed are tried again.
        options = RunOptions(ledger=self.experiment.judge_ledger, retry=True)
        run_coroutine(judge_responses(inputs, find_judge(plan), self._folder, judge.settings, calls, options))

    def _switch(self) -> None:
        plan, backbone = self.experiment.plan, self._backbone
        settings = SwitchSettings(
            model=backbone.weights,
            revision=backbone.revision,
            adapters=[] if self._adapter is None else [self._adapter],
            dtype=backbone.dtype,
            **self._prompt_settings(),
        )
        # A run that was killed may have left scores without a manifest, which would be refused as unknown.
        switch_test(plan.inputs[plan.switch_input], settings=settings, out=self._folder / SWITCHES_FILE, force=True)


def run_experiment(
    folder: Path | str | Experiment,
    only: Sequence[str] = (),
    *,
    jobs: int | None = None,
    profile: str | None = None,
    wait: float = 0.0,
    on_stage: Callable[[StageTask, int, int], None] = lambda _task, _number, _total: None,
    on_result: Callable[[StageTask, str | None], None] = lambda _task, _problem: None,
) -> ExperimentRun:
    """Run the stages of an experiment that are not finished, in an order in which each finds what it needs.

    Args:
        folder: Folder of an experiment, or an experiment.
        only: Filters as ``key=value`` with backbone, method, seed, stage or id; all stages by default.
        jobs: Number of stages at once, 1 by default. One runs in this process; several run on Snakemake, with all
            stages that the chosen ones need, and write their output to ``stage.log`` of their folders.
        profile: Profile of Snakemake, which names the executor of a cluster and its settings.
        wait: Longest time to wait for a stage that another process runs, in seconds.
        on_stage: Called before a stage, with its number among the chosen ones and their total.
        on_result: Called after a stage, with the reason where it failed.

    Returns:
        The chosen stages by outcome.

    Raises:
        UserError: A file of the plan is missing, or Snakemake is needed and not installed.
        SettingError: A filter matches nothing, or ``jobs`` is not positive.
    """
    if jobs is not None and jobs < 1:
        raise SettingError(f"--jobs {jobs}: must be at least 1.")
    experiment = folder if isinstance(folder, Experiment) else load_experiment(folder)
    tasks = filter_tasks(experiment.tasks, only)
    refuse_missing_inputs(experiment)
    result = ExperimentRun(on_result)
    if profile is not None or (jobs is not None and jobs > 1):
        run_snakemake(experiment, tasks, result, jobs=jobs, profile=profile, whole=not only)
        return result
    for number, task in enumerate(tasks, start=1):
        if task.is_finished(experiment.folder):
            result.before.append(task)
        elif (missing := task.find_missing_need(experiment.folder)) is not None:
            result.waiting.append(StageProblem.of_missing(task, missing))
        else:
            on_stage(task, number, len(tasks))
            try:
                result.add(task, run_stage(experiment, task, wait))
            except BusyError as busy:
                result.waiting.append(StageProblem(task, str(busy)))
    return result
