"""Check, once before training or scoring, that scores by prefix tree equal a model's plain scores.

A tree is exact for full causal attention with explicit positions. It is silently wrong for sliding windows, linear
attention and any code path that drops the mask. The check scores small random trees by tree and path by path, changes
one branch to see that no other branch moves, and compares gradients where the model is to be trained.

Low precision rounds differently with every batch shape and every kernel. The check therefore measures that noise on
the model, by scoring the same paths as a padded batch and with Transformers' eager attention, both of which are
correct, and compares the tree's difference with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import torch

from eclose.errors import SettingError, UserError
from eclose_train.likelihood.attention import register_tree_attention
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    attention_implementation_name,
    mean_logprobs,
)
from eclose_train.likelihood.spans import SpanScore, TokenPart, TokenPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 2e-2}
"""Root mean square difference of scores, in nats, that is accepted regardless of the noise."""
_GRADIENT_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
"""Difference of gradients, relative to their norm, that is accepted regardless of the noise."""
_NOISE_FACTOR = 3.0
"""Multiple of the noise of plain scoring by which a tree may differ."""
_NOISE_LIMIT = 0.5
"""Difference that is an error regardless of the noise: half a nat, or half the norm of the gradients."""
_LENGTH_DEPENDENT_ROPE = frozenset(("dynamic", "longrope"))
_LEAK_TOLERANCE = 1e-6
"""Most a branch may move when another branch changes, beyond what scoring the same tree twice moves it."""
_TREES = 3
"""Random trees that are scored."""
_COMPARED_TENSORS = 8
"""Trainable tensors whose gradients are compared: the first ones, because errors of all later layers reach them."""
_LARGEST_TENSOR = 1 << 24
"""Most elements of a compared tensor, to bound memory."""


@dataclass(frozen=True, slots=True)
class TreeExactnessCheck:
    """Result of checking a model and a backend."""

    exact: bool
    difference: float
    """Root mean square difference between scores by tree and plain scores, in nats."""
    leak: float
    """Largest change of a branch's scores when another branch changes."""
    reason: str | None
    """Why trees are not exact; None where they are."""
    slope: float = math.nan
    """Difference of gradients relative to their norm; NaN where no parameter is trained."""
    noise: float = math.nan
    """Root mean square difference of plain scores by another batch or kernel, the larger of the two."""


@dataclass(frozen=True, slots=True)
class ScoringChoice:
    """The strategy and backend chosen for a model."""

    strategy: ScoringStrategy
    backend: AttentionBackend
    message: str | None = None
    """Reason to show to the user where trees cannot be used."""
    noise: float = field(default=math.nan, compare=False)
    """Difference of plain scores by another batch or kernel, as measured by the check; NaN where there was none."""

    @property
    def name(self) -> str:
        """Strategy and backend, as printed."""
        return f"{self.strategy.value}, {self.backend.value}"


def choose_scoring_strategy(
    model: Any,
    strategy: ScoringStrategy | Literal["auto"] = "auto",
    backend: AttentionBackend | Literal["auto"] = "auto",
    *,
    max_length: int | None = None,
) -> ScoringChoice:
    """Choose how a model is scored, check it, and set the model's attention accordingly.

    On a CPU trees use columns, on a GPU the mask of SDPA, because no other kernel has been run there yet. With "auto" a
    model for which trees are not exact is scored path by path, with a message.

    Raises:
        SettingError: The tree strategy was requested and is not exact for this model.
    """
    if strategy not in ("auto", ScoringStrategy.TREE):
        return ScoringChoice(ScoringStrategy(strategy), AttentionBackend.SDPA)
    exact = _reason_against_trees(model, max_length) or _find_exact_backend(model, backend, max_length)
    return exact if isinstance(exact, ScoringChoice) else _fall_back(strategy, exact)


