"""Mean token log-likelihoods of spans, by any of three strategies that must agree.

Free of any trainer, differentiable, logits only where a token is scored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import Function, once_differentiable

from eclose.likelihood.attention import BLOCK, COLUMNS, FLEX, column_inputs, flex_inputs
from eclose.likelihood.prefix_tree import PrefixTree, ScoredTree, chains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eclose.likelihood.prefix_tree import Layout, Readout
    from eclose.likelihood.spans import Score

_AT_A_TIME = 1 << 20
"""Logits summed at a time."""
_MASKED_TOKENS = 4_096
"""Tokens of a forest by mask, whose cost grows with their square; a larger family goes alone."""


class Strategy(StrEnum):
    """How much of the work is shared."""

    NAIVE = "naive"
    """Every score a sequence of its own, as the published hours suggest the paper ran it; the reference for tests."""
    DEDUP = "dedup"
    """Every distinct path once, scores read off it."""
    TREE = "tree"
    """One tree, one forward."""


class Backend(StrEnum):
    """How attention follows a tree."""

    SDPA = "sdpa"
    """A 4-D mask: any device, memory grows with the square of the tree."""
    COLUMNS = "columns"
    """Block by block without a mask: cost follows the real query-key pairs."""
    FLEX = "flex"
    """FlexAttention with a block mask, for a GPU; it has no backward pass on a CPU."""


def mean_logprobs(model: Any, scores: Sequence[Score], strategy: Strategy, backend: Backend = Backend.SDPA) -> Tensor:
    """The mean log-likelihood of every score, in order."""
    if strategy is Strategy.TREE:
        return score_tree(model, ScoredTree.of(scores), backend)
    groups = [[score] for score in scores] if strategy is Strategy.NAIVE else chains(scores)
    found: dict[int, Tensor] = {}
    for group in groups:
        values = score_tree(model, ScoredTree.of(group), None)
        found |= {id(score): value for score, value in zip(group, values, strict=True)}
    return torch.stack([found[id(score)] for score in scores])


def score_tree(model: Any, tree: ScoredTree, backend: Backend | None) -> Tensor:
    """One forward over a tree; a backend of None is for a single path, which plain causal attention serves."""
    device = next(model.parameters()).device
    layout = tree.layout.padded(BLOCK) if backend is Backend.FLEX else tree.layout
    logits = model(
        input_ids=torch.as_tensor(layout.ids, device=device)[None],
        position_ids=torch.as_tensor(layout.positions, device=device)[None],
        logits_to_keep=torch.as_tensor(tree.readout.rows, device=device),
        use_cache=False,
        **_attention(layout, backend, device),
    ).logits
    # Flattened and not indexed: the gradient of an index would be one more copy of all logits.
    return _means(logits.flatten(0, 1), tree.readout)


def _attention(layout: Layout, backend: Backend | None, device: torch.device) -> dict[str, Any]:
    if backend is None:
        return {}
    if backend is Backend.COLUMNS:
        return column_inputs(layout, device)
    if backend is Backend.FLEX:
        return flex_inputs(layout, device)
    return {"attention_mask": torch.as_tensor(layout.mask, device=device)[None, None]}


def _means(logits: Tensor, readout: Readout) -> Tensor:
    """Log-probabilities of the targets, averaged within each score. One row serves all its targets."""
    row_of, targets, score_of, counts = (
        torch.as_tensor(part, device=logits.device)
        for part in (readout.row_of, readout.targets, readout.score_of, readout.counts)
    )
    logprobs: Tensor = _Logprobs.apply(logits, row_of, targets)  # type: ignore[no-untyped-call]
    sums = torch.zeros(len(counts), dtype=logprobs.dtype, device=logits.device)
    means: Tensor = sums.index_add(0, score_of, logprobs) / counts
    return means


class _Logprobs(Function):
    """Log-probabilities of targets, of which a row may have many or none.

    Vocabularies are large, so nothing of the size of the logits is made: sums go over a few rows at a time in full
    precision, and the gradient is written over the logits, which nobody needs any more. A second backward pass through
    the same graph is refused by autograd, which sees that they changed.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, row_of: Tensor, targets: Tensor) -> Tensor:
        dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
        lse = torch.cat([some.to(dtype).logsumexp(-1) for some in _few_rows(logits)])
        logprobs = logits[row_of, targets].to(dtype) - lse[row_of]
        ctx.save_for_backward(logits, lse, row_of, targets, logprobs)
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, lse, row_of, targets, logprobs = ctx.saved_tensors
        per_row = torch.zeros_like(lse).index_add_(0, row_of, grad)
        # The same token of the same row may be scored more than once; what it gets is the sum, written once.
        tokens, which = torch.unique(row_of * logits.shape[1] + targets, return_inverse=True)
        scored = grad.new_zeros(len(tokens)).index_add_(0, which, grad)[which] - per_row[row_of] * logprobs.exp()
        done = 0
        for some in _few_rows(logits):
            here = slice(done, done := done + len(some))
            softmax = (some.to(lse.dtype) - lse[here, None]).exp_()
            some.copy_(softmax.mul_(-per_row[here, None]))
        logits[row_of, targets] = scored.to(logits.dtype)
        return logits, None, None


def _few_rows(logits: Tensor) -> tuple[Tensor, ...]:
    """As many rows at a time as stay in a cache."""
    return torch.split(logits, max(1, _AT_A_TIME // logits.shape[1]))


def tokens_allowed(budget: int, backend: Backend) -> int:
    """Return how many tokens a forward may have: the budget, or less where a mask makes every pair of them cost.

    Of the pairs of a 16,384-token forest of families fewer than a tenth are seen, and a mask computes them all: on an
    8B model that adds two thirds to the work of the linear layers, and a sixth at 4,096 tokens.
    """
    return min(budget, _MASKED_TOKENS) if backend is Backend.SDPA else budget


def forests(families: Sequence[Sequence[Score]], budget: int) -> list[list[int]]:
    """Families to be scored in one forward each: as many as fit into a budget of tokens, in the given order.

    What families have in common, such as system prompt and demonstrations, counts once per forest. A family larger
    than the budget goes alone: nothing is cut.
    """
    groups: list[list[int]] = []
    tree = PrefixTree()
    for number, scores in enumerate(families):
        grown = _grow(tree, scores)
        if not groups or grown > budget:
            groups.append([])
            tree = PrefixTree()
            _grow(tree, scores)
        groups[-1].append(number)
    return groups


def _grow(tree: PrefixTree, scores: Sequence[Score]) -> int:
    for score in scores:
        tree.insert(score.path.ids[: score.places[-1] + 1])
    return len(tree)


def attention_name(backend: Backend) -> str:
    """What to pass to Transformers as ``attn_implementation``."""
    return {Backend.SDPA: "sdpa", Backend.COLUMNS: COLUMNS, Backend.FLEX: FLEX}[backend]
