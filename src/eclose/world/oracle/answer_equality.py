"""When two answers mean the same in the world: by value for dates and numbers, by their words for names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose.core.answers import contains_span, normalize_answer
from eclose.core.three_valued import conjunction, negation
from eclose.world.language.questions import NO, YES
from eclose.world.language.values import read_answer_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.three_valued import Label

_ABSTENTIONS = frozenset(
    {"not determined", "unknown", "cannot be determined", "insufficient evidence", "not enough information"}
)


_LEAD = re.compile(r"^(?:the answer is|it is|it was|this is)\s+", re.IGNORECASE)


def is_abstention(answer: str) -> bool:
    """Whether the answer says that there is none."""
    return _LEAD.sub("", answer.strip().rstrip(".")).lower() in _ABSTENTIONS


_UNIT = re.compile(r"(\d[\d,]*) (?:years?|people|inhabitants|pages|employees)")


def _plain(answer: str) -> str:
    """The answer without the words around it that say nothing."""
    text = _LEAD.sub("", answer.strip().rstrip("."))
    found = _UNIT.fullmatch(text)
    return read_answer_value(found[1] if found else text)


def is_same_answer(answer: str, value: str) -> bool:
    """Whether two answers surely mean the same: dates, numbers and durations by value, names by their words."""
    if is_abstention(answer) or is_abstention(value):
        return is_abstention(answer) and is_abstention(value)
    one, other = _plain(answer), _plain(value)
    if other.lower() in (YES, NO):
        return " or " not in one and normalize_answer(one)[:1] == normalize_answer(other)
    return one == other or (bool(normalize_answer(one)) and normalize_answer(one) == normalize_answer(other))


def matches_value(answer: str, value: str) -> Label:
    """Whether an answer means a value; None for one that holds it among words that could change it.

    Two names joined by "or" leave the question open, and so mean neither.
    """
    if is_same_answer(answer, value):
        return True
    if is_abstention(answer) or is_abstention(value) or " or " in answer or value.lower() in (YES, NO):
        return False
    return None if contains_span(normalize_answer(answer), normalize_answer(value)) else False


def is_correct(answer: str, accepted: Iterable[str]) -> Label:
    """Whether the answer is one of the accepted ones; an abstention never is."""
    if is_abstention(answer):
        return False
    return negation(conjunction(negation(matches_value(answer, one)) for one in accepted))
