"""The trainer as a user of Trainers meets it: reproducible, clear when a family fails, quiet otherwise."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import yaml
from transformers import Trainer

from eclose.errors import RecordError, SettingError
from eclose.files.jsonl import write_records
from eclose.files.record_file import index_jsonl_file
from eclose.values.family import Family
from eclose_train.likelihood.render import PathTooLongError
from eclose_train.likelihood.score import ScoringStrategy
from eclose_train.training.batching import FamilyList
from eclose_train.training.log import TrainingLogMeans
from eclose_train.training.model_card import render_model_card
from eclose_train.training.objective import TrainingMethod, build_objective
from tests.training.small import lora, short_families, small_model, small_trainer, trajectory

pytestmark = pytest.mark.torch


def ran(tmp_path, **settings):
    trainer = small_trainer(tmp_path, short_families(3), families_per_update=2, **settings)
    trainer.train()
    return trainer


def test_the_same_run_twice_is_the_same_bit_for_bit(tmp_path):
    first, second = (ran(tmp_path, num_train_epochs=1) for _ in range(2))
    assert trajectory(first) == trajectory(second)
    ours, other = (dict(trainer.model.named_parameters()) for trainer in (first, second))
    assert all(torch.equal(ours[name], other[name]) for name in ours)


@pytest.mark.slow
def test_full_determinism_runs(forks, tmp_path):
    """In a process of its own, since it sets switches of the whole process."""
    script = tmp_path / "deterministic.py"
    script.write_text(f"""
