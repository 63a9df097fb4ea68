"""Small random models of real classes."""

from random import Random

import torch
import transformers

from eclose_train.likelihood.spans import SpanScore, TokenPart, TokenPath

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "ministral3": (transformers.Ministral3Config, transformers.Ministral3ForCausalLM),
}


def build(name, attention="sdpa", vocabulary=211, **settings):
    """A small random model of a real class."""
    config_class, model_class = CLASSES[name]
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 8_192,
    }
    config = config_class(**{**sizes, **settings})
    config._attn_implementation = attention
    torch.manual_seed(0)
    return model_class(config).eval()


def random_scores(seed, vocabulary=211):
    """Paths that branch at random depths, scored at random positions."""
    rng = Random(seed)
    trunk = [rng.randrange(vocabulary) for _ in range(60)]
    scores = []
    for number in range(9):
        start = trunk if rng.random() < 0.7 or not scores else list(rng.choice(scores).path.ids)
        ids = start[: rng.randint(5, len(start))] + [rng.randrange(vocabulary) for _ in range(rng.randint(2, 25))]
        positions = sorted(rng.sample(range(1, len(ids)), rng.randint(1, 4)))
        scores.append(
            SpanScore(str(number), TokenPath(tuple(ids), ((TokenPart.STEP, 0),) * len(ids)), tuple(positions))
        )
    return scores
