"""Attention that follows the tree: blocks against a dense mask, kernels of a GPU up to the call, plain calls."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st

from eclose.errors import SettingError
from eclose_train.likelihood import attention
from eclose_train.likelihood.attention import (
    FLEX_BLOCK_TOKENS,
    TreeSegments,
    column_tree_attention,
    flex_tree_attention,
    tree_block_mask,
)
from eclose_train.likelihood.prefix_tree import PrefixTree, ScoredTree
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    attention_implementation_name,
    mean_logprobs,
    score_tree,
)
from tests.likelihood.models import build, random_scores

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def layout_of(paths):
    tree = PrefixTree()
    for ids in paths:
        tree.insert(ids)
    return tree.layout()[0]


def some_layout(seed=0):
    return ScoredTree.of(random_scores(seed)).layout


def drawn(layout, *, heads, shared, width, dtype, batch=1):
    """Queries, keys and values as Transformers hands them over: rows before heads in memory."""
    torch.manual_seed(0)
    sizes = (heads, shared, shared)
    return [torch.randn(batch, len(layout), n, width, dtype=dtype).transpose(1, 2).requires_grad_() for n in sizes]


def dense(layout, query, key, value):
    mask = torch.as_tensor(layout.mask)[None, None]
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True).transpose(1, 2)


def slopes(out, inputs):
    return torch.autograd.grad((out * torch.arange(out.numel()).view_as(out).cos()).sum(), inputs)


@pytest.mark.parametrize(("heads", "shared"), [(1, 1), (4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_columns_are_masked_attention(heads, shared, batch, seed):
    layout = some_layout(seed)
    inputs = drawn(layout, heads=heads, shared=shared, width=8, dtype=torch.float64, batch=batch)
    expected = dense(layout, *inputs)
    out, weights = column_tree_attention(None, *inputs, None, tree_segments=TreeSegments(layout.segments))
    assert weights is None
    assert out.shape == expected.shape
    assert (out - expected).abs().max() < 1e-12
    for ours, reference in zip(slopes(out, inputs), slopes(expected, inputs), strict=True):
        assert (ours - reference).abs().max() < 1e-12


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6))
def test_columns_hold_for_every_tree(paths):
    """Forests, single tokens, a path that begins another: anything a tree can be."""
    layout = layout_of(paths)
    inputs = drawn(layout, heads=4, shared=2, width=8, dtype=torch.float64)
    expected = dense(layout, *inputs)
    out, _ = column_tree_attention(None, *inputs, None, tree_segments=TreeSegments(layout.segments))
    assert (out - expected).abs().max() < 1e-12
    for ours, reference in zip(slopes(out, inputs), slopes(expected, inputs), strict=True):
        assert (ours - reference).abs().max() < 1e-12


def test_columns_in_half_precision_merge_in_single():
    """No worse than masked attention in the same precision."""
    layout = some_layout()
    inputs = drawn(layout, heads=4, shared=2, width=16, dtype=torch.float64)
    exact = dense(layout, *inputs)
    halved = [part.detach().bfloat16().requires_grad_() for part in inputs]
    out, _ = column_tree_attention(None, *halved, None, tree_segments=TreeSegments(layout.segments))
    assert out.dtype is torch.bfloat16
    assert (out - exact).norm() <= 1.1 * (dense(layout, *halved) - exact).norm()
    pairs = zip(slopes(out, halved), slopes(dense(layout, *halved), halved), slopes(exact, inputs), strict=True)
    for ours, masked, true in pairs:
        assert ours.dtype is torch.bfloat16
        assert (ours - true).norm() <= 1.1 * (masked - true).norm()


def test_the_scale_of_a_model_is_kept():
    layout = some_layout()
    query, key, value = drawn(layout, heads=2, shared=2, width=8, dtype=torch.float64)
    out, _ = column_tree_attention(
        None, query, key, value, None, scaling=0.7, tree_segments=TreeSegments(layout.segments)
    )
    expected = dense(layout, query * 0.7 * 8**0.5, key, value)
    assert (out - expected).abs().max() < 1e-12


@pytest.mark.parametrize("attend", [column_tree_attention, flex_tree_attention])
def test_dropout_is_refused(attend):
    layout = some_layout().pad(FLEX_BLOCK_TOKENS)
    inputs = drawn(layout, heads=2, shared=2, width=8, dtype=torch.float32)
    with pytest.raises(ValueError, match="attention dropout"):
        attend(None, *inputs, tree_block_mask(layout, CPU), dropout=0.1, tree_segments=TreeSegments(layout.segments))


@pytest.mark.parametrize("name", [attention.COLUMNS, attention.FLEX])
def test_a_model_set_to_a_tree_generates_as_ever(name):
    """Padding on the left, a cache, and several tokens after a cache: masks are made as for plain SDPA."""
    ids = torch.tensor([[0, 0, 5, 6, 7], [9, 8, 7, 6, 5]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    plain, ours = build("llama").double(), build("llama", name).double()
    replies = [
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0)
        for model in (plain, ours)
    ]
    assert torch.equal(*replies)
    with torch.no_grad():
        padded = [model(input_ids=ids, attention_mask=mask).logits for model in (plain, ours)]
        cached = [
            model(ids[1:, 2:], past_key_values=model(ids[1:, :2], use_cache=True).past_key_values).logits
            for model in (plain, ours)
        ]
    assert (padded[0] - padded[1])[mask.bool()].abs().max() < 1e-12
    assert (cached[0] - cached[1]).abs().max() < 1e-12


def test_a_tree_makes_no_mask_of_its_own(monkeypatch):
    """Its positions look like packed sequences, for which Transformers would build a mask of all pairs."""
    calls = []
    spied = attention._Columns.forward
    monkeypatch.setattr(attention._Columns, "forward", lambda *args: calls.append(1) or spied(*args))
    monkeypatch.setattr(transformers.masking_utils, "find_packed_sequence_indices", lambda _: 1 / 0)
    with torch.no_grad():
        score_tree(build("llama", attention.COLUMNS), ScoredTree.of(random_scores(0)), AttentionBackend.COLUMNS)
    assert len(calls) == 2


def test_columns_say_where_they_cannot_run():
    query = torch.empty(1, 1, 2, 4, device="meta")
    with pytest.raises(SettingError, match="no kernel for meta"):
        attention._kernels(query.device.type)


@pytest.mark.parametrize("causal", [True, False])
def test_the_call_for_a_gpu_has_its_arguments_in_order(causal):
    """Shapes through the real operator on tensors without memory; the kernel itself is not run."""
    query, out, grad = (torch.empty(2, 3, 7, 8, dtype=torch.bfloat16, device="meta") for _ in range(3))
    key, value = (torch.empty(2, 1, 7, 8, dtype=torch.bfloat16, device="meta").expand(-1, 3, -1, -1) for _ in range(2))
    result, lse = attention._cuda(query, key, value, causal, 0.5)
    assert (result.shape, lse.shape, lse.dtype) == (query.shape, query.shape[:3], torch.float32)
    gradients = attention._cuda_backward(grad, query, key, value, out, lse, causal, 0.5)
    assert [part.shape for part in gradients] == [query.shape, key.shape, value.shape]


@pytest.mark.parametrize("causal", [True, False])
def test_the_call_for_a_gpu_is_what_pytorch_records_itself(causal, monkeypatch):
    """Argument by argument against the schema's names."""
    calls = {}

    def record(name):
        schema = getattr(torch.ops.aten, name).default._schema

        def call(*args, **kwargs):
            names = [argument.name for argument in schema.arguments if not argument.kwarg_only]
            calls[name] = dict(zip(names, args, strict=True)) | kwargs
            return args[0], args[1], args[2], None

        return call

    forward, backward = "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"
    for name in (forward, backward):
        monkeypatch.setattr(torch.ops.aten, name, record(name))
    query, key, value, out, grad = (torch.zeros(1, 1, n, 8, dtype=torch.bfloat16) for n in (5, 3, 3, 5, 5))
    lse = torch.zeros(1, 5, 1).transpose(1, 2)
    attention._cuda(query, key, value, causal, 0.5)
    attention._cuda_backward(grad, query, key, value, out, lse, causal, 0.5)
    arguments = calls[forward]
    assert arguments["query"] is query
    assert arguments["key"] is key
    assert arguments["value"] is value
    assert (arguments["dropout_p"], arguments["is_causal"], arguments["return_debug_mask"], arguments["scale"]) == (
        0,
        causal,
        False,
        0.5,
    )
    arguments = calls[backward]
    assert (arguments["max_q"], arguments["max_k"], arguments["dropout_p"], arguments["is_causal"]) == (
        5,
        3,
        0.0,
        causal,
    )
    assert (arguments["cum_seq_q"], arguments["cum_seq_k"], arguments["scale"]) == (None, None, 0.5)
    assert arguments["grad_out"] is grad
    assert arguments["query"] is query
    assert arguments["key"] is key
    assert arguments["value"] is value
    assert arguments["out"] is out
    assert arguments["logsumexp"].is_contiguous()


