"""Mean token log-likelihoods of spans, by any of four strategies that must agree.

Free of any trainer, differentiable, logits only where a token is scored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from eclosure.likelihood.attention import COLUMNS, KEYWORD
from eclosure.likelihood.prefix_tree import PrefixTree, ScoredTree, chains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eclosure.likelihood.prefix_tree import Layout, Readout
    from eclosure.likelihood.spans import Score


class Strategy(StrEnum):
    """How much of the work is shared."""

    NAIVE = "naive"
    """Every score a sequence of its own: what the paper ran, and the reference for tests."""
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
    readout = tree.readout

    def on(array: Any) -> Tensor:
        return torch.as_tensor(array, device=device)

    logits = model(
        input_ids=on(tree.layout.ids)[None],
        position_ids=on(tree.layout.positions)[None],
        logits_to_keep=on(readout.rows),
        use_cache=False,
        **_attention(tree.layout, backend, device),
    ).logits[0]
    return _means(logits, readout, on)


def _attention(layout: Layout, backend: Backend | None, device: torch.device) -> dict[str, Any]:
    if backend is None:
        return {}
    if backend is Backend.COLUMNS:
        return {KEYWORD: layout.segments}
    return {"attention_mask": torch.as_tensor(layout.mask, device=device)[None, None]}


def _means(logits: Tensor, readout: Readout, on: Any) -> Tensor:
    """Log-probabilities of the targets, averaged within each score. One row serves all its targets."""
    dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
    normalised = F.log_softmax(logits.to(dtype), dim=-1)
    logprobs = normalised[on(readout.row_of), on(readout.targets)]
    sums = torch.zeros(len(readout.counts), dtype=dtype, device=logits.device)
    means: Tensor = sums.index_add(0, on(readout.score_of), logprobs) / on(readout.counts)
    return means


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
    return COLUMNS if backend is Backend.COLUMNS else "sdpa"
