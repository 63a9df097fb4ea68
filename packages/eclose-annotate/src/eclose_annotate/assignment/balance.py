"""Balanced distribution of items to groups of annotators: a greedy deal, then random exchanges.

Items, questions, systems and annotators are integers here. A group is a bit mask of its members.
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

EXCHANGES_PER_ITEM = 300
"""Exchanges tried per item."""
MAX_EXCHANGES = 200_000
"""Upper bound of exchanges tried in total; takes a few seconds."""
EXCESS_SLACK = 4
"""How much the excess may exceed its best value in the second half of the tries: two single steps."""
DRAWN_CANDIDATES = 12
"""Number of items drawn at random, of which the one with the most frequent group gets an exchange."""
_LOAD, _SAME_QUESTION = 2**40, 2**50
"""Cost of one unit of load, more than any count, and of a repeated question, more than any load."""


@dataclass(slots=True)
class PlacedItem:
    """An item with the group it is assigned to."""

    item: int
    question: int
    system: int
    tie: int
    """Random number that selects among equally good groups."""
    group: int = 0
    """Bit mask of its annotators; 0 before it is assigned."""


class AnnotatorSwap(NamedTuple):
    """Annotators of one item who swap with as many annotators of another, as bit masks."""

    first: PlacedItem
    other: PlacedItem
    gives: int
    takes: int


def annotators_in_group(group: int) -> Iterator[int]:
    """Yield the annotators of a group."""
    while group:
        yield (group & -group).bit_length() - 1
        group &= group - 1


def list_annotator_groups(people: int, size: int) -> list[int]:
    """Return all groups of a size."""
    return [sum(1 << number for number in chosen) for chosen in combinations(range(people), size)]


def deal_items_to_groups(questions: Iterable[Sequence[PlacedItem]], *, people: int, size: int, systems: int) -> None:
    """Assign each item to the group that has seen its question least, then has the lowest load, then is rarest.

    Taking the least loaded keeps all loads within one of each other. Among these, the cost of a group is the number of
    items it shares already, plus the items of the same system that each member has.
    """
    # All groups in a fixed order; cells has shape (systems, people).
    possible = list_annotator_groups(people, size)
    rows = [np.array(list(annotators_in_group(group))) for group in possible]
    # One array per member position, shape (groups,): adding columns is several times faster than gathering rows.
    columns = list(np.ascontiguousarray(np.transpose(rows)))
    groups, loads = np.zeros(len(possible), np.int64), np.zeros(people, np.int64)
    cells = np.zeros((systems, people), np.int64)
    for question in questions:
        # Cost of each annotator, shape (people,): load first, repeats of this question added below.
        standing = _LOAD * (loads - loads.min())
        for placement in question:
            burden = standing + cells[placement.system]
            costs = groups.copy()
            for column in columns:
                costs += burden.take(column)
            chosen = _least(costs, placement.tie)
            placement.group = possible[chosen]
            groups[chosen] += 1
            loads[rows[chosen]] += 1
            cells[placement.system, rows[chosen]] += 1
            standing[rows[chosen]] += _SAME_QUESTION
            # A repeat that all annotators have makes no difference, and would overflow after many items.
            standing -= _SAME_QUESTION * (standing.min() // _SAME_QUESTION)


def _least(costs: NDArray[np.int64], tie: int) -> int:
    """Return the index of the least cost; of several, the one that the tie selects."""
    minima = (costs == costs.min()).nonzero()[0]
    return int(minima[tie % len(minima)])


class AssignmentBalance:
    """Counts of items by group, and by system and annotator. Exchanges make them more equal without changing loads."""

    def __init__(self, questions: Sequence[Sequence[PlacedItem]], *, people: int, size: int, systems: int) -> None:
        self._questions = questions
        self._placements = list(chain.from_iterable(questions))
        self._all_people = (1 << people) - 1
        self._groups = dict.fromkeys(list_annotator_groups(people, size), 0)
        self._cells = [[0] * people for _ in range(systems)]
        # Annotators of each question, as a bit mask.
        self._busy = [0] * len(questions)
        for placement in self._placements:
            self._groups[placement.group] += 1
            self._busy[placement.question] |= placement.group
            for number in annotators_in_group(placement.group):
                self._cells[placement.system][number] += 1
        self.excess = sum(_excess(counts) for counts in (self._groups.values(), *self._cells))
        """Sum of squares beyond that of the most equal counts; 0 where they cannot be more equal."""

    def even_out(self, random: Random) -> None:
        """Exchange annotators until the counts cannot be more equal, or the tries are used up.

        The first half of the tries accepts no increase of the excess. The second half accepts a small one to leave a
        local minimum, and returns to the best counts in the end.
        """
        tries = min(EXCHANGES_PER_ITEM * len(self._placements), MAX_EXCHANGES)
        # Exchanges since the best counts, undone at the end.
        best, since_best = self.excess, list[AnnotatorSwap]()
        for number in range(tries):
            if not self.excess:
                return
            exchange = self._draw(random)
            if exchange is None:
                continue
            self._apply(exchange)
            if self.excess > best + (EXCESS_SLACK if 2 * number >= tries else 0):
                self._undo(exchange)
                continue
            # Kept even where the excess stayed equal: moving along a plateau finds exchanges that lower it.
            since_best.append(exchange)
            if self.excess <= best:
                best = self.excess
                since_best.clear()
        for exchange in reversed(since_best):
            self._undo(exchange)

    def _draw(self, random: Random) -> AnnotatorSwap | None:
        """Draw an exchange within a question or between two; return None where the drawn items allow none."""
        rivals = [_pick(self._placements, random) for _ in range(DRAWN_CANDIDATES)]
        first = max(rivals, key=lambda placement: self._groups[placement.group])
        busy = self._busy[first.question]
        # Where a question occupies all annotators, none can join it from another question.
        within = busy == self._all_people or random.random() < 0.5
        other = _pick(self._questions[first.question] if within else self._placements, random)
        gives, takes = first.group & ~other.group, other.group & ~first.group
        if first.question != other.question:
            # Between two questions, only annotators who have no item of the other question may move.
            gives &= ~self._busy[other.question]
            takes &= ~busy
        if not gives or not takes:
            return None
        # Exchanging all members evens out systems and hardly changes groups; exchanging one evens out groups.
        if gives.bit_count() == takes.bit_count() and random.random() < 0.5:
            return AnnotatorSwap(first, other, gives, takes)
        return AnnotatorSwap(first, other, _member(gives, random), _member(takes, random))

    def _apply(self, exchange: AnnotatorSwap) -> None:
        first, other, gives, takes = exchange
        if first.question != other.question:
            # Neither question has an annotator twice here, so toggling the bits keeps both masks right.
            self._busy[first.question] ^= gives | takes
            self._busy[other.question] ^= gives | takes
        self._replace(first, gives, takes)
        self._replace(other, takes, gives)

    def _undo(self, exchange: AnnotatorSwap) -> None:
        self._apply(exchange._replace(gives=exchange.takes, takes=exchange.gives))

    def _replace(self, placement: PlacedItem, leave: int, join: int) -> None:
        """Replace some annotators of an item by others and update all counts."""
        # The square of a count grows by 2 n + 1 from n to n + 1; the ones cancel, since as many leave as join.
        cells = self._cells[placement.system]
        self._groups[placement.group] -= 1
        growth = -self._groups[placement.group]
        for number in annotators_in_group(leave):
            cells[number] -= 1
            growth -= cells[number]
        for number in annotators_in_group(join):
            growth += cells[number]
            cells[number] += 1
        placement.group ^= leave | join
        growth += self._groups[placement.group]
        self._groups[placement.group] += 1
        self.excess += 2 * growth


def _pick(values: Sequence[T], random: Random) -> T:
    """Return a random value. Random.random() alone is guaranteed to be the same in every Python version."""
    return values[int(random.random() * len(values))]


def _member(group: int, random: Random) -> int:
    """Return a random member of a group, as a group."""
    return 1 << _pick(list(annotators_in_group(group)), random)


def _excess(counts: Iterable[int]) -> int:
    """Return the sum of squares beyond that of the most equal counts of the same total; 0 if all lie within one."""
    counts = list(counts)
    share, remainder = divmod(sum(counts), len(counts))
    return sum(count * count for count in counts) - len(counts) * share * share - remainder * (2 * share + 1)
