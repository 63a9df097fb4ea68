"""A run in its folder: every family accounted for, done once, never mixed with another, readable afterwards."""

import json
import pickletools
import shutil
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

import yaml

from eclose.calls.adapters import read_adapter_recipe
from eclose.calls.local.weights import load_adapter, load_causal_model
from eclose.calls.resolve import find_model_ref
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import encode_json_line
from eclose.files.manifest import hash_file, read_manifest
from eclose.values.family import QuestionEdit
from eclose_train.training.config import EClosureConfig
from eclose_train.training.recipe import TrainedModelSettings, read_recipe
from eclose_train.training.run import TrainingPlan, find_last_checkpoint
from tests.training.small import short_families

pytestmark = pytest.mark.torch

QUICK = {
    "use_cpu": True,
    "families_per_update": 2,
    "num_train_epochs": 1,
    "logging_steps": 1,
    "learning_rate": 1e-2,
    "warmup_steps": 0,
    "demonstrations": 0,
    "report_to": "none",
    "lora_rank": 4,
}


def recipe_of(model_folder, **settings):
    return read_recipe(None, {**QUICK, "model": str(model_folder), **settings})


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def changed(family, **changes):
    return encode_json_line(replace(family, **changes)).decode()


@pytest.fixture(scope="module")
def done(model_folder, family_file, tmp_path_factory):
    """A whole run: two epochs, evaluated on two families."""
    out = tmp_path_factory.mktemp("run") / "run"
    held_out = out.parent / "held-out.jsonl"
    held_out.write_bytes(b"".join(encode_json_line(family) + b"\n" for family in short_families(8)[6:]))
    recipe = recipe_of(model_folder, num_train_epochs=2)
    return TrainingPlan(family_file, recipe, out, held_out).run(), out, recipe, held_out


# ---- counts ----


def test_every_family_is_accounted_for(model_folder, tmp_path):
    families = short_families(6)
    long = families[2]
    wordy = replace(
        long.source.evidence[0], text=long.source.evidence[0].text + " And so it went on from year to year." * 60
    )

    def lengthened(view):
        return replace(view, evidence=tuple(wordy if p.id == wordy.id else p for p in view.evidence))

    evidence = tuple(wordy if p.id == wordy.id else p for p in long.source.evidence)
    remaining = [edit for edit in long.evidence_edits if edit.passage_id != wordy.id]
    too_long = replace(
        long,
        source=replace(long.source, evidence=evidence),
        gold=lengthened(long.gold),
        evidence_edits=tuple(replace(edit, view=lengthened(edit.view)) for edit in remaining),
        question_edit=QuestionEdit(lengthened(long.question_edit.view)),
    )
    unchanged_question = QuestionEdit(replace(families[3].question_edit.view, question=families[3].gold.question))
    path = tmp_path / "families.jsonl"
    path.write_text(
        "\n".join(
            [
                encode_json_line(families[0]).decode(),
                encode_json_line(families[1]).decode(),
                encode_json_line(families[0]).decode(),  # a duplicate
                "{this is no JSON",
                "",
                encode_json_line(too_long).decode(),
                changed(families[3], question_edit=unchanged_question),
                '{"id": "x"}',
                changed(families[4], id=families[1].id),  # another's id
                encode_json_line(families[5]).decode(),
            ]
        ),
        encoding="utf-8",
    )
    result = TrainingPlan(path, recipe_of(model_folder, max_length=400, method="sft"), tmp_path / "out").run()
    counts = result.counts
    assert counts.conserved
    assert (counts.received, counts.accepted) == (9, 3)
    assert counts.rejected == {"duplicate": 1, "longer than max_length": 1, "fails question_changed": 1}
    assert counts.quarantined == {"not JSON": 1, "wrong record": 1, "id used twice": 1}
    records = lines_of(tmp_path / "out" / "left_out.jsonl")
    assert [line["where"] for line in records] == [f"line {number}" for number in (3, 4, 6, 7, 8, 9)]
    assert records[0]["reason"] == "duplicate"
    assert records[2]["reason"] == "longer than max_length"
    assert "was used in line 2 for other content" in records[5]["reason"]
    assert [(records.where, records.rejected) for records in result.left_out[:1]] == [("line 3", "duplicate")]
    assert read_manifest(tmp_path / "out" / "manifest.json").counts == counts


