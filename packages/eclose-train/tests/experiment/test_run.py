"""Experiments run to their end on a small model that answers: stages in order, nothing twice, kills and failures."""

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from typer.testing import CliRunner

from eclose.api.results import diagnose
from eclose.calls.ledger.database import WriterLock
from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.readers.judged_run import read_judged_cases
from eclose.values.response import Response
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import StageState, init_experiment, load_experiment
from eclose_train.experiment.results import collect_results, report_experiment
from eclose_train.experiment.run import run_experiment
from eclose_train.training.switch_test import FamilySwitchScores
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry
from tests.experiment.plans import read_results

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def test_an_experiment_runs_from_training_to_the_switch_test_and_only_once(write, tmp_path):
    experiment = init_experiment(write(), tmp_path / "exp")
    result = run_experiment(experiment)
    assert not result.failed, result.failed
    assert len(result.finished) == len(experiment.tasks) == 8
    assert {experiment.state(task) for task in experiment.tasks} == {StageState.FINISHED}
    by_stage = {task.stage: task for task in experiment.tasks if task.cell.is_tuned}
    responses = list(read_records(by_stage[Stage.GENERATE].folder(experiment.folder) / "responses.jsonl", Response))
    assert {(row.source.model, row.source.method, row.source.seed) for row in responses} == {("Small", "e_closure", 1)}
    assert len(diagnose(by_stage[Stage.JUDGE].folder(experiment.folder))) == 2
    switches = by_stage[Stage.SWITCH].folder(experiment.folder) / "switches.jsonl"
    assert {row.method for row in read_records(switches, FamilySwitchScores)} == {"e_closure"}
    again = run_experiment(tmp_path / "exp")
    assert (len(again.finished), len(again.before)) == (0, 8)

    before = read_results(tmp_path / "exp")
    extended = init_experiment(write(seeds=[1, 2]), tmp_path / "exp")
    more = run_experiment(extended)
    assert {(task.cell.seed, task.stage) for task in more.finished} == {(2, stage) for stage in Stage}
    assert {path: data for path, data in read_results(tmp_path / "exp").items() if path in before} == before


def test_the_report_has_the_rates_of_all_cells_and_names_what_is_missing(finished_experiment, write, tmp_path):
    with pytest.raises(UserError, match="no response has a verdict"):
        report_experiment(init_experiment(write(), tmp_path / "open"))
    experiment = load_experiment(shutil.copytree(finished_experiment.folder, tmp_path / "exp"))
    whole, _ = report_experiment(experiment)
    assert not whole.missing
    assert not whole.left_out
    verdicts = collect_results(experiment).verdicts
    sources = {(row.source.model, row.source.method, row.source.seed) for row in verdicts}
    assert sources == {("Small", None, None), ("Small", "e_closure", 1)}
    judged = next(task for task in experiment.tasks if task.stage is Stage.JUDGE and task.cell.is_tuned)
    cases = read_judged_cases(judged.folder(experiment.folder)).cases
    report = json.loads((tmp_path / "exp" / "report" / "experiment.json").read_text())
    (rates,) = [row["rates"] for row in report["seeds"] if row["method"] == "E-Closure"]
    matches = [case.matched for case in cases]
    assert (rates["Acc_match"]["hits"], rates["Acc_match"]["unjudged"]) == (matches.count(True), matches.count(None))
    assert rates["TRR"]["hits"] == sum(case.verdict.reliable is True for case in cases)
    assert report["cost"]["runs"] == 1
    assert {row["backbone"] for row in report["switches"]["seeds"]} == {"Small"}
    init_experiment(write(seeds=[1, 2]), tmp_path / "exp")
    output = CliRunner().invoke(app, ["experiment", "report", str(tmp_path / "exp"), "--out", str(tmp_path / "part")])
    assert output.exit_code == 0, output.output
    assert "missing: Responses of E-Closure on Small, seed 2: all 2 are missing." in output.stdout
    text = (tmp_path / "part" / "experiment.md").read_text()
    assert "E-Closure on Small, seed 2: all 2 are missing" in text


def test_only_some_stages_are_run_and_the_others_wait(write, tmp_path):
    init_experiment(write(), tmp_path / "exp")
    result = run_experiment(tmp_path / "exp", ["stage=judge", "stage=switch", "method=backbone"])
    assert [task.stage for task in result.finished] == [Stage.SWITCH]
    assert [problem.problem for problem in result.waiting] == ["generate of this cell is not finished"]
    with pytest.raises(SettingError, match="--only method=dpo: the plan has backbone, e_closure"):
        run_experiment(tmp_path / "exp", ["method=dpo"])


