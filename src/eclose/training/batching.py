"""Which families make up an update, and how they are laid out for it.

Order and choice of edits are a pure function of seed, epoch and family: neither resuming nor the number of processes
can change what an update sees. Processes share an update's families; the loss of each counts by its weight.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch.utils.data import Sampler

from eclose.core.edit_selection import draw_edit, select_fixed_edit
from eclose.likelihood.family_scores import FamilyScores
from eclose.likelihood.prefix_tree import ScoredTree
from eclose.likelihood.render import Renderer
from eclose.likelihood.score import ScoringStrategy, pack_forests
from eclose.likelihood.spans import CountedTokens, SpanScore
from eclose.training.objective import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.core.family import Family


class Families(Protocol):
    """Families that can be had one by one: a list, or a file with an index."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of every family, in order."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, index: int) -> Family:
        """The family at a place."""
        ...


class FamilyList(list["Family"]):
    """Families in memory."""

    @property
    def ids(self) -> list[str]:
        """The id of every family, in order."""
        return [family.id for family in self]


@dataclass(frozen=True, slots=True)
class Draw:
    """A family's turn: which one, in which epoch, and what its loss counts."""

    index: int
    epoch: int | None
    """None for evaluation, which takes a fixed edit."""
    weight: float
    """Processes average their gradients, so weights are relative to the mean over processes; 0 for a stand-in."""


class UpdateSampler(Sampler[list[Draw]]):
    """This process's share of every update."""

    def __init__(self, ids: Sequence[str], *, seed: int, size: int, rank: int = 0, world: int = 1) -> None:
        self.ids, self.seed, self.size, self.rank, self.world = ids, seed, size, rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Begin another pass over the families."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Updates in an epoch; the last may be smaller."""
        return ceil(len(self.ids) / self.size)

    def __iter__(self) -> Iterator[list[Draw]]:
        """One list of draws per update."""
        order = family_order(self.ids, self.seed, self.epoch)
        for start in range(0, len(order), self.size):
            update = order[start : start + self.size]
            yield share(update, self.epoch, self.rank, self.world)


def family_order(ids: Sequence[str], seed: int, epoch: int) -> list[int]:
    """The places of all families in the order of an epoch: by a hash of seed, epoch and id."""
    start = hashlib.sha256(f"order/{seed}/{epoch}/".encode())
    ranks = np.empty(len(ids), np.uint64)
    for place, name in enumerate(ids):
        digest = start.copy()
        digest.update(name.encode("utf-8", "surrogatepass"))
        ranks[place] = int.from_bytes(digest.digest()[:8], "big")
    order: list[int] = np.argsort(ranks, kind="stable").tolist()
    return order


def share(update: Sequence[int], epoch: int | None, rank: int, world: int) -> list[Draw]:
    """One process's part of an update. Where there is nothing left for it, a stand-in that counts nothing.

    Processes meet in every backward pass, so each must have something to do.
    """
    weight = world / len(update)
    mine = [Draw(index, epoch, weight) for index in update[rank::world]]
    return mine or [Draw(update[0], epoch, 0.0)]


@dataclass(frozen=True)
class Forest:
    """Families scored in one forward."""

    scores: tuple[SpanScore, ...]
    bounds: tuple[tuple[int, int], ...]
    """Where each family's scores begin and end."""
    weights: tuple[float, ...]
    tree: ScoredTree | None
    """The tree of all scores, where the strategy is to use one."""

    @property
    def tokens(self) -> int:
        """Tokens computed; without a tree, those of every score's own sequence."""
        return self.plain_tokens if self.tree is None else len(self.tree.layout)

    @property
    def plain_tokens(self) -> int:
        """Tokens if every score were a sequence of its own."""
        return sum(score.positions[-1] + 1 for score in self.scores)

    def without_weight(self) -> Forest:
        """The same work, counting nothing."""
        return Forest(self.scores, self.bounds, (0.0,) * len(self.weights), self.tree)


@dataclass(frozen=True)
class Planter:
    """Turns draws into forests. Runs in a loader's workers, so that models do not wait for tokenizers."""

    families: Families
    renderer: Renderer
    objective: Objective
    tokens: CountedTokens
    strategy: ScoringStrategy
    budget: int
    seed: int

    def __getitem__(self, draw: Draw) -> tuple[Draw, list[SpanScore]]:
        """A family's scores under the edit of its turn."""
        family = self.families[draw.index]
        edit = select_fixed_edit(family) if draw.epoch is None else draw_edit(family, self.seed, draw.epoch)
        return draw, self.objective.scores(FamilyScores(family, edit, self.renderer, self.tokens))

    def __len__(self) -> int:
        """How many families there are."""
        return len(self.families)

    def plant(self, drawn: Sequence[tuple[Draw, list[SpanScore]]]) -> list[Forest]:
        """As few forwards as the budget allows; without a tree, every family has its own."""
        scores = [found for _, found in drawn]
        if self.strategy is ScoringStrategy.TREE:
            groups = pack_forests(scores, self.budget)
        else:
            groups = [[number] for number in range(len(scores))]
        return [
            self._forest([scores[number] for number in group], [drawn[number][0].weight for number in group])
            for group in groups
        ]

    def _forest(self, families: Sequence[list[SpanScore]], weights: Sequence[float]) -> Forest:
        every = tuple(score for scores in families for score in scores)
        bounds = tuple(pairwise(accumulate(map(len, families), initial=0)))
        tree = ScoredTree.of(every) if self.strategy is ScoringStrategy.TREE else None
        return Forest(every, bounds, tuple(weights), tree)
