"""Several stages at once: the results of one process, dead processes, signals and kills."""

import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from tests.experiments.plans import read_results, read_tables

from eclose.errors import SettingError
from eclose.experiments.cells import Stage
from eclose.experiments.folder import StageState, init_experiment
from eclose.experiments.processes import list_slot_devices
from eclose.experiments.results import report_experiment
from eclose.experiments.run import run_experiment
from eclose.store.ledger.database import WriterLock

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    # Sums of more threads differ in the last bits.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_devices_are_divided_among_processes():
    assert list_slot_devices(2, []) == [[], []]
    assert list_slot_devices(2, ["0", "1", "2", "3"]) == [["0", "2"], ["1", "3"]]
    assert list_slot_devices(3, ["4", "5"]) == [["4"], ["5"], ["4"]]


@pytest.mark.slow
def test_two_stages_at_once_give_the_results_of_one_process(write, tmp_path):
    here, apart = (init_experiment(write(), tmp_path / name) for name in ("here", "apart"))
    only, begun = ["stage=train", "stage=switch"], []
    assert not run_experiment(here, only).failed
    result = run_experiment(apart, only, jobs=2, on_stage=lambda task, _number, _total: begun.append(task))
    assert not result.failed, result.failed
    # The switch test of the adapter needs the selection, which was not chosen.
    assert {str(problem.task.cell) for problem in result.waiting} == {"Small e_closure 1"}
    assert {(task.stage, task.cell.method) for task in begun} == {("train", "e_closure"), ("switch", "backbone")}
    assert set(begun) == set(result.finished)
    assert read_results(apart.folder) == read_results(here.folder)
    assert all((task.folder(apart.folder) / "stage.log").is_file() for task in begun)
    again = run_experiment(apart, only, jobs=2)
    assert set(again.before) == set(begun)
    with pytest.raises(SettingError, match="--jobs 0"):
        run_experiment(apart, jobs=0)


@pytest.mark.slow
def test_a_process_that_dies_has_failed_and_the_others_go_on(write, tmp_path):
    # The launcher of training kills the process of its stage.
    experiment = init_experiment(write(launcher="sh -c 'kill -9 $PPID'"), tmp_path / "exp")
    result = run_experiment(experiment, ["stage=train", "stage=select", "stage=switch"], jobs=2)
    assert [(problem.task.stage, problem.task.cell.method) for problem in result.failed] == [("train", "e_closure")]
    assert "was ended by signal 9" in result.failed[0].problem
    assert experiment.state(result.failed[0].task) is StageState.FAILED
    assert [str(task.cell) for task in result.finished] == ["Small backbone"]
    assert {problem.task.stage for problem in result.waiting} == {Stage.SELECT, Stage.SWITCH}


def start(experiment, *more):
    words = [sys.executable, "-m", "eclose.cli.main", "experiment", "run", str(experiment.folder), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wait_until(condition, process):
    end = time.monotonic() + 600
    while not condition() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_a_signal_ends_the_stages_before_the_run(write, tmp_path):
    experiment = init_experiment(write(), tmp_path / "exp")
    process = start(experiment, "--jobs", "2")
    begun = [task.folder(experiment.folder) / "stage.json" for task in experiment.tasks]
    wait_until(lambda: any(path.is_file() for path in begun), process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    for path in begun:
        WriterLock(path, "a test").release()
    assert StageState.FAILED not in {experiment.state(task) for task in experiment.tasks}


@pytest.mark.slow
def test_killed_with_two_stages_at_once_it_ends_as_an_unbroken_run(write, tmp_path):
    whole, broken = (init_experiment(write(), tmp_path / name) for name in ("whole", "broken"))
    assert not run_experiment(whole).failed
    kills = 0
    for stage in (Stage.TRAIN, Stage.SELECT, Stage.JUDGE):
        (task,) = [task for task in broken.tasks if task.stage is stage and task.cell.is_tuned]
        process = start(broken, "--jobs", "2")
        wait_until((task.folder(broken.folder) / "stage.json").is_file, process)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.communicate()
    assert kills >= 2
    process = start(broken, "--jobs", "2")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert read_results(broken.folder) == read_results(whole.folder)
    for experiment in (whole, broken):
        report_experiment(experiment)
    assert read_tables(broken.folder / "report") == read_tables(whole.folder / "report")
