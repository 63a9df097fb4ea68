"""Order, edits and shares: a pure function of seed, epoch and family, whatever else differs."""

from collections import Counter
from hashlib import sha256
from random import Random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from hypothesis import given
from hypothesis import strategies as st

from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.family import draw_edit, select_fixed_edit
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import ScoringStrategy
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.batching import (
    FamilyDraw,
    FamilyList,
    ForestDataset,
    UpdateSampler,
    order_epoch_families,
    take_process_share,
)
from eclose_train.training.objective import TrainingMethod, build_objective
from tests.training.small import short_families, small_tokenizer

pytestmark = pytest.mark.torch

IDS = [f"family-{number}" for number in range(23)]


def epoch_of(ids, epoch, *, seed=42, size=8, rank=0, world=1):
    sampler = UpdateSampler(ids, seed=seed, size=size, rank=rank, world=world)
    sampler.set_epoch(epoch)
    assert len(sampler) == len(list(sampler))
    return list(sampler)


# ---- order ----


def test_an_epoch_visits_every_family_once():
    for epoch in range(3):
        updates = epoch_of(IDS, epoch)
        assert [len(update) for update in updates] == [8, 8, 7]
        assert Counter(draw.index for update in updates for draw in update) == Counter(range(len(IDS)))
        assert {draw.epoch for update in updates for draw in update} == {epoch}


def test_the_order_does_not_depend_on_the_files():
    shuffled = Random(1).sample(IDS, len(IDS))
    assert [IDS[i] for i in order_epoch_families(IDS, 7, 3)] == [
        shuffled[i] for i in order_epoch_families(shuffled, 7, 3)
    ]


def test_what_else_is_in_the_file_does_not_reorder_a_family():
    """Each family has a rank of its own, so leaving one out moves no other past another."""
    fewer = IDS[::2]
    assert [i for i in (IDS[k] for k in order_epoch_families(IDS, 7, 3)) if i in fewer] == [
        fewer[k] for k in order_epoch_families(fewer, 7, 3)
    ]


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {tuple(order_epoch_families(IDS, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_the_order_is_pinned():
    """A change here would make every run that is under way see other updates after it is resumed."""
    assert order_epoch_families(IDS[:8], 42, 0) == [0, 4, 5, 7, 1, 6, 2, 3]
    assert order_epoch_families(IDS, 7, 3) == sorted(
        range(len(IDS)), key=lambda place: sha256(f"order/7/3/{IDS[place]}".encode()).digest()
    )


def test_ids_may_hold_anything():
    assert sorted(order_epoch_families(["", "ä", "\ud800", "a\nb"], 0, 0)) == [0, 1, 2, 3]


# ---- shares ----


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("epoch", [0, 1])
def test_shares_together_are_the_update(world, epoch):
    alone = epoch_of(IDS, epoch)
    shares = [epoch_of(IDS, epoch, rank=rank, world=world) for rank in range(world)]
    assert {len(updates) for updates in shares} == {len(alone)}
    for number, update in enumerate(alone):
        together = [draw for updates in shares for draw in updates[number] if draw.weight]
        assert sorted(draw.index for draw in together) == sorted(draw.index for draw in update)
        # Processes average gradients: the mean over processes of weighted sums is the mean over families.
        assert all(draw.weight / world == pytest.approx(1 / len(update)) for draw in together)


@given(st.integers(1, 12), st.integers(1, 8))
def test_weights_average_to_the_mean_over_families(count, world):
    losses = [float(3**index % 17) for index in range(count)]
    shares = [take_process_share(range(count), 0, rank, world) for rank in range(world)]
    assert all(shares), "a process without work would leave the others waiting"
    by_process = [sum(draw.weight * losses[draw.index] for draw in mine) for mine in shares]
    assert sum(by_process) / world == pytest.approx(sum(losses) / count)
    standing_in = [draw for mine in shares for draw in mine if not draw.weight]
    assert len(standing_in) == max(0, world - count)


# ---- edits and forests ----


def planter(strategy=ScoringStrategy.TREE, budget=100_000, seed=42, method=TrainingMethod.E_CLOSURE):
    renderer = TokenPathRenderer(small_tokenizer(), ResponsePrompt(0))
    families = FamilyList(short_families(6))
    return ForestDataset(families, renderer, build_objective(method), ScoredTokens.FULL, strategy, budget, seed)


def edit_seen(made, draw):
    """Which of the family's edits the scores were rendered with."""
    family, scores = made.families[draw.index], made[draw][1]
    packs = [FamilyScores(family, edit, made.renderer) for edit in family.evidence_edits]
    (number,) = [n for n, pack in enumerate(packs) if made.objective.scores(pack) == scores]
    return number


def test_the_edit_of_a_turn_is_the_drawn_one():
    dataset = planter()
    for index, family in enumerate(dataset.families):
        for epoch in range(3):
            expected = family.evidence_edits.index(draw_edit(family, 42, epoch))
            assert edit_seen(dataset, FamilyDraw(index, epoch, 1.0)) == expected


def test_edits_vary_over_epochs_and_seeds():
    edits = {
        seed: [edit_seen(planter(seed=seed), FamilyDraw(0, epoch, 1.0)) for epoch in range(12)] for seed in (42, 43)
    }
    assert set(edits[42]) == {0, 1}
    assert edits[42] != edits[43]


def test_evaluation_takes_the_fixed_edit():
    dataset = planter()
    for index, family in enumerate(dataset.families):
        expected = family.evidence_edits.index(select_fixed_edit(family))
        assert {edit_seen(planter(seed=seed), FamilyDraw(index, None, 1.0)) for seed in range(3)} == {expected}


def test_a_budget_splits_an_update_and_loses_nothing():
    draws = [FamilyDraw(index, 0, 0.25 * (index + 1)) for index in range(6)]
    for budget, expected in ((1, 6), (100_000, 1)):
        dataset = planter(budget=budget)
        forests = dataset.build_forests([dataset[draw] for draw in draws])
        assert len(forests) == expected
        assert [weight for forest in forests for weight in forest.weights] == [draw.weight for draw in draws]
        for forest in forests:
            families = [forest.scores[start:stop] for start, stop in forest.bounds]
            assert [len(family) for family in families] == [15] * len(families)
            assert forest.tokens == len(forest.tree.layout) < forest.plain_tokens


def test_without_a_tree_every_family_stands_alone():
    dataset = planter(ScoringStrategy.NAIVE)
    forests = dataset.build_forests([dataset[FamilyDraw(index, 0, 1.0)] for index in range(3)])
    assert [forest.tree for forest in forests] == [None] * 3
    assert [forest.tokens for forest in forests] == [forest.plain_tokens for forest in forests]


def test_a_stand_in_does_the_same_work_and_counts_nothing():
    dataset = planter()
    (forest,) = dataset.build_forests([dataset[FamilyDraw(index, 0, 0.5)] for index in range(2)])
    empty = forest.without_weight()
    assert empty.weights == (0.0, 0.0)
    assert (empty.scores, empty.bounds, empty.tree) == (forest.scores, forest.bounds, forest.tree)


def test_a_tree_spares_most_tokens():
    """Eight to ten times for passages of the paper's lengths; these are short, and responses weigh more."""
    dataset = planter()
    (forest,) = dataset.build_forests([dataset[FamilyDraw(0, 0, 1.0)]])
    assert forest.plain_tokens > 4 * forest.tokens
    (several,) = dataset.build_forests([dataset[FamilyDraw(index, 0, 1.0)] for index in range(6)])
    assert several.plain_tokens > 4 * several.tokens
