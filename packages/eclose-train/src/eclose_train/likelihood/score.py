"""Mean token log-likelihoods of spans, computed by one of three strategies that agree up to rounding.

Differentiable and independent of any trainer. Logits are computed only where a token is scored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import Function, once_differentiable

from eclose_train.likelihood.attention import (
    COLUMNS,
    FLEX,
    FLEX_BLOCK_TOKENS,
    column_attention_inputs,
    flex_attention_inputs,
)
from eclose_train.likelihood.prefix_tree import PrefixTree, ScoredTree, group_scores_by_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eclose_train.likelihood.prefix_tree import LogitReadout, TreeLayout
    from eclose_train.likelihood.spans import SpanScore

_CHUNK_LOGITS = 1 << 20
"""Number of logits that are summed at a time."""
_MASKED_TOKENS = 4_096
"""Most tokens of a forest scored with a mask, whose cost grows quadratically; a larger family is scored alone."""


class ScoringStrategy(StrEnum):
    """How much of the computation the scores share."""

    NAIVE = "naive"
    """A sequence per score, as the published training hours suggest the paper ran it; the reference for tests."""
    DEDUP = "dedup"
    """A sequence per distinct path; all scores of the path are read off it."""
    TREE = "tree"
    """One prefix tree and one forward pass."""


class AttentionBackend(StrEnum):
    """How attention is restricted to the paths of a tree."""

    SDPA = "sdpa"
    """A 4-D mask: runs on any device, memory grows with the square of the tree."""
    COLUMNS = "columns"
    """Block by block without a mask: the cost follows the query-key pairs of the tree."""
    FLEX = "flex"
    """FlexAttention with a block mask, for a GPU; it has no backward pass on a CPU."""


def mean_logprobs(
    model: Any,
    scores: Sequence[SpanScore],
    strategy: ScoringStrategy,
    backend: AttentionBackend = AttentionBackend.SDPA,
) -> Tensor:
    """Return the mean log-likelihood of every score, in order; a tensor of shape (scores,)."""
    if strategy is ScoringStrategy.TREE:
        return score_tree(model, ScoredTree.of(scores), backend)
    groups = [[score] for score in scores] if strategy is ScoringStrategy.NAIVE else group_scores_by_path(scores)
    # By identity: equal scores may occur twice, and comparing paths of thousands of tokens is slow.
    means: dict[int, Tensor] = {}
    for group in groups:
        values = score_tree(model, ScoredTree.of(group), None)
        means |= {id(score): value for score, value in zip(group, values, strict=True)}
    return torch.stack([means[id(score)] for score in scores])


def score_tree(model: Any, tree: ScoredTree, backend: AttentionBackend | None) -> Tensor:
    """Score a tree in one forward pass; a backend of None is for a single path under plain causal attention."""
    device = next(model.parameters()).device
    # Padding follows all nodes, so the rows of the readout keep their numbers.
    layout = tree.layout.pad(FLEX_BLOCK_TOKENS) if backend is AttentionBackend.FLEX else tree.layout
    logits = model(
        input_ids=torch.as_tensor(layout.ids, device=device)[None],
        position_ids=torch.as_tensor(layout.positions, device=device)[None],
        logits_to_keep=torch.as_tensor(tree.readout.rows, device=device),
        use_cache=False,
        **_attention(layout, backend, device),
    ).logits
    # A model that is none of Transformers may ignore logits_to_keep and return all rows.
    if logits.shape[1] != len(tree.readout.rows):
        logits = logits[:, torch.as_tensor(tree.readout.rows, device=device)]
    # Flattened rather than indexed: the gradient of an index would be another copy of all logits.
    return _average_targets(logits.flatten(0, 1), tree.readout)


def _attention(layout: TreeLayout, backend: AttentionBackend | None, device: torch.device) -> dict[str, Any]:
    if backend is None:
        return {}
    if backend is AttentionBackend.COLUMNS:
        return column_attention_inputs(layout, device)
    if backend is AttentionBackend.FLEX:
        return flex_attention_inputs(layout, device)
    return {"attention_mask": torch.as_tensor(layout.mask, device=device)[None, None]}


def _average_targets(logits: Tensor, readout: LogitReadout) -> Tensor:
    """Average the log-probabilities of the targets within each score; logits are (rows, vocabulary)."""
    row_of, targets, score_of, counts = (
        torch.as_tensor(array, device=logits.device)
        for array in (readout.row_of, readout.targets, readout.score_of, readout.counts)
    )
    logprobs: Tensor = _Logprobs.apply(logits, row_of, targets)  # type: ignore[no-untyped-call]
    # (scored tokens,) summed into (scores,).
    sums = torch.zeros(len(counts), dtype=logprobs.dtype, device=logits.device)
    means: Tensor = sums.index_add(0, score_of, logprobs) / counts
    return means


class _Logprobs(Function):
    """Log-probabilities of targets; a row may have several targets or none.

    Vocabularies are large, so no second tensor of the size of the logits is allocated: sums run over a few rows at a
    time in full precision, and the gradient overwrites the logits, which are not needed afterwards. Autograd refuses a
    second backward pass through the same graph, because it detects that the saved logits have changed.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, row_of: Tensor, targets: Tensor) -> Tensor:
        dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
        lse = torch.cat([chunk.to(dtype).logsumexp(-1) for chunk in _split_rows(logits)])
        logprobs = logits[row_of, targets].to(dtype) - lse[row_of]
        ctx.save_for_backward(logits, lse, row_of, targets, logprobs)
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, lse, row_of, targets, logprobs = ctx.saved_tensors
        per_row = torch.zeros_like(lse).index_add_(0, row_of, grad)
        # A token of a row may be scored more than once; its gradient is the sum, written once.
        tokens, which = torch.unique(row_of * logits.shape[1] + targets, return_inverse=True)
        scored = grad.new_zeros(len(tokens)).index_add_(0, which, grad)[which] - per_row[row_of] * logprobs.exp()
        # d logprob / d logits = one_hot(target) - softmax; the softmax part first, then the targets over it.
        stop = 0
        for chunk in _split_rows(logits):
            rows = slice(stop, stop := stop + len(chunk))
            softmax = (chunk.to(lse.dtype) - lse[rows, None]).exp_()
            chunk.copy_(softmax.mul_(-per_row[rows, None]))
        logits[row_of, targets] = scored.to(logits.dtype)
        return logits, None, None


