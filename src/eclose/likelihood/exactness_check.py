"""Check once, before training or scoring, that token trees give a model's own scores.

A tree is exact for full causal attention with explicit positions. It is silently wrong for sliding windows, linear
attention and any path that drops the mask. The trial scores small random trees by tree and path by path, disturbs one
branch to see that no other branch changes, and compares gradients where the model is to be trained.

Low precision rounds differently with every shape of batch and every kernel. The trial therefore measures that noise on
the model itself, by scoring the same paths as a padded batch and with Transformers' eager attention, both of which are
right, and compares the tree's difference with it.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import torch

from eclose.errors import SettingError, UserError
from eclose.likelihood.attention import register
from eclose.likelihood.score import Backend, Strategy, attention_name, mean_logprobs
from eclose.likelihood.spans import Part, Path, Score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 2e-2}
"""Root mean square difference of scores that is accepted whatever the noise."""
_GRADIENT_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
"""The same for gradients, relative to their size."""
_NOISE_FACTOR = 3.0
"""How many times the noise of plain scoring a tree may differ."""
_NOISE_LIMIT = 0.5
"""Differences above this are an error whatever the noise: half a nat, or half the size of the gradients."""
_LEAK_TOLERANCE = 1e-6
"""Change of a branch by another one, beyond what scoring the same tree twice changes."""
_TREES = 3
_COMPARED = 8
_LARGEST = 1 << 24
"""Trainable tensors whose gradients are compared: the first ones, which every layer above must get right; none huge."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of the trial."""

    exact: bool
    difference: float
    """Root mean square difference between a tree's scores and plain ones."""
    leak: float
    """Largest change of a branch's scores when another branch is disturbed."""
    reason: str | None
    """Why trees are not used; None when they are."""
    slope: float = math.nan
    """Difference of gradients relative to their size; not a number where nothing is trained."""
    noise: float = math.nan
    """Root mean square difference of plain scores by another batch or kernel, the larger of the two."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a model is to be scored."""

    strategy: Strategy
    backend: Backend
    message: str | None = None
    """What a user should know, where it is not what was hoped for."""

    @property
    def name(self) -> str:
        """Strategy and backend in words."""
        return f"{self.strategy.value}, {self.backend.value}"


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
    except (UserError, RuntimeError, ValueError, TypeError, AssertionError) as failure:  # of a model or a kernel
        return _refused(f"a trial failed: {(str(failure) or type(failure).__name__).splitlines()[0].rstrip('.')}")
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
    trees = [_random_tree(rng, vocabulary) for _ in range(_TREES)]
    dtype = _precision(model)
    with torch.no_grad():
        plain = torch.cat([mean_logprobs(model, scores, Strategy.NAIVE) for scores in trees])
        shared = torch.cat([mean_logprobs(model, scores, Strategy.TREE, backend) for scores in trees])
        batches = torch.cat([_batch_logprobs(model, scores) for scores in trees])
        with _eager(model):
            eager = torch.cat([mean_logprobs(model, scores, Strategy.NAIVE) for scores in trees])
        leak = _leak(model, trees[0], backend, rng)
    difference, noise = _rms(shared - plain), max(_rms(batches - plain), _rms(eager - plain))
    if not leak <= _LEAK_TOLERANCE:
        reason = f"disturbing a branch of a tree moves other branches by {leak:.2g}"
        return Probe(exact=False, difference=difference, leak=leak, reason=reason, noise=noise)
    if not difference <= _bound(_TOLERANCE.get(dtype, 0.0), noise):
        reason = (
            f"a tree's scores differ by {difference:.2g} from plain ones, plain ones among themselves by {noise:.2g}"
        )
        return Probe(exact=False, difference=difference, leak=leak, reason=reason, noise=noise)
    trained = [part for part in model.parameters() if part.requires_grad and part.numel() <= _LARGEST][:_COMPARED]
    if not trained:
        return Probe(exact=True, difference=difference, leak=leak, reason=None, noise=noise)
    slope, slope_noise = _gradient_differences(model, trees[0], backend, trained)
    exact = slope <= _bound(_GRADIENT_TOLERANCE.get(dtype, 0.0), slope_noise)
    reason = (
        f"a tree's gradients differ by {slope:.2g} from plain ones, plain ones among themselves by {slope_noise:.2g}"
    )
    return Probe(exact, difference, leak, None if exact else reason, slope, noise)


