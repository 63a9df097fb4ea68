"""How well a score tells failed responses from reliable ones.

A low score means failure; a response scoring strictly below a threshold is flagged (appendix A.5). Each
statistic takes resampling weights, one row a resample, and gives one value a row; one row of ones is the sample
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.stats.arrays import Flags, Floats, ratio, scalar

if TYPE_CHECKING:
    from eclose.stats.arrays import Indices

RETENTION = 0.95
"""The share of reliable responses a detector must leave alone."""


@dataclass(frozen=True)
class Scored:
    """Scores of the responses under study, and which of them are failed and which reliable."""

    scores: Floats
    failed: Flags
    reliable: Flags

    def __post_init__(self) -> None:
        """Refuse what no statistic below could mean."""
        if np.isnan(self.scores).any():
            raise ValueError("a score is missing; leave unscored responses out and count them")
        if (self.failed & self.reliable).any():
            raise ValueError("a response cannot be failed and reliable at once")

    @property
    def ones(self) -> Floats:
        """The weights of the sample itself."""
        return np.ones((1, len(self.scores)))


def auroc(scored: Scored) -> float | None:
    """The chance that a failed response scores below a reliable one, ties counting half."""
    return scalar(auroc_under(scored.ones, scored)[0])


def auroc_under(weights: Floats, scored: Scored) -> Floats:
    """AUROC of every resample."""
    order = np.argsort(scored.scores, kind="stable")
    _, starts = np.unique(scored.scores[order], return_index=True)
    drawn = weights[:, order]
    # Weight at each distinct score, failed and reliable apart.
    failed = np.add.reduceat(drawn * scored.failed[order], starts, axis=1)
    reliable = np.add.reduceat(drawn * scored.reliable[order], starts, axis=1)
    below = np.cumsum(reliable, axis=1) - reliable
    total = reliable.sum(axis=1, keepdims=True)
    wins = (failed * (total - below - reliable / 2)).sum(axis=1)
    return ratio(wins, failed.sum(axis=1) * total[:, 0])


def recall_at_retention(scored: Scored, retention: float = RETENTION) -> float | None:
    """R@95: how many failures are flagged at the highest threshold that leaves 95 % of the reliable alone."""
    return scalar(recall_at_retention_under(scored.ones, scored, retention)[0])


def recall_at_retention_under(weights: Floats, scored: Scored, retention: float = RETENTION) -> Floats:
    """Recall of every resample, its threshold calibrated on that resample."""
    threshold = thresholds(weights, scored.scores, scored.reliable, retention)
    return _flagged_share(weights, scored.scores, scored.failed, threshold)


def threshold_at_retention(scored: Scored, retention: float = RETENTION) -> float | None:
    """The highest observed score that at most 5 % of the reliable score strictly below; None without any."""
    return scalar(thresholds(scored.ones, scored.scores, scored.reliable, retention)[0])


def thresholds(weights: Floats, scores: Floats, reliable: Flags, retention: float = RETENTION) -> Floats:
    """The threshold of every resample; NaN where it drew no reliable response."""
    if not reliable.any():
        return np.full(len(weights), np.nan)
    values, group = np.unique(scores[reliable], return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(values)))
    at_value = np.add.reduceat(weights[:, reliable][:, order], starts, axis=1)
    below = np.cumsum(at_value, axis=1) - at_value
    total = at_value.sum(axis=1, keepdims=True)
    # Weights are counts, so comparing in integers keeps "at most 5 %" exact at the boundary.
    spared = Fraction(1) - Fraction(str(retention))
    allowed = below * spared.denominator <= total * spared.numerator
    # What is allowed is a prefix of the sorted values; its last one is always drawn in the resample.
    chosen = values[np.maximum(allowed.sum(axis=1) - 1, 0)]
    return np.where(total[:, 0] > 0, chosen, np.nan)


def _flagged_share(weights: Floats, scores: Floats, among: Flags, threshold: Floats) -> Floats:
    """The share of a group's weight that scores strictly below each resample's threshold."""
    ordered = np.argsort(scores[among], kind="stable")
    drawn = weights[:, among][:, ordered]
    reached = np.concatenate([np.zeros((len(drawn), 1)), np.cumsum(drawn, axis=1)], axis=1)
    position = np.searchsorted(scores[among][ordered], threshold, side="left")
    flagged = reached[np.arange(len(drawn)), position]
    return np.where(np.isnan(threshold), np.nan, ratio(flagged, reached[:, -1]))


class Transfer(NamedTuple):
    """What thresholds do on questions they were not calibrated on."""

    false_positive_rate: float | None
    recall: float | None


def stratified_folds(strata: Indices, folds: int = 5, *, rng: np.random.Generator) -> Indices:
    """Deal the questions of each stratum into folds whose sizes differ by at most one."""
    fold = np.empty(len(strata), np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        fold[rng.permutation(members)] = np.arange(len(members)) % folds
    return fold


def cross_fitted(scored: Scored, fold: Indices, retention: float = RETENTION) -> Transfer:
    """Calibrate on all folds but one, flag that one, and pool what was flagged over the folds."""
    fpr, recall = cross_fitted_under(scored.ones, scored, fold, retention)[0]
    return Transfer(scalar(fpr), scalar(recall))


def cross_fitted_under(weights: Floats, scored: Scored, fold: Indices, retention: float = RETENTION) -> Floats:
    """False positive rate and recall of every resample, thresholds refitted in it, folds fixed."""
    flagged = np.zeros((len(weights), 2))
    total = np.zeros((len(weights), 2))
    for held_out in np.unique(fold):
        inside = fold == held_out
        threshold = thresholds(weights, scored.scores, scored.reliable & ~inside, retention)
        for column, group in enumerate((scored.reliable & inside, scored.failed & inside)):
            weight = weights[:, group].sum(axis=1)
            share = _flagged_share(weights, scored.scores, group, threshold)
            # A fold without members of the group has no share, and adds nothing to either sum.
            flagged[:, column] += np.where(weight > 0, share * weight, 0)
            total[:, column] += weight
    return ratio(flagged, total)
