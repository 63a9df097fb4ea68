"""Paths arranged so that what they begin with is computed once.

A node is a token after a particular beginning. Laid out depth first, the descendants of a node are contiguous: token
i may see token j exactly when j <= i < end[j]. The tree finds sharing wherever it is and assumes no layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.likelihood.spans import Score

Ints = NDArray[np.int64]
ROOT = -1


@dataclass(frozen=True)
class Layout:
    """A tree flattened depth first."""

    ids: Ints
    """The token of every node."""
    positions: Ints
    """How many tokens precede it on its path."""
    end: Ints
    """One past its last descendant."""
    parent: Ints

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.ids)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Who may see whom: queries by keys."""
        places = np.arange(len(self))
        seen: NDArray[np.bool_] = (places[None, :] <= places[:, None]) & (places[:, None] < self.end[None, :])
        return seen

    @property
    def segments(self) -> list[tuple[int, int, int]]:
        """Chains without a branch: where each starts and ends, and where the subtree below it ends.

        The keys of a chain are seen by its own rows, causally, and by the rows below it, all of them.
        """
        places = np.arange(len(self))
        children = np.bincount(self.parent[self.parent >= 0], minlength=len(self))
        # A chain goes on where a node follows its parent and is its only child.
        goes_on = (self.parent == places - 1) & (places > 0)
        goes_on[1:] &= children[:-1] == 1
        bounds = [*np.flatnonzero(~goes_on).tolist(), len(self)]
        return [(start, stop, int(self.end[start])) for start, stop in pairwise(bounds)]

    @property
    def pairs(self) -> int:
        """How many query-key pairs the tree needs."""
        return int((self.positions + 1).sum())

    def padded(self, multiple: int) -> Layout:
        """The layout followed by rows that see only themselves, up to a multiple of a length."""
        missing = -len(self) % multiple
        if not missing:
            return self
        nothing = np.zeros(missing, np.int64)
        alone = np.arange(len(self), len(self) + missing)
        return Layout(
            np.concatenate([self.ids, nothing]),
            np.concatenate([self.positions, nothing]),
            np.concatenate([self.end, alone + 1]),
            np.concatenate([self.parent, nothing + ROOT]),
        )


class PrefixTree:
    """Grows by inserting paths; laid out once it is complete."""

    def __init__(self) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._tokens: list[int] = [ROOT]

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self._tokens) - 1

    def insert(self, ids: Iterable[int]) -> list[int]:
        """The nodes of a path, made where they are missing."""
        node, path = 0, []
        for token in ids:
            following = self._children[node].get(token)
            if following is None:
                following = len(self._tokens)
                self._children[node][token] = following
                self._children.append({})
                self._tokens.append(token)
            node = following
            path.append(node)
        return path

    def layout(self) -> tuple[Layout, Ints]:
        """The tree depth first, and the place of every node in it (nodes are numbered from one)."""
        count = len(self._tokens) - 1
        ids, positions, parent = (np.zeros(count, np.int64) for _ in range(3))
        end = np.zeros(count, np.int64)
        place = np.full(count + 1, ROOT, np.int64)
        stack = [(child, ROOT, 0) for child in reversed(self._children[0].values())]
        order: list[int] = []
        while stack:
            node, above, depth = stack.pop()
            here = len(order)
            order.append(node)
            place[node] = here
            ids[here], positions[here], parent[here] = self._tokens[node], depth, above
            stack.extend((child, here, depth + 1) for child in reversed(self._children[node].values()))
        for here in range(count - 1, -1, -1):
            end[here] = max(end[here], here + 1)
            if parent[here] >= 0:
                end[parent[here]] = max(end[parent[here]], end[here])
        return Layout(ids, positions, end, parent), place


@dataclass(frozen=True)
class Readout:
    """Where scores are read: rows of logits, and for every scored token its row and its target."""

    rows: Ints
    """Nodes whose prediction is needed, each once, in order."""
    row_of: Ints
    """For every scored token the place of its row among the rows."""
    targets: Ints
    score_of: Ints
    """For every scored token the score it belongs to."""
    counts: Ints
    """How many tokens each score has."""


@dataclass(frozen=True)
class ScoredTree:
    """A tree with the scores to be read off it."""

    layout: Layout
    readout: Readout
    names: tuple[str, ...]

    @classmethod
    def of(cls, scores: Sequence[Score]) -> ScoredTree:
        """The tree of all paths the scores need, each path only as far as it is scored."""
        tree = PrefixTree()
        inserted = [tree.insert(score.path.ids[: score.places[-1] + 1]) for score in scores]
        layout, place = tree.layout()
        targets = [place[nodes[at]] for nodes, score in zip(inserted, scores, strict=True) for at in score.places]
        score_of = [number for number, score in enumerate(scores) for _ in score.places]
        nodes = np.asarray(targets, np.int64)
        rows, row_of = np.unique(layout.parent[nodes], return_inverse=True)
        readout = Readout(
            rows,
            row_of.astype(np.int64),
            layout.ids[nodes],
            np.asarray(score_of, np.int64),
            np.asarray([len(score.places) for score in scores], np.int64),
        )
        return cls(layout, readout, tuple(score.name for score in scores))


def chains(scores: Sequence[Score]) -> list[list[Score]]:
    """Scores grouped by the fewest whole paths that hold them all: what remains without a tree.

    A path that is the beginning of another needs no run of its own.
    """
    wanted = sorted({score.path.ids[: score.places[-1] + 1] for score in scores}, key=len, reverse=True)
    kept: list[tuple[int, ...]] = []
    home: dict[tuple[int, ...], int] = {}
    for ids in wanted:
        found = next((number for number, longer in enumerate(kept) if longer[: len(ids)] == ids), None)
        home[ids] = len(kept) if found is None else found
        if found is None:
            kept.append(ids)
    groups: list[list[Score]] = [[] for _ in kept]
    for score in scores:
        groups[home[score.path.ids[: score.places[-1] + 1]]].append(score)
    return groups
