"""``eclose experiment`` as a user meets it."""

import pytest
import torch  # noqa: F401 - init imports it
from tests.experiments.plans import write_data, write_plan
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import UserError
from eclose.experiments.cells import Stage
from eclose.experiments.folder import load_experiment, write_failure, write_stage_file


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
    (train.folder(experiment.folder) / "manifest.json").write_text("{}")
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
