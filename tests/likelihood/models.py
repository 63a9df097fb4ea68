"""Small random models of real classes."""

import torch
import transformers

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "ministral3": (transformers.Ministral3Config, transformers.Ministral3ForCausalLM),
}


def build(name, attention="sdpa", vocabulary=211, **settings):
    """A small random model of a real class."""
    config_class, model_class = CLASSES[name]
    config = config_class(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=8_192,
        **settings,
    )
    config._attn_implementation = attention
    torch.manual_seed(0)
    return model_class(config).eval()
