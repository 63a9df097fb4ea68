"""Outcome of a run of an experiment: every chosen stage by what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eclose.experiments.cells import StageTask


@dataclass(frozen=True)
class StageProblem:
    """A stage that was not run to its end, with the reason."""

    task: StageTask
    problem: str

    @classmethod
    def of_missing(cls, task: StageTask, missing: StageTask) -> StageProblem:
        """Return the problem of a stage that needs another one."""
        return cls(task, f"{missing.stage} of this cell is not finished")


@dataclass(frozen=True)
class RunCallbacks:
    """Functions that are told the progress of a run."""

    on_stage: Callable[[StageTask, int, int], None]
    """Called before a stage, with its number among the chosen ones and their total."""
    on_result: Callable[[StageTask, str | None], None]
    """Called after a stage, with the reason where it failed."""


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

    def add(self, task: StageTask, problem: str | None, callbacks: RunCallbacks) -> None:
        """Record a stage that was run, with the reason where it failed."""
        if problem is None:
            self.finished.append(task)
        else:
            self.failed.append(StageProblem(task, problem))
        callbacks.on_result(task, problem)
