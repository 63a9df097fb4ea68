"""The bootstrap designs of the paper, as weights for ``resampling.bootstrap``.

============================================  ==========================================================
question level (A.3, A.5)                     ``Strata.single`` over questions, sums per question
dataset-stratified (D.1), by setting (D.5.2)  ``StratifiedDesign`` over questions
weighted stratified (B.6)                     ``StratifiedDesign`` with ``bootstrap_weighted_rates``
pooled questions x seeds (D.6)                ``pooled_questions_design``
questions and seeds, settings fixed (D.7)     ``shared_questions_design``
paired hierarchical (D.2)                     ``paired_hierarchical_design``
thresholds refitted (A.5)                     ``StratifiedDesign`` with ``ranking.resampled_*``
============================================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from eclose.stats.arrays import Floats, Indices, divide_or_nan, float_or_none, sum_by_group
from eclose.stats.intervals import Estimate, percentile_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The bootstrap as a matrix of weights.
#
# A resample is a row of counts: how often each unit was drawn. A statistic of a thousand resamples is then one matrix
# product instead of a thousand loops. A ``ResamplingDesign`` draws the rows; the caller computes the statistic.


W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)

RESAMPLE_BLOCK = 256
"""Resamples held in memory at once. Results do not depend on it: every stream of draws has its own generator."""
RESAMPLE_WEIGHTS = 2**21
"""Weights held in memory at once (16 MB); with more than 8,192 units a block has fewer resamples."""


class ResamplingDesign(Protocol[W_co]):
    """A way to draw resamples, with the weights of the sample itself."""

    def original(self) -> W_co:
        """Return the weights of the sample itself: one row."""

    def draw(self, rng: np.random.Generator, resamples: int) -> Iterator[W_co]:
        """Yield the weights of the resamples in blocks of rows."""


@dataclass(frozen=True)
class BootstrapReplicates:
    """Point estimates with their resampled values; an undefined value is NaN."""

    values: Floats
    """One value per statistic."""
    draws: Floats
    """Resamples by statistics."""

    def estimate(self, which: int = 0, level: float = 0.95) -> Estimate:
        """Return one statistic with its percentile interval."""
        return _estimate(self.values[which], self.draws[:, which], level)

    def difference(self, first: int, second: int, level: float = 0.95) -> Estimate:
        """Return the first statistic minus the second, paired resample by resample."""
        return _estimate(self.values[first] - self.values[second], self.draws[:, first] - self.draws[:, second], level)

    def estimates(self, level: float = 0.95) -> list[Estimate]:
        """Return every statistic with its percentile interval."""
        return [self.estimate(index, level) for index in range(len(self.values))]


def _estimate(value: float, draws: Floats, level: float) -> Estimate:
    return Estimate(float_or_none(value), percentile_interval(draws, level), int(np.isnan(draws).sum()))


def bootstrap(
    design: ResamplingDesign[W], evaluate: Callable[[W], Floats], *, rng: np.random.Generator, resamples: int
) -> BootstrapReplicates:
    """Evaluate the sample and its resamples with the same function.

    ``evaluate`` takes a block of weights and returns one row of statistics per resample.
    """
    draws = [evaluate(block) for block in design.draw(rng, resamples)]
    # The sample itself is one more row of weights, so estimate and draws cannot follow different formulas.
    return BootstrapReplicates(evaluate(design.original())[0], np.concatenate(draws))


def resample_block_sizes(resamples: int, units: int = 1) -> Iterator[int]:
    """Yield the sizes of blocks that add up to the number of resamples, each a draw of ``units`` units."""
    block = max(1, min(RESAMPLE_BLOCK, RESAMPLE_WEIGHTS // max(units, 1)))
    for start in range(0, resamples, block):
        yield min(block, resamples - start)


def draw_resample_counts(rng: np.random.Generator, rows: int, size: int) -> Floats:
    """Draw ``size`` of ``size`` units with replacement, ``rows`` times; return how often each unit was drawn."""
    drawn = rng.integers(size, size=(rows, size))
    # Each row counts in its own range of numbers, so one bincount serves all rows.
    drawn += np.arange(rows)[:, np.newaxis] * size
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size).astype(float)


@dataclass(frozen=True)
class StratifiedDesign:
    """Units drawn with replacement within each stratum. A single stratum is the plain bootstrap."""

    stratum: Indices
    """Stratum of each unit, numbered from zero."""

    @classmethod
    def single(cls, size: int) -> StratifiedDesign:
        """Put all units in one stratum."""
        return cls(np.zeros(size, np.intp))

    @property
    def members(self) -> list[Indices]:
        """Units of each stratum."""
        return [np.flatnonzero(self.stratum == number) for number in range(int(self.stratum.max(initial=-1)) + 1)]

    def original(self) -> Floats:
        """Return each unit once."""
        return np.ones((1, len(self.stratum)))

    def draw(self, rng: np.random.Generator, resamples: int) -> Iterator[Floats]:
        """Yield how often each unit is drawn, in blocks of rows."""
        members = self.members
        # A stream per stratum: the draws of a stratum do not depend on the block size or on the other strata.
        streams = rng.spawn(len(members))
        for rows in resample_block_sizes(resamples, len(self.stratum)):
            yield self.fill(rows, streams, members)

    def fill(self, rows: int, streams: list[np.random.Generator], members: list[Indices]) -> Floats:
        """Draw one block of rows, each stratum from its own stream."""
        weights = np.zeros((rows, len(self.stratum)))
        for stream, units in zip(streams, members, strict=True):
            weights[:, units] = draw_resample_counts(stream, rows, len(units))
        return weights


def bootstrap_rates(
    hits: Floats,
    counted: Floats,
    cluster: Indices,
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
    strata: StratifiedDesign | None = None,
) -> BootstrapReplicates:
    """Return pooled rates, one per column: hits over counted cases, clusters resampled with all their cases.

    With strata all clusters are drawn, also those without a case. Without strata only clusters with a case are drawn;
    for the interval of a group, pass the cases of that group.
    """
    design, cluster = _clusters(cluster, strata)
    hits, counted = (sum_by_group(cluster, part, len(design.stratum)) for part in (hits, counted))
    return bootstrap(
        design, lambda weights: divide_or_nan(weights @ hits, weights @ counted), rng=rng, resamples=resamples
    )


def _clusters(cluster: Indices, strata: StratifiedDesign | None) -> tuple[StratifiedDesign, Indices]:
    """Return the strata to draw from and the index in them of each case's cluster."""
    if strata is not None:
        return strata, cluster
    present, cluster = np.unique(cluster, return_inverse=True)
    return StratifiedDesign.single(len(present)), cluster


