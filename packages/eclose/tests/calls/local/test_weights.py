"""Weights by name or folder: safetensors only, and an adapter that is not what was meant is refused."""

import json
import shutil
from copy import deepcopy
from importlib.metadata import version

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from safetensors.torch import load_file, save_file

from eclose.calls.local import weights as load_weights
from eclose.calls.local.weights import (
    _product_seconds,
    leave_out_routers,
    load_adapter,
    load_causal_model,
    load_tokenizer,
)
from eclose.errors import UserError
from tests.likelihood.models import build

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model."""
    folder = tmp_path_factory.mktemp("weights") / "small"
    build("llama").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory):
    """An adapter that changes predictions."""
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(load_causal_model(str(folder)), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapter_path = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(adapter_path)
    return adapter_path


def logits(model):
    with torch.no_grad():
        return model(torch.arange(2, 30)[None]).logits


def test_a_model_from_a_folder(folder):
    model = load_causal_model(str(folder), dtype="float32", device="cpu")
    assert torch.equal(logits(model), logits(build("llama")))
    assert model.config._attn_implementation == "sdpa"
    assert next(load_causal_model(str(folder), dtype="bfloat16").parameters()).dtype == torch.bfloat16


@pytest.mark.slow
def test_an_adapter_changes_predictions(folder, adapter):
    model = load_adapter(load_causal_model(str(folder)), adapter)
    assert not torch.equal(logits(model), logits(build("llama")))
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_an_adapter_that_changes_nothing_is_refused(folder, adapter, tmp_path):
    shutil.copytree(adapter, tmp_path / "idle")
    weights = tmp_path / "idle" / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(value) for name, value in load_file(weights).items()}, weights)
    with pytest.raises(UserError, match=r"idle: the adapter changes no prediction.*was trained on it"):
        load_adapter(load_causal_model(str(folder)), tmp_path / "idle")


def test_a_folder_without_an_adapter_is_a_sentence(folder, tmp_path):
    with pytest.raises(UserError, match=r"holds no adapter_model\.safetensors"):
        load_adapter(load_causal_model(str(folder)), tmp_path)
    with pytest.raises(UserError, match=r"selected: there is no such folder.*eclose select"):
        load_adapter(load_causal_model(str(folder)), tmp_path / "selected")
    (tmp_path / "adapter_model.bin").write_bytes(b"a pickle")
    with pytest.raises(UserError, match=r"holds no adapter_model\.safetensors"):
        load_adapter(load_causal_model(str(folder)), tmp_path)


def test_an_adapter_for_another_model_is_a_sentence(adapter, tmp_path):
    other = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=211, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
        )
    )
    with pytest.raises(UserError, match="does not fit this model"):
        load_adapter(other, adapter)


def test_weights_that_are_not_safetensors_are_refused(folder, tmp_path):
    """A pickle may hold code."""
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    (old / "model.safetensors").unlink()
    torch.save(build("llama").state_dict(), old / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors"):
        load_causal_model(str(old))


def test_code_in_a_models_folder_is_not_run(folder, tmp_path):
    odd = tmp_path / "odd"
    shutil.copytree(folder, odd)
    config = json.loads((odd / "config.json").read_text())
    config |= {"model_type": "odd", "auto_map": {"AutoConfig": "odd.Odd", "AutoModelForCausalLM": "odd.OddModel"}}
    (odd / "config.json").write_text(json.dumps(config))
    marker = tmp_path / "was-run"
    (odd / "odd.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    with pytest.raises(UserError, match="odd"):
        load_causal_model(str(odd))
    assert not marker.exists()


@pytest.mark.parametrize("load", [load_causal_model, load_tokenizer])
def test_a_missing_model_is_a_sentence(load, tmp_path):
    for name in (tmp_path / "nowhere", tmp_path / "nowhere.gguf"):
        with pytest.raises(UserError, match=r"nowhere(\.gguf)?: no such model here or on the hub"):
            load(str(name))


def write_gguf(path, model):
    """The model as llama.cpp would write it: other names, and rows of q and k in another order."""
    gguf = pytest.importorskip("gguf")
    config, state = model.config, {name: value.numpy() for name, value in model.state_dict().items()}

    def interleaved(rows, heads):
        return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, value in state.items():
        head_counts = [count for part, count in heads.items() if part in name]
        rows = interleaved(value, head_counts[0]) if head_counts else value
        writer.add_tensor(names.get_name(name, (".weight",)), rows.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_can_be_trained(tmp_path, capsys):
    """Its weights are unpacked, so they predict as before and take an adapter and gradients."""
    write_gguf(tmp_path / "small.gguf", build("llama"))
    capsys.readouterr()
    model = load_causal_model(str(tmp_path / "small.gguf"), dtype="float32")
    assert "GGUF tensors" not in capsys.readouterr().err, "a bar belongs on a terminal alone"
    assert torch.allclose(logits(model), logits(build("llama")), atol=1e-5)
    config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to="none")
    trainer = transformers.Trainer(peft.get_peft_model(model, config), arguments)  # refuses what it holds quantised
    trainer.model(torch.arange(2, 30)[None]).logits.sum().backward()
    assert any(parameter.grad is not None for parameter in trainer.model.parameters())
    # Adapters and cards name their base after the model: the file, not the folder it happens to lie in.
    assert model.config._name_or_path == model.name_or_path == "small.gguf"


@pytest.fixture(scope="module")
def half_folder(tmp_path_factory):
    """A small model stored in bfloat16."""
    folder = tmp_path_factory.mktemp("weights") / "half"
    build("llama").to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("half", "loaded"), [(4.0, torch.float32), (1.2, torch.bfloat16), (0.3, torch.bfloat16)])
def test_auto_takes_float32_where_the_cpu_is_clearly_faster_with_it(half_folder, monkeypatch, half, loaded):
    seconds = {torch.bfloat16: half, torch.float32: 1.0}
    monkeypatch.setattr("eclose.calls.local.weights._product_seconds", lambda dtype, _width: seconds[dtype])
    assert load_causal_model(str(half_folder), device="cpu").dtype == loaded
    assert load_causal_model(str(half_folder), dtype="bfloat16", device="cpu").dtype == torch.bfloat16


def test_auto_times_real_products(half_folder):
    assert load_causal_model(str(half_folder), device="cpu").dtype in (torch.float32, torch.bfloat16)
    assert _product_seconds(torch.float32, 64) > 0


def test_defaults_of_old_recipes_are_those_of_training():
    pytest.importorskip("transformers", reason="needs the train extra")
    from dataclasses import fields

    from eclose.calls.local.weights import DEFAULT_METHOD, DEFAULT_SEED
    from eclose_train.training.config import EClosureConfig

    defaults = {field.name: field.default for field in fields(EClosureConfig)}
    assert (defaults["method"], defaults["seed"]) == (DEFAULT_METHOD, DEFAULT_SEED)


@pytest.mark.parametrize("seed", ["42", True, 4.2])
def test_a_recipe_with_a_strange_seed_is_refused(seed):
    from eclose.calls.local.weights import describe_adapter_source

    with pytest.raises(UserError, match="not a whole number"):
        describe_adapter_source("tiny", {"model": "tiny", "seed": seed}, "adapter")


# PEFT warns of the ranks that it gave to its own names of experts.
@pytest.mark.filterwarnings("ignore:The following .* keys did not match:RuntimeWarning")
def test_adapter_on_all_linear_layers_leaves_the_routers_of_experts_out():
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**sizes, **experts, **heads))
    adapted = {}
    for with_routers in (True, False):
        config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
        if not with_routers:
            leave_out_routers(config, model)
        names = [
            name for name, _ in peft.get_peft_model(deepcopy(model), config).named_parameters() if "lora_A" in name
        ]
        adapted[with_routers] = {name.split(".layers.0.")[1].split(".lora_A")[0] for name in names}
    routers = {name for name in adapted[True] if "gate" in name.split(".")}
    assert routers
    assert adapted[False] == adapted[True] - routers


def test_version_of_a_package_under_another_distribution_or_without_metadata_is_no_error(monkeypatch):
    monkeypatch.setattr(load_weights, "packages_distributions", lambda: {"vllm": ["numpy"]})
    assert load_weights.find_package_version("vllm") == version("numpy")
    monkeypatch.setattr(load_weights, "packages_distributions", dict)
    assert load_weights.find_package_version("vllm") is None
