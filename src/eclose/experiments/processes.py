"""Several stages of an experiment at once on one machine, each in a process of its own.

A stage's process is the command ``eclose experiment run DIR --only stage=... --only id=...``; what it did is read from
the folder of the stage.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eclose.experiments.cells import FAILURE_FILE, Stage, StageTask
from eclose.experiments.folder import STAGE_LOG_FILE, Experiment, write_failure
from eclose.experiments.run_result import ExperimentRun, RunCallbacks, StageProblem
from eclose.experiments.supervised import close_supervised, interrupt_on_termination, start_supervised, stop_supervised

POLL_SECONDS = 0.1
GRACE_SECONDS = 120.0
"""Time that a stage has to write a checkpoint and end when the run is stopped."""
LOCK_SECONDS = 60.0
"""Shortest time that a process waits for its stage. The processes of a run that was killed end only after it."""
_BUSY_EXIT_CODE = 3
"""Exit code of ``eclose experiment run`` where a stage failed or another process runs it."""


def run_stage_processes(
    experiment: Experiment, tasks: Sequence[StageTask], jobs: int, callbacks: RunCallbacks, wait: float = 0.0
) -> ExperimentRun:
    """Run stages that are not finished, ``jobs`` at once; Ctrl+C and SIGTERM end their processes.

    Args:
        experiment: The experiment.
        tasks: The chosen stages, each after the stages that it needs.
        jobs: Largest number of processes.
        callbacks: Functions that are told the progress.
        wait: Longest time to wait for a stage that a process of another run runs, in seconds.
    """
    pool = _StagePool(experiment, callbacks, list_slot_devices(jobs, list_devices()), max(wait, LOCK_SECONDS))
    pool.pending = dict(enumerate(tasks, start=1))
    pool.total = len(tasks)
    try:
        with interrupt_on_termination():
            while pool.advance():
                time.sleep(POLL_SECONDS)
    finally:
        stop_supervised([running.process for running in pool.running.values()], GRACE_SECONDS)
    return pool.result


def list_devices() -> list[str]:
    """Return the indices of the GPUs that this process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in visible.split(",") if device.strip()]
    from torch import cuda  # noqa: PLC0415 - slow to import

    return [str(index) for index in range(cuda.device_count())]


def list_slot_devices(jobs: int, devices: Sequence[str]) -> list[list[str]]:
    """Divide devices among processes: several for each where there are enough, otherwise processes share them."""
    if not devices:
        return [[] for _ in range(jobs)]
    return [list(devices[slot::jobs]) or [devices[slot % len(devices)]] for slot in range(jobs)]


@dataclass(frozen=True)
class _RunningStage:
    task: StageTask
    process: subprocess.Popen[bytes]


@dataclass
class _StagePool:
    """Stages that wait, and those that run, one in each slot."""

    experiment: Experiment
    callbacks: RunCallbacks
    devices: Sequence[Sequence[str]]
    """Devices of every slot."""
    wait: float
    pending: dict[int, StageTask] = field(default_factory=dict)
    """Stages that were not started, by their number."""
    total: int = 0
    running: dict[int, _RunningStage] = field(default_factory=dict)
    """Running stages by slot."""
    result: ExperimentRun = field(default_factory=ExperimentRun)

    def advance(self) -> bool:
        """Record stages that ended and start others; return whether anything runs."""
        for slot, running in list(self.running.items()):
            if (exit_code := running.process.poll()) is not None:
                del self.running[slot]
                close_supervised(running.process)
                self._record(running.task, exit_code)
        for number, task in list(self.pending.items()):
            if task.is_finished(self.experiment.folder):
                self.result.before.append(task)
                del self.pending[number]
            elif len(self.running) < len(self.devices) and self._may_start(task):
                del self.pending[number]
                self.callbacks.on_stage(task, number, self.total)
                slot = next(slot for slot in range(len(self.devices)) if slot not in self.running)
                self.running[slot] = _RunningStage(task, self._start(task, slot))
        if not self.running:
            # All that is left needs a stage that failed or was not chosen.
            for task in self.pending.values():
                missing = task.find_missing_need(self.experiment.folder)
                assert missing is not None
                self.result.waiting.append(StageProblem.of_missing(task, missing))
            self.pending.clear()
        return bool(self.running)

    def _may_start(self, task: StageTask) -> bool:
        if task.find_missing_need(self.experiment.folder) is not None:
            return False
        # A ledger in a file admits one process at a time, so a second judge would hold a slot and wait for the first.
        judging = any(running.task.stage is Stage.JUDGE for running in self.running.values())
        return task.stage is not Stage.JUDGE or not judging or not isinstance(self.experiment.judge_ledger, Path)

    def _start(self, task: StageTask, slot: int) -> subprocess.Popen[bytes]:
        folder = task.folder(self.experiment.folder)
        folder.mkdir(parents=True, exist_ok=True)
        # A reason that is there when the process has ended is then its own.
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        # Threads of several processes on the same cores slow each other down.
        threads = max(1, (os.cpu_count() or 1) // len(self.devices))
        env = {"OMP_NUM_THREADS": str(threads), **os.environ}
        if self.devices[slot]:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices[slot])
        words = ["eclose.cli.main", "experiment", "run", str(self.experiment.folder)]
        words += [f"--only=stage={task.stage}", f"--only=id={task.id}", f"--wait={self.wait}"]
        with (folder / STAGE_LOG_FILE).open("ab") as log:
            return start_supervised(words, env=env, output=log)

    def _record(self, task: StageTask, exit_code: int) -> None:
        """Record the outcome of a stage from its folder; a process that died without a word has failed."""
        root = self.experiment.folder
        if task.is_finished(root):
            self.result.add(task, None, self.callbacks)
        elif (task.folder(root) / FAILURE_FILE).is_file():
            self.result.add(task, self.experiment.read_failure(task), self.callbacks)
        elif exit_code == _BUSY_EXIT_CODE:
            self.result.waiting.append(StageProblem(task, "another process is running it"))
        else:
            # subprocess gives the number of a signal with a minus.
            ending = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
            problem = f"its process {ending}; its output is in {task.folder(root) / STAGE_LOG_FILE}"
            write_failure(task, root, problem, None)
            self.result.add(task, problem, self.callbacks)