def bootstrap_weighted_rates(
    hits: Floats,
    strata: StratifiedDesign,
    stratum_weights: Floats,
    *,
    rng: np.random.Generator,
    resamples: int = 2_000,
) -> BootstrapReplicates:
    """Return stratum means combined with fixed weights (B.6); units are resampled within strata."""
    sizes = np.bincount(strata.stratum)
    # The weight of a stratum, spread evenly over its units.
    share = (stratum_weights / stratum_weights.sum() / sizes)[strata.stratum]
    return bootstrap(strata, lambda weights: weights @ (hits * share[:, np.newaxis]), rng=rng, resamples=resamples)


class BackboneResamples(NamedTuple):
    """The draw for each slot of a backbone: the backbone, its questions and its seeds."""

    backbone: Indices
    """Resamples by slots."""
    questions: Floats
    """Resamples by slots (or by 1, where all slots share the draw) by questions."""
    seeds: Floats
    """Resamples by slots by seeds."""


@dataclass(frozen=True)
class HierarchicalDesign:
    """Backbones, questions within fixed datasets, and training seeds. All methods share the draws.

    Methods are columns of the evaluated table, and one draw of seeds serves all datasets of its backbone. Both pairings
    follow from the shape of the weights.
    """

    datasets: StratifiedDesign
    """Dataset of each question."""
    backbones: int
    seeds: int
    resample_backbones: bool
    share_questions: bool
    """Whether all backbones share one draw of questions."""

    def original(self) -> BackboneResamples:
        """Return each backbone, question and seed once."""
        return BackboneResamples(
            np.arange(self.backbones)[np.newaxis],
            np.ones((1, 1, len(self.datasets.stratum))),
            np.ones((1, self.backbones, self.seeds)),
        )

    def draw(self, rng: np.random.Generator, resamples: int) -> Iterator[BackboneResamples]:
        """Yield blocks of resamples."""
        slots = 1 if self.share_questions else self.backbones
        # A stream for each source of randomness, so that results do not depend on the size of a block.
        backbone_stream, seed_stream, *question_streams = rng.spawn(2 + slots)
        members = self.datasets.members
        streams = [stream.spawn(len(members)) for stream in question_streams]
        for rows in resample_block_sizes(resamples):
            backbone = np.broadcast_to(np.arange(self.backbones), (rows, self.backbones))
            if self.resample_backbones:
                backbone = backbone_stream.integers(self.backbones, size=(rows, self.backbones))
            questions = np.stack([self.datasets.fill(rows, stream, members) for stream in streams], axis=1)
            seeds = draw_resample_counts(seed_stream, rows * self.backbones, self.seeds)
            yield BackboneResamples(backbone, questions, seeds.reshape(rows, self.backbones, self.seeds))


