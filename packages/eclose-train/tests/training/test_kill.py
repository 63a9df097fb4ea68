"""kill -9 at bad moments: the same command again ends where an unbroken run does, bit for bit."""

import json
import os
import signal
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load_file

from eclose_train.training.recipe import read_recipe
from eclose_train.training.run import TrainingPlan

RECIPE = """
model: {model}
use_cpu: true
families_per_update: 2
num_train_epochs: 3
save_strategy: steps
save_steps: 2
logging_steps: 1
learning_rate: 1e-2
warmup_steps: 2
demonstrations: 0
report_to: none
lora_rank: 4
gradient_checkpointing: false
"""
PATIENCE = 240


@pytest.fixture
def recipe(model_folder, tmp_path):
    """Three updates an epoch, and checkpoints in the middle of epochs."""
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(model=model_folder))
    return path


@pytest.fixture
def command(forks, recipe, family_file, tmp_path):
    """The command of a run: started in a process of its own, to be killed at a moment or to come to its end."""

    def run(out, moment=None, sent=signal.SIGKILL, code=-signal.SIGKILL):
        words = ["train", str(family_file), "--recipe", str(recipe), "--out", str(out)]
        output = tmp_path / "output.txt"
        (process,) = forks.start("eclose.cli.main", words, output)
        if moment is not None:
            wait_for(moment)
            os.kill(process, sent)
        assert forks.wait() == (0 if moment is None else code), output.read_text()
        return output.read_text()

    return run


def wait_for(moment):
    deadline = time.monotonic() + PATIENCE
    while not moment():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def trajectory_of(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timeless = [{name: value for name, value in line.items() if not name.startswith("train_")} for line in lines]
    return [line for line in timeless if "loss" in line]


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_the_same(command, recipe, family_file, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    TrainingPlan(family_file, read_recipe(recipe, {}), whole).run()

    # Between two checkpoints, in the middle of an epoch.
    command(broken, (broken / "checkpoint-2" / "complete.json").exists)
    assert not (broken / "manifest.json").exists()
    # The log is there up to the moment of the kill, and its first lines are those of the unbroken run.
    logged = trajectory_of(broken)
    assert len(logged) >= 2
    assert logged == trajectory_of(whole)[: len(logged)]
    # While a checkpoint is written: some of it is there, the word that it is whole is not.
    torn = broken / "checkpoint-6"
    command(broken, (torn / "adapter_model.safetensors").exists)
    output = command(broken)
    assert "resumed from" in output
    assert (broken / "adapter" / "adapter_model.safetensors").read_bytes() == (
        whole / "adapter" / "adapter_model.safetensors"
    ).read_bytes()
    assert trajectory_of(broken) == trajectory_of(whole)
    assert len(trajectory_of(whole)) == 9
    steps = sorted(path.name for path in whole.glob("checkpoint-*"))
    assert steps == ["checkpoint-3", "checkpoint-6", "checkpoint-9"]
    assert steps == sorted(path.parent.name for path in broken.glob("checkpoint-*/complete.json"))
    for step in steps:
        ours, expected = (load_file(out / step / "adapter_model.safetensors") for out in (broken, whole))
        assert all(torch.equal(ours[name], expected[name]) for name in ours | expected), step
    manifests = [json.loads((out / "manifest.json").read_text()) for out in (whole, broken)]
    assert manifests[0]["counts"] == manifests[1]["counts"]
    assert manifests[0]["outputs"]["adapter_model.safetensors"] == manifests[1]["outputs"]["adapter_model.safetensors"]


@pytest.mark.slow
def test_a_terminated_run_saves_and_ends_the_same(command, recipe, family_file, tmp_path):
    recipe.write_text(recipe.read_text().replace("save_strategy: steps\nsave_steps: 2\n", ""))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    TrainingPlan(family_file, read_recipe(recipe, {}), whole).run()
    log = broken / "metrics.jsonl"
    output = command(broken, lambda: log.exists() and log.read_bytes().count(b"\n"), signal.SIGTERM, code=143)
    assert "asked to terminate, stopped after update" in output.splitlines()[-1]
    (checkpoint,) = broken.glob("checkpoint-*")
    step = int(checkpoint.name.partition("-")[2])
    assert step < 9
    assert json.loads((checkpoint / "complete.json").read_text())["candidate"] is (step % 3 == 0)
    assert "resumed from" in command(broken)
    adapters = [(out / "adapter" / "adapter_model.safetensors").read_bytes() for out in (broken, whole)]
    assert adapters[0] == adapters[1]
    assert trajectory_of(broken) == trajectory_of(whole)
    # The candidates are those of the unbroken run, one per epoch.
    assert sorted(path.name for path in broken.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6", "checkpoint-9"]
