"""Replies to held-out inputs while a model is trained: the figures of select and judge, and the same weights."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.training.small import short_families, small_model, small_tokenizer, small_trainer

from eclose.core.family import ViewKind
from eclose.diagnosis.results import diagnose
from eclose.errors import SettingError, UserError
from eclose.models.local.transformers_model import TransformersModel
from eclose.store.records.jsonl import write_records
from eclose.training.api import select, train
from eclose.training.batching import FamilyList
from eclose.training.config import EClosureConfig
from eclose.training.evaluation.held_out_replies import choose_held_out_families
from eclose.world.roles.request_handlers import build_world_handlers
from eclose.world.server.app import ModelServerThread

pytestmark = pytest.mark.torch

NEW_TOKENS = 120
QUICK = {
    "use_cpu": True,
    "families_per_update": 2,
    "num_train_epochs": 2,
    "logging_steps": 1,
    "learning_rate": 1e-4,
    "warmup_steps": 0,
    "demonstrations": 0,
    "lora_rank": 4,
    "report_to": "none",
    "disable_tqdm": True,
    "gradient_checkpointing": False,
}
EVALUATED = {"evaluate_families": 2, "evaluate_max_new_tokens": NEW_TOKENS}
SHORT = {"evaluate_families": 1, "evaluate_max_new_tokens": 4}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Weights that know two families by heart, and these families."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("material")
    small_model().save_pretrained(folder / "random")
    small_tokenizer().save_pretrained(folder / "random")
    write_records(folder / "families.jsonl", short_families(2))
    learn = {
        **QUICK,
        "max_steps": 120,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "lora_rank": 0,
        "save_strategy": "no",
    }
    train(folder / "families.jsonl", out=folder / "run", model=str(folder / "random"), method="sft", **learn)
    return folder


@pytest.fixture
def begin(material, tmp_path):
    """Train on the two families and hold the same ones out."""

    def begin(out, **settings):
        path, weights = material / "families.jsonl", str(material / "run" / "adapter")
        return train(path, out=tmp_path / out, development=path, model=weights, **{**QUICK, **settings})

    return begin


def evaluations(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    generated = "eval_generated/"
    return [
        {name.removeprefix(generated): value for name, value in line.items() if name.startswith(generated)}
        for line in lines
        if "eval_loss" in line
    ]


def adapter_bytes(out):
    return (out / "adapter" / "adapter_model.safetensors").read_bytes()


@pytest.mark.slow
def test_figures_are_those_of_select(begin, material, tmp_path):
    begin("run", **EVALUATED)
    figures = evaluations(tmp_path / "run")
    selection = select(tmp_path / "run", material / "families.jsonl", max_new_tokens=NEW_TOKENS)
    assert len(figures) == len(selection.checkpoints) == 2
    for line, scored in zip(figures, selection.checkpoints, strict=True):
        assert line["n"] == scored.accuracy.replies == 6
        assert line["accuracy"] == float(scored.accuracy.score) > 0
        assert line["no_answer"] == scored.accuracy.unanswered / 6
        for kind in ViewKind:
            assert line[f"accuracy_{kind.value}"] == scored.accuracy.rates[kind].value
    html = (tmp_path / "run" / "run.html").read_text()
    assert "Correct replies by input" in html
    assert "Replies to held-out inputs" in html
    assert "Trace reliability" not in html


@pytest.fixture
def begin_random(model_folder, family_file, tmp_path):
    """Train random weights on six families and hold the same ones out: quick, and no reply has an answer."""

    def begin(out, **settings):
        return train(family_file, out=tmp_path / out, development=family_file, model=str(model_folder), **settings)

    return begin


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:scored path by path")
def test_training_is_the_same_with_and_without_replies(begin_random, monkeypatch, tmp_path):
    """The generation draws random numbers here, as sampled decoding or a judge's weights would."""
    complete_all = TransformersModel.complete_all

    def drawing(self, requests):
        torch.rand(7)
        return complete_all(self, requests)

    settings = {**QUICK, "lora_dropout": 0.3, "families_per_update": 3}
    begin_random("plain", **settings)
    monkeypatch.setattr(TransformersModel, "complete_all", drawing)
    begin_random("evaluated", **settings, **SHORT)
    assert adapter_bytes(tmp_path / "plain") == adapter_bytes(tmp_path / "evaluated")
    works = [json.loads((tmp_path / name / "recipe.json").read_text())["work"] for name in ("plain", "evaluated")]
    assert works[0] == works[1], "the same run: an interrupted one may continue with or without replies"


