"""The probe: it accepts what trees get right, refuses what they get wrong, and settles how a model is scored."""

import math
import re
from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from eclose.errors import SettingError
from eclose_train.likelihood import attention
from eclose_train.likelihood.exactness_check import (
    ScoringChoice,
    check_tree_exactness,
    choose_scoring_strategy,
    confirm_on_family,
)
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    attention_implementation_name,
    mean_logprobs,
)
from eclose_train.likelihood.spans import SpanScore, TokenPart, TokenPath
from tests.likelihood.models import CLASSES, build, random_scores

pytestmark = pytest.mark.torch


def frozen(model):
    """A model that is scored and not trained, as FlexAttention allows on a CPU."""
    return model.requires_grad_(False)


@pytest.mark.parametrize("backend", AttentionBackend)
@pytest.mark.parametrize("name", CLASSES)
def test_the_probe_accepts_full_attention(name, backend):
    check = check_tree_exactness(frozen(build(name, attention_implementation_name(backend)).double()), backend)
    assert check.exact
    assert check.reason is None
    assert math.isnan(check.slope)


@pytest.mark.parametrize("backend", [AttentionBackend.SDPA, AttentionBackend.COLUMNS])
@pytest.mark.parametrize("name", CLASSES)
def test_the_probe_compares_gradients_of_a_model_to_be_trained(name, backend):
    model = build(name, attention_implementation_name(backend)).double()
    check = check_tree_exactness(model, backend)
    assert check.exact
    assert 0 < check.slope < 1e-6
    assert all(part.grad is None for part in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("backend", AttentionBackend)
def test_what_one_branch_says_moves_no_other(backend):
    """Every backend that runs here: other tokens in one branch, the same scores in the others."""
    model = frozen(build("llama", attention_implementation_name(backend)).double())
    scores, others = random_scores(5), random_scores(6)
    alone = mean_logprobs(model, scores, ScoringStrategy.TREE, backend)
    for other in (others[:3], others[3:]):
        assert (
            mean_logprobs(model, [*other, *scores], ScoringStrategy.TREE, backend)[len(other) :] - alone
        ).abs().max() < 1e-9


def window(**settings):
    sizes = {"num_hidden_layers": 1, "sliding_window": 16, **settings}
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=211, hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, **sizes,
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


def adapted(dropout=0.0):
    settings = peft.LoraConfig(r=4, target_modules="all-linear", lora_dropout=dropout)
    return peft.get_peft_model(build("qwen3"), settings)


WRONG = [
    (lambda: build("llama", attention_dropout=0.1), "attention weights at random"),
    (lambda: adapted(dropout=0.05), "activations at random .*lora_dropout"),
    (window, "window of 16"),
    (hybrid, "sliding_attention"),
]


@pytest.mark.parametrize(("model", "reason"), [(lambda: build("llama", "eager"), "moves other branches"), *WRONG])
def test_the_probe_refuses_what_trees_get_wrong(model, reason):
    check = check_tree_exactness(model())
    assert not check.exact
    assert re.search(reason, check.reason)


@pytest.mark.parametrize("backend", [AttentionBackend.SDPA, AttentionBackend.COLUMNS])
@pytest.mark.parametrize("trained", [False, True], ids=["scored", "trained"])
def test_rounding_in_bfloat16_is_not_taken_for_an_error(backend, trained):
    """A tree differs from plain scores as much as two right kernels do: no fixed tolerance tells that from an error."""
    model = loud("llama", attention_implementation_name(backend)).to(torch.bfloat16).requires_grad_(trained)
    result = check_tree_exactness(model, backend)
    assert result.exact, result.reason
    assert result.leak == 0
    assert result.difference < 3 * result.noise
    if backend is AttentionBackend.COLUMNS:
        assert result.difference > 5e-2  # a fixed tolerance of that size refuses it


def test_a_wrong_tree_is_refused_in_bfloat16():
    """Noise excuses rounding, not a window: here the trial has the noise of low precision and an error to find."""
    model = window(initializer_range=0.4, num_hidden_layers=4, sliding_window=4).to(torch.bfloat16)
    model.config.use_sliding_window = False  # declared as unused, used all the same
    result = check_tree_exactness(model)
    assert not result.exact
    assert "scores differ" in result.reason
    assert result.difference > 3 * result.noise


def loud(name, attention="sdpa"):
    """A model whose scores differ by nats, as those of a trained one do, and so show the rounding of bfloat16."""
    return build(name, attention, initializer_range=0.5, num_hidden_layers=8)


def test_wrong_gradients_are_refused(monkeypatch):
    """Right scores are not enough: a kernel whose backward pass is wrong must not train."""

    def half(*args):
        query, key, value = attention._cpu_backward(*args)
        return query, key / 2, value

    monkeypatch.setattr(attention, "_kernels", lambda _: (attention._cpu, half))
    check = check_tree_exactness(
        build("llama", attention_implementation_name(AttentionBackend.COLUMNS)), AttentionBackend.COLUMNS
    )
    assert not check.exact
    assert "gradients differ" in check.reason


def test_a_window_nobody_declared_is_found():
    """Without its declaration the trial itself must notice."""
    model = window()
    model.config.sliding_window, hidden = None, model.config.sliding_window
    for layer in model.model.layers:
        layer.self_attn.sliding_window = hidden
    assert check_tree_exactness(model).exact  # a plain mask and plain attention agree: nothing windowed is left
    model.config.sliding_window = hidden
    model.config.use_sliding_window = False  # declared as unused, used all the same
    check = check_tree_exactness(model)
    assert not check.exact
    assert "scores differ" in check.reason


def test_the_probe_leaves_the_model_as_it_was():
    model = build("llama").train()
    check_tree_exactness(model)
    assert model.training


def test_left_alone_a_cpu_takes_columns_and_the_model_is_set():
    for model in (build("llama"), adapted()):
        assert choose_scoring_strategy(model) == ScoringChoice(ScoringStrategy.TREE, AttentionBackend.COLUMNS)
        assert model.config._attn_implementation == attention.COLUMNS
        values = mean_logprobs(model, random_scores(2), ScoringStrategy.TREE, AttentionBackend.COLUMNS)
        assert (values - mean_logprobs(model, random_scores(2), ScoringStrategy.NAIVE)).abs().max() < 5e-6


def test_columns_that_fail_leave_the_mask(monkeypatch):
    def objects(_device):
        raise RuntimeError("no kernel for this head size")

    monkeypatch.setattr(attention, "_kernels", objects)
    model = build("llama")
    assert choose_scoring_strategy(model) == ScoringChoice(ScoringStrategy.TREE, AttentionBackend.SDPA)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("backend", AttentionBackend)
def test_a_backend_that_was_asked_for_is_taken(backend):
    model = frozen(build("llama"))
    assert choose_scoring_strategy(model, ScoringStrategy.TREE, backend) == ScoringChoice(ScoringStrategy.TREE, backend)
    assert model.config._attn_implementation == attention_implementation_name(backend)


@pytest.mark.parametrize(("model", "reason"), WRONG)
def test_models_that_trees_get_wrong_go_path_by_path_or_not_at_all(model, reason):
    subject = model()
    before = subject.config._attn_implementation
    choice = choose_scoring_strategy(subject)
    assert (choice.strategy, choice.backend) == (ScoringStrategy.DEDUP, AttentionBackend.SDPA)
    with pytest.raises(SettingError, match=f"cannot be scored by tree: .*{reason}"):
        choose_scoring_strategy(subject, ScoringStrategy.TREE)
    assert re.search(reason, choice.message)
    assert subject.config._attn_implementation == before


def test_flex_attention_does_not_train_on_a_cpu():
    model = build("llama")
    with pytest.raises(SettingError, match="FlexAttention cannot train on a CPU"):
        choose_scoring_strategy(model, ScoringStrategy.TREE, AttentionBackend.FLEX)
    assert choose_scoring_strategy(model, "auto", AttentionBackend.FLEX).strategy is ScoringStrategy.DEDUP
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("strategy", [ScoringStrategy.NAIVE, ScoringStrategy.DEDUP])
def test_whole_paths_need_no_trial(strategy):
    assert choose_scoring_strategy(window(), strategy) == ScoringChoice(strategy, AttentionBackend.SDPA)


ORIGINAL_LENGTH = 60
"""Tokens up to which the models below have their original factors; the trees of the check have paths of up to 52."""


def phi3_longrope():
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": ORIGINAL_LENGTH}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [1.5, 2.0, 3.0, 4.0]}
    return transformers.Phi3ForCausalLM(
        transformers.Phi3Config(
            vocab_size=211, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=4_096, pad_token_id=0,
            original_max_position_embeddings=ORIGINAL_LENGTH, rope_parameters=rope, initializer_range=0.3,
        )
    )  # fmt: skip


def llama_dynamic():
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    return build("llama", max_position_embeddings=ORIGINAL_LENGTH, rope_parameters=rope, initializer_range=0.3)


LENGTH_DEPENDENT = pytest.mark.parametrize("model", [phi3_longrope, llama_dynamic])


def branching_scores(*lengths):
    """Paths of some lengths behind a common trunk, scored at their ends."""
    rng = Random(3)
    trunk = [rng.randrange(211) for _ in range(40)]
    scores = []
    for number, length in enumerate(lengths):
        ids = (*trunk, *(rng.randrange(211) for _ in range(length - len(trunk))))
        path = TokenPath(ids, ((TokenPart.STEP, 0),) * length)
        scores.append(SpanScore(str(number), path, tuple(range(length - 6, length))))
    return scores


@LENGTH_DEPENDENT
def test_trees_are_refused_where_paths_may_pass_the_original_length_of_the_rope(model):
    subject = model().double()
    for limit in (None, ORIGINAL_LENGTH + 1):
        choice = choose_scoring_strategy(subject, max_length=limit)
        assert choice.strategy is ScoringStrategy.DEDUP
        assert re.search(r"beyond 60 tokens .*RoPE (longrope|dynamic)", choice.message)
    with pytest.raises(SettingError, match="beyond 60 tokens"):
        choose_scoring_strategy(subject, ScoringStrategy.TREE, max_length=8_192)
    assert choose_scoring_strategy(subject, max_length=ORIGINAL_LENGTH).strategy is ScoringStrategy.TREE


@LENGTH_DEPENDENT
def test_a_real_family_shows_what_the_random_trees_are_too_short_for(model):
    subject = frozen(model().double()).train()
    choice = choose_scoring_strategy(subject, max_length=ORIGINAL_LENGTH)
    assert confirm_on_family(subject, choice, branching_scores(48, 55, 60)) is choice
    straddling = branching_scores(48, 55, 75)
    confirmed = confirm_on_family(subject, choice, straddling)
    assert confirmed.strategy is ScoringStrategy.DEDUP
    assert re.search(r"a family's scores \(paths of up to 75 tokens\) differ by", confirmed.message)
    assert subject.training
    with pytest.raises(SettingError, match="cannot be scored by tree"):
        confirm_on_family(subject, choice, straddling, ScoringStrategy.TREE)


class Bare(torch.nn.Module):
    """A module that is no model of Transformers: one forward, all rows of logits."""

    def __init__(self):
        super().__init__()
        self.inner = build("llama").double()

    def forward(self, input_ids, position_ids, **_):
        return self.inner(input_ids=input_ids, position_ids=position_ids)


def test_a_plain_module_is_scored_path_by_path_with_the_values_of_the_model():
    module, scores = Bare(), random_scores(5)
    choice = choose_scoring_strategy(module)
    assert choice.strategy is ScoringStrategy.DEDUP
    assert "no model of Transformers" in choice.message
    expected = mean_logprobs(module.inner, scores, ScoringStrategy.NAIVE)
    assert torch.allclose(mean_logprobs(module, scores, choice.strategy), expected, atol=1e-12)
