"""Attention that follows the tree, by columns: exact, without a mask, on unpatched models.

In depth-first layout the keys of a chain are seen by two blocks of queries: its own rows, causally, and the rows below
it, entirely. So a tree is a causal square and a dense rectangle per chain, merged by their log-sum-exp, and costs what
its query-key pairs cost. The segments travel as a keyword of the model's forward; calls without them are plain SDPA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.autograd.function import Function

from eclosure.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor, nn

Segments: TypeAlias = list[tuple[int, int, int]]

COLUMNS = "eclosure_columns"
"""The name under which Transformers knows this attention."""

KEYWORD = "tree_segments"


def register() -> str:
    """Make the attention known to Transformers; returns its name."""
    from transformers import AttentionInterface  # noqa: PLC0415 - heavy, and only needed with a model
    from transformers.masking_utils import AttentionMaskInterface  # noqa: PLC0415

    AttentionInterface.register(COLUMNS, column_attention)
    AttentionMaskInterface.register(COLUMNS, _no_mask)
    return COLUMNS


def _no_mask(*_: Any, **__: Any) -> None:
    """The segments say who sees whom; a mask would only cost memory."""


def column_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """An attention function for Transformers."""
    segments: Segments | None = kwargs.get(KEYWORD)
    if segments is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    if dropout:
        raise ValueError("attention dropout would make scores depend on the layout; set it to 0")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out: Tensor = _Columns.apply(query, key, value, scale, segments)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None


def _blocks(segments: Segments) -> list[tuple[slice, slice, bool]]:
    """Queries, keys, and whether the block is causal."""
    found = []
    for start, stop, end in segments:
        keys = slice(start, stop)
        found.append((keys, keys, True))
        if end > stop:
            found.append((slice(stop, end), keys, False))
    return found


class _Columns(Function):
    """Flash attention block by block; the backward pass needs only the merged output and log-sum-exp."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, segments: Segments) -> Tensor:
        query, key, value = (part.contiguous() for part in (query, key, value))
        out = torch.zeros_like(query)
        lse = torch.full(query.shape[:3], float("-inf"), dtype=_sum_dtype(query), device=query.device)
        for rows, keys, causal in _blocks(segments):
            part, part_lse = _flash(query[:, :, rows], key[:, :, keys], value[:, :, keys], causal, scale)
            merged = torch.logaddexp(lse[:, :, rows], part_lse)
            old, new = (torch.exp(one - merged).unsqueeze(-1) for one in (lse[:, :, rows], part_lse))
            out[:, :, rows] = (out[:, :, rows] * old + part * new).to(out.dtype)
            lse[:, :, rows] = merged
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale, ctx.segments = scale, segments
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        (grad,) = (one.contiguous() for one in grads)
        found = [torch.zeros_like(part) for part in (query, key, value)]
        for rows, keys, causal in _blocks(ctx.segments):
            parts = _flash_backward(
                grad[:, :, rows],
                query[:, :, rows],
                key[:, :, keys],
                value[:, :, keys],
                out[:, :, rows],
                lse[:, :, rows],
                causal,
                ctx.scale,
            )
            for total, where, part in zip(found, (rows, keys, keys), parts, strict=True):
                total[:, :, where] += part
        return (*found, None, None)


def _sum_dtype(query: Tensor) -> torch.dtype:
    return torch.float64 if query.dtype is torch.float64 else torch.float32


def _flash(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of one block. On a GPU another kernel that returns both stands here."""
    if query.device.type != "cpu":
        raise SettingError("attention by columns has a CPU kernel only. Use the SDPA backend on a GPU.")
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found: tuple[Tensor, Tensor] = kernel(query, key, value, 0.0, causal, scale=scale)
    return found


def _flash_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    found: tuple[Tensor, Tensor, Tensor] = kernel(grad, query, key, value, out, lse, 0.0, causal, scale=scale)
    return found