def test_nothing_to_train_on_is_a_sentence(model_folder, tmp_path, family_file):
    path = tmp_path / "none.jsonl"
    path.write_text("{}\n")
    with pytest.raises(UserError, match=r"no family to train on \(1 received = 0 accepted"):
        TrainingPlan(path, recipe_of(model_folder), tmp_path / "out").run()
    with pytest.raises(UserError, match="longer than max_length 6"):
        TrainingPlan(family_file, recipe_of(model_folder, max_length=5), tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_what_is_left_out_of_the_held_out_families_is_told_too(model_folder, family_file, tmp_path):
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_bytes(encode_json_line(short_families(7)[6]) + b"\nno JSON\n")
    result = TrainingPlan(
        family_file, recipe_of(model_folder, method="sft", max_steps=1), tmp_path / "out", held_out
    ).run()
    (record,) = lines_of(tmp_path / "out" / "left_out.jsonl")
    assert record["where"] == "held-out.jsonl line 2"
    assert [record.where for record in result.left_out] == ["held-out.jsonl line 2"]
    assert result.counts.received == 6


# ---- once ----


def test_a_finished_run_is_done_once(done, family_file):
    result, out, recipe, held_out = done
    assert not result.again
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = TrainingPlan(family_file, recipe, out, held_out).run()
    assert again.again
    assert again.counts == result.counts
    assert again.adapter == result.adapter
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"learning_rate": 2e-2}, "learning_rate = 0.01 before, 0.02 now"),
        ({"seed": 43}, "seed = 42 before, 43 now"),
        ({"lora_rank": 8}, "lora_rank = 4 before, 8 now"),
        ({"method": "sft"}, 'method = "e_closure" before, "sft" now'),
        ({"bf16": True}, "bf16 = false before, true now"),
        ({"weight_decay": 0.1}, "weight_decay = 0 before, 0.1 now"),
        ({"target_margin": {"S": 1, "T": 1, "C": 1}}, 'target_margin = 0.5 before, {"C":1,"S":1,"T":1} now'),
    ],
)
def test_a_refusal_names_the_settings_that_differ(done, family_file, model_folder, settings, difference):
    _, out, _, held_out = done
    with pytest.raises(UserError) as refusal:
        TrainingPlan(family_file, recipe_of(model_folder, num_train_epochs=2, **settings), out, held_out).run()
    assert str(refusal.value) == (
        f"{out}: holds a finished run with other settings: {difference}. Write to another folder, or remove this one."
    )


def test_a_refusal_names_every_difference(done, family_file, model_folder):
    _, out, _, held_out = done
    with pytest.raises(UserError) as refusal:
        TrainingPlan(family_file, recipe_of(model_folder, num_train_epochs=3, seed=7), out, held_out).run()
    assert ": num_train_epochs = 2 before, 3 now; seed = 42 before, 7 now." in str(refusal.value)


def test_other_families_are_refused_by_name(done, family_file, tmp_path):
    _, out, recipe, held_out = done
    other = tmp_path / "families.jsonl"
    other.write_bytes(encode_json_line(short_families(1)[0]))
    with pytest.raises(
        UserError, match=r"other families or settings: families = families.jsonl \(sha256:\w{12}\) before"
    ):
        TrainingPlan(other, recipe, out, held_out).run()
    with pytest.raises(UserError, match=r"development = held-out.jsonl \(sha256:\w{12}\) before, none now"):
        TrainingPlan(family_file, recipe, out).run()


def test_training_and_held_out_families_are_not_interchangeable(done, family_file):
    """Both files are the same two; which of them is trained on is another run."""
    _, out, recipe, held_out = done
    with pytest.raises(UserError, match="other families"):
        TrainingPlan(held_out, recipe, out, family_file).run()


def test_files_of_one_name_are_told_apart(done, family_file, model_folder, tmp_path):
    held_out = tmp_path / "there" / family_file.name
    held_out.parent.mkdir()
    shutil.copy(done[3], held_out)
    TrainingPlan(family_file, recipe_of(model_folder, method="sft", max_steps=1), tmp_path / "out", held_out).run()
    inputs = json.loads((tmp_path / "out" / "recipe.json").read_text())["inputs"]
    assert [inputs[role]["hash"] for role in inputs] == [hash_file(family_file), hash_file(held_out)]


