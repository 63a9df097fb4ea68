"""Kinds of adapters: DoRA, rsLoRA and QLoRA, by the settings that users of PEFT and TRL know."""

import json
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load_file

from eclose.calls.local import weights as load_weights
from eclose.calls.local.weights import load_adapter, load_causal_model
from eclose.errors import SettingError, UserError
from eclose_train.training.run import TrainingPlan
from tests.training.test_run import lines_of, recipe_of


def train_adapter(family_file, model_folder, out, **settings):
    TrainingPlan(family_file, recipe_of(model_folder, lora_alpha=8, **settings), out).run()
    losses = [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
    return load_file(out / "adapter" / "adapter_model.safetensors"), losses


@pytest.mark.slow
def test_dora_trains_magnitudes(family_file, model_folder, tmp_path):
    weights, losses = train_adapter(family_file, model_folder, tmp_path / "run", use_dora=True)
    magnitudes = {name: value for name, value in weights.items() if "magnitude" in name}
    assert magnitudes
    # At the start a magnitude is the norm of a row of the frozen weight.
    base = load_causal_model(str(model_folder)).state_dict()
    for name, value in magnitudes.items():
        layer = name.removeprefix("base_model.model.").partition(".lora_magnitude_vector")[0]
        norms = base[f"{layer}.weight"].norm(dim=1)
        assert not torch.equal(value, norms)
        assert torch.allclose(value, norms, rtol=0.2)
    _, plain = train_adapter(family_file, model_folder, tmp_path / "plain")
    assert losses[0] == pytest.approx(plain[0], abs=1e-5)  # nothing is learned before the first update
    assert losses[1:] != plain[1:]
    card = (tmp_path / "run" / "adapter" / "README.md").read_text()
    assert "| LoRA | rank 4, alpha 8, dropout 0.0, DoRA |" in card
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["use_dora"] is True
    adapter = load_adapter(load_causal_model(str(model_folder)), tmp_path / "run" / "adapter")
    assert adapter.peft_config["default"].use_dora


@pytest.mark.slow
def test_dora_is_scored_by_tree(family_file, model_folder, tmp_path):
    """Its weights are the same for every token, so sharing tokens changes no score."""
    _, by_tree = train_adapter(family_file, model_folder, tmp_path / "tree", use_dora=True, strategy="tree")
    _, naive = train_adapter(family_file, model_folder, tmp_path / "naive", use_dora=True, strategy="naive")
    assert by_tree == pytest.approx(naive, abs=1e-4)


@pytest.mark.slow
def test_rslora_scales_by_the_root_of_the_rank(family_file, model_folder, tmp_path):
    _, losses = train_adapter(family_file, model_folder, tmp_path / "run", use_rslora=True)
    # alpha / sqrt(4) = 4 for alpha 8; plain LoRA reaches the same factor with alpha 16.
    recipe = recipe_of(model_folder, lora_alpha=16)
    TrainingPlan(family_file, recipe, tmp_path / "plain").run()
    assert losses == [line["loss"] for line in lines_of(tmp_path / "plain" / "metrics.jsonl") if "loss" in line]
    config = json.loads((tmp_path / "run" / "adapter" / "adapter_config.json").read_text())
    assert (config["use_rslora"], config["use_dora"]) == (True, False)
    assert "dropout 0.0, rsLoRA |" in (tmp_path / "run" / "adapter" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["use_dora", "use_rslora", "load_in_4bit"])
def test_settings_of_an_adapter_need_one(model_folder, name):
    with pytest.raises(SettingError, match=f"{name}: needs an adapter, but lora_rank is 0"):
        recipe_of(model_folder, lora_rank=0, **{name: True})


@pytest.mark.slow
def test_the_kind_of_adapter_decides_the_result(family_file, model_folder, tmp_path):
    out = tmp_path / "run"
    TrainingPlan(family_file, recipe_of(model_folder, method="sft", max_steps=1), out).run()
    with pytest.raises(UserError, match=r"other settings: use_dora = false before, true now"):
        TrainingPlan(family_file, recipe_of(model_folder, method="sft", max_steps=1, use_dora=True), out).run()


# ---- 4 bits ----


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_without_bitsandbytes_4_bits_are_refused_at_once(family_file, model_folder, tmp_path):
    with pytest.raises(UserError, match=r"load_in_4bit needs bitsandbytes.* pip install bitsandbytes"):
        TrainingPlan(family_file, recipe_of(model_folder, load_in_4bit=True), tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("dtype", "computed"), [("auto", torch.float32), ("bfloat16", torch.bfloat16), ("float32", torch.float32)]
)
def test_4_bits_are_nf4_up_to_the_loader(model_folder, monkeypatch, dtype, computed):
    """Everything before the kernels, which bitsandbytes brings."""
    monkeypatch.setattr(load_weights, "find_spec", lambda _name: object())
    load, settings = load_weights._load_pretrained, {}

    def load_recorded(kind, name, **given):
        if "quantization_config" not in given:
            return load(kind, name, **given)
        settings.update(given)
        return object()

    monkeypatch.setattr(load_weights, "_load_pretrained", load_recorded)
    load_causal_model(str(model_folder), dtype=dtype, load_in_4bit=True)
    packing = settings["quantization_config"]
    assert (packing.load_in_4bit, packing.bnb_4bit_quant_type, packing.bnb_4bit_use_double_quant) == (True, "nf4", True)
    assert packing.bnb_4bit_compute_dtype == computed
    assert settings["use_safetensors"]


def test_4_bits_of_packed_weights_are_refused(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(load_weights, "find_spec", lambda _name: object())
    with pytest.raises(UserError, match=r"a GGUF file cannot be loaded in 4 bits"):
        load_causal_model(str(tmp_path / "model.gguf"), load_in_4bit=True)
    load = load_weights.load_model_config

    def load_packed(name, revision=None):
        config = load(name, revision)
        config.quantization_config = {"quant_method": "gptq"}
        return config

    monkeypatch.setattr(load_weights, "load_model_config", load_packed)
    with pytest.raises(UserError, match="quantised already"):
        load_causal_model(str(model_folder), load_in_4bit=True)


@pytest.mark.slow
def test_4_bits_train(family_file, model_folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    _, losses = train_adapter(family_file, model_folder, tmp_path / "run", load_in_4bit=True)
    assert losses[-1] < losses[0]
    assert "4 bits, NF4 (QLoRA)" in (tmp_path / "run" / "adapter" / "README.md").read_text()
