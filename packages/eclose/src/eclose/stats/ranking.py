"""How well a score separates failed responses from reliable ones.

A low score means failure: a response that scores strictly below a threshold is flagged (appendix A.5.1). Functions
named ``resampled_...`` take resampling weights, one row per resample, and return one value per row; a row of ones is
the sample itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.stats.arrays import Flags, Floats, divide_or_nan, float_or_none

if TYPE_CHECKING:
    from eclose.stats.arrays import Indices

RELIABLE_RETENTION = 0.95
"""Share of reliable responses that a detector must leave unflagged."""


@dataclass(frozen=True)
class ScoredResponses:
    """Scores of responses, and which of these failed and which are reliable."""

    scores: Floats
    failed: Flags
    reliable: Flags

    def __post_init__(self) -> None:
        """Raise for a missing score, and for a response that is failed and reliable."""
        if np.isnan(self.scores).any():
            raise ValueError("a score is missing; leave unscored responses out and count them")
        if (self.failed & self.reliable).any():
            raise ValueError("a response cannot be failed and reliable at once")

    @property
    def ones(self) -> Floats:
        """The weights of the sample itself."""
        return np.ones((1, len(self.scores)))


def auroc(scored: ScoredResponses) -> float | None:
    """Return the share of pairs, a failed and a reliable response, whose failed scores lower; half for a tie."""
    return float_or_none(resampled_aurocs(scored.ones, scored)[0])


def resampled_aurocs(weights: Floats, scored: ScoredResponses) -> Floats:
    """Return the AUROC of every resample."""
    members = np.flatnonzero(scored.reliable)
    members = members[np.argsort(scored.scores[members], kind="stable")]
    reached = _cumulate_weights(weights[:, members])
    # Weight of the reliable strictly below each failed response, and of those at most as high; a tie is in one of them.
    below, up_to = (
        reached[:, np.searchsorted(scored.scores[members], scored.scores[scored.failed], side=side)]
        for side in ("left", "right")
    )
    total = reached[:, -1]
    failed = weights[:, scored.failed]
    wins = (failed * (total[:, np.newaxis] - (below + up_to) / 2)).sum(axis=1)
    return divide_or_nan(wins, failed.sum(axis=1) * total)


def _cumulate_weights(weights: Floats) -> Floats:
    """Return the weight of the first 0, 1, 2, ... responses, a row for each resample."""
    reached: Floats = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=reached[:, 1:])
    return reached


def recall_at_retention(scored: ScoredResponses, retention: float = RELIABLE_RETENTION) -> float | None:
    """Return R@95: the share of failures flagged at the highest threshold that spares 95 % of the reliable."""
    return float_or_none(resampled_recalls(scored.ones, scored, retention)[0])


def resampled_recalls(weights: Floats, scored: ScoredResponses, retention: float = RELIABLE_RETENTION) -> Floats:
    """Return the recall of every resample, with the threshold calibrated on that resample."""
    threshold = resampled_thresholds(weights, scored.scores, scored.reliable, retention)
    return resampled_flagged_shares(weights, scored.scores, scored.failed, threshold)


def threshold_at_retention(scored: ScoredResponses, retention: float = RELIABLE_RETENTION) -> float | None:
    """Return the highest observed score with at most 5 % of the reliable strictly below; None without any."""
    return float_or_none(resampled_thresholds(scored.ones, scored.scores, scored.reliable, retention)[0])


def resampled_thresholds(
    weights: Floats, scores: Floats, reliable: Flags, retention: float = RELIABLE_RETENTION
) -> Floats:
    """Return the threshold of every resample; NaN where it drew no reliable response."""
    if not reliable.any():
        return np.full(len(weights), np.nan)
    members = np.flatnonzero(reliable)
    members = members[np.argsort(scores[members], kind="stable")]
    # First position of each distinct score among the sorted reliable responses.
    values, starts = np.unique(scores[members], return_index=True)
    reached = _cumulate_weights(weights[:, members])
    below, total = reached[:, starts], reached[:, -1:]
    # Weights are counts, so comparing in integers keeps "at most 5 %" exact at the boundary.
    spared = Fraction(1) - Fraction(str(retention))
    allowed = below * spared.denominator <= total * spared.numerator
    # The allowed values are a prefix of the sorted ones, and its last value is always drawn in the resample.
    chosen = values[np.maximum(allowed.sum(axis=1) - 1, 0)]
    return np.where(total[:, 0] > 0, chosen, np.nan)


def resampled_flagged_shares(weights: Floats, scores: Floats, among: Flags, threshold: Floats) -> Floats:
    """Return the share of a group that scores strictly below the threshold of each resample; NaN without either."""
    members = np.flatnonzero(among)
    members = members[np.argsort(scores[members], kind="stable")]
    reached = _cumulate_weights(weights[:, members])
    # Responses before this position score strictly below the threshold.
    position = np.searchsorted(scores[members], threshold, side="left")
    flagged = reached[np.arange(len(reached)), position]
    return np.where(np.isnan(threshold), np.nan, divide_or_nan(flagged, reached[:, -1]))


class ThresholdSweep(NamedTuple):
    """False positive rate and recall at every threshold, from the lowest to the highest."""

    thresholds: Floats
    """Distinct scores of the failed and the reliable, then infinity, which flags every response."""
    false_positive_rates: Floats
    recalls: Floats


def sweep_thresholds(scored: ScoredResponses) -> ThresholdSweep | None:
    """Return both rates at every distinct score, from (0, 0) to (1, 1); None without failed or reliable responses.

    Straight lines between the points enclose an area equal to the AUROC: a tie of both groups is a sloped line.
    """
    failed, reliable = np.sort(scored.scores[scored.failed]), np.sort(scored.scores[scored.reliable])
    if not len(failed) or not len(reliable):
        return None
    observed = np.unique(np.concatenate([failed, reliable]))
    # The position of a threshold among sorted scores is the number of scores strictly below it.
    fpr, recall = (np.searchsorted(group, observed, side="left") / len(group) for group in (reliable, failed))
    return ThresholdSweep(np.append(observed, np.inf), np.append(fpr, 1.0), np.append(recall, 1.0))


def assign_folds(strata: Indices, folds: int = 5, *, rng: np.random.Generator) -> Indices:
    """Assign the questions of each stratum to folds whose sizes differ by at most one."""
    fold = np.empty(len(strata), np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        fold[rng.permutation(members)] = np.arange(len(members)) % folds
    return fold


def resampled_held_out_rates(
    weights: Floats, scored: ScoredResponses, fold: Indices, retention: float = RELIABLE_RETENTION
) -> Floats:
    """Return false positive rate and recall of every resample; thresholds are refitted in it, folds are fixed."""
    flagged = np.zeros((len(weights), 2))
    total = np.zeros((len(weights), 2))
    for held_out in np.unique(fold):
        inside = fold == held_out
        threshold = resampled_thresholds(weights, scored.scores, scored.reliable & ~inside, retention)
        for column, group in enumerate((scored.reliable & inside, scored.failed & inside)):
            weight = weights[:, group].sum(axis=1)
            share = resampled_flagged_shares(weights, scored.scores, group, threshold)
            # A fold without members of the group has no share (NaN) and adds nothing to either sum.
            flagged[:, column] += np.where(weight > 0, share * weight, 0)
            total[:, column] += weight
    return divide_or_nan(flagged, total)
