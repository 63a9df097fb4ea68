"""Is a tree right for this model? Asked once at the start, answered by trying.

A tree is exact for full causal attention with explicit positions. It is silently wrong for sliding windows, linear
attention and any path that drops the mask. So a small random tree is scored both ways, a branch is disturbed to see
that no other branch notices, and where the model is to be trained gradients are compared too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import torch

from eclosure.errors import SettingError, UserError
from eclosure.likelihood.attention import register
from eclosure.likelihood.score import Backend, Strategy, attention_name, mean_logprobs
from eclosure.likelihood.spans import Part, Path, Score

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 2e-2}
_SLOPE_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
_COMPARED = 8
_LARGEST = 1 << 24
"""Trainable tensors whose gradients are compared: the first ones, which every layer above must get right; none huge."""


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
    slope: float = math.nan
    """How far gradients differ, relative to their size; not a number where nothing is trained."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a model is to be scored."""

    strategy: Strategy
    backend: Backend
    message: str | None = None
    """What a user should know, where it is not what was hoped for."""


def choose(
    model: Any, strategy: Strategy | Literal["auto"] = "auto", backend: Backend | Literal["auto"] = "auto"
) -> Choice:
    """Settle how a model is scored, try it, and set the model's attention to match.

    On a CPU trees go by columns, on a GPU by SDPA's mask until another kernel has been seen to run there. Left to
    choose, a model that trees get wrong is scored path by path, with a message; asked for a tree, that is an error.
    """
    if strategy not in ("auto", Strategy.TREE):
        return Choice(Strategy(strategy), Backend.SDPA)
    found = _known_reason(model) or _first_exact(model, _candidates(model, backend))
    if isinstance(found, Backend):
        return Choice(Strategy.TREE, found)
    if strategy == Strategy.TREE:
        raise SettingError(f"this model cannot be scored by tree: {found}. Use the strategy dedup.")
    return Choice(Strategy.DEDUP, Backend.SDPA, f"scored path by path, not by tree: {found}")


def _first_exact(model: Any, candidates: tuple[Backend, ...]) -> Backend | str:
    """The first backend that passes its trial, with the model set to it; or why none does, and the model as it was."""
    base = _base(model)
    before, reasons = base.config._attn_implementation, []
    for backend in candidates:
        set_attention(model, backend)
        found = probe(model, backend)
        if found.exact:
            return backend
        reasons.append(f"with {backend.value}, {found.reason}")
    base.set_attn_implementation(before)
    return "; ".join(reasons)


def set_attention(model: Any, backend: Backend) -> None:
    """Let a model attend as the backend asks; an adapter's base is meant."""
    register()
    _base(model).set_attn_implementation(attention_name(backend))


def _candidates(model: Any, backend: Backend | Literal["auto"]) -> tuple[Backend, ...]:
    if backend != "auto":
        return (Backend(backend),)
    on_cpu = next(model.parameters()).device.type == "cpu"
    return (Backend.COLUMNS, Backend.SDPA) if on_cpu else (Backend.SDPA,)


def _base(model: Any) -> Any:
    """The model below an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def probe(model: Any, backend: Backend = Backend.SDPA, seed: int = 0) -> Probe:
    """Score a small random tree by tree and path by path, in evaluation mode; gradients too if any are wanted."""
    if reason := _known_reason(model):
        return _refused(reason)
    was_training = model.training
    model.eval()
    try:
        return _trial(model, backend, Random(seed))
    except (UserError, RuntimeError, ValueError, TypeError) as failure:  # whatever a model or a kernel objects to
        return _refused(f"a trial failed: {str(failure).splitlines()[0].rstrip('.')}")
    finally:
        model.train(was_training)


def _refused(reason: str) -> Probe:
    return Probe(exact=False, difference=math.nan, leak=math.nan, reason=reason)


def _known_reason(model: Any) -> str | None:
    """Models of which it is known that branches are not independent, or windows depend on the layout."""
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if layers:
        return f"its layers include {', '.join(sorted(layers))}"
    windowed = getattr(text, "use_sliding_window", True) and getattr(text, "sliding_window", None)
    if windowed:
        return f"it attends within a window of {text.sliding_window} tokens"
    if getattr(text, "attention_dropout", 0):
        return "it drops attention weights at random"
    dropping = (name for name, part in model.named_modules() if isinstance(part, torch.nn.Dropout) and part.p > 0)
    name = next(dropping, None)
    return None if name is None else f"it drops activations at random ({name})"


def _trial(model: Any, backend: Backend, rng: Random) -> Probe:
    vocabulary = model.config.get_text_config().vocab_size
    scores = _random_tree(rng, vocabulary)
    disturbed = [*scores[:-1], _other_ending(scores[-1], rng, vocabulary)]
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        plain = mean_logprobs(model, scores, Strategy.NAIVE)
        shared = mean_logprobs(model, scores, Strategy.TREE, backend)
        moved = mean_logprobs(model, disturbed, Strategy.TREE, backend)
    difference, leak = float((plain - shared).abs().max()), float((moved - shared)[:-1].abs().max())
    tolerance = _TOLERANCE.get(dtype, 5e-2)
    if not (difference <= tolerance and leak <= tolerance):
        reason = f"a tree's scores differ by {difference:.2g} from plain ones, branches by {leak:.2g}"
        return Probe(exact=False, difference=difference, leak=leak, reason=reason)
    slope = _slope(model, scores, backend)
    if slope is None:
        return Probe(exact=True, difference=difference, leak=leak, reason=None)
    exact = slope <= _SLOPE_TOLERANCE.get(dtype, 0.3)
    doubt = None if exact else f"a tree's gradients differ by {slope:.2g} from plain ones"
    return Probe(exact, difference, leak, doubt, slope)


def _slope(model: Any, scores: list[Score], backend: Backend) -> float | None:
    """How far gradients of scores differ; None where nothing is trained."""
    trained = [part for part in model.parameters() if part.requires_grad and part.numel() <= _LARGEST][:_COMPARED]
    if not trained:
        return None
    with torch.enable_grad():
        plain = _gradients(mean_logprobs(model, scores, Strategy.NAIVE), trained)
        shared = _gradients(mean_logprobs(model, scores, Strategy.TREE, backend), trained)
    apart = math.hypot(*(float((one - other).norm()) for one, other in zip(plain, shared, strict=True)))
    size = math.hypot(*(float(one.norm()) for one in plain))
    return apart / size if size else apart


def _gradients(values: Tensor, trained: list[Tensor]) -> list[Tensor]:
    """The gradients of a sum in which every score counts differently."""
    weights = torch.linspace(1, 2, len(values), dtype=values.dtype, device=values.device)
    found: tuple[Tensor | None, ...] = torch.autograd.grad((values * weights).sum(), trained, allow_unused=True)
    return [torch.zeros(()) if part is None else part.detach() for part in found]


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