def test_settings_spelled_out_are_the_same_run(done, family_file, model_folder):
    """Every default written down, and numbers in another form."""
    _, out, _, held_out = done
    defaults = {"seed": 42, "method": "e_closure", "bf16": False, "eval_strategy": "epoch", "warmup_steps": 0.0}
    defaults |= {"weight_decay": "0", "max_grad_norm": 1, "lr_scheduler_type": "linear", "order": "evidence_first"}
    spelled = recipe_of(model_folder, num_train_epochs=2, lora_alpha=32, revision=None, **defaults)
    assert TrainingPlan(family_file, spelled, out, held_out).run().again


def test_a_setting_that_a_later_library_brings_has_its_default(done, family_file, tmp_path):
    _, finished, recipe, held_out = done
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "manifest.json").unlink()
    before = json.loads((out / "recipe.json").read_text())
    before["work"] = "sha256:of fewer settings"
    del before["label_smoothing_factor"], before["num_train_epochs"]
    (out / "recipe.json").write_text(json.dumps(before))
    with pytest.raises(UserError, match="other settings: num_train_epochs = 5 before, 2 now"):
        TrainingPlan(family_file, recipe, out, held_out).run()
    (out / "recipe.json").write_text(json.dumps({**before, "num_train_epochs": 2}))
    assert TrainingPlan(family_file, recipe, out, held_out).run().resumed_from == out / "checkpoint-6"


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"model": "m"}'])
def test_a_recipe_that_cannot_be_compared_is_refused(done, family_file, tmp_path, text):
    _, _, recipe, held_out = done
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(UserError, match=r"recipe.json: does not name the run of this folder"):
        TrainingPlan(family_file, recipe, tmp_path, held_out).run()


def test_settings_that_change_no_result_may_change(done, family_file, model_folder):
    _, out, _, held_out = done
    more = {"run_name": "x", "gradient_checkpointing": False, "save_total_limit": 3, "dataloader_num_workers": 1}
    other = recipe_of(model_folder, num_train_epochs=2, tokens_per_forward=64, logging_steps=5, processes=1, **more)
    assert TrainingPlan(family_file, other, out, held_out).run().again


def test_a_run_that_was_begun_is_not_mixed_with_another(done, family_file, model_folder, tmp_path):
    _, finished, recipe, held_out = done
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"holds a run begun with other settings: seed = 42 before, 43 now"):
        TrainingPlan(family_file, recipe_of(model_folder, num_train_epochs=2, seed=43), out, held_out).run()
    result = TrainingPlan(family_file, recipe, out, held_out).run()
    assert result.resumed_from == out / "checkpoint-6"


def test_a_mistake_leaves_nothing_behind(family_file, model_folder, tmp_path):
    """Whoever mends a setting that could not work may use the same folder."""
    out = tmp_path / "out"
    with pytest.raises(SettingError, match="no_such_layer"):
        TrainingPlan(family_file, recipe_of(model_folder, lora_targets=["no_such_layer"]), out).run()
    assert TrainingPlan(family_file, recipe_of(model_folder, method="sft", max_steps=1), out).run().counts.accepted == 6


# ---- going on ----


def test_a_torn_checkpoint_is_ignored(done, family_file, tmp_path):
    _, finished, recipe, held_out = done
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "manifest.json").unlink()
    (out / "checkpoint-6" / "complete.json").unlink()
    for name in ("optimizer.pt", "trainer_state.json", "adapter_model.safetensors"):
        (out / "checkpoint-6" / name).write_bytes(b"torn")
    assert find_last_checkpoint(out) == out / "checkpoint-3"
    result = TrainingPlan(family_file, recipe, out, held_out).run()
    assert result.resumed_from == out / "checkpoint-3"
    for part in ("adapter/adapter_model.safetensors", "checkpoint-6/adapter_model.safetensors"):
        assert (out / part).read_bytes() == (finished / part).read_bytes()
    assert trajectory_of(out) == trajectory_of(finished)


def trajectory_of(out):
    return [
        (line["step"], line["loss"], line["grad_norm"]) for line in lines_of(out / "metrics.jsonl") if "loss" in line
    ]


