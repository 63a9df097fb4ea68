"""Modes a Trainer offers: mixed precision, compilation, optimizers with a mode of their own, settings refused."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from eclose.errors import SettingError
from eclose_train.likelihood.exactness_check import choose_scoring_strategy
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy, mean_logprobs
from tests.likelihood.models import random_scores
from tests.training.small import short_families, small_config, small_model, small_trainer, trajectory

pytestmark = pytest.mark.torch


def trained(folder, backend="auto", **settings):
    settings = {"families_per_update": 2, "num_train_epochs": 1, **settings}
    trainer = small_trainer(folder, short_families(4), short_families(6)[4:], backend=backend, **settings)
    trainer.train()
    return trainer


# ---- mixed precision ----


@pytest.mark.parametrize("checkpointing", [True, False])
def test_float32_weights_train_under_bfloat16(tmp_path, checkpointing):
    """By columns, which takes raw kernels that autocast does not know, as by mask, which it does."""
    by_columns, by_mask = (
        trained(tmp_path, backend, bf16=True, gradient_checkpointing=checkpointing) for backend in ("auto", "sdpa")
    )
    assert by_columns.choice.strategy is ScoringStrategy.TREE
    assert (by_columns.choice.backend, by_mask.choice.backend) == (AttentionBackend.COLUMNS, AttentionBackend.SDPA)
    losses = [[row[0] for row in trajectory(trainer)] for trainer in (by_columns, by_mask)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    assert by_columns.evaluate()["eval_loss"] == pytest.approx(by_mask.evaluate()["eval_loss"], abs=1e-3)


def test_mixed_precision_is_in_force(tmp_path):
    """Otherwise the tests above would compare float32 with itself."""
    mixed, plain = (trained(tmp_path, bf16=bf16) for bf16 in (True, False))
    losses = [[row[0] for row in trajectory(trainer)] for trainer in (mixed, plain)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=2e-2)


def test_columns_equal_the_mask_under_autocast():
    model, scores = small_model(), random_scores(3)
    values = []
    for backend in (AttentionBackend.COLUMNS, AttentionBackend.SDPA):
        choose_scoring_strategy(model, ScoringStrategy.TREE, backend)
        with torch.autocast("cpu", torch.bfloat16):
            values.append(mean_logprobs(model, scores, ScoringStrategy.TREE, backend))
    assert torch.allclose(values[0], values[1], atol=1e-2)


def test_the_trial_is_made_in_the_mode_that_will_train(tmp_path, monkeypatch):
    calls = []

    def watched(*_, **__):
        calls.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return choose_scoring_strategy(*_, **__)

    monkeypatch.setattr("eclose_train.training.trainer.choose_scoring_strategy", watched)
    small_trainer(tmp_path, short_families(1), bf16=True)
    small_trainer(tmp_path, short_families(1))
    assert [enabled for enabled, _ in calls] == [True, False]
    assert calls[0][1] is torch.bfloat16


# ---- compilation ----


def test_a_compiled_model_is_not_compiled_anew_for_every_tree():
    """Shapes become dynamic with the second tree; from then on no tree may add a graph."""
    from torch._dynamo.testing import CompileCounter

    model = small_model()
    choose_scoring_strategy(model, ScoringStrategy.TREE, AttentionBackend.COLUMNS)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    graphs, values, plain = [], [], []
    for seed in range(3):
        scores = random_scores(seed)
        with torch.no_grad():
            plain.append(mean_logprobs(model, scores, ScoringStrategy.TREE, AttentionBackend.COLUMNS))
            values.append(mean_logprobs(compiled, scores, ScoringStrategy.TREE, AttentionBackend.COLUMNS))
        graphs.append(counter.frame_count)
    torch._dynamo.reset()
    assert graphs[0] > 0
    assert graphs[1:] == [graphs[1]] * 2
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(values, plain, strict=True))


# ---- optimizers ----


class ScheduleFree(torch.optim.SGD):
    """An optimizer as schedulefree's are: it steps in training mode alone, and its weights differ between modes."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.mode, self.modes = None, []

    def train(self):
        self.mode = "train"
        self.modes.append("train")

    def eval(self):
        self.mode = "eval"
        self.modes.append("eval")

    def step(self, closure=None):
        if self.mode != "train":
            raise RuntimeError("Optimizer was not in train mode when step is called.")
        return super().step(closure)