def _precision(model: Any) -> torch.dtype:
    """Return the precision a model computes in: that of autocast where it is on, else that of its weights."""
    weights = next(model.parameters())
    device = weights.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights.dtype


def _bound(tolerance: float, noise: float) -> float:
    """Return the difference that counts as rounding: the dtype's tolerance, or a multiple of the measured noise."""
    return max(tolerance, min(_NOISE_FACTOR * noise, _NOISE_LIMIT))


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def _leak(model: Any, scores: list[Score], backend: Backend, rng: Random) -> float:
    """Return how far other tokens in the last branch move the other branches, beyond scoring the same tree twice."""
    disturbed = [*scores[:-1], _other_ending(scores[-1], rng, model.config.get_text_config().vocab_size)]
    first, second, moved = (
        mean_logprobs(model, tree, Strategy.TREE, backend)[:-1] for tree in (scores, scores, disturbed)
    )
    return float((moved - first).abs().max() - (second - first).abs().max())


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Let a model attend by Transformers' own matrix products for a while."""
    base = _base(model)
    before = base.config._attn_implementation
    base.set_attn_implementation("eager")
    try:
        yield
    finally:
        base.set_attn_implementation(before)


def _batch_logprobs(model: Any, scores: list[Score]) -> Tensor:
    """Score paths as one batch, padded in front: the same values as one by one, up to rounding."""
    device = next(model.parameters()).device
    width = max(len(score.path.ids) for score in scores)
    padding = [width - len(score.path.ids) for score in scores]
    rows = [[0] * pad + list(score.path.ids) for pad, score in zip(padding, scores, strict=True)]
    mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding], device=device)
    logits = model(
        input_ids=torch.tensor(rows, device=device),
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
    ).logits
    wide = torch.float64 if logits.dtype is torch.float64 else torch.float32
    logprobs = logits.to(wide).log_softmax(-1)
    means = []
    for row, (pad, score) in enumerate(zip(padding, scores, strict=True)):
        targets = [score.path.ids[position] for position in score.places]
        means.append(logprobs[row, [pad + position - 1 for position in score.places], targets].mean())
    return torch.stack(means)


def _gradient_differences(
    model: Any, scores: list[Score], backend: Backend, trained: list[Tensor]
) -> tuple[float, float]:
    """Return how far gradients by tree differ from plain ones, relative to their size, and the noise of plain ones."""
    with torch.enable_grad():
        plain = _gradients(mean_logprobs(model, scores, Strategy.NAIVE), trained)
        shared = _gradients(mean_logprobs(model, scores, Strategy.TREE, backend), trained)
        batch = _gradients(_batch_logprobs(model, scores), trained)
        with _eager(model):
            eager = _gradients(mean_logprobs(model, scores, Strategy.NAIVE), trained)
    size = math.hypot(*(float(part.norm()) for part in plain)) or 1.0
    differences = (
        math.hypot(*(float((part - reference).norm()) for part, reference in zip(parts, plain, strict=True))) / size
        for parts in (shared, batch, eager)
    )
    slope, *noise = differences
    return slope, max(noise)


def _gradients(values: Tensor, trained: list[Tensor]) -> list[Tensor]:
    """Return the gradients of a sum in which every score has another weight."""
    weights = torch.linspace(1, 2, len(values), dtype=values.dtype, device=values.device)
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad((values * weights).sum(), trained, allow_unused=True)
    return [torch.zeros(()) if part is None else part.detach() for part in gradients]


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