def _split_rows(logits: Tensor) -> tuple[Tensor, ...]:
    """Split logits into chunks of as many rows as stay in a cache."""
    return torch.split(logits, max(1, _CHUNK_LOGITS // logits.shape[1]))


def limit_forward_tokens(budget: int, backend: AttentionBackend) -> int:
    """Return the most tokens of a forward pass: the budget, or fewer where a mask makes every pair of tokens cost.

    Fewer than a tenth of the pairs of a 16,384-token forest are attended to, and a mask computes all of them: on an 8B
    model that adds two thirds to the work of the linear layers, and a sixth at 4,096 tokens.
    """
    return min(budget, _MASKED_TOKENS) if backend is AttentionBackend.SDPA else budget


def pack_family_forests(families: Sequence[Sequence[SpanScore]], budget: int) -> list[list[int]]:
    """Group consecutive families so that each group's tree fits into a budget of tokens; return family numbers.

    Tokens that families share, such as system prompt and demonstrations, count once per forest. A family larger than
    the budget forms a group of its own: no path is truncated.
    """
    groups: list[list[int]] = []
    tree = PrefixTree()
    for number, scores in enumerate(families):
        for score in scores:
            tree.insert(score.prefix)
        if not groups or len(tree) > budget:
            # The family does not fit: it starts the next forest, whose tree begins with it alone.
            groups.append([])
            tree = PrefixTree()
            for score in scores:
                tree.insert(score.prefix)
        groups[-1].append(number)
    return groups


def attention_implementation_name(backend: AttentionBackend) -> str:
    """Return the ``attn_implementation`` under which Transformers runs a backend."""
    return {AttentionBackend.SDPA: "sdpa", AttentionBackend.COLUMNS: COLUMNS, AttentionBackend.FLEX: FLEX}[backend]