@pytest.mark.parametrize("option", [True, False])
def test_training_shows_nothing_off_a_terminal(family_file, model_folder, tmp_path, capsys, option):
    TrainingPlan(family_file, recipe_of(model_folder, max_steps=1), tmp_path / "run", progress=option).run()
    assert "update" not in capsys.readouterr().err


def test_phases_before_the_first_update_are_told(family_file, model_folder, tmp_path):
    told = []
    TrainingPlan(family_file, recipe_of(model_folder, max_steps=1), tmp_path / "run", progress=told.append).run()
    assert (told[-1].done, told[-1].total) == (1, 1)
    phases = list(map(str, told))
    assert phases[0] == f"reading {family_file}"
    assert phases[1].startswith("families: 6 received = 6 accepted")
    assert phases[2] == f"loading {model_folder}"
    last = phases.index(
        f"training from the start; a line every update here and in {tmp_path / 'run' / 'metrics.jsonl'}"
    )
    assert phases[last + 1].startswith("update 1/1")


def test_the_newest_checkpoint_is_by_number_not_by_name(tmp_path):
    for step in (9, 10, 100, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "complete.json").write_text("{}")
    (tmp_path / "checkpoint-200").mkdir()
    assert find_last_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    assert find_last_checkpoint(tmp_path / "nowhere") is None


def test_old_checkpoints_go_only_when_the_new_one_is_whole(family_file, model_folder, tmp_path, monkeypatch):
    """With a limit, the old checkpoint is the only one there is until the new one is complete."""
    existing = []
    remove = shutil.rmtree

    def watched(folder, *rest, **named):
        existing.append((Path(folder).name, find_last_checkpoint(tmp_path / "out").name))
        remove(folder, *rest, **named)

    monkeypatch.setattr(shutil, "rmtree", watched)
    recipe = recipe_of(model_folder, save_strategy="steps", save_steps=1, save_total_limit=1, method="sft")
    TrainingPlan(family_file, recipe, tmp_path / "out").run()
    assert existing == [("checkpoint-1", "checkpoint-2"), ("checkpoint-2", "checkpoint-3")]
    remaining = json.loads((tmp_path / "out" / "checkpoint-3" / "training_args.json").read_text())
    assert remaining["save_total_limit"] == 1
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-3"]


# ---- what is left ----


def test_the_log_has_the_names_people_look_for(done):
    lines = lines_of(done[1] / "metrics.jsonl")
    updates = [line for line in lines if "loss" in line]
    held_out = [line for line in lines if "eval_loss" in line]
    assert [line["step"] for line in updates] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in held_out] == [3, 6]
    comparisons = [f"{edge}_{direction}" for edge in "STC" for direction in "oc"]
    names = {
        *("gen_loss", "margin_loss", "tree/tokens", "tree/token_ratio", "tree/logit_rows"),
        *(f"{kind}/{name}" for kind in ("margins", "accuracies", "satisfied") for name in comparisons),
        *(f"switch/{edge}" for edge in "STC"),
    }
    assert all(names | {"loss", "grad_norm", "learning_rate", "epoch"} <= set(line) for line in updates)
    assert all({f"eval_{name}" for name in names} | {"eval_loss"} <= set(line) for line in held_out)
    for line in updates:
        assert line["loss"] == pytest.approx(line["gen_loss"] + line["margin_loss"], abs=1e-5)
        assert all(0 <= line[name] <= 1 for name in names if name.startswith(("accuracies", "satisfied", "switch")))
        assert line["tree/token_ratio"] > 4


def test_settings_are_left_as_text_not_as_a_pickle(done):
    _, out, *_ = done
    assert not list(out.rglob("training_args.bin"))
    for folder in (out / "adapter", *out.glob("checkpoint-*")):
        assert json.loads((folder / "training_args.json").read_text())["method"] == "e_closure"
    # What torch saves is a pickle of tensors and numbers; nothing in it names our code or Transformers'.
    for path in (*out.rglob("*.pt"), *out.rglob("*.pth")):
        with zipfile.ZipFile(path) as packed:
            (name,) = [name for name in packed.namelist() if name.endswith("data.pkl")]
            strings = [str(value) for _, value, _ in pickletools.genops(packed.read(name)) if value]
        assert not [text for text in strings if text.startswith(("eclose", "transformers", "accelerate", "peft"))]


