"""Is a tree right for this model? Asked once at the start, answered by trying.

A tree is exact for full causal attention with explicit positions. It is silently wrong for sliding windows, linear
attention and any path that drops the mask. So a small random tree is scored both ways, and a branch is disturbed to see
that no other branch notices.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from eclosure.likelihood.score import Backend, Strategy, mean_logprobs
from eclosure.likelihood.spans import Part, Path, Score

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 2e-2}


@dataclass(frozen=True, slots=True)
class Probe:
    """What the trial found."""

    exact: bool
    difference: float
    """The largest difference between a tree's scores and plain ones."""
    leak: float
    """How much disturbing one branch moved another."""
    reason: str | None
    """Why trees are not used; None when they are."""


def probe(model: Any, backend: Backend = Backend.SDPA, seed: int = 0) -> Probe:
    """Score a small random tree by tree and path by path, in evaluation mode and without gradients."""
    if reason := _known_reason(model.config):
        return Probe(exact=False, difference=float("nan"), leak=float("nan"), reason=reason)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _trial(model, backend, Random(seed))
    finally:
        model.train(was_training)


def _known_reason(config: Any) -> str | None:
    """Models of which it is known that branches are not independent, or windows depend on the layout."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if layers:
        return f"its layers include {', '.join(sorted(layers))}"
    windowed = getattr(text, "use_sliding_window", True) and getattr(text, "sliding_window", None)
    if windowed:
        return f"it attends within a window of {text.sliding_window} tokens"
    return "it drops attention weights at random" if getattr(text, "attention_dropout", 0) else None


def _trial(model: Any, backend: Backend, rng: Random) -> Probe:
    vocabulary = model.config.get_text_config().vocab_size
    scores = _random_tree(rng, vocabulary)
    plain = mean_logprobs(model, scores, Strategy.NAIVE)
    shared = mean_logprobs(model, scores, Strategy.TREE, backend)
    difference = float((plain - shared).abs().max())
    disturbed = [*scores[:-1], _other_ending(scores[-1], rng, vocabulary)]
    leak = float((mean_logprobs(model, disturbed, Strategy.TREE, backend)[:-1] - shared[:-1]).abs().max())
    tolerance = _TOLERANCE.get(next(model.parameters()).dtype, 5e-2)
    exact = difference <= tolerance and leak <= tolerance
    reason = None if exact else f"a tree's scores differ by {difference:.2g} from plain ones, branches by {leak:.2g}"
    return Probe(exact, difference, leak, reason)


def _random_tree(rng: Random, vocabulary: int) -> list[Score]:
    """A trunk with branches at several depths, and a branch on a branch; long enough for windows to matter."""

    def draw(count: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(count)]

    trunk = draw(40)
    bough = trunk[:25] + draw(20)
    paths = [trunk + draw(8), trunk + draw(12), bough + draw(6), bough[:32] + draw(9), trunk[:10] + draw(15)]
    scores = []
    for number, ids in enumerate(paths):
        path = Path(tuple(ids), ((Part.STEP, 0),) * len(ids))
        scores.append(Score(f"branch {number}", path, tuple(range(len(ids) - 5, len(ids)))))
    return scores


def _other_ending(score: Score, rng: Random, vocabulary: int) -> Score:
    """The same path with other tokens at its end."""
    ids = (*score.path.ids[:-6], *(rng.randrange(vocabulary) for _ in range(6)))
    return Score(score.name, Path(ids, score.path.parts), score.places)