@pytest.mark.slow
def test_a_judge_adds_trr_and_lgg(begin, tmp_path):
    with ModelServerThread(build_world_handlers()) as judge:
        begin("run", evaluate_judge=judge.base_url, **EVALUATED)
    for step, line in zip((1, 2), evaluations(tmp_path / "run"), strict=True):
        results = diagnose(tmp_path / "run" / "evaluation" / f"update-{step}")
        for metric in ("TRR", "LGG"):
            assert line[metric] == results.rates[metric].value
            assert (line[f"{metric}_n"], line[f"{metric}_undecided"]) == (
                results.rates[metric].n,
                6 - line[f"{metric}_n"],
            )
        assert {case.response.source.method for case in results} == {"e_closure"}
    html = (tmp_path / "run" / "run.html").read_text()
    assert "Trace reliability and local-global gap, %" in html


@pytest.mark.slow
@pytest.mark.filterwarnings("default:evaluate_judge")
def test_a_judge_that_is_down_costs_no_epoch(begin_random, tmp_path):
    with pytest.warns(UserWarning, match="the replies of update-3 were not judged"):
        begin_random("run", evaluate_judge="http://127.0.0.1:9/v1", **{**QUICK, "num_train_epochs": 1}, **SHORT)
    for line in evaluations(tmp_path / "run"):
        assert "TRR" not in line
        assert (line["TRR_n"], line["TRR_undecided"], line["n"]) == (0, 3, 3)
    assert (tmp_path / "run" / "manifest.json").is_file()


@pytest.mark.slow
def test_a_run_killed_while_it_answers_goes_on(begin_random, monkeypatch, tmp_path):
    settings = {**QUICK, "families_per_update": 3, **SHORT}
    begin_random("whole", **settings)
    complete_all, calls = TransformersModel.complete_all, []

    def killed(self, requests):
        calls.append(len(requests))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return complete_all(self, requests)

    monkeypatch.setattr(TransformersModel, "complete_all", killed)
    with pytest.raises(KeyboardInterrupt):
        begin_random("killed", **settings)
    result = begin_random("killed", **settings)
    assert result.resumed_from.name == "checkpoint-2"
    assert adapter_bytes(tmp_path / "killed") == adapter_bytes(tmp_path / "whole")
    assert evaluations(tmp_path / "killed") == evaluations(tmp_path / "whole")
    assert [line["n"] for line in evaluations(tmp_path / "killed")] == [3, 3]
    assert calls == [3, 3, 3], "the evaluation of the first epoch is not repeated"


@pytest.mark.slow
def test_evaluation_leaves_the_model_as_it_was(tmp_path):
    trainer = small_trainer(
        tmp_path, short_families(2), short_families(2), evaluate_max_new_tokens=4, evaluate_families=1, method="sft"
    )
    base = trainer.model.get_base_model()
    settings, states = base.generation_config, (torch.get_rng_state(), base.config.use_cache)
    figures = trainer.evaluate()
    assert figures["eval_generated/n"] == 3
    assert base.generation_config is settings
    assert torch.equal(torch.get_rng_state(), states[0])
    assert base.config.use_cache is states[1]


def test_held_out_families_are_chosen_by_their_ids():
    families = FamilyList(short_families(6))
    chosen = choose_held_out_families(families, 2)
    assert len(chosen) == 2
    assert {family.id for family in choose_held_out_families(FamilyList(families[::-1]), 2)} == {
        family.id for family in chosen
    }
    assert choose_held_out_families(families, 100) == list(families)


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    with pytest.raises(SettingError, match="evaluate_judge: there are no replies to judge"):
        EClosureConfig(output_dir=str(tmp_path), use_cpu=True, evaluate_judge="openai/x")
    with pytest.raises(SettingError, match="evaluate_budget: only a judge costs money"):
        EClosureConfig(output_dir=str(tmp_path), use_cpu=True, evaluate_families=1, evaluate_budget=1.0)


def test_replies_need_held_out_families(model_folder, family_file, tmp_path):
    with pytest.raises(UserError, match=r"evaluate_families: no held-out families are evaluated\. Pass --development"):
        train(family_file, out=tmp_path / "run", model=str(model_folder), evaluate_families=1, **QUICK)
    settings = {**QUICK, "eval_strategy": "no", "evaluate_families": 1}
    with pytest.raises(UserError, match="Pass another eval_strategy than no"):
        train(family_file, out=tmp_path / "run", development=family_file, model=str(model_folder), **settings)
