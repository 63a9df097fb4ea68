"""How steady a judge is that was asked several times: how often it does not say the same again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from eclose.core.judgment import EVIDENCE, Criterion
from eclose.stats.intervals import Interval, wilson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.judgment import Judgment
    from eclose.core.three_valued import Label


@dataclass(frozen=True, slots=True)
class Flips:
    """Of responses that got a label more than once."""

    responses: int
    flipped: int
    """Those with both labels among the repetitions."""
    pairs: int
    differing: int
    """Pairs of repetitions that differ."""

    @property
    def rate(self) -> float | None:
        """How many responses flip; grows with the number of repetitions. None where nothing was repeated."""
        return self.flipped / self.responses if self.responses else None

    @property
    def interval(self) -> Interval | None:
        """Around the rate, 95 %."""
        return wilson(self.flipped, self.responses)

    @property
    def pair_rate(self) -> float | None:
        """How often asking once more gives another label, however often was asked."""
        return self.differing / self.pairs if self.pairs else None


def flips(judgments: Iterable[Judgment]) -> dict[str, Flips]:
    """By criterion and ``evidence``; empty where no judge was asked twice."""
    votes: dict[str, list[tuple[Label, ...]]] = {}
    for judgment in judgments:
        for name, said in judgment.votes.items():
            votes.setdefault(name, []).append(said)
    return {name: _flips(votes[name]) for name in (*Criterion, EVIDENCE) if name in votes}


def _flips(votes: Iterable[tuple[Label, ...]]) -> Flips:
    repeated = [given for said in votes if len(given := [label for label in said if label is not None]) > 1]
    pairs = [one is not other for given in repeated for one, other in combinations(given, 2)]
    return Flips(len(repeated), sum(len(set(given)) > 1 for given in repeated), len(pairs), sum(pairs))
