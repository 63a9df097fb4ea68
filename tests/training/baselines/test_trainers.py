"""Baselines of TRL on families: the right pairs, the right side preferred, a run folder that every command reads."""

import json
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("trl", reason="needs the trl extra")

from safetensors.torch import load_file
from tests.training.small import lora, short_families, small_config, small_model, small_tokenizer, small_trainer
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.core.edit_selection import draw_edit
from eclose.core.response import Response
from eclose.errors import SettingError, UserError
from eclose.protocol.response_prompt import ResponsePrompt, format_completion
from eclose.store.records.jsonl import read_records, write_records
from eclose.training.api import select, train
from eclose.training.baselines.preference_pairs import EpochPairSampler, list_preference_rows
from eclose.training.baselines.trainers import build_baseline_trainer
from eclose.training.batching import FamilyList, UpdateSampler
from eclose.training.row_formats import ExportedEdits
from eclose.training.run import TrainingTerminatedError
from eclose.training.session_times import TerminationCheckpoint

pytestmark = pytest.mark.torch

QUICK = {
    "use_cpu": True,
    "families_per_update": 2,
    "num_train_epochs": 2,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "warmup_steps": 0,
    "demonstrations": 0,
    "lora_rank": 4,
    "report_to": "none",
    "disable_tqdm": True,
    "gradient_checkpointing": False,
}


def log_of(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights_of(folder):
    return (folder / "adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def two_families(tmp_path_factory):
    path = tmp_path_factory.mktemp("families") / "families.jsonl"
    write_records(path, short_families(2))
    return path


# ---- pairs ----


def test_an_epoch_holds_the_updates_of_the_papers_objectives():
    families, prompt, size, seed = FamilyList(short_families(6)), ResponsePrompt(0), 2, 7
    rows = list(list_preference_rows(families, prompt, ExportedEdits.ALL))
    sampler = EpochPairSampler(families, seed)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        drawn = [rows[index] for index in sampler]
        assert len(drawn) == len(sampler) == 4 * len(families)
        updates = UpdateSampler(families.ids, seed=seed, size=size)
        updates.set_epoch(epoch)
        order = [families[draw.index] for update in updates for draw in update]
        for number, family in enumerate(order):
            edit = draw_edit(family, seed, epoch).view
            views = (family.gold, edit), (edit, family.gold)
            question = family.question_edit.view
            views += (family.gold, question), (question, family.gold)
            for row, (right, wrong) in zip(drawn[4 * number : 4 * number + 4], views, strict=True):
                assert list(row["prompt"]) == list(prompt.messages(right.question, right.evidence))
                assert row["chosen"][0]["content"] == format_completion(right.trace, right.answer)
                assert row["rejected"][0]["content"] == format_completion(wrong.trace, wrong.answer)


# ---- losses ----


def trainer_of(folder, method, **settings):
    config = small_config(folder, method=method, families_per_update=2, **settings)
    return build_baseline_trainer(
        small_model(), config, FamilyList(short_families(2)), processing_class=small_tokenizer(), peft_config=lora()
    )


def response_margins(folder, model):
    families = short_families(2)
    scorer = small_trainer(folder, families, families, model=model, peft_config=None, method="rm")
    figures = scorer.evaluate()
    return [figures[f"eval_margins/{name}"] for name in ("Re_o", "Re_c", "Rq_o", "Rq_c")]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "beta"), [("dpo", 1.0), ("simpo", 10.0)])
def test_repeated_pairs_are_learned_on_the_preferred_side(tmp_path, method, beta):
    settings = {"num_train_epochs": 12, "learning_rate": 5e-3, "preference_beta": beta}
    trainer = trainer_of(tmp_path, method, pairs_per_forward=2, **settings)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert len(lines) == 12, "an update holds the eight pairs of both families, in four forward passes"
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.03
    assert lines[-1]["rewards/accuracies"] > lines[0]["rewards/accuracies"]
    assert lines[-1]["rewards/margins"] > max(lines[0]["rewards/margins"], 0)
    # By the scores of this package, which know nothing of chosen and rejected: the response that fits its input gains.
    before, after = (response_margins(tmp_path, model) for model in (small_model(), trainer.model))
    assert sum(after) > sum(before) + 0.003


@pytest.mark.slow
def test_the_first_loss_of_dpo_is_that_of_equal_models(tmp_path):
    trainer = trainer_of(tmp_path, "dpo", max_steps=1)
    trainer.train()
    # The adapter starts at zero, so policy and reference agree: -log sigmoid(0) = log 2.
    assert trainer.state.log_history[0]["loss"] == pytest.approx(0.6931, abs=1e-3)


