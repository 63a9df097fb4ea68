"""Run the stages of an experiment: one after the other in this process, or several at once on Snakemake.

Stopped at any moment, the same call goes on: a stage is finished when its own manifest is there, and every command
continues an interrupted run of its own. A stage that fails is recorded, and the other cells go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.errors import SettingError
from eclose.experiments.cells import ExperimentRun, RunCallbacks, StageProblem, filter_tasks
from eclose.experiments.folder import Experiment, load_experiment, refuse_missing_inputs
from eclose.experiments.snakefile import run_snakemake
from eclose.experiments.stages import BusyError, run_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eclose.experiments.cells import StageTask


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
    callbacks = RunCallbacks(on_stage, on_result)
    if profile is not None or (jobs is not None and jobs > 1):
        return run_snakemake(experiment, tasks, callbacks, jobs=jobs, profile=profile, whole=not only)
    return _run_in_process(experiment, tasks, callbacks, wait)


def _run_in_process(
    experiment: Experiment, tasks: Sequence[StageTask], callbacks: RunCallbacks, wait: float
) -> ExperimentRun:
    """Run stages one after the other in this process."""
    result = ExperimentRun()
    for number, task in enumerate(tasks, start=1):
        if task.is_finished(experiment.folder):
            result.before.append(task)
        elif (missing := task.find_missing_need(experiment.folder)) is not None:
            result.waiting.append(StageProblem.of_missing(task, missing))
        else:
            callbacks.on_stage(task, number, len(tasks))
            try:
                result.add(task, run_stage(experiment, task, wait), callbacks)
            except BusyError as busy:
                result.waiting.append(StageProblem(task, str(busy)))
    return result
