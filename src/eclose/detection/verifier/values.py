"""Values that a trace gives to the things compared, for answers that no step states.

A reliable trace may stop at the facts and leave the comparison to the reader. Names are followed from step to step;
where the values cannot be told apart, every function returns 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose.detection.verifier.words import TextWords, parse_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OPTIONS = re.compile(r"([^,?:]+?),? or (?:the )?([^,?]+)")
_CLAUSES = re.compile(r"; ")
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


def agrees_with_comparison(asked: TextWords, question: str, steps: Sequence[str], answer: frozenset[str]) -> int:
    """Return 1 where the values of two options lead to the answer, -1 where to the other option, 0 without both."""
    match = _OPTIONS.search(question) if "or" in asked.words and asked.direction else None
    if match is None:
        return 0
    options = [set(parse_text(part).names) for part in match.groups()]
    first, second = options[0] - options[1], options[1] - options[0]
    if not first or not second or bool(answer & first) is bool(answer & second):
        return 0
    values = _follow_options(first, second, steps)
    if None in values or values[0] == values[1]:
        return 0
    assert values[0] is not None
    assert values[1] is not None
    chosen = first if (values[0] - values[1]) * asked.direction > 0 else second
    return 1 if answer & chosen else -1


def _follow_options(first: set[str], second: set[str], steps: Sequence[str]) -> list[float | None]:
    """Return the last value that the trace gives to each option, through the names it introduces for them."""
    owned = [set(first), set(second)]
    values: list[float | None] = [None, None]
    owner = None
    for clause in _parse_clauses(steps):
        mentions = [not names.isdisjoint(clause.names) for names in owned]
        if mentions[0] and mentions[1]:
            continue
        if any(mentions):
            owner = mentions.index(True)
        if owner is None:
            continue
        owned[owner] |= clause.names - owned[1 - owner]
        numbers = _values(clause)
        # Two values in one clause compare; they belong to neither option.
        if len(numbers) == 1 and not clause.concludes:
            values[owner] = numbers[0]
    return values


def agrees_with_sameness(asked: TextWords, steps: Sequence[str], polarity: int) -> int:
    """Return 1 where the values of both sides fit a yes or no, -1 where they contradict it, 0 for other questions."""
    if not polarity or "same" not in asked.words:
        return 0
    facts = [
        clause.names - asked.names
        for clause in _parse_clauses(steps)
        if not clause.concludes and not clause.polarity and clause.names
    ]
    if len(facts) < 2 or not facts[-1]:
        return 0
    # With a link on each side, names shared with the fact before are those of the link and no value.
    links = facts[-2] if len(facts) > 2 else frozenset()
    earlier = facts[:-2] if len(facts) > 2 else facts[:-1]
    value = facts[-1] - links
    same = any(not value.isdisjoint(names) for names in earlier)
    return polarity if same else -polarity


def agrees_with_difference(trace: Sequence[TextWords], given: TextWords) -> int:
    """Return 1 where a number answered is the difference of two values of the trace, 0 otherwise."""
    if len(given.numbers) != 1:
        return 0
    values = {value for step in trace for value in _values(step) if value > _DAYS}
    return int(any(value + float(given.numbers[0]) in values for value in values))
