"""Experiments on Snakemake: a Snakefile with one rule for each kind of stage, and its run.

The state of an experiment stays in the folders of its stages. A rule declares the file that its stage writes last and
nothing else: Snakemake removes declared files of jobs that failed, and checkpoints must survive.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile
from eclose_train.experiment.cells import ExperimentRun, Stage, StageProblem, StageTask
from eclose_train.experiment.folder import STAGE_LOG_FILE, StageState, write_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose_train.experiment.folder import Experiment

SNAKEFILE = "Snakefile"
GRACE_SECONDS = 120.0
"""Time that stages have to write a checkpoint and end when the run is stopped."""
_SUPERVISED = """
import os, runpy, signal, threading

def end_with_parent():
    while os.read(0, 1):
        pass
    os.killpg(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_parent, daemon=True).start()
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""
"""Runs Snakemake in a process group that ends with its parent, also where that was killed: standard input then ends.
Otherwise stages would go on without the run that started them, and the next run would find them locked."""
_NEEDS = {
    Stage.SELECT: Stage.TRAIN,
    Stage.GENERATE: Stage.SELECT,
    Stage.JUDGE: Stage.GENERATE,
    Stage.SWITCH: Stage.SELECT,
}
"""Kind of stage that a stage needs; the stages of an untuned backbone need none."""
_HEADER = """\
# Stages of an experiment: one rule for each kind, one entry for each stage. Written by
# eclose experiment run DIR --jobs N, anew at every run. To run it without eclose, in the folder of this file:
#
#     snakemake --cores 2 --keep-going --rerun-incomplete --rerun-triggers mtime --resources ledger=1
#
# A stage is in a folder of its own, KIND/ID, and finished when its output is there. The command continues a stage that
# was interrupted. Settings and inputs of a stage decide its id, so an output never has to be made again: inputs are
# "ancient", whose time does not matter.

import shlex
import sys

ECLOSE = config.get("eclose", f"{shlex.quote(sys.executable)} -m eclose.cli.main")
# A stage that a killed run left behind may still run: wait for it.
RUN = f"{ECLOSE} experiment run {shlex.quote(workflow.basedir)} --wait inf"


wildcard_constraints:
    id="[0-9a-f]+",
"""


def format_snakefile(experiment: Experiment) -> str:
    """Return the Snakefile of an experiment."""
    groups = {stage: [task for task in experiment.tasks if task.stage is stage] for stage in Stage}
    groups = {stage: tasks for stage, tasks in groups.items() if tasks}
    tables = "\n".join(_format_table(stage, tasks) for stage, tasks in groups.items())
    targets = "\n".join(
        f'        expand("{_output(tasks[0])}", id={stage.upper()}),' for stage, tasks in groups.items()
    )
    rules = "\n".join(_format_rule(tasks[0], experiment) for tasks in groups.values())
    return "\n".join(
        [
            f"{_HEADER}\n",
            "# Id of every stage, with the ids of the stages that it needs.",
            f"{tables}\n",
            f"rule all:\n    input:\n{targets}\n\n",
            rules,
        ]
    )


def _format_table(stage: Stage, tasks: Sequence[StageTask]) -> str:
    rows = [f'    "{task.id}": {json.dumps([need.id for need in task.needs])},  # {task.cell}' for task in tasks]
    return "\n".join([f"{stage.upper()} = {{", *rows, "}", ""])


def _output(task: StageTask) -> str:
    return f"{task.stage}/{{id}}/{task.result_path(Path()).name}"


def _format_rule(task: StageTask, experiment: Experiment) -> str:
    stage = task.stage
    lines = [f"rule {stage}:"]
    if (need := _NEEDS.get(stage)) is not None:
        result = StageTask(task.cell, need, {}).result_path(Path()).name
        lines += [
            "    input:",
            f'        lambda wildcards: [ancient(f"{need}/{{id}}/{result}") for id in {stage.upper()}[wildcards.id]],',
        ]
    lines += ["    output:", f'        "{_output(task)}",']
    if stage is Stage.JUDGE:
        # A ledger in a file admits one process at a time; a database admits many.
        if isinstance(experiment.judge_ledger, Path):
            lines += ["    resources:", "        ledger=1,"]
    else:
        lines += ['    threads: config.get("threads", 1)', "    resources:", "        gpu=1,"]
    # The output of Snakemake's own log directive would be removed before the stage goes on.
    log = f"{stage}/{{wildcards.id}}/{STAGE_LOG_FILE}"
    lines += ["    retries: 1", "    shell:"]
    lines += [f'        "{{RUN}} --only stage={stage} --only id={{wildcards.id}} >> {log} 2>&1"', "", ""]
    return "\n".join(lines)


