"""Assignment of responses to annotators, and the order in which each annotator works (appendix A.3).

All annotators get the same share of the work, of each system, and of each group of colleagues. Responses to one
question go to different people. The assignment depends on the seed and the names alone: the order of the input does
not matter. Independent of pages, labels and storage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from eclose.diagnosis.number_format import format_count
from eclose.errors import SettingError
from eclose.values.identity import hash_sort_key
from eclose_annotate.assignment.balance import AssignmentBalance, PlacedItem, annotators_in_group, deal_items_to_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The paper's seed for the order of tasks (A.3.2).
DEFAULT_SEED = 42
MOST_GROUPS = 20_000
"""Bound of the number of possible groups, each of which is considered for every response."""


@dataclass(frozen=True, slots=True)
class AssignmentItem:
    """A response to assign: its id, question and system."""

    id: str
    question: str
    system: str
    """Model, or model and method, that generated the response."""


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """An item assigned to an annotator."""

    annotator: str
    position: int
    """Position in the queue of the annotator, from 1."""
    item: AssignmentItem


class AssignmentCountRange(NamedTuple):
    """The smallest and the largest of some counts."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class AssignmentSummary:
    """Evenness of an assignment."""

    loads: Mapping[str, int]
    """Number of items by annotator."""
    groups: Mapping[tuple[str, ...], int]
    """Number of items by group of annotators, groups without items included."""

    @property
    def load_spread(self) -> AssignmentCountRange:
        """The lightest and the heaviest load."""
        return _spread(self.loads)

    @property
    def group_spread(self) -> AssignmentCountRange:
        """The rarest and the commonest group."""
        return _spread(self.groups)


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    """Every task of a project, by annotator and place, and the settings they follow from."""

    annotators: tuple[str, ...]
    per_response: int
    seed: int
    share_questions: bool
    tasks: tuple[AssignedTask, ...]

    @property
    def queues(self) -> dict[str, tuple[AssignmentItem, ...]]:
        """Items of each annotator, in order."""
        queues: dict[str, list[AssignmentItem]] = {name: [] for name in self.annotators}
        for task in self.tasks:
            queues[task.annotator].append(task.item)
        return {name: tuple(queue) for name, queue in queues.items()}

    def summary(self) -> AssignmentSummary:
        """Count the tasks by annotator and by group."""
        groups = Counter(dict.fromkeys(combinations(self.annotators, self.per_response), 0))
        groups.update(_groups(self.tasks).values())
        return AssignmentSummary({name: len(queue) for name, queue in self.queues.items()}, dict(groups))


