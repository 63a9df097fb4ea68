"""Batching of families: which families make up an update, and which of them are scored in one forward pass.

Order and choice of edits are a pure function of seed, epoch and family id, so neither resuming nor the number of
processes changes what an update contains. Processes share the families of an update; each loss counts by its weight.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch.utils.data import Sampler

from eclose.values.family import draw_edit, select_fixed_edit
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.prefix_tree import ScoredTree
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import ScoringStrategy, pack_family_forests
from eclose_train.likelihood.spans import ScoredTokens, SpanScore
from eclose_train.training.objective import TrainingObjective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.values.family import Family


class FamilyDataset(Protocol):
    """Families with random access: a list, or an indexed file."""

    @property
    def ids(self) -> Sequence[str]:
        """Ids of all families, in order."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Family: ...


class FamilyList(list["Family"]):
    """Families in memory."""

    @property
    def ids(self) -> list[str]:
        """Ids of all families, in order."""
        return [family.id for family in self]


@dataclass(frozen=True, slots=True)
class FamilyDraw:
    """A family of an update, with the weight of its loss."""

    index: int
    epoch: int | None
    """Epoch that determines the evidence edit; None for evaluation, which uses a fixed edit."""
    weight: float
    """Weight of the loss. Processes average their gradients, so it is relative to the mean over processes; 0 for a
    family that only keeps a process busy."""


class UpdateSampler(Sampler[list[FamilyDraw]]):
    """Sampler of this process's share of every update."""

    def __init__(self, ids: Sequence[str], *, seed: int, size: int, rank: int = 0, world: int = 1) -> None:
        self.ids, self.seed, self.size, self.rank, self.world = ids, seed, size, rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order the next iteration follows."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of updates in an epoch; the last one may be smaller."""
        return ceil(len(self.ids) / self.size)

    def __iter__(self) -> Iterator[list[FamilyDraw]]:
        # Every process computes the same order and takes its share; no communication is needed.
        order = order_epoch_families(self.ids, self.seed, self.epoch)
        for start in range(0, len(order), self.size):
            update = order[start : start + self.size]
            yield take_process_share(update, self.epoch, self.rank, self.world)


def order_epoch_families(ids: Sequence[str], seed: int, epoch: int) -> list[int]:
    """Return the indices of all families in the order of an epoch: by a hash of seed, epoch and id."""
    # A test pins this order: with another one, a resumed run would train on other updates than it began with.
    start = hashlib.sha256(f"order/{seed}/{epoch}/".encode())
    ranks = np.empty(len(ids), np.uint64)
    for index, family_id in enumerate(ids):
        digest = start.copy()  # the common prefix is hashed once
        digest.update(family_id.encode("utf-8", "surrogatepass"))
        ranks[index] = int.from_bytes(digest.digest()[:8], "big")
    order: list[int] = np.argsort(ranks, kind="stable").tolist()
    return order


def take_process_share(update: Sequence[int], epoch: int | None, rank: int, world: int) -> list[FamilyDraw]:
    """Return a process's share of an update; a family of weight zero where no family is left for the process.

    Processes synchronise in every backward pass, so each of them needs one.
    """
    # DDP averages gradients over processes; multiplied by their number, the update is a mean over its families.
    weight = world / len(update)
    draws = [FamilyDraw(index, epoch, weight) for index in update[rank::world]]
    return draws or [FamilyDraw(update[0], epoch, 0.0)]


@dataclass(frozen=True)
class FamilyForest:
    """Families scored in one forward pass."""

    scores: tuple[SpanScore, ...]
    bounds: tuple[tuple[int, int], ...]
    """Start and end of each family's scores."""
    weights: tuple[float, ...]
    """Weight of each family's loss."""
    tree: ScoredTree | None
    """Prefix tree of all scores; None for strategies without a tree."""

    @property
    def tokens(self) -> int:
        """Number of tokens computed; without a tree, those of a sequence per score."""
        return self.plain_tokens if self.tree is None else len(self.tree.layout)

    @property
    def plain_tokens(self) -> int:
        """Number of tokens with a sequence per score."""
        return sum(score.positions[-1] + 1 for score in self.scores)

    def without_weight(self) -> FamilyForest:
        """Return the same forest with all weights zero."""
        return FamilyForest(self.scores, self.bounds, (0.0,) * len(self.weights), self.tree)


@dataclass(frozen=True)
class ForestDataset:
    """Dataset of a loader that renders drawn families and groups them into forests.

    It runs in the loader's workers, so that the model does not wait for the tokenizer.
    """

    families: FamilyDataset
    renderer: TokenPathRenderer
    objective: TrainingObjective
    tokens: ScoredTokens
    strategy: ScoringStrategy
    budget: int
    seed: int

    def __getitem__(self, draw: FamilyDraw) -> tuple[FamilyDraw, list[SpanScore]]:
        """Return a draw with the scores of its family under the edit of the draw's epoch."""
        family = self.families[draw.index]
        # Training draws one of the accepted edits in every epoch; evaluation must not vary with the epoch.
        edit = select_fixed_edit(family) if draw.epoch is None else draw_edit(family, self.seed, draw.epoch)
        return draw, self.objective.scores(FamilyScores(family, edit, self.renderer, self.tokens))

    def __len__(self) -> int:
        return len(self.families)

    def build_forests(self, drawn: Sequence[tuple[FamilyDraw, list[SpanScore]]]) -> list[FamilyForest]:
        """Group drawn families into as few forests as the budget of tokens allows; without a tree, one per family."""
        families = [scores for _, scores in drawn]
        # Without a tree families share no tokens, so a common forward pass would save nothing.
        if self.strategy is ScoringStrategy.TREE:
            groups = pack_family_forests(families, self.budget)
        else:
            groups = [[number] for number in range(len(families))]
        forests = []
        for group in groups:
            scores = tuple(score for number in group for score in families[number])
            bounds = tuple(pairwise(accumulate((len(families[number]) for number in group), initial=0)))
            tree = ScoredTree.of(scores) if self.strategy is ScoringStrategy.TREE else None
            forests.append(FamilyForest(scores, bounds, tuple(drawn[number][0].weight for number in group), tree))
        return forests
