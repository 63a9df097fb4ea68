"""``eclose experiment`` as a user meets it."""

import io
import re
import sys

import pytest
import torch  # noqa: F401 - init imports it
from rich.console import Console
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files.manifest import Manifest
from eclose.files.outcome_counts import RecordCounts
from eclose_train.cli.live import LiveProgress
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import load_experiment, write_failure, write_stage_file
from tests.experiment.plans import write_data, write_plan

pytestmark = pytest.mark.torch


def command(*words):
    result = CliRunner().invoke(app, ["experiment", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def data(tmp_path):
    write_data(tmp_path)
    return tmp_path


def test_init_prints_the_grid_and_what_it_takes(data):
    output = command("init", write_plan(data), "--out", data / "exp")
    lines = output.splitlines()
    assert lines[0] == f"{data / 'exp'}: 5 cells; finished of all"
    assert lines[1].split() == ["backbone", "method", "cells", *Stage]
    assert lines[2].split() == ["Small", "backbone", "1", "-", "-", "0/1", "0/1", "0/1"]
    assert lines[3].split() == ["Small", "sft", "2", *["0/2"] * 5]
    assert "Expected: 4 adapters, 5 switch runs, 10 responses" in output
    assert "Training, main comparison: hours unknown" in output


def test_init_again_says_what_is_finished(data):
    command("init", write_plan(data), "--out", data / "exp")
    experiment = load_experiment(data / "exp")
    train = next(task for task in experiment.tasks if task.stage is Stage.TRAIN)
    write_stage_file(train, experiment.folder)
    manifest = Manifest("train", {}, {}, {}, RecordCounts(2, 2), run={"seconds": 60})
    manifest.write(train.result_path(experiment.folder))
    output = command("init", write_plan(data, seeds=[1, 2, 3]), "--out", data / "exp")
    assert output.splitlines()[3].split() == ["Small", "sft", "3", "1/3", *["0/3"] * 4]


def test_a_plan_without_its_data_is_planned_from_the_counts(tmp_path):
    counts = {"train_family_count": 5, "development_family_count": 5, "question_count": 100}
    output = command("init", write_plan(tmp_path, **counts), "--out", tmp_path / "exp")
    assert "500 responses" in output
    assert f"not there yet: questions: {tmp_path / 'questions.jsonl'}" in output


def test_status_shows_every_state_with_reasons(data):
    command("init", write_plan(data), "--out", data / "exp")
    experiment = load_experiment(data / "exp")
    train, select, *_ = [task for task in experiment.tasks if task.cell.is_tuned]
    for task in (train, select):
        write_stage_file(task, experiment.folder)
    (train.folder(experiment.folder) / "manifest.json").write_text("{}")
    write_failure(select, experiment.folder, "no answers", None)
    lines = command("status", data / "exp").splitlines()
    assert lines[0] == f"{data / 'exp'}: 1 of 23 stages finished"
    assert lines[2].split() == ["Small", "backbone", "-", "-", "-", "open", "open", "open"]
    assert lines[3].split() == ["Small", "sft", "1", "finished", "failed", "open", "open", "open"]
    assert lines[-1] == "failed: Small sft 1, select: no answers"


def test_status_names_the_stages_of_an_earlier_plan(data):
    command("init", write_plan(data), "--out", data / "exp")
    experiment = load_experiment(data / "exp")
    train = next(task for task in experiment.tasks if task.stage is Stage.TRAIN)
    write_stage_file(train, experiment.folder)
    command("init", write_plan(data, training={"lora_rank": 2}), "--out", data / "exp")
    last = command("status", data / "exp").splitlines()[-1]
    assert last == f"not of this plan: {train.folder(experiment.folder)} (Small sft 1)"


def test_a_folder_without_a_plan_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="there is no plan"):
        CliRunner().invoke(app, ["experiment", "status", str(tmp_path)], catch_exceptions=False)


def test_a_live_table_counts_finished_stages_and_names_those_that_run(data, capsys):
    command("init", write_plan(data), "--out", data / "exp")
    experiment = load_experiment(data / "exp")
    train, select, *_ = [task for task in experiment.tasks if task.cell.is_tuned]
    progress = LiveProgress(experiment)
    progress.begin(train, 1, 23)
    sys.stdout.write("loss 0.1\n")
    (train.folder(experiment.folder) / "manifest.json").write_text("{}")
    progress.end(train, None)
    progress.begin(select, 2, 23)
    progress.end(select, "no answers")
    progress.begin(select, 2, 23)
    progress.close()
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(progress.draw())
    text = " ".join(console.export_text().split())
    assert "1 of 23 stages finished" in text
    assert re.search(r"Small\W+sft\W+2\W+1/2\W+0/2", text)
    assert "running: Small sft 1: select" in text
    assert "failed: Small sft 1: select no answers" in text
    # What a stage prints is in its log and not over the table.
    assert (train.folder(experiment.folder) / "stage.log").read_text() == "loss 0.1\n"
    sys.stdout.write("after\n")
    assert capsys.readouterr().out == "after\n"
