"""Equality of answers: dates and numbers by value, names by their words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose.values.answers import contains_token_span, normalize_answer
from eclose.values.three_valued import three_valued_and, three_valued_not
from eclose_world.language.questions import NO, YES
from eclose_world.language.values import parse_answer_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.values.three_valued import Label

# Abstentions are never correct: every eligible question has a warranted answer (A.3.2).
_ABSTENTIONS = frozenset(
    {"not determined", "unknown", "cannot be determined", "insufficient evidence", "not enough information"}
)


_LEAD = re.compile(r"^(?:the answer is|it is|it was|this is)\s+", re.IGNORECASE)


def is_abstention(answer: str) -> bool:
    """Return whether the answer says that there is none."""
    return _LEAD.sub("", answer.strip().rstrip(".")).lower() in _ABSTENTIONS


_UNIT = re.compile(r"(\d[\d,]*) (?:years?|people|inhabitants|pages|employees)")


def _plain(answer: str) -> str:
    text = _LEAD.sub("", answer.strip().rstrip("."))
    amount = _UNIT.fullmatch(text)
    return parse_answer_value(amount[1] if amount else text)


def is_same_answer(answer: str, value: str) -> bool:
    """Return whether two answers certainly mean the same."""
    if is_abstention(answer) or is_abstention(value):
        return is_abstention(answer) and is_abstention(value)
    first, second = _plain(answer), _plain(value)
    # "Yes, both are": the first word decides, unless the answer hedges with "or".
    if second.lower() in (YES, NO):
        return " or " not in first and normalize_answer(first)[:1] == normalize_answer(second)
    return first == second or (bool(normalize_answer(first)) and normalize_answer(first) == normalize_answer(second))


def answer_matches_value(answer: str, value: str) -> Label:
    """Return whether an answer means a value; None where it contains the value among other words.

    Two names joined by "or" leave the question open and match neither.
    """
    if is_same_answer(answer, value):
        return True
    if is_abstention(answer) or is_abstention(value) or " or " in answer or value.lower() in (YES, NO):
        return False
    # "Rell or a relative": neither surely right nor surely wrong.
    return None if contains_token_span(normalize_answer(answer), normalize_answer(value)) else False


def is_correct_answer(answer: str, accepted: Iterable[str]) -> Label:
    """Return whether the answer is one of the accepted ones; an abstention never is."""
    if is_abstention(answer):
        return False
    # Three-valued "any": True beats None beats False.
    return three_valued_not(
        three_valued_and(three_valued_not(answer_matches_value(answer, value)) for value in accepted)
    )