def confirm_on_family(
    model: Any, choice: ScoringChoice, scores: Sequence[SpanScore], strategy: ScoringStrategy | Literal["auto"] = "auto"
) -> ScoringChoice:
    """Score a real family both by tree and as plain sequences, in evaluation mode and without gradients.

    The trees of the check are small and random; what depends on the length of a path shows on a real one.

    Returns:
        The choice; scoring path by path, with a message, where it is the tree and the scores differ.

    Raises:
        SettingError: The tree strategy was requested and is not exact on the family.
    """
    if choice.strategy is not ScoringStrategy.TREE:
        return choice
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            shared = mean_logprobs(model, scores, ScoringStrategy.TREE, choice.backend)
            difference = _rms(shared - mean_logprobs(model, scores, ScoringStrategy.NAIVE))
    finally:
        model.train(was_training)
    if difference <= _bound(_TOLERANCE.get(_precision(model), 0.0), choice.noise):
        return choice
    set_model_attention(model, AttentionBackend.SDPA)
    longest = max(len(score.path.ids) for score in scores)
    return _fall_back(
        strategy, f"a family's scores (paths of up to {longest:,} tokens) differ by {difference:.2g} from plain ones"
    )


def _fall_back(strategy: ScoringStrategy | Literal["auto"], reason: str) -> ScoringChoice:
    """Return the choice to score path by path; raise where the tree was requested."""
    if strategy == ScoringStrategy.TREE:
        raise SettingError(f"this model cannot be scored by tree: {reason}. Use the strategy dedup.")
    return ScoringChoice(ScoringStrategy.DEDUP, AttentionBackend.SDPA, f"scored path by path, not by tree: {reason}")


def _find_exact_backend(
    model: Any, preferred: AttentionBackend | Literal["auto"], max_length: int | None
) -> ScoringChoice | str:
    """Return the first exact backend and set the model to it; or restore the model and return the reasons."""
    base = _base(model)
    before, reasons = base.config._attn_implementation, []
    for backend in _candidates(model, preferred):
        set_model_attention(model, backend)
        check = check_tree_exactness(model, backend, max_length=max_length)
        if check.exact:
            return ScoringChoice(ScoringStrategy.TREE, backend, noise=check.noise)
        reasons.append(f"with {backend.value}, {check.reason}")
    base.set_attn_implementation(before)
    return "; ".join(reasons)


def set_model_attention(model: Any, backend: AttentionBackend) -> None:
    """Set the attention of a model, or of the base model below an adapter, to that of the backend."""
    register_tree_attention()
    _base(model).set_attn_implementation(attention_implementation_name(backend))


def _candidates(model: Any, backend: AttentionBackend | Literal["auto"]) -> tuple[AttentionBackend, ...]:
    if backend != "auto":
        return (AttentionBackend(backend),)
    # Columns are cheaper, but call private kernels of PyTorch; where those fail the check, the mask of SDPA is tried.
    on_cpu = next(model.parameters()).device.type == "cpu"
    return (AttentionBackend.COLUMNS, AttentionBackend.SDPA) if on_cpu else (AttentionBackend.SDPA,)


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def check_tree_exactness(
    model: Any, backend: AttentionBackend = AttentionBackend.SDPA, seed: int = 0, *, max_length: int | None = None
) -> TreeExactnessCheck:
    """Compare small random trees scored by tree and path by path, in evaluation mode.

    Gradients are compared too where the model has trainable parameters.
    """
    if reason := _reason_against_trees(model, max_length):
        return _fail(reason)
    was_training = model.training
    model.eval()
    try:
        return _compare(model, backend, Random(seed))
    # Models and kernels fail in many ways on shapes they do not support; each means: do not use trees here.
    except (UserError, RuntimeError, ValueError, TypeError, AssertionError) as failure:
        return _fail(f"a trial failed: {(str(failure) or type(failure).__name__).splitlines()[0].rstrip('.')}")
    finally:
        model.train(was_training)


def _fail(reason: str) -> TreeExactnessCheck:
    return TreeExactnessCheck(exact=False, difference=math.nan, leak=math.nan, reason=reason)


