"""Small random causal models of real classes with a real tokenizer, saved as they are published."""

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from tests.tiny_models import tokenizer

torch.set_num_threads(1)  # sums are in one order then

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}
_SHARED_KEYS = {"num_key_value_heads": 1, "head_dim": 16}
CONFIGS = {
    "llama": lambda **sizes: transformers.LlamaConfig(**sizes, **_SHARED_KEYS),
    "qwen3": lambda **sizes: transformers.Qwen3Config(**sizes, **_SHARED_KEYS),
    # Every second layer attends to a window that is shorter than the texts.
    "gemma3": lambda **sizes: transformers.Gemma3TextConfig(
        **sizes, **_SHARED_KEYS, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2
    ),
    "gpt2": lambda **sizes: transformers.GPT2Config(
        n_embd=sizes["hidden_size"], n_layer=4, n_head=2, n_positions=256, initializer_range=0.3,
        **{key: value for key, value in sizes.items() if key not in _SIZES},
    ),
    "bert": transformers.BertConfig,
}  # fmt: skip


def save_causal_model(folder, family="llama", seed=0):
    """A folder with weights and tokenizer."""
    words = tokenizer()
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), words.eos_token_id)
    config = CONFIGS[family](**_SIZES, vocab_size=len(words), **special)
    config._attn_implementation = "sdpa"
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
