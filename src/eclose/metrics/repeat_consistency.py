"""Consistency of a judge that was asked several times: how often its labels differ between repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

from eclose.core.judgment import EVIDENCE, Criterion
from eclose.stats.intervals import Interval, wilson_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eclose.core.three_valued import Label


@dataclass(frozen=True, slots=True)
class LabelFlipCounts:
    """Counts over the responses that got a label more than once."""

    responses: int
    flipped: int
    """Responses with both labels among the repetitions."""
    pairs: int
    differing: int
    """Pairs of repetitions with different labels."""

    def __add__(self, other: LabelFlipCounts) -> LabelFlipCounts:
        return LabelFlipCounts(
            self.responses + other.responses,
            self.flipped + other.flipped,
            self.pairs + other.pairs,
            self.differing + other.differing,
        )

    @property
    def rate(self) -> float | None:
        """Share of responses that flip; grows with the number of repetitions. None without repetitions."""
        return self.flipped / self.responses if self.responses else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the rate."""
        return wilson_interval(self.flipped, self.responses)

    @property
    def pair_rate(self) -> float | None:
        """How often one more repetition gives a different label; independent of the number of repetitions."""
        return self.differing / self.pairs if self.pairs else None


class HasVotes(Protocol):
    """A judgment, or the facts of one, with the labels of every repetition."""

    @property
    def votes(self) -> Mapping[str, tuple[Label, ...]]:
        """Labels in the order of the repetitions, by criterion and ``evidence``."""


def count_label_flips(judgments: Iterable[HasVotes]) -> dict[str, LabelFlipCounts]:
    """Count flips by criterion and for ``evidence``; empty where no judge was asked twice."""
    votes: dict[str, list[tuple[Label, ...]]] = {}
    for judgment in judgments:
        for name, labels in judgment.votes.items():
            votes.setdefault(name, []).append(labels)
    return {name: _count_flips(votes[name]) for name in (*Criterion, EVIDENCE) if name in votes}


def merge_label_flips(
    first: Mapping[str, LabelFlipCounts], second: Mapping[str, LabelFlipCounts]
) -> dict[str, LabelFlipCounts]:
    """Return the counts over the responses of both, as ``count_label_flips`` orders them."""
    none = LabelFlipCounts(0, 0, 0, 0)
    return {
        name: first.get(name, none) + second.get(name, none)
        for name in (*Criterion, EVIDENCE)
        if name in first or name in second
    }


def _count_flips(votes: Iterable[tuple[Label, ...]]) -> LabelFlipCounts:
    # Repetitions without a usable reply have no label.
    cast = ([label for label in labels if label is not None] for labels in votes)
    repeated = [labels for labels in cast if len(labels) > 1]
    # Labels are True or False here, so identity compares them.
    differs = [first is not second for labels in repeated for first, second in combinations(labels, 2)]
    return LabelFlipCounts(len(repeated), sum(len(set(labels)) > 1 for labels in repeated), len(differs), sum(differs))
