"""Exactness: every strategy and backend gives the same scores and the same gradients, on real model classes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from eclose_train.likelihood import score as scoring
from eclose_train.likelihood.prefix_tree import LogitReadout, ScoredTree
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    attention_implementation_name,
    limit_forward_tokens,
    mean_logprobs,
    score_tree,
)
from tests.likelihood.models import CLASSES, build, random_scores

pytestmark = pytest.mark.torch

WAYS = [
    (ScoringStrategy.DEDUP, AttentionBackend.SDPA),
    (ScoringStrategy.TREE, AttentionBackend.SDPA),
    (ScoringStrategy.TREE, AttentionBackend.COLUMNS),
]
# HF's RMSNorm computes in fp32 whatever the model's dtype, which bounds what fp64 gradients can agree on.
TOLERANCE = {torch.float64: (1e-9, 1e-6), torch.float32: (5e-6, 5e-5)}


def scored(model, scores, strategy, backend):
    """Scores and the gradient of a sum in which every score counts differently."""
    model.zero_grad()
    values = mean_logprobs(model, scores, strategy, backend)
    (values * torch.arange(1, len(values) + 1, dtype=values.dtype)).sum().backward()
    return values.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_all_strategies_agree(name, dtype, seed):
    scores = random_scores(seed)
    plain, slope = scored(build(name).to(dtype), scores, ScoringStrategy.NAIVE, AttentionBackend.SDPA)
    close, close_slope = TOLERANCE[dtype]
    for strategy, backend in WAYS:
        model = build(name, attention_implementation_name(backend)).to(dtype)
        values, gradient = scored(model, scores, strategy, backend)
        assert (values - plain).abs().max() <= close, (strategy, backend)
        assert (gradient - slope).norm() / slope.norm() <= close_slope, (strategy, backend)


def test_scores_are_what_a_plain_loop_computes():
    """Against log-probabilities taken from full logits, token by token."""
    model = build("llama").double()
    scores = random_scores(7)
    with torch.no_grad():
        expected = []
        for score in scores:
            logits = model(torch.tensor([score.path.ids])).logits[0].log_softmax(-1)
            picked = [logits[position - 1, score.path.ids[position]] for position in score.positions]
            expected.append(sum(picked) / len(picked))
        values = mean_logprobs(model, scores, ScoringStrategy.TREE)
    assert (values - torch.stack(expected)).abs().max() < 1e-9


def test_gradient_checkpointing_changes_nothing():
    scores = random_scores(3)
    plain, slope = scored(build("qwen3").double(), scores, ScoringStrategy.TREE, AttentionBackend.SDPA)
    for backend in (AttentionBackend.SDPA, AttentionBackend.COLUMNS):
        model = build("qwen3", attention_implementation_name(backend)).double().train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        values, gradient = scored(model, scores, ScoringStrategy.TREE, backend)
        assert (values - plain).abs().max() < 1e-9
        assert (gradient - slope).norm() / slope.norm() < 1e-6


def test_several_families_in_one_forest_score_as_alone():
    model = build("llama").double()
    groups = [random_scores(seed) for seed in (11, 12, 13)]
    with torch.no_grad():
        together = score_tree(
            model, ScoredTree.of([score for group in groups for score in group]), AttentionBackend.SDPA
        )
        alone = torch.cat([mean_logprobs(model, group, ScoringStrategy.NAIVE) for group in groups])
    assert (together - alone).abs().max() < 1e-9


READOUT = LogitReadout(
    rows=np.arange(5),
    row_of=np.array([0, 0, 3, 3, 4, 0]),
    targets=np.array([7, 2, 2, 2, 0, 7]),
    score_of=np.array([0, 0, 1, 1, 1, 2]),
    counts=np.array([2, 3, 1]),
)
"""A row with two targets, one that nobody scores, and the same token scored by two scores and twice by one."""


def plain_means(logits):
    """What the head computes, as one would write it first."""
    logprobs = logits.log_softmax(-1)[READOUT.row_of, READOUT.targets]
    return torch.stack([logprobs[READOUT.score_of == n].mean() for n in range(len(READOUT.counts))])


def head(logits, means, weights=(1.0, -2.0, 0.5)):
    """Means and the gradient of a weighted sum; the logits go in as an intermediate, as a model's do."""
    leaf = logits.clone().requires_grad_()
    values = means(leaf * 1)
    (values * torch.tensor(weights, dtype=values.dtype)).sum().backward()
    return values.detach(), leaf.grad


@pytest.mark.parametrize("at_a_time", [1, 22, 1 << 20])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_the_head_is_a_log_softmax_however_it_is_cut(dtype, close, at_a_time, monkeypatch):
    monkeypatch.setattr(scoring, "_CHUNK_LOGITS", at_a_time)
    logits = (torch.randn(5, 11, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    values, slope = head(logits, lambda part: scoring._average_targets(part, READOUT))
    expected, expected_slope = head(logits.double(), plain_means)
    assert values.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    assert slope.dtype is dtype
    # Sums are taken in full precision, so of a bf16 gradient only its own rounding is left.
    assert (values - expected).abs().max() < min(close, 1e-6)
    assert (slope - expected_slope).abs().max() < close


def test_large_logits_do_not_overflow():
    logits = torch.full((5, 11), 3e4)
    logits[:, 2] = 3e4 + 5
    values, slope = head(logits, lambda part: scoring._average_targets(part, READOUT))
    assert torch.isfinite(values).all()
    assert torch.isfinite(slope).all()


def test_the_gradient_takes_the_place_of_the_logits():
    logits = (torch.zeros(5, 11, requires_grad=True) + torch.arange(11.0)).requires_grad_()
    before, where = logits.detach().clone(), logits.data_ptr()
    addresses = []
    logits.register_hook(lambda grad: addresses.append(grad.data_ptr()))
    scoring._average_targets(logits, READOUT).sum().backward()
    assert addresses == [where]
    assert not torch.equal(before, logits)


def test_a_second_backward_pass_is_refused():
    model, scores = build("llama"), random_scores(1)
    total = mean_logprobs(model, scores, ScoringStrategy.TREE).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_forest_by_mask_is_bounded_by_its_pairs():
    """A mask computes every pair, so the budget of tokens alone would let its cost grow with their square."""
    assert limit_forward_tokens(16_384, AttentionBackend.SDPA) == 4_096
    assert limit_forward_tokens(2_048, AttentionBackend.SDPA) == 2_048
    assert (
        limit_forward_tokens(16_384, AttentionBackend.COLUMNS)
        == limit_forward_tokens(16_384, AttentionBackend.FLEX)
        == 16_384
    )