def paired_hierarchical_design(datasets: StratifiedDesign, *, backbones: int, seeds: int) -> HierarchicalDesign:
    """Return the design of D.2: backbones, and for each its own questions within datasets and its own seeds."""
    return HierarchicalDesign(datasets, backbones, seeds, resample_backbones=True, share_questions=False)


def shared_questions_design(datasets: StratifiedDesign, *, backbones: int, seeds: int) -> HierarchicalDesign:
    """Return the design of D.7: settings fixed, one draw of questions for all backbones, seeds drawn within each."""
    return HierarchicalDesign(datasets, backbones, seeds, resample_backbones=False, share_questions=True)


def pooled_questions_design(questions: int, *, seeds: int) -> HierarchicalDesign:
    """Return the design of D.6: one backbone, questions pooled over datasets, one draw of seeds."""
    return HierarchicalDesign(
        StratifiedDesign.single(questions), 1, seeds, resample_backbones=False, share_questions=True
    )


@dataclass(frozen=True)
class SettingScores:
    """Scores of the responses: backbones by seeds by questions by columns.

    A column is a metric of a method. A method without seeds (the untuned backbone) repeats its value along the seeds,
    so resampling seeds leaves it unchanged.
    """

    hits: Floats
    counted: Floats
    """1 where the response is in the metric's denominator."""

    def means(self, weights: BackboneResamples, datasets: StratifiedDesign) -> Floats:
        """Return the mean over settings of the seed means of rates, with equal weights; one row per resample."""
        members = datasets.members
        last_draw = weights.questions.shape[1] - 1
        # Sums over datasets, resamples by slots by columns, filled backbone by backbone.
        sums = np.zeros((*weights.backbone.shape, self.hits.shape[-1]))
        for backbone in range(len(self.hits)):
            row, slot = np.nonzero(weights.backbone == backbone)
            # With shared questions there is one draw, and every slot reads it.
            questions = weights.questions[row, np.minimum(slot, last_draw)]
            for units in members:
                rates = self._rates(backbone, units, questions[:, units])
                sums[row, slot] += _weighted_seeds(rates, weights.seeds[row, slot])
        means: Floats = sums.mean(axis=1) / len(members)
        return means

    def _rates(self, backbone: int, units: Indices, weights: Floats) -> Floats:
        """Return the rates of one setting: resamples by seeds by columns."""
        parts = np.stack([part[backbone][:, units] for part in (self.hits, self.counted)])
        sums = np.tensordot(weights, parts, axes=(1, 2))
        return divide_or_nan(sums[:, 0], sums[:, 1])


def _weighted_seeds(rates: Floats, seeds: Floats) -> Floats:
    """Return the mean over drawn seeds; a seed that was not drawn cannot make it undefined."""
    weight = seeds[:, :, np.newaxis]
    mean: Floats = np.where(weight > 0, weight * rates, 0).sum(axis=1) / seeds.sum(axis=1)[:, np.newaxis]
    return mean


def bootstrap_setting_means(
    table: SettingScores, design: HierarchicalDesign, *, rng: np.random.Generator, resamples: int
) -> BootstrapReplicates:
    """Return setting-level means of every column with their resampled values."""
    return bootstrap(design, lambda weights: table.means(weights, design.datasets), rng=rng, resamples=resamples)