def test_a_failed_cell_is_listed_and_does_not_stop_the_others(write, material, tmp_path):
    weights = {"Broken": tmp_path / "broken", "Small": material / "learned" / "adapter"}
    plan = write(backbones=[{"name": name, "weights": path, "learning_rate": 1e-4} for name, path in weights.items()])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    init_experiment(plan, tmp_path / "exp")
    output = CliRunner().invoke(app, ["experiment", "run", str(tmp_path / "exp"), "--only", "stage=switch"])
    assert output.exit_code == 3
    assert "1 stage finished now, 0 before, 1 failed, 2 waiting" in output.stdout
    assert "failed: Broken backbone, switch: " in output.stdout
    experiment = load_experiment(tmp_path / "exp")
    failed = [task for task in experiment.tasks if experiment.state(task) is StageState.FAILED]
    assert [str(task.cell) for task in failed] == ["Broken backbone"]
    assert experiment.read_failure(failed[0])


def test_a_judge_that_refuses_everything_has_judged_nothing(write, judge, tmp_path):
    only = ["method=backbone", "stage=generate", "stage=judge"]
    with ModelServerThread(HandlerRegistry()) as silent:
        init_experiment(write(judge=_judge(silent)), tmp_path / "exp")
        result = run_experiment(tmp_path / "exp", only)
        assert [problem.task.stage for problem in result.failed] == [Stage.JUDGE]
    # Another address of the same server name and model is the same judge, and the next run asks it again.
    experiment = init_experiment(write(judge=_judge(judge)), tmp_path / "exp")
    assert [task.stage for task in run_experiment(experiment, only).finished] == [Stage.JUDGE]


def _judge(server):
    return {"model": "world", "base_url": server.base_url, "server_name": "judge", "unpriced": True}


def test_a_stage_that_another_process_runs_is_left_to_it(write, tmp_path):
    experiment = init_experiment(write(), tmp_path / "exp")
    switch = next(task for task in experiment.tasks if task.stage is Stage.SWITCH)
    lock = WriterLock(switch.folder(experiment.folder) / "stage.json", "a test")
    result = run_experiment(experiment, ["stage=switch", "method=backbone"])
    lock.release()
    assert not result.finished
    assert "is writing to it" in result.waiting[0].problem


def test_missing_files_are_refused_before_anything_runs(write, tmp_path):
    plan = write(questions=tmp_path / "later.jsonl", question_count=2)
    experiment = init_experiment(plan, tmp_path / "exp")
    with pytest.raises(UserError, match=r"questions: .*later\.jsonl"):
        run_experiment(experiment)


def test_a_launcher_trains_in_a_process_of_its_own(write, tmp_path, monkeypatch):
    # Sums of more threads differ in the last bits.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = f"{sys.executable} -m eclose.cli.main"
    here = init_experiment(write(), tmp_path / "here")
    launched = init_experiment(write(launcher=words), tmp_path / "launched")
    assert [task.id for task in here.tasks] == [task.id for task in launched.tasks]
    for experiment in (here, launched):
        result = run_experiment(experiment, ["stage=train"])
        assert not result.failed, result.failed
    assert read_results(tmp_path / "here") == read_results(tmp_path / "launched")


@pytest.mark.parametrize(
    ("only", "least"),
    [(["stage=train"], 1), pytest.param([], 4, marks=pytest.mark.study)],
    ids=["training alone", "every stage"],
)
def test_killed_in_a_stage_it_ends_as_an_unbroken_run(write, forks, tmp_path, only, least):
    whole, broken = (init_experiment(write(), tmp_path / name) for name in ("whole", "broken"))
    assert not run_experiment(whole, only).failed
    words = ["experiment", "run", str(broken.folder), *(word for choice in only for word in ("--only", choice))]
    output = tmp_path / "output.txt"
    kills = 0
    for task in [task for task in broken.tasks if not only or (task.stage is Stage.TRAIN and task.cell.is_tuned)]:
        (process,) = forks.start("eclose.cli.main", words, output)
        end = time.monotonic() + 120
        while not task.folder(broken.folder).is_dir():
            assert time.monotonic() < end, output.read_text()
            time.sleep(0.005)
        time.sleep(0.05 * (1 + kills))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        kills += forks.wait() == -signal.SIGKILL
    assert kills >= least
    code, text = forks.run("eclose.cli.main", words, output)
    assert code == 0, text
    assert read_results(broken.folder) == read_results(whole.folder)
