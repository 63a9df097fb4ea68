"""Speed of the paired hierarchical bootstrap (appendix D.2) at the paper's size, against a plain loop.

The loop draws backbones and, for each of them, seeds and questions within datasets; then it takes, one after another,
the mean of the drawn rows of every method, metric, dataset and seed. The engine is first shown to give the loop's own
replicates from the loop's own draws.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

# The loop has one core, so the engine gets one too; what matrix products wait for on a busy machine stays out.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.stats.bootstrap import (
    BackboneResamples,
    SettingScores,
    StratifiedDesign,
    bootstrap_setting_means,
    paired_hierarchical_design,
)
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eclose.stats.arrays import Floats, Indices
    from eclose.stats.bootstrap import BootstrapReplicates

RESAMPLES = 5_000
LOOPED = 100
"""Resamples the loop is timed on."""
ROUNDS = 3
"""Each side is timed this often and its best time counts, so that a busy machine misleads neither."""
METHODS, METRICS, BACKBONES, SEEDS = 5, 5, 3, 3
DATASETS = (278, 255, 333)
UNTUNED = 0
"""The method without training seeds: one fixed generation for each question."""


class Draw(NamedTuple):
    """Indices drawn for one backbone of a resample."""

    backbone: int
    seeds: Indices
    questions: list[Indices]
    """Return the indices of the questions of each dataset."""


def make_labels(rng: np.random.Generator) -> Floats:
    """Make labels by method, metric, backbone, seed and question; the untuned method's are alike for all seeds."""
    labels = (rng.random((METHODS, METRICS, BACKBONES, SEEDS, sum(DATASETS))) < 0.8).astype(float)
    labels[UNTUNED] = labels[UNTUNED, :, :, :1]
    return labels


def members() -> list[Indices]:
    """Return the indices of the questions of each dataset."""
    return np.split(np.arange(sum(DATASETS)), np.cumsum(DATASETS)[:-1])


def draw(rng: np.random.Generator, datasets: Iterable[Indices]) -> list[Draw]:
    """Draw a resample, backbone by backbone."""
    return [
        Draw(
            int(backbone),
            rng.integers(SEEDS, size=SEEDS),
            [units[rng.integers(len(units), size=len(units))] for units in datasets],
        )
        for backbone in rng.integers(BACKBONES, size=BACKBONES)
    ]


def looped_replicate(labels: Floats, drawn_backbones: list[Draw]) -> Floats:
    """Compute a replicate: the mean of the drawn rows, averaged over seeds, datasets and backbones."""
    replicate = np.empty((METHODS, METRICS))
    for method in range(METHODS):
        for metric in range(METRICS):
            replicate[method, metric] = np.mean(
                [
                    _setting_rate(labels[method, metric, drawn.backbone], drawn.seeds, units, tuned=method != UNTUNED)
                    for drawn in drawn_backbones
                    for units in drawn.questions
                ]
            )
    return replicate.ravel()


def _setting_rate(by_seed: Floats, seeds: Indices, units: Indices, *, tuned: bool) -> float:
    if not tuned:
        return float(by_seed[0][units].mean())
    return float(np.mean([by_seed[seed][units].mean() for seed in seeds]))


def as_weights(draws: list[list[Draw]]) -> BackboneResamples:
    """Convert the loop's indices into the engine's counts."""
    questions = [
        [np.bincount(np.concatenate(drawn.questions), minlength=sum(DATASETS)) for drawn in drawn_backbones]
        for drawn_backbones in draws
    ]
    return BackboneResamples(
        np.array([[drawn.backbone for drawn in drawn_backbones] for drawn_backbones in draws]),
        np.array(questions, float),
        np.array(
            [[np.bincount(drawn.seeds, minlength=SEEDS) for drawn in drawn_backbones] for drawn_backbones in draws],
            float,
        ),
    )


def table_of(labels: Floats) -> SettingScores:
    """Arrange the labels as the engine takes them: backbones by seeds by questions by columns."""
    hits = labels.reshape(METHODS * METRICS, BACKBONES, SEEDS, -1).transpose(1, 2, 3, 0)
    return SettingScores(hits, np.ones_like(hits))


def run_loop(labels: Floats) -> tuple[list[list[Draw]], Floats]:
    """Run the loop; return its draws and replicates."""
    rng, datasets = np.random.default_rng(1), members()
    draws = [draw(rng, datasets) for _ in range(LOOPED)]
    return draws, np.stack([looped_replicate(labels, drawn_backbones) for drawn_backbones in draws])


def run_engine(table: SettingScores, strata: StratifiedDesign) -> BootstrapReplicates:
    """Run the engine over all resamples, drawing included."""
    design = paired_hierarchical_design(strata, backbones=BACKBONES, seeds=SEEDS)
    return bootstrap_setting_means(table, design, rng=np.random.default_rng(2), resamples=RESAMPLES)


def best_time(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of ``ROUNDS`` rounds."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


def main() -> int:
    """Measure both, check the engine against the loop, and print whether the goal holds."""
    labels = make_labels(np.random.default_rng(2027))
    table, strata = table_of(labels), StratifiedDesign(np.repeat(np.arange(len(DATASETS)), DATASETS))
    draws, looped = run_loop(labels)
    gap = float(np.abs(table.means(as_weights(draws), strata) - looped).max())
    per_resample = best_time(lambda: run_loop(labels)) / LOOPED
    engine = best_time(lambda: run_engine(table, strata))
    loop = per_resample * RESAMPLES
    ratio = loop / engine
    print(f"loop     {1e3 * per_resample:7.2f} ms a resample, {loop:6.1f} s for {RESAMPLES:,} (timed on {LOOPED})")
    print(f"engine   {1e3 * engine / RESAMPLES:7.2f} ms a resample, {engine:6.1f} s for {RESAMPLES:,}")
    print(f"ratio    {ratio:7.1f}")
    print(f"largest difference on the loop's own draws: {gap:.1e}")
    holds = ratio >= 20 and engine < 15 and gap <= 1e-12
    return print_result(
        name="paired hierarchical bootstrap",
        value=round(ratio, 1),
        unit="x faster than the loop",
        goal=">= 20 and under 15 s",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
