"""Values that a trace gives to the things compared, for answers that no step states.

A reliable trace may stop at the facts and leave the comparison to the reader. Names are followed from step to step;
where the values cannot be told apart, every function returns 0.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from eclose.detection.verifier.words import TextWords, parse_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OPTIONS = re.compile(r"([^,?:]+?),? or (?:the )?([^,?]+)")
_CLAUSES = re.compile(r"; ")
_AGE_WORDS = frozenset(("older", "oldest", "elder", "younger", "youngest"))
_AGE_RELATIONS = frozenset(("birth", "founding"))
_DAYS = 31
"""Numbers up to this may be the day of a date and are no value."""


def _parse_clauses(steps: Sequence[str]) -> Iterator[TextWords]:
    for step in steps:
        for clause in _CLAUSES.split(step):
            yield parse_text(clause)


def _values(clause: TextWords) -> list[float]:
    """Return the numbers of a clause that can be values: years, counts."""
    numbers = [float(number) for number in clause.numbers]
    large = [number for number in numbers if number > _DAYS]
    return large or numbers


def agrees_with_comparison(
    question_words: TextWords, question: str, steps: Sequence[str], answer: frozenset[str]
) -> int:
    """Return 1 where the values of two options lead to the answer, -1 where to the other option, 0 without both."""
    match = _OPTIONS.search(question) if "or" in question_words.words and question_words.direction else None
    if match is None:
        return 0
    first, second = _split_names(*match.groups())
    if not first or not second or bool(answer & first) is bool(answer & second):
        return 0
    relations = (
        question_words.concepts | _AGE_RELATIONS
        if _AGE_WORDS.intersection(question_words.words)
        else question_words.concepts
    )
    values = [_last_value(clauses, relations) for clauses in _collect_sides(first, second, steps)]
    if values[0] is None or values[1] is None or values[0] == values[1]:
        return 0
    chosen = first if (values[0] - values[1]) * question_words.direction > 0 else second
    return 1 if answer & chosen else -1


def _split_names(first: str, second: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of each text that the other does not have."""
    names = parse_text(first).names, parse_text(second).names
    return names[0] - names[1], names[1] - names[0]


def _collect_sides(first: frozenset[str], second: frozenset[str], steps: Sequence[str]) -> list[list[TextWords]]:
    """Return the clauses about each of two things, by their names and by names that a clause links to them."""
    clauses = [clause for clause in _parse_clauses(steps) if not clause.states_goal]
    bases = (first, second)
    linked: list[set[str]] = [set(), set()]
    for clause in clauses:
        side = _find_side(clause, bases)
        if side is not None:
            linked[side] |= clause.names - first - second
    # A name linked to both is a value that they share, and tells nothing about whom a clause speaks of.
    links = (frozenset(linked[0] - linked[1]), frozenset(linked[1] - linked[0]))
    sides: list[list[TextWords]] = [[], []]
    latest = None
    for clause in clauses:
        side = _find_side(clause, bases)
        if side is None and clause.names.isdisjoint(first | second):
            side = _find_side(clause, links)
            # A pronoun continues the clause before; two linked names compare.
            if side is None and clause.names.isdisjoint(links[0] | links[1]):
                side = latest
        if side is not None:
            sides[side].append(clause)
            latest = side
    return sides


def _find_side(clause: TextWords, names: tuple[frozenset[str], frozenset[str]]) -> int | None:
    first, second = (not clause.names.isdisjoint(side) for side in names)
    return None if first is second else int(second)


def _last_value(clauses: Sequence[TextWords], relations: frozenset[str]) -> float | None:
    """Return the last value of the relation asked for; of any relation where no clause has it."""
    # Two values in one clause compare; they belong to neither side.
    stated = [(clause, _values(clause)) for clause in clauses if not clause.concludes]
    single = [(clause.concepts, values[0]) for clause, values in stated if len(values) == 1]
    fitting = [value for concepts, value in single if concepts & relations] or [value for _, value in single]
    return fitting[-1] if fitting else None


def agrees_with_sameness(question_words: TextWords, question: str, steps: Sequence[str], polarity: int) -> int:
    """Return 1 where the values of both sides fit a yes or no, -1 where they contradict it, 0 for other questions."""
    if not polarity or "same" not in question_words.words or " and " not in question:
        return 0
    first, second = _split_names(*question.split(" and ", 1))
    if not first or not second:
        return 0
    # Relations asked of both sides are named once, roles that lead to the sides twice.
    counts = Counter(question_words.relations)
    relations = {relation for relation, count in counts.items() if count == 1} or set(counts)
    values = []
    for clauses in _collect_sides(first, second, steps):
        facts = [clause for clause in clauses if not clause.polarity]
        fitting = [clause for clause in facts if clause.concepts & relations] or facts
        values.append(frozenset[str]().union(*(clause.names - question_words.names for clause in fitting)))
    if not values[0] or not values[1]:
        return 0
    return polarity if values[0] & values[1] else -polarity


def agrees_with_difference(trace: Sequence[TextWords], answer_text: TextWords) -> int:
    """Return 1 where a number answered is the difference of two values of the trace, 0 otherwise."""
    if len(answer_text.numbers) != 1:
        return 0
    values = {value for step in trace for value in _values(step) if value > _DAYS}
    return int(any(value + float(answer_text.numbers[0]) in values for value in values))