def test_the_card_can_be_read(done, model_folder):
    for folder in (done[1] / "adapter", done[1] / "checkpoint-3"):
        _, front, body = (folder / "README.md").read_text().split("---\n", 2)
        meta = yaml.safe_load(front)
        assert meta["base_model"] == str(model_folder)
        assert meta["library_name"] == "peft"
        assert meta["tags"] == ["eclose", "e_closure"]
        assert "| seed | `42` |" in body
        assert "| families | 6 |" in body
        assert "eval_switch/S" in body
        assert "0 worked examples" in body


def test_an_adapter_says_what_it_was_trained_on(done, model_folder, family_file):
    """Also when it is moved away from its run."""
    _, out, _, held_out = done
    for folder in (out / "adapter", out / "checkpoint-3"):
        assert (folder / "recipe.json").read_bytes() == (out / "recipe.json").read_bytes()
        card = (folder / "README.md").read_text()
        assert "| revision | not pinned |" in card
        assert "| LoRA | rank 4, alpha 32, dropout 0.0 |" in card
        assert f"| trained on | {family_file.name}, `{hash_file(family_file)}` |" in card
        assert f"| held out | {held_out.name}, `{hash_file(held_out)}` |" in card


def test_the_pinned_revision_is_in_the_adapter(family_file, model_folder, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    TrainingPlan(
        family_file, recipe_of(model_folder, method="sft", max_steps=1, revision=commit), tmp_path / "out"
    ).run()
    adapter = tmp_path / "out" / "adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert (config["revision"], config["r"]) == (commit, 4)
    assert f"| revision | `{commit}` |" in (adapter / "README.md").read_text()


def test_the_manifest_says_what_the_run_took(done, family_file, tmp_path):
    """Over all sessions: one that was killed counts up to its last sign of life."""
    _, finished, recipe, held_out = done
    took = read_manifest(finished / "manifest.json").run
    (session,) = took["sessions"]
    assert (took["processes"], took["scoring"]) == (1, "tree, columns")
    assert json.loads((finished / "recipe.json").read_text())["dtype"] == "auto"
    assert took["dtype"] == "float32"
    assert "| weights in | float32 |" in (finished / "adapter" / "README.md").read_text()
    assert took["device"].startswith("cpu (")
    assert took["seconds"] == took["device_seconds"] == session["seconds"] > 0
    assert (session["first_update"], session["last_update"], session["ended"]) == (0, 6, True)
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for name in ("manifest.json", "checkpoint-6/complete.json"):
        (out / name).unlink()
    killed = {**session, "seconds": 1000.0, "ended": False, "processes": 4}
    (out / "sessions.json").write_text(json.dumps([killed]))
    TrainingPlan(family_file, recipe, out, held_out).run()
    took = read_manifest(out / "manifest.json").run
    assert [row["ended"] for row in took["sessions"]] == [False, True]
    assert (took["sessions"][1]["first_update"], took["sessions"][1]["last_update"]) == (3, 6)
    assert took["seconds"] == pytest.approx(1000 + took["sessions"][1]["seconds"])
    assert took["device_seconds"] == pytest.approx(4000 + took["sessions"][1]["seconds"])


def test_a_resumed_run_keeps_the_precision_that_a_stopwatch_chose(done, family_file, tmp_path, monkeypatch):
    _, finished, recipe, held_out = done
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "manifest.json").unlink()
    (session,) = json.loads((out / "sessions.json").read_text())
    (out / "sessions.json").write_text(json.dumps([{**session, "dtype": "bfloat16"}]))
    loaded = []

    def load(_name, *, dtype, **_settings):
        loaded.append(dtype)
        raise UserError("loaded")

    monkeypatch.setattr("eclose_train.training.run.load_causal_model", load)
    with pytest.raises(UserError, match="loaded"):
        TrainingPlan(family_file, recipe, out, held_out).run()
    assert loaded == ["bfloat16"]


