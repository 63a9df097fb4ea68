"""Attention along a prefix tree on unpatched Transformers models: by columns, or by FlexAttention.

In depth-first layout the keys of a chain are attended to by two blocks of queries: the chain's rows, causally, and the
rows below it, entirely. A tree is therefore a causal square and a dense rectangle per chain, merged by their
log-sum-exp, and its cost is that of its query-key pairs. The segments are a keyword argument of the model's forward;
calls without them run plain SDPA, masks included, so the same model still generates and scores padded batches.

The GPU kernels (flash attention under the columns, FlexAttention) are checked up to the call and have not yet run on a
GPU. ``exactness_check`` tries them on the model before they are used.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.autograd.function import Function, once_differentiable

from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from eclose_train.likelihood.prefix_tree import TreeLayout

Segments: TypeAlias = list[tuple[int, int, int]]

COLUMNS = "eclose_columns"
FLEX = "eclose_flex"
"""Names under which both attentions are registered with Transformers."""

TREE_SEGMENTS_KEYWORD = "tree_segments"
"""Keyword of the model's forward that carries the segments."""
FLEX_BLOCK_TOKENS = 128
"""Rows of a block of FlexAttention; layouts are padded to a multiple of it."""


class TreeSegments:
    """The segments of a tree, passed through a model's forward.

    A class rather than a list: torch.compile inspects lists and would compile the model again for every tree.
    """

    __slots__ = ("values",)

    def __init__(self, values: Segments) -> None:
        self.values = values


def register_tree_attention() -> str:
    """Register both attentions with Transformers; return the name of the one by columns."""
    from transformers import AttentionInterface  # noqa: PLC0415 - heavy, and only needed with a model
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # noqa: PLC0415

    for name, attention in ((COLUMNS, column_tree_attention), (FLEX, flex_tree_attention)):
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, sdpa_mask)
    return COLUMNS


def column_attention_inputs(layout: TreeLayout, device: torch.device) -> dict[str, Any]:
    """Return the keyword arguments of a model's forward for a tree by columns."""
    # Transformers passes a 4-D mask on unchanged; without one it would build an unused mask from the positions.
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    return {TREE_SEGMENTS_KEYWORD: TreeSegments(layout.segments), "attention_mask": mask}


