"""Who annotates which response, and in which order (appendix A.3).

Everybody gets the same share: of the work, of each system, and of each colleague's company. Responses to one question
go to different people. All follows from the seed and the names alone, so the order of the input does not matter and
the same seed gives the same assignment. Knows nothing of pages, labels or storage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from eclose.annotation.assignment.balance import Balance, Hand, deal, members
from eclose.core.identity import hash_rank
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEFAULT_SEED = 42
MOST_GROUPS = 20_000
"""Every possible group of annotators is weighed for every response, so their number is bounded."""


@dataclass(frozen=True, slots=True)
class Item:
    """A response to be annotated, as far as its assignment depends on it."""

    id: str
    question: str
    system: str
    """The model, or the model and method, that gave the response."""


@dataclass(frozen=True, slots=True)
class Task:
    """One item before one annotator."""

    annotator: str
    place: int
    """From 1: the order in which this annotator meets the items."""
    item: Item


class Spread(NamedTuple):
    """The smallest and the largest of some counts."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Summary:
    """How evenly the work is shared out."""

    loads: Mapping[str, int]
    """Items by annotator."""
    groups: Mapping[tuple[str, ...], int]
    """Items by the annotators they share, groups without any included."""
    systems: Mapping[str, Mapping[str, int]]
    """Items by system and annotator."""
    repeats: int
    """How often an annotator meets a question again. Zero unless questions may be shared."""
    closest: int | None
    """How many places apart the two nearest of these are, 1 for neighbours. None without repeats."""

    @property
    def load_spread(self) -> Spread:
        """The lightest and the heaviest load."""
        return _spread(self.loads)

    @property
    def group_spread(self) -> Spread:
        """The rarest and the commonest group."""
        return _spread(self.groups)

    @property
    def system_spreads(self) -> dict[str, Spread]:
        """For each system, who has fewest of its items and who has most."""
        return {system: _spread(counts) for system, counts in self.systems.items()}

    @property
    def even(self) -> bool:
        """Whether no count is further than one from another of its kind."""
        spreads = (self.load_spread, self.group_spread, *self.system_spreads.values())
        return all(spread.most - spread.least <= 1 for spread in spreads)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Every task of a project, by annotator and place, and the settings they follow from."""

    annotators: tuple[str, ...]
    per_response: int
    seed: int
    share_questions: bool
    tasks: tuple[Task, ...]

    @property
    def queues(self) -> dict[str, tuple[Item, ...]]:
        """What each annotator has to do, in order."""
        queues: dict[str, list[Item]] = {name: [] for name in self.annotators}
        for task in self.tasks:
            queues[task.annotator].append(task.item)
        return {name: tuple(queue) for name, queue in queues.items()}

    def summary(self) -> Summary:
        """Count the tasks by annotator, by group, and by system and annotator."""
        queues = self.queues
        groups = Counter(dict.fromkeys(combinations(self.annotators, self.per_response), 0))
        groups.update(_groups(self.tasks).values())
        names = sorted({task.item.system for task in self.tasks})
        systems = {system: dict.fromkeys(self.annotators, 0) for system in names}
        for task in self.tasks:
            systems[task.item.system][task.annotator] += 1
        return Summary(
            {name: len(queue) for name, queue in queues.items()},
            dict(groups),
            systems,
            repeats=sum(len(queue) - len({item.question for item in queue}) for queue in queues.values()),
            closest=min((gap for mine in queues.values() if (gap := closest(mine)) is not None), default=None),
        )


def _groups(tasks: Iterable[Task]) -> dict[str, tuple[str, ...]]:
    """The annotators of each item, in alphabetical order as the tasks are."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        found[task.item.id].append(task.annotator)
    return {item: tuple(names) for item, names in found.items()}


def _spread(counts: Mapping[str, int] | Mapping[tuple[str, ...], int]) -> Spread:
    return Spread(min(counts.values()), max(counts.values()))


def assign(
    items: Iterable[Item],
    annotators: Iterable[str],
    *,
    per_response: int = 2,
    seed: int = DEFAULT_SEED,
    share_questions: bool = False,
) -> Assignment:
    """Give every item to ``per_response`` annotators, as evenly as possible.

    Loads never differ by more than one. Groups, and systems by annotator, are first kept level item by item, then
    evened out by exchanges that change no load; the summary says how far that went. Nobody gets two responses to one
    question, and where there are too few annotators for that, the assignment is refused. With ``share_questions`` it
    is made all the same, with as few such repeats as possible and none from one item to the next where that can be.

    >>> items = [Item(f"{q}/{m}", q, m) for q in ("q1", "q2") for m in ("x", "y", "z")]
    >>> assign(items, ["A1", "A2", "A3", "A4", "A5", "A6"]).summary().load_spread
    Spread(least=2, most=2)
    """
    items, names = sorted(items, key=lambda item: item.id), sorted(annotators)
    _check(items, names, per_response, share_questions)
    groups = _groups_of(items, people=len(names), size=per_response, seed=seed)
    # Numbers are given to names by hash, so that no name has a place of its own.
    people = sorted(names, key=lambda name: (hash_rank("annotator", seed, name), name))
    received: dict[str, list[Item]] = {name: [] for name in names}
    for item, group in zip(items, groups, strict=True):
        for number in members(group):
            received[people[number]].append(item)
    tasks = (
        Task(name, place, item)
        for name, mine in received.items()
        for place, item in enumerate(queue(mine, name, seed=seed), start=1)
    )
    return Assignment(tuple(names), per_response, seed, share_questions, tuple(tasks))