def _reason_against_trees(model: Any, max_length: int | None) -> str | None:
    """Return why the configuration rules trees out: branches not independent, or windows that depend on the layout."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(_base(model), "set_attn_implementation"):
        return "it is no model of Transformers, so its attention cannot be set"
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if layers:
        return f"its layers include {', '.join(sorted(layers))}"
    windowed = getattr(text, "use_sliding_window", True) and getattr(text, "sliding_window", None)
    if windowed:
        return f"it attends within a window of {text.sliding_window} tokens"
    if getattr(text, "attention_dropout", 0):
        return "it drops attention weights at random"
    dropouts = (name for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout) and module.p > 0)
    if (name := next(dropouts, None)) is not None:
        return f"it drops activations at random ({name})"
    return _reason_by_length(text, max_length)


def _reason_by_length(text: Any, max_length: int | None) -> str | None:
    """Return why positions of long paths rule trees out: their factors follow the longest path of a forward pass.

    In a tree that is the longest of all paths; where a path lies on the other side of the original length, its own
    forward pass has other factors.
    """
    rope = getattr(text, "rope_parameters", None) or {}
    # One set of parameters, or one for each type of layer.
    for parameters in (rope, *(value for value in rope.values() if isinstance(value, Mapping))):
        if (kind := parameters.get("rope_type")) not in _LENGTH_DEPENDENT_ROPE:
            continue
        lengths = parameters.get("original_max_position_embeddings"), getattr(text, "max_position_embeddings", None)
        original = min((length for length in lengths if length), default=0)
        if max_length is None or max_length > original:
            limit = "" if max_length is None else f", and max_length is {max_length:,}"
            return f"beyond {original:,} tokens its positions depend on the longest path of a pass (RoPE {kind}){limit}"
    return None


def _compare(model: Any, backend: AttentionBackend, rng: Random) -> TreeExactnessCheck:
    vocabulary = model.config.get_text_config().vocab_size
    trees = [_random_tree(rng, vocabulary) for _ in range(_TREES)]
    dtype = _precision(model)
    with torch.no_grad():
        plain = torch.cat([mean_logprobs(model, scores, ScoringStrategy.NAIVE) for scores in trees])
        shared = torch.cat([mean_logprobs(model, scores, ScoringStrategy.TREE, backend) for scores in trees])
        batches = torch.cat([_batch_logprobs(model, scores) for scores in trees])
        with _eager(model):
            eager = torch.cat([mean_logprobs(model, scores, ScoringStrategy.NAIVE) for scores in trees])
        leak = _leak(model, trees[0], backend, rng)
    # The comparisons below are written as "not <=", so that NaN counts as a failure.
    difference, noise = _rms(shared - plain), max(_rms(batches - plain), _rms(eager - plain))
    if not leak <= _LEAK_TOLERANCE:
        reason = f"disturbing a branch of a tree moves other branches by {leak:.2g}"
        return TreeExactnessCheck(exact=False, difference=difference, leak=leak, reason=reason, noise=noise)
    if not difference <= _bound(_TOLERANCE.get(dtype, 0.0), noise):
        reason = (
            f"a tree's scores differ by {difference:.2g} from plain ones, plain ones among themselves by {noise:.2g}"
        )
        return TreeExactnessCheck(exact=False, difference=difference, leak=leak, reason=reason, noise=noise)
    trainable = (tensor for tensor in model.parameters() if tensor.requires_grad)
    trained = [tensor for tensor in trainable if tensor.numel() <= _LARGEST_TENSOR][:_COMPARED_TENSORS]
    if not trained:
        return TreeExactnessCheck(exact=True, difference=difference, leak=leak, reason=None, noise=noise)
    slope, slope_noise = _gradient_differences(model, trees[0], backend, trained)
    exact = slope <= _bound(_GRADIENT_TOLERANCE.get(dtype, 0.0), slope_noise)
    reason = (
        f"a tree's gradients differ by {slope:.2g} from plain ones, plain ones among themselves by {slope_noise:.2g}"
    )
    return TreeExactnessCheck(
        exact=exact, difference=difference, leak=leak, reason=None if exact else reason, slope=slope, noise=noise
    )


def _precision(model: Any) -> torch.dtype:
    """Return the precision a model computes in: that of autocast where it is on, else that of its weights."""
    weights = next(model.parameters())
    device = weights.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights.dtype


def _bound(tolerance: float, noise: float) -> float:
    """Return the difference that counts as rounding: the dtype's tolerance, or a multiple of the measured noise."""
    return max(tolerance, min(_NOISE_FACTOR * noise, _NOISE_LIMIT))  # NaN, as where nothing was measured, is no noise


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def _leak(model: Any, scores: list[SpanScore], backend: AttentionBackend, rng: Random) -> float:
    """Return how far other tokens in the last branch move the other branches, beyond scoring the same tree twice."""
    vocabulary, last = model.config.get_text_config().vocab_size, scores[-1]
    ids = (*last.path.ids[:-6], *(rng.randrange(vocabulary) for _ in range(6)))
    disturbed = [*scores[:-1], SpanScore(last.name, TokenPath(ids, last.path.parts), last.positions)]
    first, second, moved = (
        mean_logprobs(model, tree, ScoringStrategy.TREE, backend)[:-1] for tree in (scores, scores, disturbed)
    )
    return float((moved - first).abs().max() - (second - first).abs().max())


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    base = _base(model)
    before = base.config._attn_implementation
    base.set_attn_implementation("eager")
    try:
        yield
    finally:
        base.set_attn_implementation(before)


