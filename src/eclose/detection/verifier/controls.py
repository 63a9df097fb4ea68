"""Controls of a linear verifier on held-out families: what its heads learn, and what form or word overlap alone would.

Families are split into folds, so that no view of a held-out family was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eclose.detection.verifier.features import SHORTCUT_FEATURES
from eclose.detection.verifier.heads import VerifierHead
from eclose.detection.verifier.linear import (
    FEATURE_NAMES,
    PENALTIES,
    SUPPORT_SHORTCUT,
    build_feature_matrix,
    compute_features,
    fit_linear_head,
    select_features,
)
from eclose.errors import UserError
from eclose.stats.ranking import ScoredResponses, assign_folds, auroc, recall_at_retention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.verifier.rows import VerifierRow
    from eclose.stats.arrays import Flags, Floats, Indices

FOLDS = 5
LARGEST_LOSS = 0.015
"""Held-out AUROC that is given up for a stronger penalty: small weights hold better on texts unlike the families. On
real traces, R@95 rose from 27 % at the weakest penalty to 40 % at the one chosen so (decision 0041)."""
OVERLAP_FEATURES = {
    VerifierHead.SUPPORT: "step words in the evidence",
    VerifierHead.ALIGNMENT: "question words in the last step",
    VerifierHead.CLOSURE: "answer words in the last step",
}
"""Trivial word overlap of each head: one feature, no training."""


@dataclass(frozen=True, slots=True)
class HeadControl:
    """Separation of a head's rows by one score, on held-out families."""

    head: VerifierHead
    score: str
    """What the rows are scored by: all features, those without shortcuts, shortcuts alone, or word overlap."""
    edit: str
    """Rows of one edit, or ``all``."""
    holds: int
    fails: int
    auroc: float | None
    recall: float | None
    """Share of failures found where 95 % of the true rows are spared."""


class HeadRows:
    """The rows of one head as a matrix of features, with labels and folds."""

    def __init__(self, head: VerifierHead, rows: Sequence[VerifierRow], seed: int) -> None:
        self.head = head
        self.rows = [row for row in rows if row.head is head]
        self.labels: Flags = np.array([row.label for row in self.rows], dtype=bool)
        features = [compute_features(head, row.input)[0] for row in self.rows]
        self._matrix = build_feature_matrix(features, FEATURE_NAMES[head])
        self.folds = _fold_families([row.family_id for row in self.rows], seed)

    def take(self, names: Sequence[str]) -> Floats:
        """Return the columns of some features."""
        order = {name: column for column, name in enumerate(FEATURE_NAMES[self.head])}
        columns: Floats = self._matrix[:, [order[name] for name in names]]
        return columns

    def predict_held_out(self, names: Sequence[str], penalty: float) -> Floats:
        """Return the score of every row by a head that was trained without its fold."""
        matrix, scores = self.take(names), np.zeros(len(self.rows))
        for fold in range(FOLDS):
            held_out = self.folds == fold
            head = fit_linear_head(matrix[~held_out], self.labels[~held_out], names, penalty)
            scores[held_out] = head.predict(matrix[held_out])
        return scores


def _fold_families(family_ids: Sequence[str], seed: int) -> Indices:
    families, owners = np.unique(np.array(family_ids), return_inverse=True)
    if len(families) < FOLDS:
        raise UserError(f"{len(families)} families are too few to train and check a verifier: give at least {FOLDS}.")
    folds = assign_folds(np.zeros(len(families), np.intp), FOLDS, rng=np.random.default_rng(seed))
    return folds[owners]


def choose_penalty(rows: HeadRows, names: Sequence[str]) -> float:
    """Return the strongest penalty whose held-out AUROC is at most ``LARGEST_LOSS`` below the best."""
    reached = {
        penalty: auroc(_to_scored(rows.predict_held_out(names, penalty), rows.labels)) or 0.0 for penalty in PENALTIES
    }
    best = max(reached.values())
    return max(penalty for penalty, area in reached.items() if area >= best - LARGEST_LOSS)


def measure_controls(rows: HeadRows, penalty: float) -> list[HeadControl]:
    """Return the controls of a head: every score on all rows, and by edit."""
    head = rows.head
    shortcuts = (SUPPORT_SHORTCUT,) if head is VerifierHead.SUPPORT else SHORTCUT_FEATURES
    overlap = OVERLAP_FEATURES[head]
    scores = {
        "all features": rows.predict_held_out(select_features(head), penalty),
        "without shortcuts": rows.predict_held_out(select_features(head, shortcuts=False), penalty),
        "shortcuts alone": rows.predict_held_out(shortcuts, penalty),
        f"word overlap ({overlap})": rows.take((overlap,))[:, 0],
    }
    edits = list(dict.fromkeys(row.edit.value for row in rows.rows))
    groups = {"all": np.ones(len(rows.rows), dtype=bool)}
    if len(edits) > 1:
        groups |= {edit: np.array([row.edit.value == edit for row in rows.rows]) for edit in edits}
    controls = []
    for name, values in scores.items():
        for edit, members in groups.items():
            scored = _to_scored(values[members], rows.labels[members])
            holds = int(scored.reliable.sum())
            controls.append(
                HeadControl(
                    head, name, edit, holds, len(scored.scores) - holds, auroc(scored), recall_at_retention(scored)
                )
            )
    return controls


def _to_scored(scores: Floats, labels: Flags) -> ScoredResponses:
    return ScoredResponses(scores, ~labels, labels)