def queue(items: Iterable[Item], person: str, *, seed: int = DEFAULT_SEED) -> tuple[Item, ...]:
    """The order in which one person meets some items: a shuffle of their own that keeps each question's items apart.

    A question begins at a random place and its items follow at equal distances, so that of two items one comes half
    a queue after the other. This is what an adjudicator needs, who may get several responses to one question and
    knows its reference answer from the second on. Neighbours of one question occur only where nothing else is left
    to put between them.
    """
    own = hash_rank("order", seed, person)
    by_question: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_question[item.question].append(item)
    due = []
    for question, mine in by_question.items():
        start = int(hash_rank(own, "question", question)[:13], base=16) / 16**13
        if len(mine) > 1:
            mine.sort(key=lambda item: (hash_rank(own, "response", item.id), item.id))
        due += [((start + turn) / len(mine), item.id, item) for turn, item in enumerate(mine)]
    due.sort(key=lambda entry: entry[:2])
    return tuple(_apart(item for *_, item in due))


def _apart(items: Iterable[Item]) -> list[Item]:
    """Put an item that follows another of its question into the nearest place where it does not."""
    placed: list[Item] = []
    waiting: list[tuple[int, Item]] = []
    for item in items:
        if placed and placed[-1].question == item.question:
            waiting.append((len(placed), item))
        else:
            placed.append(item)
    # Where one question finds no place, another does, and may make one for it; hence the rounds.
    moved = True
    while waiting and moved:
        still = [(place, item) for place, item in waiting if not _squeeze_in(placed, place, item)]
        moved, waiting = len(still) < len(waiting), still
    for place, item in reversed(waiting):
        placed.insert(place, item)
    return placed


def _squeeze_in(placed: list[Item], wanted: int, item: Item) -> bool:
    """Insert an item as near to a place as its question allows; False where it does not."""
    for place in sorted(range(len(placed) + 1), key=lambda place: abs(place - wanted)):
        if all(neighbour.question != item.question for neighbour in placed[max(0, place - 1) : place + 1]):
            placed.insert(place, item)
            return True
    return False


def closest(items: Sequence[Item]) -> int | None:
    """How far apart the two nearest items of one question are, 1 for neighbours; None if no question occurs twice."""
    last: dict[str, int] = {}
    gaps = []
    for place, item in enumerate(items):
        if item.question in last:
            gaps.append(place - last[item.question])
        last[item.question] = place
    return min(gaps, default=None)


def _check(items: Sequence[Item], names: Sequence[str], per_response: int, share_questions: bool) -> None:
    """Refuse what cannot be assigned, with the numbers."""
    people = len(names)
    if not items:
        raise SettingError("there are no responses to assign.")
    if twice := _twice(item.id for item in items):
        raise SettingError(f"response {twice!r} is listed twice. Give every response an id of its own.")
    if twice := _twice(names):
        raise SettingError(f"annotator {twice!r} is named twice. Give every annotator a name of their own.")
    if not 1 <= per_response <= people:
        raise SettingError(
            f"per_response: {per_response} different annotators for each response cannot be found among {people}."
        )
    if comb(people, per_response) > MOST_GROUPS:
        raise SettingError(
            f"{people} annotators form {comb(people, per_response):,} groups of {per_response}, more than the "
            f"{MOST_GROUPS:,} that can be balanced. Split the project, or lower per_response."
        )
    if not share_questions:
        _check_questions(items, people, per_response)


def _check_questions(items: Sequence[Item], people: int, per_response: int) -> None:
    """Refuse questions with more responses than there are annotators to keep apart."""
    sizes = Counter(item.question for item in items)
    crowded = sorted((-size, question) for question, size in sizes.items() if size * per_response > people)
    if not crowded:
        return
    size, question = -crowded[0][0], crowded[0][1]
    more = f" {len(crowded) - 1:,} more questions have too many responses as well." if len(crowded) > 1 else ""
    raise SettingError(
        f"question {question!r} has {size} responses, and {size} x {per_response} different annotators are more than "
        f"the {people} there are.{more} Name more annotators, lower per_response, or set share_questions to let an "
        "annotator see several responses to one question."
    )


def _twice(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _groups_of(items: Sequence[Item], *, people: int, size: int, seed: int) -> list[int]:
    """The group of each item, dealt out and then evened."""
    questions = _hands(items, seed)
    systems = 1 + max(hand.system for hand in chain.from_iterable(questions))
    deal(questions, people=people, size=size, systems=systems)
    balance = Balance(questions, people=people, size=size, systems=systems)
    balance.even_out(Random(int(hash_rank("exchange", seed), base=16)))
    return [hand.group for hand in sorted(chain.from_iterable(questions), key=lambda hand: hand.item)]


def _hands(items: Sequence[Item], seed: int) -> list[list[Hand]]:
    """Questions and their items in hash order, questions with many responses first: the others can fill the gaps."""
    systems = {name: number for number, name in enumerate(sorted({item.system for item in items}))}
    by_question: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        by_question[item.question].append(number)
    ties = [int(hash_rank("response", seed, item.id)[:13], base=16) for item in items]
    order = sorted(by_question, key=lambda name: (-len(by_question[name]), hash_rank("question", seed, name), name))
    return [
        [
            Hand(number, place, systems[items[number].system], ties[number])
            for number in sorted(by_question[name], key=lambda number: (ties[number], number))
        ]
        for place, name in enumerate(order)
    ]
