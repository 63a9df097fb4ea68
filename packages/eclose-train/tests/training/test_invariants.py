"""What must not change a run: strategy, attention, memory budget, checkpointing, workers, looking at held-out families.

Every one of them gives the same trajectory of loss and gradient norm. Rounding may differ, but not to one side: the
mean signed difference is bounded more tightly than the largest.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import numpy as np
from peft import get_peft_model

from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.family import draw_edit, select_fixed_edit
from eclose_train.likelihood.attention import register_tree_attention
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import (
    AttentionBackend,
    ScoringStrategy,
    attention_implementation_name,
    mean_logprobs,
)
from eclose_train.training.batching import order_epoch_families
from eclose_train.training.objective import TrainingMethod, build_objective
from tests.likelihood.models import CLASSES
from tests.training.small import lora, short_families, small_model, small_tokenizer, small_trainer, trajectory

pytestmark = pytest.mark.torch

LARGEST, ONE_SIDED = 3e-6, 1e-6
PLAIN = {"strategy": "naive", "backend": "sdpa", "gradient_checkpointing": False}
RAGGED = {"families_per_update": 2, "num_train_epochs": 2}
"""Three families make an update of two and one of one."""


def ran(tmp_path, families=3, held_out=None, **settings):
    trainer = small_trainer(tmp_path, short_families(families), held_out, **{**RAGGED, **settings})
    trainer.train()
    return trainer


def assert_same(result, expected):
    apart = np.array(trajectory(result)) - np.array(trajectory(expected))
    assert np.abs(apart).max() <= LARGEST
    assert np.abs(apart.mean(axis=0)).max() <= ONE_SIDED


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """As the paper ran it: every score a sequence of its own."""
    trainer = ran(tmp_path_factory.mktemp("plain"), **PLAIN)
    assert len(trajectory(trainer)) == 4
    rows = np.array(trajectory(trainer))
    assert np.abs(np.diff(rows, axis=0)).min() > 100 * LARGEST, "a trajectory that stands still shows nothing"
    return trainer


@pytest.mark.parametrize(
    ("backend", "tokens_per_forward", "gradient_checkpointing"),
    # Every pair of settings once: half of all combinations.
    [("columns", 1, True), ("columns", 100_000, False), ("sdpa", 1, False), ("sdpa", 100_000, True)],
)
def test_trees_train_as_plain_sequences_do(plain, tmp_path, backend, tokens_per_forward, gradient_checkpointing):
    result = ran(
        tmp_path,
        strategy="tree",
        backend=backend,
        tokens_per_forward=tokens_per_forward,
        gradient_checkpointing=gradient_checkpointing,
    )
    assert_same(result, plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "backend", "tokens_per_forward", "gradient_checkpointing"),
    [
        ("dedup", "sdpa", 1, True),
        ("dedup", "columns", 100_000, False),
        ("naive", "sdpa", 1, True),
        ("naive", "columns", 100_000, False),
    ],
)
def test_sequences_train_alike(plain, tmp_path, strategy, backend, tokens_per_forward, gradient_checkpointing):
    result = ran(
        tmp_path,
        strategy=strategy,
        backend=backend,
        tokens_per_forward=tokens_per_forward,
        gradient_checkpointing=gradient_checkpointing,
    )
    assert_same(result, plain)


def test_what_is_told_is_the_same(plain, tmp_path):
    result = ran(tmp_path, strategy="tree")
    names = [name for name in plain.state.log_history[0] if name.startswith(("margin", "gen", "switch"))]
    assert len(names) == 2 + 6 + 3
    assert np.array(trajectory(result, *names)) == pytest.approx(np.array(trajectory(plain, *names)), abs=2e-5)


@pytest.mark.slow
def test_eight_families_in_one_forward_are_eight_forwards(tmp_path):
    together, apart = (
        ran(tmp_path, 8, families_per_update=8, num_train_epochs=1, tokens_per_forward=budget)
        for budget in (100_000, 1)
    )
    counts = [trajectory(trainer, "tree/tokens")[0][0] for trainer in (together, apart)]
    assert counts[0] > 7 * counts[1], "the budget must matter for this to say anything"
    assert_same(together, apart)


def test_a_ragged_update_is_the_mean_of_its_families(tmp_path):
    """Three families in updates of two: the second update has one, and counts it whole."""
    trainer = small_trainer(tmp_path, short_families(3), families_per_update=2, num_train_epochs=1, learning_rate=0.0)
    trainer.train()
    alone = small_trainer(tmp_path, short_families(3), families_per_update=1, num_train_epochs=1, learning_rate=0.0)
    alone.train()
    first, second, third = [loss for loss, _ in trajectory(alone)]
    assert [loss for loss, _ in trajectory(trainer)] == pytest.approx([(first + second) / 2, third], abs=2e-6)


def test_every_turn_takes_the_family_and_the_edit_of_its_epoch(tmp_path):
    """Nothing is learnt, so each update's loss tells which family it saw, and with which edit."""
    families = short_families(3)
    trainer = small_trainer(tmp_path, families, families_per_update=1, num_train_epochs=3, learning_rate=0.0)
    trainer.train()
    objective = build_objective(TrainingMethod.E_CLOSURE)
    renderer = TokenPathRenderer(small_tokenizer(), ResponsePrompt(0))
    expected = []
    for epoch in range(3):
        for index in order_epoch_families([family.id for family in families], 42, epoch):
            scores = objective.scores(FamilyScores(families[index], draw_edit(families[index], 42, epoch), renderer))
            with torch.no_grad():
                values = mean_logprobs(small_model(), scores, ScoringStrategy.TREE)
            named = {score.name: value for score, value in zip(scores, values, strict=True)}
            expected.append(objective.loss(named).total.item())
    assert len({round(loss, 5) for loss in expected}) > 3, "edits must differ for this to say anything"
    assert [loss for loss, _ in trajectory(trainer)] == pytest.approx(expected, abs=5e-6)


