"""Experiments on Snakemake: what its Snakefile declares, failures, kills, and plans that grow."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")
pytest.importorskip("snakemake", reason="needs the experiment extra")

from eclose.calls.ledger.database import WriterLock
from eclose.errors import SettingError, UserError
from eclose_train.experiment import snakefile
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import StageState, init_experiment
from eclose_train.experiment.results import report_experiment
from eclose_train.experiment.run import run_experiment
from tests.experiment.plans import read_results, read_tables

pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    # Sums of more threads differ in the last bits.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_the_snakefile_declares_the_last_file_of_every_stage_and_nothing_else(write, tmp_path):
    experiment = init_experiment(write(seeds=[1, 2]), tmp_path / "exp")
    text = snakefile.format_snakefile(experiment)
    declared = re.findall(r"output:\n +\"(.*)\",\n(?! {8})", text)
    assert set(declared) == {f"{stage}/{{id}}/{file}" for stage, file in _last_files(experiment).items()}
    for task in experiment.tasks:
        needs = ", ".join(f'"{need.id}"' for need in task.needs)
        assert f'"{task.id}": [{needs}],  # {task.cell}' in text
    assert text.count("gpu=1") == 4
    assert text.count("ledger=1,") == 1
    shared = init_experiment(write(judge=write_judge(ledger="postgresql://host/ledger")), tmp_path / "shared")
    assert "ledger=1," not in snakefile.format_snakefile(shared)


def _last_files(experiment):
    return {task.stage: task.result_path(experiment.folder).name for task in experiment.tasks}


def write_judge(**more):
    return {"model": "world", "base_url": "http://127.0.0.1:9/v1", "unpriced": True, **more}


def test_without_snakemake_the_extra_is_named(write, tmp_path, monkeypatch):
    experiment = init_experiment(write(), tmp_path / "exp")
    with pytest.raises(SettingError, match="--jobs 0"):
        run_experiment(experiment, jobs=0)
    monkeypatch.setattr(snakefile, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'eclose\[experiment\]'"):
        run_experiment(experiment, jobs=2)


@pytest.mark.study  # in short: a signal, and a failed stage in this process
def test_a_failed_stage_on_snakemake_does_not_stop_the_others_and_a_new_seed_runs_alone(write, tmp_path):
    only = ["stage=train", "stage=switch", "method=backbone", "method=e_closure"]
    broken = init_experiment(write(launcher="sh -c 'exit 7'"), tmp_path / "exp")
    result = run_experiment(broken, only, jobs=2)
    assert [(problem.task.stage, problem.task.cell.seed) for problem in result.failed] == [(Stage.TRAIN, 1)]
    assert "exit code 7" in result.failed[0].problem
    assert [str(task.cell) for task in result.finished] == ["Small backbone"]
    assert [problem.problem for problem in result.waiting] == ["select of this cell is not finished"]
    assert broken.state(result.failed[0].task) is StageState.FAILED

    # The same folder with a plan that works: training alone is run again, and then the new seed alone.
    for seeds in ([1], [1, 2]):
        experiment = init_experiment(write(seeds=seeds), tmp_path / "exp")
        result = run_experiment(experiment, ["stage=train"], jobs=2)
        assert [(task.stage, task.cell.seed) for task in result.finished] == [(Stage.TRAIN, seeds[-1])]
        assert len(result.before) == len(seeds) - 1
    assert experiment.state(experiment.tasks[-1]) is StageState.OPEN


def start(experiment):
    words = [sys.executable, "-m", "eclose.cli.main", "experiment", "run", str(experiment.folder)]
    words += ["--jobs", "2"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ))


def test_a_signal_ends_the_stages_before_the_run(write, tmp_path):
    experiment = init_experiment(write(), tmp_path / "exp")
    process = start(experiment)
    begun = [task.folder(experiment.folder) / "stage.json" for task in experiment.tasks]
    end = time.monotonic() + 600
    while not any(path.is_file() for path in begun) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    for path in begun:
        WriterLock(path, "a test").release()
    assert StageState.FAILED not in {experiment.state(task) for task in experiment.tasks}


@pytest.mark.study  # in short: the kill in test_run.py, and the failed stage and the signal here
def test_killed_on_snakemake_it_ends_as_an_unbroken_run(write, tmp_path):
    whole, broken = (init_experiment(write(), tmp_path / name) for name in ("whole", "broken"))
    assert not run_experiment(whole).failed
    kills = 0
    for stage in (Stage.TRAIN, Stage.JUDGE):
        (task,) = [task for task in broken.tasks if task.stage is stage and task.cell.is_tuned]
        process = start(broken)
        end = time.monotonic() + 600
        while not (task.folder(broken.folder) / "stage.json").is_file() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills == 2
    process = start(broken)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert read_results(broken.folder) == read_results(whole.folder)
    for experiment in (whole, broken):
        report_experiment(experiment)
    assert read_tables(broken.folder / "report") == read_tables(whole.folder / "report")