def test_flash_on_a_gpu_needs_half_precision():
    query = torch.empty(1, 1, 2, 8, device="meta")
    with pytest.raises(SettingError, match="bf16 or fp16"):
        attention._cuda(query, query, query, True, 1.0)


def test_columns_through_the_kernels_of_a_gpu_have_the_right_shapes(monkeypatch):
    """The whole forward and backward pass over tensors without memory."""
    monkeypatch.setattr(attention, "_kernels", lambda _: (attention._cuda, attention._cuda_backward))
    layout = some_layout()
    inputs = [
        torch.empty(1, len(layout), n, 8, dtype=torch.bfloat16, device="meta").transpose(1, 2).requires_grad_()
        for n in (6, 2, 2)
    ]
    out, _ = column_tree_attention(None, *inputs, None, tree_segments=TreeSegments(layout.segments))
    assert out.shape == (1, len(layout), 6, 8)
    gradients = torch.autograd.grad(out.sum(), inputs)
    assert [part.shape for part in gradients] == [part.shape for part in inputs]


# FlexAttention


def long_layout(seed, length=300):
    """A tree of several blocks, chains crossing their borders."""
    rng = np.random.default_rng(seed)
    trunk = rng.integers(0, 50, length).tolist()
    paths = [trunk]
    for _ in range(6):
        base = paths[rng.integers(len(paths))]
        paths.append(base[: rng.integers(1, len(base))] + rng.integers(0, 50, rng.integers(5, 200)).tolist())
    return layout_of(paths).pad(FLEX_BLOCK_TOKENS)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_are_told_from_intervals_as_from_all_pairs(seed):
    layout = long_layout(seed)
    mask = tree_block_mask(layout, CPU)
    tiles = layout.mask.reshape(len(layout) // FLEX_BLOCK_TOKENS, FLEX_BLOCK_TOKENS, -1, FLEX_BLOCK_TOKENS).transpose(
        0, 2, 1, 3
    )
    full, some = tiles.all((2, 3)), tiles.any((2, 3))
    assert full.any()
    assert (some & ~full).any()
    assert not some.all()
    for counts, order, expected in (
        (mask.kv_num_blocks, mask.kv_indices, some & ~full),
        (mask.full_kv_num_blocks, mask.full_kv_indices, full),
    ):
        for row in range(len(expected)):
            blocks = order[0, 0, row, : counts[0, 0, row]].tolist()
            assert blocks == np.flatnonzero(expected[row]).tolist()