def _batch_logprobs(model: Any, scores: list[SpanScore]) -> Tensor:
    """Score paths as one left-padded batch: the same values as one by one, up to rounding."""
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
    logprobs = logits.to(wide).log_softmax(-1)  # (scores, width, vocabulary)
    means = []
    for row, (pad, score) in enumerate(zip(padding, scores, strict=True)):
        targets = [score.path.ids[position] for position in score.positions]
        # The logits of a row predict the next token.
        means.append(logprobs[row, [pad + position - 1 for position in score.positions], targets].mean())
    return torch.stack(means)


def _gradient_differences(
    model: Any, scores: list[SpanScore], backend: AttentionBackend, trained: list[Tensor]
) -> tuple[float, float]:
    """Return how far gradients by tree differ from plain ones, relative to their size, and the noise of plain ones."""
    with torch.enable_grad():
        plain = _gradients(mean_logprobs(model, scores, ScoringStrategy.NAIVE), trained)
        shared = _gradients(mean_logprobs(model, scores, ScoringStrategy.TREE, backend), trained)
        batch = _gradients(_batch_logprobs(model, scores), trained)
        with _eager(model):
            eager = _gradients(mean_logprobs(model, scores, ScoringStrategy.NAIVE), trained)
    norm = math.hypot(*(float(gradient.norm()) for gradient in plain)) or 1.0
    differences = (
        math.hypot(
            *(float((gradient - reference).norm()) for gradient, reference in zip(gradients, plain, strict=True))
        )
        / norm
        for gradients in (shared, batch, eager)
    )
    slope, *noise = differences
    return slope, max(noise)


def _gradients(values: Tensor, trained: list[Tensor]) -> list[Tensor]:
    # Every score has another weight, so that errors of two scores cannot cancel.
    weights = torch.linspace(1, 2, len(values), dtype=values.dtype, device=values.device)
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad((values * weights).sum(), trained, allow_unused=True)
    return [torch.zeros(()) if gradient is None else gradient.detach() for gradient in gradients]


def _random_tree(rng: Random, vocabulary: int) -> list[SpanScore]:
    """Build a trunk with branches at several depths and a branch on a branch, long enough for windows to matter."""

    def draw(count: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(count)]

    # About a hundred tokens a tree, because the check runs on the full model before every run.
    trunk = draw(40)
    bough = trunk[:25] + draw(20)
    paths = [trunk + draw(8), trunk + draw(12), bough + draw(6), bough[:32] + draw(9), trunk[:10] + draw(15)]
    scores = []
    for number, ids in enumerate(paths):
        path = TokenPath(tuple(ids), ((TokenPart.STEP, 0),) * len(ids))
        scores.append(SpanScore(f"branch {number}", path, tuple(range(len(ids) - 5, len(ids)))))
    return scores