import warnings
warnings.simplefilter("error")
from tests.training.test_trainer import ran, trajectory
import torch
torch.set_num_threads(1)
print(trajectory(ran({str(tmp_path)!r}, full_determinism=True, num_train_epochs=1)))
assert torch.are_deterministic_algorithms_enabled()
""")
    code, output = forks.run(str(script), [], tmp_path / "output.txt")
    assert code == 0, output
    assert str(trajectory(ran(tmp_path, num_train_epochs=1))) in output.splitlines()


def test_a_checkpoint_that_is_written_again_is_not_whole_meanwhile(tmp_path, monkeypatch):
    """A run that goes on from an earlier checkpoint writes later ones again, and may be stopped in the middle."""
    trainer = ran(tmp_path, max_steps=1, save_strategy="steps", save_steps=1, method="sft")
    whole = tmp_path / "checkpoint-1" / "complete.json"
    assert whole.is_file()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", stopped)
    with pytest.raises(KeyboardInterrupt):
        trainer._save_checkpoint(trainer.model, None)
    assert not whole.exists()


# ---- a family that fails ----


@pytest.mark.parametrize("workers", [0, 1])
def test_a_family_that_fails_is_named(tmp_path, workers):
    """The file was changed after it was read: which file, which family, what to do."""
    path = tmp_path / "families.jsonl"
    write_records(path, short_families(3))
    index, *_ = index_jsonl_file(path, Family)
    trainer = small_trainer(tmp_path, index, dataloader_num_workers=workers, method="sft")
    path.write_bytes(path.read_bytes().replace(short_families(1)[0].id.encode(), b"x" * len(short_families(1)[0].id)))
    with pytest.raises(RecordError) as means:
        trainer.train()
    assert "families.jsonl" in str(means.value)
    assert short_families(1)[0].id in str(means.value)


def test_a_family_too_long_for_the_trainer_is_an_error_not_a_cut(tmp_path):
    with pytest.raises(PathTooLongError, match="paths are not cut"):
        small_trainer(tmp_path, short_families(1), max_length=50)


# ---- what is refused, what is told ----


def test_evaluation_without_families_is_a_sentence(tmp_path):
    trainer = small_trainer(tmp_path, short_families(1))
    for nothing in (None, []):
        with pytest.raises((SettingError, ValueError), match=r"eval_dataset|no family"):
            trainer.evaluate(nothing)


def test_layers_that_are_not_there_are_a_sentence(tmp_path):
    from peft import LoraConfig

    with pytest.raises(SettingError, match="no_such_layer"):
        small_trainer(tmp_path, short_families(1), peft_config=LoraConfig(target_modules=["no_such_layer"]))


def test_dropout_is_not_shared(tmp_path):
    """A shared token would share what is dropped; trees are not used then, and a user is told."""
    with pytest.warns(UserWarning, match="path by path"):
        trainer = small_trainer(tmp_path, short_families(1), peft_config=lora(lora_dropout=0.1))
    assert trainer.choice.strategy.value != "tree"
    with pytest.raises(SettingError, match="tree"):
        small_trainer(tmp_path, short_families(1), peft_config=lora(lora_dropout=0.1), strategy="tree")


def test_a_callback_and_an_optimizer_of_ones_own(tmp_path):
    """Whatever works with a Trainer works here."""
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, *arguments, **_):
            arguments[2].should_training_stop = True

    trainer = small_trainer(tmp_path, short_families(3), families_per_update=1, callbacks=[Stop()])
    trainer.train()
    assert trainer.state.global_step == 1


def test_the_first_values_of_an_adapter_belong_to_the_seed(tmp_path):
    def first(seed):
        torch.manual_seed(seed + 100)  # whatever was drawn before
        trainer = small_trainer(tmp_path, short_families(1), seed=seed)
        return next(value for name, value in trainer.model.named_parameters() if "lora_A" in name).detach().clone()

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


@pytest.mark.parametrize("name", ["plain/name", "odd: name #1", "- dash", "@at", "'quoted\" name", "null"])
def test_the_front_matter_of_a_card_is_yaml_whatever_the_name(tmp_path, name):
    model = small_model()
    model.config._name_or_path = name
    trainer = small_trainer(tmp_path, short_families(1), model=model, method="rm")
    meta = yaml.safe_load(render_model_card(trainer, trainer.recipe).split("---\n")[1])
    assert meta["base_model"] == name
    assert meta["tags"] == ["eclose", "rm"]


# ---- averages ----


class Alone:
    num_processes = 1


def loss_of(method, value):
    objective = build_objective(method)
    names = {name for term in objective.terms for name in (term.preferred, term.dispreferred)}
    names |= {f"anchor {kind.value}" for kind in objective.anchors}
    return objective.loss({name: torch.tensor(value if "+" in name or "anchor" in name else 0.0) for name in names})


def test_averages_are_means_over_families_since_last_told():
    averages = TrainingLogMeans()
    for value in (-1.0, -2.0, 3.0):
        averages.add_loss(loss_of(TrainingMethod.E_CLOSURE, value))
    means = averages.take(Alone())
    assert means["margins/S_o"] == 0.0
    assert means["gen_loss"] == 0.0
    assert means["accuracies/T_c"] == pytest.approx(1 / 3)
    assert means["satisfied/C_o"] == pytest.approx(1 / 3)
    assert means["switch/S"] == pytest.approx(1 / 3)
    assert averages.take(Alone()) == {}


def test_a_margin_may_be_won_without_reaching_its_target():
    averages = TrainingLogMeans()
    averages.add_loss(loss_of(TrainingMethod.E_CLOSURE, 0.25))
    means = averages.take(Alone())
    assert (means["accuracies/S_o"], means["satisfied/S_o"], means["switch/S"]) == (1, 0, 1)


def test_a_preference_that_holds_one_way_only_is_no_switch():
    objective = build_objective(TrainingMethod.E_CLOSURE)
    names = {name for term in objective.terms for name in (term.preferred, term.dispreferred)}
    values = {name: torch.tensor(1.0 if name.endswith("o+") else 0.0) for name in names}  # C.c is a tie
    values |= {f"anchor {kind.value}": torch.tensor(-1.0) for kind in objective.anchors}
    averages = TrainingLogMeans()
    averages.add_loss(objective.loss({**values, "S.c+": torch.tensor(-1.0), "T.c+": torch.tensor(0.1)}))
    means = averages.take(Alone())
    assert [means[f"accuracies/{edge}_o"] for edge in "STC"] == [1, 1, 1]
    assert [means[f"switch/{edge}"] for edge in "STC"] == [0, 1, 0]


@pytest.mark.parametrize(
    ("method", "switches"),
    [
        (TrainingMethod.E_CLOSURE, {"S", "T", "C"}),
        (TrainingMethod.WITHOUT_SUPPORT, {"T", "C"}),
        (TrainingMethod.ONE_SIDED, set()),
        (TrainingMethod.RESPONSE_MARGIN, set()),
        (TrainingMethod.SFT, set()),
    ],
)
def test_a_switch_is_told_where_both_directions_are_known(method, switches):
    averages = TrainingLogMeans()
    averages.add_loss(loss_of(method, -1.0))
    means = averages.take(Alone())
    assert {name.split("/")[1] for name in means if name.startswith("switch/")} == switches
    assert ("margin_loss" in means) == (method is not TrainingMethod.SFT)


def test_families_in_memory_know_their_ids():
    families = short_families(3)
    assert FamilyList(families).ids == [family.id for family in families]


@pytest.mark.slow
def test_trackers_get_the_identity_of_the_run(tmp_path, monkeypatch):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    families = short_families(2)
    settings = {"report_to": "tensorboard", "method": "sft", "seed": 7, "num_train_epochs": 1}
    small_trainer(tmp_path / "run", families, **settings).train()
    events = event_accumulator.EventAccumulator(str(tmp_path / "board")).Reload()
    (text,) = events.Tensors("args/text_summary")
    identity = json.loads(text.tensor_proto.string_val[0])
    assert [identity[name] for name in ("run_name", "method", "seed", "backbone")] == ["model sft 7", "sft", 7, "model"]


def test_process_that_writes_nothing_leaves_the_files_of_the_first_alone(tmp_path, monkeypatch):
    """Transformers 5.23 calls _save in every process, and returns where the process does not write."""
    trainer = small_trainer(tmp_path / "run", short_families(2))
    monkeypatch.setattr(Trainer, "_save", lambda *_: None)
    monkeypatch.setattr(type(trainer.args), "should_save", property(lambda _: False))
    trainer._save(str(tmp_path / "checkpoint-2"))
    assert not (tmp_path / "checkpoint-2").exists()


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "found on a family"])
def test_model_whose_positions_follow_the_longest_path_is_trained_path_by_path(tmp_path, monkeypatch, declared):
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    subject = small_model(rope_parameters=rope, max_position_embeddings=215, initializer_range=0.3)
    if not declared:
        monkeypatch.setattr("eclose_train.likelihood.exactness_check._LENGTH_DEPENDENT_ROPE", frozenset())
    with pytest.warns(UserWarning, match="beyond 215 tokens" if declared else "a family's scores"):
        trainer = small_trainer(tmp_path / "run", short_families(4), model=subject, peft_config=None)
    assert trainer.choice.strategy is ScoringStrategy.DEDUP


def test_model_card_names_the_updates_where_they_end_the_run(tmp_path):
    trainer = small_trainer(tmp_path / "run", short_families(2), max_steps=2)
    card = render_model_card(trainer, {})
    assert "| max_steps | `2` |" in card
    assert "num_train_epochs" not in card


def test_train_loss_after_a_resume_is_that_of_the_whole_log(tmp_path):
    trainer = small_trainer(tmp_path / "run", short_families(2))
    trainer.state.log_history = [{"step": 2, "loss": 3.0}, {"step": 2, "eval_loss": 9.0}, {"step": 3, "loss": 6.0}]
    trainer.log({"train_loss": 6.0})
    assert trainer.state.log_history[-1]["train_loss"] == pytest.approx(4.0)
