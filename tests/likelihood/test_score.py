"""Exactness: every strategy and backend gives the same scores and the same gradients, on real model classes."""

from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.likelihood.models import CLASSES, build

from eclosure.errors import SettingError
from eclosure.likelihood.attention import _flash
from eclosure.likelihood.prefix_tree import ScoredTree
from eclosure.likelihood.probe import probe
from eclosure.likelihood.score import Backend, Strategy, attention_name, mean_logprobs, score_tree
from eclosure.likelihood.spans import Part, Path, Score

WAYS = [
    (Strategy.DEDUP, Backend.SDPA),
    (Strategy.TREE, Backend.SDPA),
    (Strategy.TREE, Backend.COLUMNS),
]
# HF's RMSNorm computes in fp32 whatever the model's dtype, which bounds what fp64 gradients can agree on.
TOLERANCE = {torch.float64: (1e-9, 1e-6), torch.float32: (5e-6, 5e-5)}


def random_scores(seed, vocabulary=211):
    """Paths that branch at random depths, scored at random places."""
    rng = Random(seed)
    trunk = [rng.randrange(vocabulary) for _ in range(60)]
    found = []
    for number in range(9):
        start = trunk if rng.random() < 0.7 or not found else list(rng.choice(found).path.ids)
        ids = start[: rng.randint(5, len(start))] + [rng.randrange(vocabulary) for _ in range(rng.randint(2, 25))]
        places = sorted(rng.sample(range(1, len(ids)), rng.randint(1, 4)))
        found.append(Score(str(number), Path(tuple(ids), ((Part.STEP, 0),) * len(ids)), tuple(places)))
    return found


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
    plain, slope = scored(build(name).to(dtype), scores, Strategy.NAIVE, Backend.SDPA)
    close, close_slope = TOLERANCE[dtype]
    for strategy, backend in WAYS:
        model = build(name, attention_name(backend)).to(dtype)
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
            picked = [logits[place - 1, score.path.ids[place]] for place in score.places]
            expected.append(sum(picked) / len(picked))
        found = mean_logprobs(model, scores, Strategy.TREE)
    assert (found - torch.stack(expected)).abs().max() < 1e-9


def test_gradient_checkpointing_changes_nothing():
    scores = random_scores(3)
    plain, slope = scored(build("qwen3").double(), scores, Strategy.TREE, Backend.SDPA)
    for backend in Backend:
        model = build("qwen3", attention_name(backend)).double().train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        values, gradient = scored(model, scores, Strategy.TREE, backend)
        assert (values - plain).abs().max() < 1e-9
        assert (gradient - slope).norm() / slope.norm() < 1e-6


def test_several_families_in_one_forest_score_as_alone():
    model = build("llama").double()
    groups = [random_scores(seed) for seed in (11, 12, 13)]
    with torch.no_grad():
        together = score_tree(model, ScoredTree.of([score for group in groups for score in group]), Backend.SDPA)
        alone = torch.cat([mean_logprobs(model, group, Strategy.NAIVE) for group in groups])
    assert (together - alone).abs().max() < 1e-9


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("name", CLASSES)
def test_the_probe_accepts_full_attention(name, backend):
    found = probe(build(name, attention_name(backend)).double(), backend)
    assert found.exact
    assert found.reason is None


def window():
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=211, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, sliding_window=16,
        )
    )  # fmt: skip


def hybrid():
    return transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            vocab_size=211, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: build("llama", "eager"), "differ by"),
        (lambda: build("llama", attention_dropout=0.1), "at random"),
        (window, "window of 16"),
        (hybrid, "sliding_attention"),
    ],
)
def test_the_probe_refuses_what_trees_get_wrong(model, reason):
    found = probe(model())
    assert not found.exact
    assert reason in found.reason


def test_the_probe_leaves_the_model_as_it_was():
    model = build("llama").train()
    probe(model)
    assert model.training


def test_columns_without_segments_are_plain_attention():
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        plain = build("llama")(ids).logits
        columns = build("llama", attention_name(Backend.COLUMNS))(ids).logits
    assert (plain - columns).abs().max() < 1e-6


def test_columns_say_where_they_cannot_run():
    query = torch.empty(1, 1, 2, 4, device="meta")
    with pytest.raises(SettingError, match="CPU kernel only"):
        _flash(query, query, query, True, 1.0)