def test_an_optimizer_with_modes_is_told_them(tmp_path):
    trainer = small_trainer(tmp_path, short_families(2), short_families(3)[2:], families_per_update=1)
    trainer.args.num_train_epochs, trainer.args.eval_strategy = 1, "steps"
    trainer.args.eval_steps = 1
    trainer.optimizer = ScheduleFree(trainer.model.parameters(), lr=1e-3)
    trainer.train()
    assert trainer.optimizer.optimizer.modes == ["train", "eval"] * 2


def test_a_schedule_free_optimizer_trains(tmp_path):
    pytest.importorskip("schedulefree")
    trainer = trained(tmp_path, optim="schedule_free_adamw", lr_scheduler_type="constant", method="sft")
    losses = [row[0] for row in trajectory(trainer)]
    assert losses[-1] < losses[0]


def test_a_fused_optimizer_is_told_the_learning_rate(tmp_path, monkeypatch):
    """LOMO updates weights in the backward pass, so it takes the learning rate there."""
    trainer = small_trainer(tmp_path, short_families(1), torch_empty_cache_steps=1)
    trainer.create_optimizer_and_scheduler(4)
    calls, emptied = [], []
    monkeypatch.setattr(
        trainer.accelerator, "backward", lambda loss, **options: calls.append(options) or loss.backward()
    )
    monkeypatch.setattr("eclose_train.training.trainer.clear_device_cache", lambda: emptied.append(True))
    (update,) = list(trainer.get_train_dataloader())[:1]
    trainer.training_step(trainer.model, update)
    trainer.args.optim = "lomo"
    trainer.training_step(trainer.model, update)
    assert calls == [{}, {"learning_rate": pytest.approx(1e-2)}]
    assert emptied == [True, True]


# ---- settings that cannot work ----


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha: noise would be shared"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor: the objectives score the tokens"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size: set tokens_per_forward"),
        ({"data_seed": 3}, "data_seed: order and edits are drawn from seed alone"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps: an update has families_per_update"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(setting, reason):
    with pytest.raises(SettingError, match=reason):
        small_config("nowhere", **setting)


# ---- weights that are partitioned before the trial ----


def partitioned(model):
    """The model as ZeRO-3 leaves it while it is loaded: every weight is empty, and knows its number."""
    for number, weight in enumerate(model.parameters()):
        weight.ds_id, weight.data = number, torch.empty(0)
    return model


def test_partitioned_weights_are_scored_path_by_path_with_a_sentence(tmp_path):
    with pytest.warns(
        UserWarning,
        match=r"path by path.*ZeRO-3.*accelerate launch --config_file packages/eclose-train/recipes/accelerate/",
    ):
        trainer = small_trainer(tmp_path, short_families(1), model=partitioned(small_model()), peft_config=None)
    assert (trainer.choice.strategy, trainer.choice.backend) == (ScoringStrategy.DEDUP, AttentionBackend.SDPA)
    with pytest.raises(SettingError, match=r"strategy = tree: ZeRO-3 split the weights"):
        small_trainer(tmp_path, short_families(1), model=partitioned(small_model()), peft_config=None, strategy="tree")


def test_an_assertion_of_a_model_is_a_failed_trial_not_a_traceback():
    model = small_model()

    def refuse(*_, **__):
        raise AssertionError("Padding_idx must be within num_embeddings")

    model.forward = refuse
    with pytest.raises(SettingError, match="a trial failed: Padding_idx must be within num_embeddings"):
        choose_scoring_strategy(model, ScoringStrategy.TREE, AttentionBackend.SDPA)


@pytest.mark.slow
def test_zero3_trains_by_flag(model_folder, family_file, tmp_path):
    """With DeepSpeed itself, in one process on a CPU: it says nothing about sharding between processes."""
    pytest.importorskip("deepspeed")
    settings = {
        "zero_optimization": {"stage": 3},
        "zero_allow_untested_optimizer": True,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }
    (tmp_path / "zero3.json").write_text(json.dumps(settings))
    words = ["train", str(family_file), "--out", str(tmp_path / "run"), "--model", str(model_folder), "--use-cpu"]
    words += ["--deepspeed", str(tmp_path / "zero3.json"), "--max-steps", "2", "--families-per-update", "2"]
    words += ["--demonstrations", "0", "--report-to", "none", "--logging-steps", "1", "--optim", "adamw_torch"]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "MASTER_PORT": "29517"}
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    result = subprocess.run(
        [sys.executable, "-m", "eclose.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr[-3_000:]
    assert "path by path, not by tree: ZeRO-3" in result.stderr
    assert "update 2/2" in result.stderr
