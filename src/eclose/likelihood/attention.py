"""Attention that follows the tree on unpatched models: by columns, or by FlexAttention.

In depth-first layout the keys of a chain are seen by two blocks of queries: its own rows, causally, and the rows below
it, entirely. So a tree is a causal square and a dense rectangle per chain, merged by their log-sum-exp, and costs what
its query-key pairs cost. The segments travel as a keyword of the model's forward; calls without them are plain SDPA,
masks included, so that the same model generates and scores padded batches as ever.

The kernels for a GPU (flash attention under the columns, FlexAttention) have been checked up to the call and have not
run on one: the probe asks them before they are trusted.
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

    from eclose.likelihood.prefix_tree import Layout

Segments: TypeAlias = list[tuple[int, int, int]]

COLUMNS = "eclose_columns"
FLEX = "eclose_flex"
"""The names under which Transformers knows these attentions."""

KEYWORD = "tree_segments"
BLOCK = 128
"""Rows of a block of FlexAttention, and what its lengths are a multiple of."""


class TreeSegments:
    """The segments of a tree on their way through a model's forward.

    An object of its own, since torch.compile looks into lists and would compile the model anew for every tree.
    """

    __slots__ = ("values",)

    def __init__(self, values: Segments) -> None:
        self.values = values


def register() -> str:
    """Make both attentions known to Transformers; returns the name of the one by columns."""
    from transformers import AttentionInterface  # noqa: PLC0415 - heavy, and only needed with a model
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # noqa: PLC0415

    for name, attention in ((COLUMNS, column_attention), (FLEX, flex_attention)):
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, sdpa_mask)
    return COLUMNS


def column_inputs(layout: Layout, device: torch.device) -> dict[str, Any]:
    """What a model's forward needs for a tree by columns."""
    # Transformers leaves a 4-D mask alone; without one it would make its own from the positions, for nothing.
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
    return {KEYWORD: TreeSegments(layout.segments), "attention_mask": mask}


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
    """Attend as Transformers asks: along a tree if its segments are passed, by plain SDPA otherwise."""
    segments: TreeSegments | None = kwargs.pop(KEYWORD, None)
    if segments is None:
        return _plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    _refuse_dropout(dropout)
    return _along_tree(query, key, value, scaling, segments), None


# Left out of torch.compile: the segments of every tree differ, so each would be compiled anew.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _along_tree(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, segments: TreeSegments) -> Tensor:
    query, key, value = _autocast(query, key, value)
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    # Heads that share a key lie side by side, so that a block of rows is one matrix per key, and no key is repeated.
    rows = query.view(batch, -1, groups, length, width).transpose(2, 3).reshape(-1, length, groups, width).contiguous()
    keys, values = (part.reshape(-1, 1, length, width) for part in (key, value))
    scale = scaling if scaling is not None else width**-0.5
    out: Tensor = _Columns.apply(rows, keys, values, scale, segments.values)  # type: ignore[no-untyped-call]
    return out.view(batch, -1, length, groups, width).transpose(1, 2).reshape(batch, length, heads, width)


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to the precision of autocast, as it does itself for the kernels it knows; ours are called directly.

    Rotary embeddings leave float32 queries and keys beside bfloat16 values.
    """
    device = tensors[0].device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _plain(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415

    return sdpa_attention_forward(*args, **kwargs)


def _refuse_dropout(dropout: float) -> None:
    if dropout:
        raise ValueError("attention dropout would make scores depend on the layout; set it to 0")


class _Block(NamedTuple):
    """A square or a rectangle of the tree's attention."""

    rows: slice
    keys: slice
    causal: bool
    first: bool
    """Whether its rows have seen nothing before it, so that there is nothing to merge with."""

    def part(self, tensor: Tensor) -> Tensor:
        """Its rows of (keys' heads, rows, groups, ...), as a kernel takes them: heads, then rows.

        A rectangle treats all queries alike, so the groups become rows and share one call per key.
        """
        taken = tensor[:, self.rows]
        return taken.transpose(1, 2) if self.causal else taken.flatten(1, 2).unsqueeze(1)

    def keyed(self, tensor: Tensor, groups: int) -> Tensor:
        """Its keys, seen by every group without a copy."""
        taken = tensor[:, :, self.keys]
        return taken.expand(-1, groups, *taken.shape[2:]) if self.causal else taken

    def whole(self, part: Tensor, groups: int) -> Tensor:
        """A kernel's rows back in the order of the tensor they came from."""
        return part.transpose(1, 2) if self.causal else part.reshape(len(part), -1, groups, *part.shape[3:])


def _blocks(segments: Segments) -> Iterator[_Block]:
    reached = 0
    for start, stop, end in segments:
        first = start >= reached  # the chain at the root of a tree
        reached = max(reached, end)
        yield _Block(slice(start, stop), slice(start, stop), True, first)
        if end > stop:
            yield _Block(slice(stop, end), slice(start, stop), False, first)