@pytest.mark.parametrize("seed", range(2))
def test_the_rule_of_the_block_mask_is_the_mask(seed):
    layout = long_layout(seed)
    rows = torch.arange(len(layout))
    mask = tree_block_mask(layout, CPU).mask_mod(torch.tensor(0), torch.tensor(0), rows[:, None], rows[None, :])
    assert np.array_equal(mask.numpy(), layout.mask)


def test_the_block_mask_is_the_one_pytorch_builds_pair_by_pair():
    from torch.nn.attention.flex_attention import create_block_mask

    layout = long_layout(3)
    ours = tree_block_mask(layout, CPU)
    size = len(layout)
    reference = create_block_mask(ours.mask_mod, None, None, size, size, device="cpu", BLOCK_SIZE=FLEX_BLOCK_TOKENS)
    assert ours.shape == reference.shape
    assert torch.equal(ours.to_dense(), reference.to_dense())
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, name), getattr(reference, name)), name


def test_blocks_need_whole_lengths():
    with pytest.raises(ValueError, match="not a multiple of 128"):
        tree_block_mask(some_layout(), CPU)


@pytest.mark.slow
def test_flex_attention_is_masked_attention():
    layout = long_layout(1)
    inputs = [part.detach() for part in drawn(layout, heads=6, shared=2, width=8, dtype=torch.float64)]
    out, _ = flex_tree_attention(None, *inputs, tree_block_mask(layout, CPU))
    assert (out - dense(layout, *inputs)).abs().max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_model_scores_by_flex_attention_as_path_by_path(seed):
    scores = random_scores(seed)
    with torch.no_grad():
        plain = mean_logprobs(build("qwen3").double(), scores, ScoringStrategy.NAIVE)
        model = build("qwen3", attention_implementation_name(AttentionBackend.FLEX)).double()
        assert (mean_logprobs(model, scores, ScoringStrategy.TREE, AttentionBackend.FLEX) - plain).abs().max() < 1e-9


def test_flex_attention_says_that_it_cannot_train_here():
    model = build("llama", attention_implementation_name(AttentionBackend.FLEX))
    with pytest.raises(SettingError, match="cannot train on a CPU"):
        mean_logprobs(model, random_scores(0), ScoringStrategy.TREE, AttentionBackend.FLEX)


def test_padding_sees_itself_and_changes_nothing():
    layout = some_layout()
    padded = layout.pad(FLEX_BLOCK_TOKENS)
    assert len(padded) % FLEX_BLOCK_TOKENS == 0
    assert len(padded) - len(layout) < FLEX_BLOCK_TOKENS
    assert padded.pad(FLEX_BLOCK_TOKENS) is padded
    expected = np.eye(len(padded), dtype=bool)
    expected[: len(layout), : len(layout)] = layout.mask
    assert np.array_equal(padded.mask, expected)
    tree = ScoredTree.of(random_scores(0))
    longer = ScoredTree(padded, tree.readout, tree.names)
    for backend in (AttentionBackend.SDPA, AttentionBackend.COLUMNS):
        model = build("llama", attention_implementation_name(backend)).double()
        with torch.no_grad():
            assert (score_tree(model, tree, backend) - score_tree(model, longer, backend)).abs().max() < 1e-12