def run_snakemake(
    experiment: Experiment,
    tasks: Sequence[StageTask],
    result: ExperimentRun,
    *,
    jobs: int | None = None,
    profile: str | None = None,
    whole: bool = True,
) -> None:
    """Run stages, with the stages that they need, on Snakemake; Ctrl+C and SIGTERM end its jobs on this machine.

    The result is filled when Snakemake has ended. ``whole`` says that all stages are chosen.

    Raises:
        UserError: Snakemake is not installed, or ended before it ran a stage.
    """
    if find_spec("snakemake") is None:
        raise UserError(
            "--jobs: several stages at once need Snakemake. Run: pip install 'eclose[experiment]', or leave it out."
        )
    result.before = [task for task in tasks if task.is_finished(experiment.folder)]
    chosen = [task for task in tasks if task not in set(result.before)]
    for task in experiment.tasks:
        # Snakemake goes by the file alone, and one without a result in it is to be made again.
        if not task.is_finished(experiment.folder):
            task.result_path(experiment.folder).unlink(missing_ok=True)
    snakefile = experiment.folder / SNAKEFILE
    with AtomicFile(snakefile) as file:
        file.write(format_snakefile(experiment).encode())
    words = list(_list_options(experiment, snakefile, jobs, profile))
    if not whole:
        words += ["--", *(str(task.result_path(Path())) for task in chosen)]
    exit_code = _run_supervised(words)
    for task in chosen:
        _record(experiment, task, result)
    if exit_code and not result.failed:
        raise UserError(f"Snakemake ended with exit code {exit_code}; its messages are above.")


def _run_supervised(words: Sequence[str]) -> int:
    # Ctrl+C on a terminal reaches this process alone, which then ends its children in order.
    command = [sys.executable, "-c", _SUPERVISED, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            with _interrupt_on_termination():
                return process.wait()
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process group to terminate; kill it where it is still there after the grace period or Ctrl+C."""
    if process.poll() is not None:
        return
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal_group(process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@contextmanager
def _interrupt_on_termination() -> Iterator[None]:
    """Let SIGTERM act as Ctrl+C, so that processes are ended before this one."""
    if threading.current_thread() is not threading.main_thread():  # signals can be set only there
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def list_devices() -> list[str]:
    """Return the indices of the GPUs that this process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in visible.split(",") if device.strip()]
    from torch import cuda  # noqa: PLC0415 - slow to import

    return [str(index) for index in range(cuda.device_count())]


def _list_options(experiment: Experiment, snakefile: Path, jobs: int | None, profile: str | None) -> Iterator[str]:
    yield from (f"--snakefile={snakefile}", f"--directory={experiment.folder}")
    # Stages have locks of their own; Snakemake's would have to be removed by hand after a kill.
    yield from ("--nolock", "--keep-going", "--rerun-incomplete", "--rerun-triggers", "mtime")
    if profile is not None:
        yield f"--profile={profile}"
        if jobs is not None:
            yield f"--jobs={jobs}"
        return
    # Snakemake gives every job the number of threads of its rule, whatever the environment says.
    jobs = jobs or 1
    threads = int(os.environ.get("OMP_NUM_THREADS", max(1, (os.cpu_count() or 1) // jobs)))
    yield from (f"--cores={jobs * threads}", "--config", f"threads={threads}", "--resources", "ledger=1")
    # Jobs on this machine would all use its first GPU.
    if list_devices():
        yield "gpu=1"


def _record(experiment: Experiment, task: StageTask, result: ExperimentRun) -> None:
    state = experiment.state(task)
    if state is StageState.FINISHED:
        result.add(task, None)
    elif (missing := task.find_missing_need(experiment.folder)) is not None:
        result.waiting.append(StageProblem.of_missing(task, missing))
    elif state is StageState.FAILED:
        result.add(task, experiment.read_failure(task))
    elif state is StageState.BEGUN:
        log = task.folder(experiment.folder) / STAGE_LOG_FILE
        problem = f"its job ended without a result; its output is in {log}"
        write_failure(task, experiment.folder, problem, None)
        result.add(task, problem)
    else:
        result.waiting.append(StageProblem(task, "Snakemake did not start it"))