def _groups(tasks: Iterable[AssignedTask]) -> dict[str, tuple[str, ...]]:
    """Return the annotators of each item, in alphabetical order as the tasks are."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        groups[task.item.id].append(task.annotator)
    return {item: tuple(names) for item, names in groups.items()}


def _spread(counts: Mapping[str, int] | Mapping[tuple[str, ...], int]) -> AssignmentCountRange:
    return AssignmentCountRange(min(counts.values()), max(counts.values()))


def assign_to_annotators(
    items: Iterable[AssignmentItem],
    annotators: Iterable[str],
    *,
    per_response: int = 2,
    seed: int = DEFAULT_SEED,
    share_questions: bool = False,
) -> AssignmentPlan:
    """Assign every item to ``per_response`` annotators, as evenly as possible.

    Loads differ by at most one. Groups, and systems by annotator, are first balanced item by item, then by exchanges
    that change no load; the summary reports the result. No annotator gets two responses to one question; raises
    SettingError where there are too few annotators for that. With ``share_questions`` repeats are allowed: as few as
    possible, and not in direct succession where that can be avoided.

    >>> items = [AssignmentItem(f"{q}/{m}", q, m) for q in ("q1", "q2") for m in ("x", "y", "z")]
    >>> assign_to_annotators(items, ["A1", "A2", "A3", "A4", "A5", "A6"]).summary().load_spread
    AssignmentCountRange(least=2, most=2)
    """
    # Sorted, so that the order of the input has no influence.
    items, names = sorted(items, key=lambda item: item.id), sorted(annotators)
    _check(items, names, per_response, share_questions)
    groups = _groups_of(items, people=len(names), size=per_response, seed=seed)
    # Numbers are assigned to names by hash, so that the alphabetical order of names has no influence.
    people = sorted(names, key=lambda name: (hash_sort_key("annotator", seed, name), name))
    received: dict[str, list[AssignmentItem]] = {name: [] for name in names}
    for item, group in zip(items, groups, strict=True):
        for number in annotators_in_group(group):
            received[people[number]].append(item)
    tasks = (
        AssignedTask(name, position, item)
        for name, own_items in received.items()
        for position, item in enumerate(order_annotator_queue(own_items, name, seed=seed), start=1)
    )
    return AssignmentPlan(tuple(names), per_response, seed, share_questions, tuple(tasks))


def order_annotator_queue(
    items: Iterable[AssignmentItem], person: str, *, seed: int = DEFAULT_SEED
) -> tuple[AssignmentItem, ...]:
    """Return items in an individual random order that keeps the items of each question far apart.

    A question begins at a random position and its items follow at equal distances, so that two items are half a queue
    apart. Two items of one question are neighbours only where no other item is available to separate them.
    """
    salt = hash_sort_key("order", seed, person)
    by_question: defaultdict[str, list[AssignmentItem]] = defaultdict(list)
    for item in items:
        by_question[item.question].append(item)
    # Sort key of each item: a position in [0, 1), spread evenly over the items of a question.
    due = []
    for question, group in by_question.items():
        # 13 hex digits are 52 bits: exact in a float.
        start = int(hash_sort_key(salt, "question", question)[:13], base=16) / 16**13
        if len(group) > 1:
            group.sort(key=lambda item: (hash_sort_key(salt, "response", item.id), item.id))
        due += [((start + turn) / len(group), item.id, item) for turn, item in enumerate(group)]
    due.sort(key=lambda entry: entry[:2])
    return tuple(_separate(item for *_, item in due))


def _separate(items: Iterable[AssignmentItem]) -> list[AssignmentItem]:
    """Move an item that follows another of its question to the nearest position where it does not."""
    placed: list[AssignmentItem] = []
    waiting: list[tuple[int, AssignmentItem]] = []
    for item in items:
        if placed and placed[-1].question == item.question:
            waiting.append((len(placed), item))
        else:
            placed.append(item)
    # Moving an item of one question can open a position for another question, hence the rounds.
    moved = True
    while waiting and moved:
        still = [(position, item) for position, item in waiting if not _insert_near(placed, position, item)]
        moved, waiting = len(still) < len(waiting), still
    # No separating position exists for these: insert them where they were.
    for position, item in reversed(waiting):
        placed.insert(position, item)
    return placed


def _insert_near(placed: list[AssignmentItem], target: int, item: AssignmentItem) -> bool:
    """Insert an item as near to ``target`` as its question allows; return False where no position is allowed."""
    for position in sorted(range(len(placed) + 1), key=lambda position: abs(position - target)):
        if all(neighbour.question != item.question for neighbour in placed[max(0, position - 1) : position + 1]):
            placed.insert(position, item)
            return True
    return False


def _check(items: Sequence[AssignmentItem], names: Sequence[str], per_response: int, share_questions: bool) -> None:
    """Raise where the items cannot be assigned."""
    people = len(names)
    if not items:
        raise SettingError("there are no responses to assign.")
    if twice := _twice(item.id for item in items):
        raise SettingError(f"response {twice!r} occurs twice. Give every response a unique id.")
    if twice := _twice(names):
        raise SettingError(f"annotator {twice!r} is named twice. Give every annotator a unique name.")
    if not 1 <= per_response <= people:
        raise SettingError(
            f"--per-response {per_response}: is not possible with {format_count(people, 'annotator')}. Name more, or"
            " lower it."
        )
    if comb(people, per_response) > MOST_GROUPS:
        raise SettingError(
            f"{people} annotators form {comb(people, per_response):,} groups of {per_response}, more than the "
            f"{MOST_GROUPS:,} that can be balanced. Split the project, or lower --per-response."
        )
    # Every response needs its own annotators: in the paper, three responses with two each take all six (A.3.2).
    if not share_questions:
        _check_questions(items, people, per_response)


def _check_questions(items: Sequence[AssignmentItem], people: int, per_response: int) -> None:
    """Raise where a question has more responses than there are annotators to keep apart."""
    sizes = Counter(item.question for item in items)
    crowded = sorted((-size, question) for question, size in sizes.items() if size * per_response > people)
    if not crowded:
        return
    size, question = -crowded[0][0], crowded[0][1]
    more = {1: "", 2: " 1 more question has too many responses as well."}.get(
        len(crowded), f" {len(crowded) - 1:,} more questions have too many responses as well."
    )
    raise SettingError(
        f"question {question!r} has {format_count(size, 'response')} and needs {size} x {per_response} different "
        f"annotators, but there are only {people}.{more} Name more annotators, lower --per-response, or let an "
        "annotator see several responses to one question with --share-questions."
    )


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _groups_of(items: Sequence[AssignmentItem], *, people: int, size: int, seed: int) -> list[int]:
    """Return the group of each item, as a bit mask."""
    questions = _placements(items, seed)
    systems = 1 + max(placement.system for placement in chain.from_iterable(questions))
    deal_items_to_groups(questions, people=people, size=size, systems=systems)
    balance = AssignmentBalance(questions, people=people, size=size, systems=systems)
    # The greedy deal cannot take back an early choice; exchanges correct what it left uneven.
    balance.even_out(Random(int(hash_sort_key("exchange", seed), base=16)))
    return [
        placement.group for placement in sorted(chain.from_iterable(questions), key=lambda placement: placement.item)
    ]


def _placements(items: Sequence[AssignmentItem], seed: int) -> list[list[PlacedItem]]:
    """Return questions and their items in hash order, questions with many responses first: others fill the gaps."""
    systems = {name: number for number, name in enumerate(sorted({item.system for item in items}))}
    by_question: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        by_question[item.question].append(number)
    ties = [int(hash_sort_key("response", seed, item.id)[:13], base=16) for item in items]
    order = sorted(by_question, key=lambda name: (-len(by_question[name]), hash_sort_key("question", seed, name), name))
    return [
        [
            PlacedItem(number, index, systems[items[number].system], ties[number])
            for number in sorted(by_question[name], key=lambda number: (ties[number], number))
        ]
        for index, name in enumerate(order)
    ]
