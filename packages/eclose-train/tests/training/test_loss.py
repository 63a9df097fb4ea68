"""The loss mounted elsewhere: the same value and the same gradient as in this package's trainer."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

import transformers

import eclose
import eclose_train
from eclose.files.families import write_families_parquet
from eclose.files.jsonl import encode_json_line, write_records
from eclose.values.family import draw_edit, select_fixed_edit
from eclose_train.training.trainer import EClosureTrainer
from tests.training.small import lora, short_families, small_config, small_model, small_tokenizer, small_trainer

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).parents[4] / "examples"
TOLERANCE = 2e-6
"""Largest difference of two gradients, relative to the norm of one; float32 sums in another order."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def gradient(model):
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def gradient_of(model, loss):
    model.zero_grad()
    loss.backward()
    return gradient(model)


def assert_close(first, second):
    assert float((first - second).norm() / second.norm()) < TOLERANCE


def trainers_gradient(model, folder, families, **settings):
    """Loss and gradient of this package's trainer on one update with all families."""
    trainer = EClosureTrainer(
        model,
        small_config(folder, families_per_update=len(families), gradient_checkpointing=False, **settings),
        families,
        processing_class=small_tokenizer(),
    )
    (forests,) = trainer.get_train_dataloader()
    loss = trainer.compute_loss(trainer.model, forests)
    return loss, gradient_of(model, loss)


@pytest.mark.parametrize("method", ["e_closure", "e_closure-S", "rm", "sft"])
def test_the_gradient_is_that_of_the_trainer(tmp_path, method):
    families = list(short_families(3))
    model = small_trainer(tmp_path, families, peft_config=lora(init_lora_weights=False)).model.train()
    expected, theirs = trainers_gradient(model, tmp_path, families, method=method)
    collator = eclose_train.EClosureCollator(small_tokenizer(), method=method, demonstrations=0)
    loss = eclose_train.EClosureLoss(model, collator)
    rows = [json.loads(encode_json_line(family)) for family in families]
    value = loss(model, collator(rows))
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert_close(gradient_of(model, value), theirs)
    # Families of several forward passes: the mean is over families, not over passes.
    small = eclose_train.EClosureLoss(model, collator, tokens_per_forward=1)
    assert len(small.forests(collator(families))) == 3
    assert_close(gradient_of(model, small(model, collator(families))), theirs)


def test_edits_are_drawn_by_epoch_and_fixed_for_evaluation():
    edited = next(
        family
        for family in short_families(40)
        if len({draw_edit(family, 42, epoch).passage_id for epoch in range(20)}) > 1
    )
    collator = eclose_train.EClosureCollator(small_tokenizer(), demonstrations=0)
    (scores,) = replace(collator, epoch=None)([edited])["families"]
    fixed = select_fixed_edit(edited)
    for epoch in range(20):
        (drawn,) = replace(collator, epoch=epoch)([edited])["families"]
        assert (drawn == scores) == (draw_edit(edited, 42, epoch).passage_id == fixed.passage_id)


def test_what_cannot_be_collated_is_said():
    collator = eclose_train.EClosureCollator(small_tokenizer(), demonstrations=0, max_length=20)
    family = short_families(1)[0]
    with pytest.raises(eclose.UserError, match=f"family '{family.id}': .*raise max_length"):
        collator([family])
    with pytest.raises(eclose.RecordError, match="gold: is missing"):
        collator([{"id": "x"}])


class MountedTrainer(eclose_train.EClosureLossMixin, transformers.Trainer):
    pass


def mounted(folder, families, collator, **settings):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", remove_unused_columns=False, disable_tqdm=True,
        per_device_train_batch_size=2, logging_steps=1, save_strategy="no", **settings,
    )  # fmt: skip
    return MountedTrainer(
        small_model(), arguments, data_collator=collator, train_dataset=families, eval_dataset=families[:1]
    )


def test_a_plain_trainer_trains_and_evaluates_on_families(tmp_path):
    collator = eclose_train.EClosureCollator(small_tokenizer(), demonstrations=0)
    trainer = mounted(tmp_path, list(short_families(4)), collator, num_train_epochs=2, learning_rate=1e-3)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    assert collator.epoch == 1
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert len(lines) == 4
    assert {"gen_loss", "margins/S_o", "switch/C"} <= set(lines[0])


def test_another_collator_is_refused(tmp_path):
    trainer = mounted(tmp_path, list(short_families(2)), lambda rows: {"families": rows})
    with pytest.raises(eclose.UserError, match="need an EClosureCollator"):
        trainer.compute_loss(trainer.model, {"families": []})


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trl_example_runs_with_the_same_gradient(tmp_path):
    pytest.importorskip("trl")
    pytest.importorskip("datasets")
    families = list(short_families(3))
    (tmp_path / "dataset" / "data").mkdir(parents=True)
    write_families_parquet(tmp_path / "dataset" / "data", "train", families)
    small_model().save_pretrained(tmp_path / "model")
    small_tokenizer().save_pretrained(tmp_path / "model")
    settings = ("max_steps=1", "per_device_train_batch_size=3", "use_cpu=true", "bf16=false", "logging_steps=1")
    folders = [str(tmp_path / name) for name in ("dataset", "model", "out")]
    trainer = load_example("trl_sft_with_e_closure").main(*folders, *settings, "report_to=none")
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
    assert "margins/S_o" in trainer.state.log_history[0]
    trainer.model.zero_grad()
    loss = trainer.training_step(trainer.model, trainer.data_collator([trainer.train_dataset[n] for n in range(3)]))
    ours = gradient(trainer.model)
    expected, theirs = trainers_gradient(trainer.model, tmp_path, families)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert_close(ours, theirs)


def test_the_plugin_of_axolotl_mounts_on_a_trainer(tmp_path, monkeypatch):
    """axolotl is not installed: its two classes are stood in for, so this tests our half alone."""
    for name, attributes in {
        "axolotl": {},
        "axolotl.core": {},
        "axolotl.core.trainers": {},
        "axolotl.core.trainers.base": {"AxolotlTrainer": transformers.Trainer},
        "axolotl.integrations": {},
        "axolotl.integrations.base": {"BasePlugin": object},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    plugin = load_example("axolotl_plugin").EClosurePlugin()
    write_records(tmp_path / "families.jsonl", short_families(2))
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", max_steps=1, remove_unused_columns=False, seed=7
    )
    trainer = plugin.get_trainer_cls(None)(
        small_model(), arguments, train_dataset=[{}], processing_class=small_tokenizer()
    )
    plugin.post_trainer_create(SimpleNamespace(e_closure_families=str(tmp_path / "families.jsonl")), trainer)
    assert (len(trainer.train_dataset), trainer.data_collator.seed) == (2, 7)
    trainer.train()
    assert trainer.state.global_step == 1
