"""Run the stages of an experiment in this process, each with the function of its command.

Stopped at any moment, the same call goes on: a stage is finished when its own manifest is there, and every command
continues an interrupted run of its own. A stage that fails is recorded, and the other cells go on.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.calls.client import CallSettings
from eclose.calls.coroutines import run_coroutine
from eclose.calls.run import RunOptions
from eclose.errors import EcloseError, UserError
from eclose.experiments.cells import FAILURE_FILE, SWITCHES_FILE, Stage, StageTask, filter_tasks
from eclose.experiments.folder import (
    STAGE_FILE,
    Experiment,
    find_judge,
    load_experiment,
    refuse_missing_inputs,
    write_failure,
    write_stage_file,
)
from eclose.generation import GenerateSettings, SourceLabels, find_generator_model, generate_responses
from eclose.judging.find_inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.models.adapter_recipe import find_adapter_recipes
from eclose.store.ledger.database import WriterLock
from eclose.training.api import SwitchSettings, select, switch_test, train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eclose.experiments.plan import Backbone

JUDGE_LEDGER_FILE = "judge.sqlite"
LAUNCHER_LOG_FILE = "launcher.log"
_SELECTED_FOLDER = "selected"


@dataclass(frozen=True)
class StageProblem:
    """A stage that was not run to its end, with the reason."""

    task: StageTask
    problem: str


@dataclass
class ExperimentRun:
    """What a run of an experiment did. Every chosen stage is in exactly one of the lists."""

    finished: list[StageTask] = field(default_factory=list)
    """Stages that were run now."""
    before: list[StageTask] = field(default_factory=list)
    """Stages that had been finished before."""
    failed: list[StageProblem] = field(default_factory=list)
    """Stages that raised an error."""
    waiting: list[StageProblem] = field(default_factory=list)
    """Stages that need a stage that is not finished, or that another process is running."""


def run_experiment(
    folder: Path | str | Experiment,
    only: Sequence[str] = (),
    *,
    on_stage: Callable[[StageTask, int, int], None] = lambda _task, _number, _total: None,
    on_result: Callable[[StageTask, str | None], None] = lambda _task, _problem: None,
) -> ExperimentRun:
    """Run the stages of an experiment that are not finished, in an order in which each finds what it needs.

    Args:
        folder: Folder of an experiment, or an experiment.
        only: Filters as ``key=value`` with backbone, method, seed or stage; all stages by default.
        on_stage: Called before a stage, with its number among the chosen ones and their total.
        on_result: Called after a stage, with the reason where it failed.

    Returns:
        The chosen stages by outcome.

    Raises:
        UserError: A file of the plan is missing.
        SettingError: A filter matches nothing.
    """
    experiment = folder if isinstance(folder, Experiment) else load_experiment(folder)
    tasks = filter_tasks(experiment.tasks, only)
    refuse_missing_inputs(experiment)
    result = ExperimentRun()
    for number, task in enumerate(tasks, start=1):
        if task.is_finished(experiment.folder):
            result.before.append(task)
        elif missing := [need for need in task.needs if not need.is_finished(experiment.folder)]:
            result.waiting.append(StageProblem(task, f"{missing[0].stage} of this cell is not finished"))
        else:
            on_stage(task, number, len(tasks))
            _run_locked(experiment, task, result, on_result)
    return result


def _run_locked(
    experiment: Experiment,
    task: StageTask,
    result: ExperimentRun,
    on_result: Callable[[StageTask, str | None], None],
) -> None:
    """Run a stage that no other process runs, and record its outcome."""
    folder = task.folder(experiment.folder)
    try:
        lock = WriterLock(folder / STAGE_FILE, f"{task.cell}, {task.stage}")
    except UserError as busy:
        result.waiting.append(StageProblem(task, str(busy)))
        return
    try:
        # Another process may have finished it between the look at its folder and the lock.
        if task.is_finished(experiment.folder):
            result.before.append(task)
            return
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        write_stage_file(task, experiment.folder)
        _StageRunner(experiment, task).run()
    except Exception as error:
        # A failed stage must not stop the other cells, whatever the reason; the traceback of a bug is kept.
        problem = str(error) if isinstance(error, EcloseError) else f"{type(error).__name__}: {error}"
        write_failure(task, experiment.folder, problem, traceback.format_exc())
        result.failed.append(StageProblem(task, problem))
        on_result(task, problem)
    else:
        result.finished.append(task)
        on_result(task, None)
    finally:
        lock.release()


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
        """Folder of the selected adapter; None for an untuned backbone."""
        if not self.task.cell.is_tuned:
            return None
        return self.task.needs[0].folder(self.experiment.folder) / _SELECTED_FOLDER

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
        options = RunOptions(ledger=judge.ledger or self.experiment.folder / JUDGE_LEDGER_FILE, retry=True)
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
        switch_test(plan.development_families, settings=settings, out=self._folder / SWITCHES_FILE)
