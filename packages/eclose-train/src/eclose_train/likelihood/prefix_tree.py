"""Prefix tree of token paths, in which a shared beginning is computed once.

A node is a token after a particular prefix. In depth-first order the descendants of a node are contiguous: token i may
attend to token j exactly when j <= i < end[j]. Sharing is detected token by token; no layout of prompts is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose_train.likelihood.spans import SpanScore

IntArray = NDArray[np.int64]
ROOT = -1


@dataclass(frozen=True)
class TreeLayout:
    """A tree flattened in depth-first order: one row per node, all arrays of the same length."""

    ids: IntArray
    """Token id of every node."""
    positions: IntArray
    """Number of tokens before the node on its path: the position id of the model."""
    end: IntArray
    """Row after the last descendant of the node."""
    parent: IntArray
    """Row of the parent, ``ROOT`` for a first token."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Attention mask of shape (queries, keys), true where the query may attend to the key."""
        rows = np.arange(len(self))
        mask: NDArray[np.bool_] = (rows[None, :] <= rows[:, None]) & (rows[:, None] < self.end[None, :])
        return mask

    @property
    def segments(self) -> list[tuple[int, int, int]]:
        """Chains without a branch: first row, row after the last, and row after the subtree below the chain.

        The keys of a chain are attended to causally by the chain's rows and entirely by the rows below it.
        """
        rows = np.arange(len(self))
        children = np.bincount(self.parent[self.parent >= 0], minlength=len(self))
        # A chain continues where a node directly follows its parent and is the only child.
        continues = (self.parent == rows - 1) & (rows > 0)
        continues[1:] &= children[:-1] == 1
        bounds = [*np.flatnonzero(~continues).tolist(), len(self)]
        return [(start, stop, int(self.end[start])) for start, stop in pairwise(bounds)]

    @property
    def pairs(self) -> int:
        """Number of query-key pairs the tree needs."""
        return int((self.positions + 1).sum())

    def pad(self, multiple: int) -> TreeLayout:
        """Return the layout with rows appended that attend only to themselves, up to a multiple of a length."""
        missing = -len(self) % multiple
        if not missing:
            return self
        zeros = np.zeros(missing, np.int64)
        padding = np.arange(len(self), len(self) + missing)
        return TreeLayout(
            np.concatenate([self.ids, zeros]),
            np.concatenate([self.positions, zeros]),
            # end = row + 1 and no parent: a padding row is a tree of a single node.
            np.concatenate([self.end, padding + 1]),
            np.concatenate([self.parent, zeros + ROOT]),
        )


class PrefixTree:
    """A tree that grows by inserting paths and is laid out once it is complete."""

    def __init__(self) -> None:
        # Node 0 is the root, which holds no token; the nodes of tokens are numbered from 1.
        self._children: list[dict[int, int]] = [{}]
        self._tokens: list[int] = [ROOT]

    def __len__(self) -> int:
        return len(self._tokens) - 1

    def insert(self, ids: Iterable[int]) -> list[int]:
        """Add a path and return its nodes; nodes shared with earlier paths are reused."""
        node, path = 0, []
        for token in ids:
            child = self._children[node].get(token)
            if child is None:
                child = len(self._tokens)
                self._children[node][token] = child
                self._children.append({})
                self._tokens.append(token)
            node = child
            path.append(node)
        return path

    def layout(self) -> tuple[TreeLayout, IntArray]:
        """Return the tree in depth-first order, and the row of every node in it (nodes are numbered from one)."""
        count = len(self._tokens) - 1
        ids, positions, parent, end = (np.zeros(count, np.int64) for _ in range(4))
        row_of = np.full(count + 1, ROOT, np.int64)
        # An explicit stack: paths are thousands of tokens deep, beyond the recursion limit.
        stack = [(child, ROOT, 0) for child in reversed(self._children[0].values())]
        row = 0
        while stack:
            node, above, depth = stack.pop()
            row_of[node] = row
            ids[row], positions[row], parent[row] = self._tokens[node], depth, above
            stack.extend((child, row, depth + 1) for child in reversed(self._children[node].values()))
            row += 1
        # From the back, so that the end of every child is final before its parent reads it.
        for row in range(count - 1, -1, -1):
            end[row] = max(end[row], row + 1)
            if parent[row] >= 0:
                end[parent[row]] = max(end[parent[row]], end[row])
        return TreeLayout(ids, positions, end, parent), row_of


@dataclass(frozen=True)
class LogitReadout:
    """Rows of logits that are needed, and for every scored token its row and its target."""

    rows: IntArray
    """Layout rows whose prediction is needed, each once, in ascending order."""
    row_of: IntArray
    """Index into ``rows`` for every scored token."""
    targets: IntArray
    """Token id of every scored token."""
    score_of: IntArray
    """Number of the score that every scored token belongs to."""
    counts: IntArray
    """Number of tokens of every score."""


@dataclass(frozen=True)
class ScoredTree:
    """A tree with the scores that are read off it."""

    layout: TreeLayout
    readout: LogitReadout
    names: tuple[str, ...]

    @classmethod
    def of(cls, scores: Sequence[SpanScore]) -> ScoredTree:
        """Build the tree of all paths that the scores need, each path only as far as it is scored."""
        tree = PrefixTree()
        paths = [tree.insert(score.prefix) for score in scores]
        layout, row_of_node = tree.layout()
        targets = np.asarray(
            [row_of_node[path[at]] for path, score in zip(paths, scores, strict=True) for at in score.positions],
            np.int64,
        )
        score_of = [number for number, score in enumerate(scores) for _ in score.positions]
        # A token is predicted by the logits of its parent; siblings share that row.
        rows, row_of = np.unique(layout.parent[targets], return_inverse=True)
        readout = LogitReadout(
            rows,
            row_of.astype(np.int64),
            layout.ids[targets],
            np.asarray(score_of, np.int64),
            np.asarray([len(score.positions) for score in scores], np.int64),
        )
        return cls(layout, readout, tuple(score.name for score in scores))


def group_scores_by_path(scores: Sequence[SpanScore]) -> list[list[SpanScore]]:
    """Group scores by the fewest paths that contain them all, for scoring without a tree.

    A path that is the beginning of a longer one needs no forward pass: its scores join the longer path's group.
    """
    longest: list[tuple[int, ...]] = []
    group_of: dict[tuple[int, ...], int] = {}
    # Longest first, so that each path is compared with all paths that it may be a prefix of.
    for ids in sorted({score.prefix for score in scores}, key=len, reverse=True):
        containing = (number for number, longer in enumerate(longest) if longer[: len(ids)] == ids)
        group_of[ids] = next(containing, len(longest))
        if group_of[ids] == len(longest):
            longest.append(ids)
    groups: list[list[SpanScore]] = [[] for _ in longest]
    for score in scores:
        groups[group_of[score.prefix]].append(score)
    return groups