def test_looking_at_held_out_families_disturbs_nothing(tmp_path):
    blind = ran(tmp_path, logging_steps=2)
    watched = ran(tmp_path, held_out=short_families(5)[3:], eval_strategy="steps", eval_steps=1, logging_steps=2)
    assert trajectory(watched) == trajectory(blind)
    names = [name for name in blind.state.log_history[0] if "/" in name or name.endswith("_loss")]
    assert trajectory(watched, *names) == trajectory(blind, *names)


def test_workers_change_nothing(tmp_path):
    assert trajectory(ran(tmp_path, dataloader_num_workers=2)) == trajectory(ran(tmp_path))


def test_the_file_order_changes_nothing(tmp_path):
    families = short_families(3)
    runs = []
    for order in (families, families[::-1]):
        trainer = small_trainer(tmp_path, order, **RAGGED)
        trainer.train()
        runs.append(trajectory(trainer))
    assert runs[0] == runs[1]


def test_seeds_differ(tmp_path):
    first, second = (trajectory(ran(tmp_path, seed=seed, num_train_epochs=1)) for seed in (42, 43))
    assert first != second


def test_held_out_families_are_told_by_their_fixed_edit(tmp_path):
    """The evaluation's loss, from scores taken one by one."""
    held_out = short_families(5)[3:]
    trainer = small_trainer(tmp_path, short_families(3), held_out)
    result = trainer.evaluate()
    objective = build_objective(TrainingMethod.E_CLOSURE)
    renderer = TokenPathRenderer(small_tokenizer(), ResponsePrompt(0))
    losses = []
    with torch.no_grad():
        for family in held_out:
            scores = objective.scores(FamilyScores(family, select_fixed_edit(family), renderer))
            values = mean_logprobs(small_model(), scores, ScoringStrategy.NAIVE)
            named = {score.name: value for score, value in zip(scores, values, strict=True)}
            losses.append(objective.loss(named).total.item())
    assert result["eval_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)


# ---- gradients of one family, all objectives, real classes ----

# Transformers computes RMSNorm in single precision, which bounds what gradients in double precision can agree on.
TOLERANCE = {torch.float64: (1e-9, 5e-7), torch.float32: (3e-6, 5e-6)}


def slope(model, scores, objective, strategy, backend):
    model.zero_grad()
    values = mean_logprobs(model, scores, strategy, backend)
    total = objective.loss({score.name: value for score, value in zip(scores, values, strict=True)}).total
    total.backward()
    result = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
    return total.item(), torch.cat(result)


def adapted(name, dtype, backend):
    register_tree_attention()
    model = get_peft_model(small_model(name, attention=attention_implementation_name(backend)), lora()).to(dtype)
    generator = torch.Generator().manual_seed(0)
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:  # an adapter's second half begins at zero, and its first has no slope then
            parameter.data.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.slow
# In short: every class in double precision, and one in single.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float64) for name in CLASSES),
        ("llama", torch.float32),
        *(pytest.param(name, torch.float32, marks=pytest.mark.study) for name in CLASSES if name != "llama"),
    ],
)
def test_trees_have_the_slope_of_plain_sequences(name, dtype):
    family = short_families(1)[0]
    pack = FamilyScores(family, family.evidence_edits[0], TokenPathRenderer(small_tokenizer(), ResponsePrompt(0)))
    plain = adapted(name, dtype, AttentionBackend.SDPA)
    trees = {backend: adapted(name, dtype, backend) for backend in (AttentionBackend.SDPA, AttentionBackend.COLUMNS)}
    close, close_slope = TOLERANCE[dtype]
    for method in TrainingMethod:
        objective = build_objective(method)
        scores = objective.scores(pack)
        value, expected = slope(plain, scores, objective, ScoringStrategy.NAIVE, AttentionBackend.SDPA)
        for backend, model in trees.items():
            total, result = slope(model, scores, objective, ScoringStrategy.TREE, backend)
            assert abs(total - value) <= close, (method, backend)
            assert ((result - expected).norm() / expected.norm()).item() <= close_slope, (method, backend)


# ---- what moves ----


def weights_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("method", TrainingMethod)
def test_the_adapter_moves_and_nothing_else(tmp_path, method):
    # The first half of an adapter moves from the second update on.
    trainer = small_trainer(tmp_path, short_families(2), method=method, families_per_update=1, num_train_epochs=1)
    before = weights_of(trainer.model)
    trainer.train()
    moving = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert moving
    assert all("lora_" in name for name in moving)
    for name, value in weights_of(trainer.model).items():
        assert torch.equal(value, before[name]) != (name in moving), name


def test_without_an_adapter_all_weights_move(tmp_path):
    trainer = small_trainer(tmp_path, short_families(2), peft_config=None, num_train_epochs=1, families_per_update=2)
    before = weights_of(trainer.model)
    trainer.train()
    assert [name for name, value in weights_of(trainer.model).items() if torch.equal(value, before[name])] == []


@pytest.mark.slow
def test_a_family_can_be_learnt(tmp_path):
    trainer = small_trainer(
        tmp_path,
        short_families(1),
        peft_config=None,
        families_per_update=1,
        num_train_epochs=16,
        margin_weight=2.0,
    )
    trainer.train()
    first, *_, last = [line for line in trainer.state.log_history if "loss" in line]
    assert last["gen_loss"] < first["gen_loss"] - 3
    assert last["margin_loss"] < first["margin_loss"] - 0.02