# ---- runs ----


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "simpo"])
def test_a_baseline_passes_through_every_command(model_folder, two_families, tmp_path, method):
    out = tmp_path / "run"
    replies = {"evaluate_families": 1, "evaluate_max_new_tokens": 4}
    result = train(
        two_families, out=out, development=two_families, model=str(model_folder), method=method, **QUICK, **replies
    )
    assert result.counts.accepted == 2
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["method"] == method
    assert "not a method of the paper" in recipe["baseline"]
    assert sorted(path.parent.name for path in out.glob("checkpoint-*/complete.json")) == [
        "checkpoint-1",
        "checkpoint-2",
    ]
    for folder in (out / "adapter", out / "checkpoint-1"):
        assert "A baseline, not a method of the paper" in (folder / "README.md").read_text()
        assert json.loads((folder / "recipe.json").read_text()) == recipe
        assert not (folder / "training_args.bin").exists()
    assert not (out / "README.md").exists()
    evaluations = [line for line in log_of(out) if "eval_loss" in line]
    assert [line["eval_generated/n"] for line in evaluations] == [3, 3]
    assert "Pairs ranked right, %" in (out / "run.html").read_text()
    # Random weights answer nothing, so select names no adapter; it compares both checkpoints all the same.
    selection = select(out, two_families, max_new_tokens=4)
    assert [scored.checkpoint.step for scored in selection.checkpoints] == [1, 2]
    write_records(tmp_path / "questions.jsonl", [family.source for family in short_families(1)])
    adapter = ["--adapter", str(out / "checkpoint-2")]
    words = ["generate", str(tmp_path / "questions.jsonl"), "--model", str(model_folder), "--out", str(tmp_path / "g")]
    assert CliRunner().invoke(app, [*words, "--max-new-tokens", "4", *adapter]).exit_code == 0
    (response,) = read_records(tmp_path / "g" / "responses.jsonl", Response)
    assert (response.source.method, response.source.seed) == (method, 42)
    switched = CliRunner().invoke(app, ["switch", str(two_families), *adapter, "--resamples", "100"])
    assert switched.exit_code == 0, switched.output
    assert train(two_families, out=out, development=two_families, model=str(model_folder), method=method, **QUICK).again


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpo", "simpo"])
def test_a_terminated_baseline_ends_the_same(model_folder, two_families, monkeypatch, tmp_path, method):
    settings = {**QUICK, "families_per_update": 1, "method": method, "model": str(model_folder)}
    train(two_families, out=tmp_path / "whole", **settings)
    step_end = TerminationCheckpoint.on_step_end

    def terminate(self, args, state, control, **kwargs):
        self.requested = state.global_step == 1
        step_end(self, args, state, control, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(TerminationCheckpoint, "on_step_end", terminate)
        with pytest.raises(TrainingTerminatedError, match="stopped after update 1 of 4"):
            train(two_families, out=tmp_path / "stopped", **settings)
    assert json.loads((tmp_path / "stopped" / "checkpoint-1" / "complete.json").read_text())["candidate"] is False
    assert train(two_families, out=tmp_path / "stopped", **settings).resumed_from.name == "checkpoint-1"
    assert weights_of(tmp_path / "stopped" / "adapter") == weights_of(tmp_path / "whole" / "adapter")
    assert load_file(tmp_path / "whole" / "checkpoint-4" / "adapter_model.safetensors")


def test_without_trl_the_extra_is_named(model_folder, two_families, monkeypatch, tmp_path):
    monkeypatch.setattr("eclose.training.run.find_spec", lambda name: None if name == "trl" else find_spec(name))
    with pytest.raises(UserError, match=r"method = dpo: needs trl\. Run: pip install 'eclose\[train,trl\]'"):
        train(two_families, out=tmp_path / "run", model=str(model_folder), method="dpo", **QUICK)


def test_pairs_that_do_not_divide_an_update_are_refused(tmp_path):
    with pytest.raises(SettingError, match="pairs_per_forward = 3: choose 1, 2 or 4"):
        small_config(tmp_path, pairs_per_forward=3)


def test_a_template_without_a_system_role_is_refused(tmp_path):
    tokenizer = small_tokenizer().__class__.from_pretrained(_saved_tokenizer(tmp_path))
    tokenizer.chat_template = (
        "{% for message in messages if message['role'] != 'system' %}{{ message['content'] }}\n{% endfor %}"
    )
    config = small_config(tmp_path, method="dpo")
    with pytest.raises(SettingError, match="the chat template has no system role"):
        build_baseline_trainer(small_model(), config, FamilyList(short_families(1)), processing_class=tokenizer)


def _saved_tokenizer(folder):
    small_tokenizer().save_pretrained(folder / "tokenizer")
    return folder / "tokenizer"