def column_tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention for Transformers: along a tree if its segments are passed, by plain SDPA otherwise."""
    segments: TreeSegments | None = kwargs.pop(TREE_SEGMENTS_KEYWORD, None)
    if segments is None:
        return _attend_plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    _refuse_dropout(dropout)
    return _attend_tree(query, key, value, scaling, segments), None


# Excluded from torch.compile: the segments of every tree differ, so each tree would be compiled again.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_tree(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, segments: TreeSegments) -> Tensor:
    query, key, value = _autocast(query, key, value)
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    # Query heads that share a key head become neighbours, so that a block of rows is one matrix per key head and no
    # key is repeated: (batch, heads, length, width) -> (batch * key heads, length, groups, width).
    rows = query.view(batch, -1, groups, length, width).transpose(2, 3).reshape(-1, length, groups, width).contiguous()
    keys, values = (tensor.reshape(-1, 1, length, width) for tensor in (key, value))
    scale = scaling if scaling is not None else width**-0.5
    out: Tensor = _Columns.apply(rows, keys, values, scale, segments.values)  # type: ignore[no-untyped-call]
    return out.view(batch, -1, length, groups, width).transpose(1, 2).reshape(batch, length, heads, width)


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast tensors to the precision of autocast, which casts only for kernels it has a rule for.

    The flash kernels are called directly, and rotary embeddings leave float32 queries and keys beside bfloat16 values.
    """
    device = tensors[0].device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _attend_plain(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

    return sdpa_attention_forward(*args, **kwargs)


def _refuse_dropout(dropout: float) -> None:
    if dropout:
        raise ValueError("attention dropout would make scores depend on the layout; set it to 0")


class _Block(NamedTuple):
    """A causal square or a dense rectangle of the tree's attention."""

    rows: slice
    keys: slice
    causal: bool
    first: bool
    """Whether this is the first block of its rows, so that there is no earlier result to merge with."""

    def select_rows(self, tensor: Tensor) -> Tensor:
        """Select the block's rows of (key heads, rows, groups, ...) in the order a kernel takes: heads, then rows.

        A rectangle treats all queries alike, so the groups become rows and share one call per key head.
        """
        rows = tensor[:, self.rows]
        return rows.transpose(1, 2) if self.causal else rows.flatten(1, 2).unsqueeze(1)

    def select_keys(self, tensor: Tensor, groups: int) -> Tensor:
        """Select the block's keys of (key heads, 1, rows, width), expanded to every group without a copy."""
        keys = tensor[:, :, self.keys]
        return keys.expand(-1, groups, *keys.shape[2:]) if self.causal else keys

    def restore_rows(self, rows: Tensor, groups: int) -> Tensor:
        """Bring a kernel's rows back into the order (key heads, rows, groups, ...)."""
        return rows.transpose(1, 2) if self.causal else rows.reshape(len(rows), -1, groups, *rows.shape[3:])


def _blocks(segments: Segments) -> Iterator[_Block]:
    """Yield the blocks of a tree in depth-first order, so that a row's first block is computed first."""
    reached = 0
    for start, stop, end in segments:
        first = start >= reached  # the chain at the root of a tree
        reached = max(reached, end)
        # Its own rows first: they need the keys of the chain causally, the rows below it need all of them.
        yield _Block(slice(start, stop), slice(start, stop), True, first)
        if end > stop:
            yield _Block(slice(stop, end), slice(start, stop), False, first)


class _Columns(Function):
    """Flash attention block by block; the backward pass needs only the merged output and log-sum-exp.

    Queries are (key heads, rows, groups, width), keys and values (key heads, 1, rows, width).
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, segments: Segments) -> Tensor:
        groups, wide, flash = query.shape[2], _sum_dtype(query), _kernels(query.device.type)[0]
        # Merged in float32 at least: every merge in bfloat16 would lose digits.
        out = torch.empty_like(query, dtype=wide)
        lse = torch.empty(query.shape[:3], dtype=wide, device=query.device)
        for block in _blocks(segments):
            keys, values = (block.select_keys(tensor, groups) for tensor in (key, value))
            results = flash(block.select_rows(query), keys, values, block.causal, scale)
            part, part_lse = (block.restore_rows(tensor, groups) for tensor in results)
            _merge(out[:, block.rows], lse[:, block.rows], part.to(wide), part_lse, first=block.first)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale, ctx.segments = scale, segments
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        groups, wide, grad = query.shape[2], _sum_dtype(query), grad.contiguous()
        flash_backward = _kernels(query.device.type)[1]
        query_grad = torch.empty_like(query, dtype=wide)
        key_grad, value_grad = (torch.zeros_like(tensor, dtype=wide) for tensor in (key, value))
        for block in _blocks(ctx.segments):
            keys, values = (block.select_keys(tensor, groups) for tensor in (key, value))
            # With the merged log-sum-exp each block's gradient is exact, so the blocks' gradients simply add up.
            rows = [block.select_rows(tensor) for tensor in (grad, query, out, lse)]
            parts = flash_backward(rows[0], rows[1], keys, values, rows[2], rows[3], block.causal, ctx.scale)
            total, part = query_grad[:, block.rows], block.restore_rows(parts[0], groups)
            total.copy_(part) if block.first else total.add_(part)
            for total, part in zip((key_grad, value_grad), parts[1:], strict=True):
                total[:, :, block.keys] += part.sum(1, keepdim=True) if block.causal else part
        return query_grad.to(query.dtype), key_grad.to(key.dtype), value_grad.to(value.dtype), None, None


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor, *, first: bool) -> None:
    """Merge another block of keys into rows; outputs are weighted by the block's share of the softmax."""
    if first:
        out.copy_(part)
        lse.copy_(part_lse)
    else:
        # sigmoid(b - a) = exp(b) / (exp(a) + exp(b)): the block's share of the merged softmax, without overflow.
        out.lerp_(part, torch.sigmoid(part_lse - lse).unsqueeze(-1))
        lse.copy_(torch.logaddexp(lse, part_lse))


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _kernels(device: str) -> tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., tuple[Tensor, Tensor, Tensor]]]:
    """Return the kernel of a block, and that of its gradients from the merged output and log-sum-exp."""
    kernels = {"cpu": (_cpu, _cpu_backward), "cuda": (_cuda, _cuda_backward)}.get(device)
    if kernels is None:
        raise SettingError(f"attention by columns has no kernel for {device}. Use the SDPA backend there.")
    return kernels