class _Columns(Function):
    """Flash attention block by block; the backward pass needs only the merged output and log-sum-exp.

    Queries are (heads of keys, rows, groups, width), keys and values (heads of keys, 1, rows, width).
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, segments: Segments) -> Tensor:
        groups, wide = query.shape[2], _sum_dtype(query)
        out = torch.empty_like(query, dtype=wide)
        lse = torch.empty(query.shape[:3], dtype=wide, device=query.device)
        for block in _blocks(segments):
            keys, values = (block.keyed(part, groups) for part in (key, value))
            found = _flash(block.part(query), keys, values, block.causal, scale)
            part, part_lse = (block.whole(one, groups) for one in found)
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
        of_query = torch.empty_like(query, dtype=wide)
        of_key, of_value = (torch.zeros_like(part, dtype=wide) for part in (key, value))
        for block in _blocks(ctx.segments):
            keys, values = (block.keyed(part, groups) for part in (key, value))
            rows = [block.part(part) for part in (grad, query, out, lse)]
            parts = _flash_backward(rows[0], rows[1], keys, values, rows[2], rows[3], block.causal, ctx.scale)
            _add(of_query[:, block.rows], block.whole(parts[0], groups), first=block.first)
            for total, part in zip((of_key, of_value), parts[1:], strict=True):
                total[:, :, block.keys] += part.sum(1, keepdim=True) if block.causal else part
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), None, None


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor, *, first: bool) -> None:
    """Take one more block of keys into rows: outputs weighed by how much of the softmax each block holds."""
    if first:
        out.copy_(part)
        lse.copy_(part_lse)
    else:
        out.lerp_(part, torch.sigmoid(part_lse - lse).unsqueeze(-1))
        lse.copy_(torch.logaddexp(lse, part_lse))


def _add(total: Tensor, part: Tensor, *, first: bool) -> None:
    total.copy_(part) if first else total.add_(part)


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _flash(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of one block."""
    return _kernels(query.device.type)[0](query, key, value, causal, scale)


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
    """The gradients one block contributes, from the merged output and log-sum-exp."""
    return _kernels(query.device.type)[1](grad, query, key, value, out, lse, causal, scale)


def _kernels(device: str) -> tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., tuple[Tensor, Tensor, Tensor]]]:
    found = {"cpu": (_cpu, _cpu_backward), "cuda": (_cuda, _cuda_backward)}.get(device)
    if found is None:
        raise SettingError(f"attention by columns has no kernel for {device}. Use the SDPA backend there.")
    return found


def _cpu(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found: tuple[Tensor, Tensor] = kernel(query, key, value, 0.0, causal, scale=scale)
    return found


def _cpu_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    found: tuple[Tensor, Tensor, Tensor] = kernel(grad, query, key, value, out, lse, 0.0, causal, scale=scale)
    return found


def _cuda(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Not run on a GPU yet; checked up to the call."""
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
    """Not run on a GPU yet; checked up to the call."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_backward
    # The kernel reads the log-sum-exp by address. Without dropout nothing reads the state of the generator.
    grad, out, lse = (part.contiguous() for part in (grad, out, lse))
    state, unused = (torch.empty(size, dtype=torch.uint64, device=query.device) for size in (2, 0))
    lengths = (None, None, query.shape[2], key.shape[2])
    found: tuple[Tensor, Tensor, Tensor] = kernel(
        grad, query, key, value, out, lse, *lengths, 0.0, causal, state, unused, scale=scale
    )
    return found


def flex_inputs(layout: Layout, device: torch.device) -> dict[str, Any]:
    """What a model's forward needs for a tree by FlexAttention; the layout's length is a multiple of the block."""
    return {"attention_mask": block_mask(layout, device)}


def flex_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """An attention function for Transformers. Not run on a GPU yet; on a CPU it has no backward pass."""
    if attention_mask is None or isinstance(attention_mask, torch.Tensor):
        return _plain(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
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
        """Uncompiled all pairs are in memory: right for a small trial on a CPU, where it warns of just that."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            return flex.flex_attention(*args, **kwargs)

    return attend


def block_mask(layout: Layout, device: torch.device) -> Any:
    """Which blocks of queries see which blocks of keys, told from intervals without looking at every pair."""
    from torch.nn.attention.flex_attention import BlockMask  # noqa: PLC0415

    if len(layout) % BLOCK:
        raise ValueError(f"{len(layout)} rows are no multiple of {BLOCK}")
    ends = layout.end.reshape(-1, BLOCK)
    starts = np.arange(0, len(layout), BLOCK)
    before = starts[None, :] < starts[:, None]
    full = before & (ends.min(1)[None, :] >= starts[:, None] + BLOCK)
    some = before & (ends.max(1)[None, :] > starts[:, None]) | np.eye(len(starts), dtype=bool)
    end = torch.as_tensor(layout.end, device=device)

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < end[key])

    partial_blocks, full_blocks = (_listed(one, device) for one in (some & ~full, full))
    return BlockMask.from_kv_blocks(*partial_blocks, *full_blocks, BLOCK_SIZE=BLOCK, mask_mod=sees)


def _listed(blocks: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device) -> tuple[Tensor, Tensor]:
    """For every row of blocks how many there are, and which, those that count first."""
    order = np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)
    counts = blocks.sum(1).astype(np.int32)
    return tuple(torch.as_tensor(one, device=device)[None, None] for one in (counts, order))  # type: ignore[return-value]
