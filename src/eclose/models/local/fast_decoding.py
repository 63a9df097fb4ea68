"""Faster decoding on the CPU: keys and values are neither copied at every token nor repeated for grouped heads.

Transformers appends each token's keys and values by copying all earlier ones, and repeats them for every query head of
a group wherever a batch is padded. On a CPU, where decoding is bound by memory, these copies take most of its time.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

SDPA, GROUPED_SDPA = "sdpa", "eclose_grouped_sdpa"
_LONGEST_STEP = 16
"""Tokens of a prompt beyond which attention is computed as Transformers does: a prompt reads its keys once anyway."""


class BufferedLayer(DynamicLayer):
    """Keys and values of a layer in buffers with room for all tokens, so that a step copies its own tokens alone."""

    def __init__(self, room: int) -> None:
        """Create an empty layer.

        Args:
            room: Largest number of tokens of a prompt with its reply.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._room = room
        self._length = 0
        self._buffers: list[Tensor] = []

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the states of a step, of the shape (prompt, head, token, feature); return all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [
                states.new_empty((*states.shape[:2], self._room, states.shape[3]))
                for states in (key_states, value_states)
            ]
        start, self._length = self._length, self._length + key_states.shape[2]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, start : self._length] = states
        return self._expose()

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some of the prompts."""
        self._buffers = [buffer[indices] for buffer in self._buffers]
        self._expose()

    def _expose(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (buffer[:, :, : self._length] for buffer in self._buffers)
        return self.keys, self.values


def build_buffered_cache(config: Any, room: int) -> Cache:
    """Return the cache of a model with buffers in its plain layers; others, such as sliding windows, stay as they are.

    Args:
        config: Configuration of the model.
        room: Largest number of tokens of a prompt with its reply.
    """
    cache = DynamicCache(config=config)
    cache.layers = [BufferedLayer(room) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def attend_in_groups(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Attend from a few new tokens with all query heads of a key head at once; from a prompt as Transformers does.

    Args:
        module: Layer of the model.
        query: (prompt, head, query, feature); the heads of a key head are neighbours.
        key: (prompt, key head, key, feature).
        value: As ``key``.
        attention_mask: (prompt, 1, query, key), boolean or added to the scores.
        scaling: Factor of the scores.
        settings: Further settings of the attention.
    """
    prompts, heads, length, _ = query.shape
    groups = heads // key.shape[1]
    if length > _LONGEST_STEP or groups == 1 or attention_mask is None or settings.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **settings)
    mixed = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(prompts, key.shape[1], groups * length, -1),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, groups, 1),
        scale=scaling,
    )
    return mixed.reshape(prompts, heads, length, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED_SDPA, attend_in_groups)
AttentionMaskInterface.register(GROUPED_SDPA, sdpa_mask)


@contextmanager
def decode_fast(model: Any, room: int) -> Iterator[dict[str, Any]]:
    """Prepare a model on the CPU for decoding; on other devices, and with another attention, change nothing.

    Args:
        model: A causal model with the attention ``sdpa``.
        room: Largest number of tokens of a prompt with its reply.

    Yields:
        Settings for ``generate``.
    """
    if model.device.type != "cpu" or model.config.get_text_config()._attn_implementation != SDPA:
        yield {}
        return
    model.set_attn_implementation(GROUPED_SDPA)
    try:
        yield {"past_key_values": build_buffered_cache(model.config, room)}
    finally:
        model.set_attn_implementation(SDPA)