def _cpu(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    results: tuple[Tensor, Tensor] = kernel(query, key, value, 0.0, causal, scale=scale)
    return results


def _cpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    gradients: tuple[Tensor, Tensor, Tensor] = kernel(grad, query, key, value, out, lse, 0.0, causal, scale=scale)
    return gradients


def _cuda(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Compute a block on a GPU. Checked up to the call, not yet run on one."""
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise SettingError(
            "attention by columns needs bf16 or fp16 on a GPU. Use the SDPA backend for other precisions."
        )
    kernel = torch.ops.aten._scaled_dot_product_flash_attention
    out, lse, *_ = kernel(query, key, value, 0.0, causal, False, scale=scale)
    return out, lse


def _cuda_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a block's gradients on a GPU. Checked up to the call, not yet run on one."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_backward
    # The kernel reads the log-sum-exp by address. Without dropout the generator state is never read.
    grad, out, lse = (tensor.contiguous() for tensor in (grad, out, lse))
    state, unused = (torch.empty(size, dtype=torch.uint64, device=query.device) for size in (2, 0))
    lengths = (None, None, query.shape[2], key.shape[2])
    gradients: tuple[Tensor, Tensor, Tensor] = kernel(
        grad, query, key, value, out, lse, *lengths, 0.0, causal, state, unused, scale=scale
    )
    return gradients


def flex_attention_inputs(layout: TreeLayout, device: torch.device) -> dict[str, Any]:
    """Return the keyword arguments of a model's forward for FlexAttention; the layout is padded to whole blocks."""
    return {"attention_mask": tree_block_mask(layout, device)}


def flex_tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention for Transformers by FlexAttention. Not yet run on a GPU; no backward pass on a CPU."""
    if attention_mask is None or isinstance(attention_mask, torch.Tensor):
        return _attend_plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    _refuse_dropout(dropout)
    if query.device.type == "cpu" and query.requires_grad:
        raise SettingError("FlexAttention cannot train on a CPU: it has no backward pass there. Use columns.")
    attend = _flex_kernel(compiled=query.device.type != "cpu")
    out: Tensor = attend(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


@cache
def _flex_kernel(*, compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention import flex_attention as flex  # noqa: PLC0415

    if compiled:
        return torch.compile(flex.flex_attention)

    def attend(*args: Any, **kwargs: Any) -> Any:
        """Attend uncompiled, with all pairs in memory: enough for a small check on a CPU."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            return flex.flex_attention(*args, **kwargs)

    return attend


def tree_block_mask(layout: TreeLayout, device: torch.device) -> Any:
    """Return which blocks of queries attend to which blocks of keys, from the intervals rather than every pair."""
    from torch.nn.attention.flex_attention import BlockMask  # noqa: PLC0415

    if len(layout) % FLEX_BLOCK_TOKENS:
        raise ValueError(f"{len(layout)} rows are not a multiple of {FLEX_BLOCK_TOKENS}")
    ends = layout.end.reshape(-1, FLEX_BLOCK_TOKENS)
    starts = np.arange(0, len(layout), FLEX_BLOCK_TOKENS)
    # (query blocks, key blocks): a block is full where every key outlives the last query of the query block.
    before = starts[None, :] < starts[:, None]
    full = before & (ends.min(1)[None, :] >= starts[:, None] + FLEX_BLOCK_TOKENS)
    # The diagonal is always partial: it is causal.
    partial = before & (ends.max(1)[None, :] > starts[:, None]) | np.eye(len(starts), dtype=bool)
    end = torch.as_tensor(layout.end, device=device)

    def attends(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < end[key])

    partial_blocks, full_blocks = (_list_blocks(blocks, device) for blocks in (partial & ~full, full))
    return BlockMask.from_kv_blocks(*partial_blocks, *full_blocks, BLOCK_SIZE=FLEX_BLOCK_TOKENS, mask_mod=attends)


def _list_blocks(blocks: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return for every row how many blocks are set, and the block numbers with the set ones first."""
    order = np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)
    counts = blocks.sum(1).astype(np.int32)
    return tuple(torch.as_tensor(array, device=device)[None, None] for array in (counts, order))  # type: ignore[return-value]