def test_the_adapter_predicts_as_the_trained_model_did(done, model_folder, family_file, tmp_path):
    """Loaded with plain peft, without a line of ours."""
    _, out, *_ = done
    base = transformers.AutoModelForCausalLM.from_pretrained(model_folder)
    loaded = peft.PeftModel.from_pretrained(base, str(out / "adapter")).eval()
    ours = load_adapter(load_causal_model(str(model_folder)), out / "adapter")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, ours(ids).logits)
    # The last evaluation of the run, made again from the adapter on disk.
    from tests.training.small import small_trainer

    expected = [line["eval_loss"] for line in lines_of(out / "metrics.jsonl") if "eval_loss" in line][-1]
    trainer = small_trainer(
        tmp_path, short_families(1), short_families(8)[6:], model=loaded, peft_config=None, gradient_checkpointing=False
    )
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)


def test_what_later_stages_must_know_is_written_down(done):
    recipe = json.loads((done[1] / "recipe.json").read_text())
    assert {name: recipe[name] for name in ("demonstrations", "order", "response_tokens", "max_length")} == {
        "demonstrations": 0,
        "order": "evidence_first",
        "response_tokens": "full",
        "max_length": 8192,
    }
    assert recipe["learning_rate"] == 1e-2


def test_the_recipe_holds_every_resolved_value(done, model_folder, family_file):
    _, out, _, held_out = done
    recipe = json.loads((out / "recipe.json").read_text())
    assert (recipe["method"], recipe["seed"], recipe["bf16"], recipe["eval_strategy"]) == (
        "e_closure",
        42,
        False,
        "epoch",
    )
    assert (recipe["lora_alpha"], recipe["weight_decay"], recipe["optim"]) == (32, 0, "adamw_torch_fused")
    settings = {field.name for kind in (EClosureConfig, TrainedModelSettings) for field in fields(kind) if field.init}
    # Where the run lies, which process speaks, what the trainer derives, and a secret are no settings of a result.
    assert settings - set(recipe) == {"output_dir", "local_rank", "per_device_train_batch_size", "hub_token"}
    assert recipe["inputs"] == {
        "families": {"file": family_file.name, "hash": hash_file(family_file)},
        "development": {"file": held_out.name, "hash": hash_file(held_out)},
    }
    manifest = read_manifest(out / "manifest.json")
    assert recipe["work"] == manifest.work_id
    assert manifest.settings["seed"] == 42
    assert "tokens_per_forward" not in manifest.settings


def test_responses_of_an_adapter_trained_at_defaults_know_method_and_seed(done, model_folder):
    """Responses are paired by these two, so a run that was given neither must still have both."""
    out = done[1]
    named = find_model_ref(str(model_folder), adapter=out / "adapter", recipe=read_adapter_recipe(out / "adapter"))
    assert (named.source.method, named.source.seed) == ("e_closure", 42)


def test_secrets_are_not_written_down(family_file, model_folder, tmp_path):
    out = tmp_path / "out"
    TrainingPlan(family_file, recipe_of(model_folder, method="sft", max_steps=1, hub_token="hf_secret"), out).run()
    assert [path for path in out.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()] == []


def test_all_weights_can_be_trained(family_file, model_folder, tmp_path):
    out = tmp_path / "out"
    TrainingPlan(family_file, recipe_of(model_folder, method="sft", lora_rank=0, max_steps=1), out).run()
    assert load_causal_model(str(out / "adapter")).config.model_type == "llama"
    assert read_manifest(out / "manifest.json").outputs["model.safetensors"].startswith("sha256:")
    assert (
        yaml.safe_load((out / "adapter" / "README.md").read_text().split("---\n")[1])["library_name"] == "transformers"
    )


# ---- evaluation ----


def test_evaluation_needs_families(family_file, model_folder, tmp_path):
    with pytest.raises(UserError, match=r"eval_strategy = 'epoch'.*--development"):
        TrainingPlan(family_file, recipe_of(model_folder, eval_strategy="epoch"), tmp_path / "out").run()


def test_the_best_checkpoint_may_be_asked_for(done, family_file, model_folder, tmp_path):
    recipe = recipe_of(model_folder, method="sft", load_best_model_at_end=True, metric_for_best_model="eval_loss")
    result = TrainingPlan(family_file, recipe, tmp_path / "out", done[3]).run()
    assert "eval_loss" in result.metrics
