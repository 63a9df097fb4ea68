"""Counts kept level while items are given to groups of annotators: the arithmetic behind an assignment.

Items, questions, systems and annotators are numbers here, and a group is a number with a bit for each of its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from numpy.typing import NDArray

T = TypeVar("T")

TRIES = 300
"""Exchanges tried for each item before the counts are left as they are."""
MOST_TRIES = 200_000
"""Exchanges tried in all, a matter of seconds."""
SLACK = 4
"""How far an exchange may lead away from the best counts so far once nothing else helps: two steps."""
RIVALS = 12
"""Of how many items drawn at random the one with the most frequent group gets an exchange."""
_LOAD, _SAME_QUESTION = 2**40, 2**50
"""What outweighs any count, and what outweighs any load."""


@dataclass(slots=True)
class Hand:
    """An item while it is being given out."""

    item: int
    question: int
    system: int
    tie: int
    """Which of several equally good groups it gets."""
    group: int = 0
    """Nobody yet."""


class Exchange(NamedTuple):
    """Two items, annotators of the first and as many of the second who might change places."""

    one: Hand
    other: Hand
    gives: int
    takes: int


def members(group: int) -> Iterator[int]:
    """The annotators in a group."""
    while group:
        yield (group & -group).bit_length() - 1
        group &= group - 1


def possible_groups(people: int, size: int) -> list[int]:
    """Every group of a size."""
    return [sum(1 << number for number in chosen) for chosen in combinations(range(people), size)]


def deal(questions: Iterable[Sequence[Hand]], *, people: int, size: int, systems: int) -> None:
    """Give each item to the group that has met its question least, then has least to do, then is rarest.

    Taking the least loaded keeps all loads within one of each other. Among these, a group costs what it and its
    members have already: the items it shares, and those of the same system each member has.
    """
    possible = possible_groups(people, size)
    rows = [np.array(list(members(group))) for group in possible]
    # Column by column: several times faster than gathering rows and adding along them.
    columns = list(np.ascontiguousarray(np.transpose(rows)))
    groups, loads = np.zeros(len(possible), np.int64), np.zeros(people, np.int64)
    cells = np.zeros((systems, people), np.int64)
    for question in questions:
        standing = _LOAD * (loads - loads.min())
        for hand in question:
            burden = standing + cells[hand.system]
            costs = groups.copy()
            for column in columns:
                costs += burden.take(column)
            chosen = _least(costs, hand.tie)
            hand.group = possible[chosen]
            groups[chosen] += 1
            loads[rows[chosen]] += 1
            cells[hand.system, rows[chosen]] += 1
            standing[rows[chosen]] += _SAME_QUESTION
            # What everybody has met counts for nobody, and would grow beyond measure.
            standing -= _SAME_QUESTION * (standing.min() // _SAME_QUESTION)


def _least(costs: NDArray[np.int64], tie: int) -> int:
    """The place of the least cost; of several, the one the tie names."""
    places = (costs == costs.min()).nonzero()[0]
    return int(places[tie % len(places)])


class Balance:
    """Counts of items by group, and by system and annotator, that exchanges make more equal without touching loads."""

    def __init__(self, questions: Sequence[Sequence[Hand]], *, people: int, size: int, systems: int) -> None:
        self._questions = questions
        self._hands = list(chain.from_iterable(questions))
        self._everybody = (1 << people) - 1
        self._groups = dict.fromkeys(possible_groups(people, size), 0)
        self._cells = [[0] * people for _ in range(systems)]
        self._busy = [0] * len(questions)
        for hand in self._hands:
            self._groups[hand.group] += 1
            self._busy[hand.question] |= hand.group
            for number in members(hand.group):
                self._cells[hand.system][number] += 1
        self.excess = sum(_excess(counts) for counts in (self._groups.values(), *self._cells))
        """How far the counts are from the most equal ones: zero if nothing can be gained."""

    def even_out(self, random: Random) -> None:
        """Exchange annotators until the counts cannot be more equal, or the tries are used up.

        The first half of the tries takes no step back. The second half may take a small one to get out of a dead
        end, and at last goes back to the best counts it has seen.
        """
        tries = min(TRIES * len(self._hands), MOST_TRIES)
        best, since_best = self.excess, list[Exchange]()
        for number in range(tries):
            if not self.excess:
                return
            drawn = self._draw(random)
            if drawn is None:
                continue
            self._apply(drawn)
            if self.excess > best + (SLACK if 2 * number >= tries else 0):
                self._undo(drawn)
                continue
            since_best.append(drawn)
            if self.excess <= best:
                best = self.excess
                since_best.clear()
        for exchange in reversed(since_best):
            self._undo(exchange)

    def _draw(self, random: Random) -> Exchange | None:
        """A possible exchange within a question or between two; None where the drawn items allow none."""
        rivals = [_any(self._hands, random) for _ in range(RIVALS)]
        one = max(rivals, key=lambda hand: self._groups[hand.group])
        busy = self._busy[one.question]
        within = busy == self._everybody or random.random() < 0.5
        other = _any(self._questions[one.question] if within else self._hands, random)
        gives, takes = one.group & ~other.group, other.group & ~one.group
        if one.question != other.question:
            gives &= ~self._busy[other.question]
            takes &= ~busy
        if not gives or not takes:
            return None
        # As many as possible level systems and leave groups alone, or nearly so; a single one levels groups.
        if gives.bit_count() == takes.bit_count() and random.random() < 0.5:
            return Exchange(one, other, gives, takes)
        return Exchange(one, other, _member(gives, random), _member(takes, random))

    def _apply(self, exchange: Exchange) -> None:
        one, other, gives, takes = exchange
        if one.question != other.question:
            # Both questions leave somebody out, so neither has anybody twice, and who goes is gone.
            self._busy[one.question] ^= gives | takes
            self._busy[other.question] ^= gives | takes
        self._replace(one, gives, takes)
        self._replace(other, takes, gives)

    def _undo(self, exchange: Exchange) -> None:
        self._apply(exchange._replace(gives=exchange.takes, takes=exchange.gives))

    def _replace(self, hand: Hand, leave: int, join: int) -> None:
        """Put some annotators in the place of others, and keep count: a square grows by 2 n + 1 from n to n + 1."""
        cells = self._cells[hand.system]
        self._groups[hand.group] -= 1
        growth = -self._groups[hand.group]
        for number in members(leave):
            cells[number] -= 1
            growth -= cells[number]
        for number in members(join):
            growth += cells[number]
            cells[number] += 1
        hand.group ^= leave | join
        growth += self._groups[hand.group]
        self._groups[hand.group] += 1
        self.excess += 2 * growth


def _any(values: Sequence[T], random: Random) -> T:
    """One of some values, by the only method of Random that is promised to give the same in every version."""
    return values[int(random.random() * len(values))]


def _member(group: int, random: Random) -> int:
    """One member of a group, as a group."""
    return 1 << _any(list(members(group)), random)


def _excess(counts: Iterable[int]) -> int:
    """The sum of squares beyond that of the most equal counts of the same total: zero if all lie within one."""
    counts = list(counts)
    share, rest = divmod(sum(counts), len(counts))
    return sum(count * count for count in counts) - len(counts) * share * share - rest * (2 * share + 1)
