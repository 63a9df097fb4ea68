"""Answer matching without a judge: the deterministic matcher of appendix D.5.3.

The matcher ignores case, punctuation, articles and a surrounding phrase. It has no synonyms, and letters beyond ASCII
count as punctuation, because the rule was written for English.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANSWER_LABEL = re.compile(r"^\s*final answer:", re.IGNORECASE)
_PUNCTUATION = re.compile(r"[^a-z0-9\s]")
_ARTICLES = frozenset({"a", "an", "the"})


def normalize_answer(answer: str) -> tuple[str, ...]:
    """Return the tokens of an answer that count for matching; N(a) in the paper.

    Args:
        answer: The answer as it was submitted; a leading ``Final answer:`` is dropped.

    Returns:
        Lowercase tokens without punctuation and articles; empty where no token remains.

    Examples:
        >>> normalize_answer("Final answer: The 'Moonstruck' (film)")
        ('moonstruck', 'film')
    """
    # Punctuation becomes a blank rather than nothing: "God's" gives the two tokens "god" and "s".
    text = _PUNCTUATION.sub(" ", _ANSWER_LABEL.sub("", answer).lower())
    return tuple(token for token in text.split() if token not in _ARTICLES)


def contains_token_span(tokens: tuple[str, ...], span: tuple[str, ...]) -> bool:
    """Return whether the tokens contain the span unbroken; an empty span is contained in nothing."""
    size = len(span)
    return bool(size) and any(tokens[start : start + size] == span for start in range(len(tokens) - size + 1))


def match_answer(answer: str, reference: str) -> bool:
    """Return whether one of the two answers, normalised, is a span of the other.

    Args:
        answer: The submitted answer.
        reference: The reference answer. The rule is symmetric: swapping the two changes nothing.

    Returns:
        True where they match; False where either has no token after normalisation.

    Examples:
        >>> match_answer("the New York Yankees", "Yankees")
        True
        >>> match_answer("GDR", "East Germany")
        False
    """
    submitted, expected = normalize_answer(answer), normalize_answer(reference)
    # In both directions, so that a fuller name and a shortened one match (appendix D.5.3).
    return contains_token_span(submitted, expected) or contains_token_span(expected, submitted)


def match_any_answer(answer: str, accepted: Iterable[str]) -> bool:
    """Return whether the answer matches at least one accepted answer; the paper does so for checkpoint selection only.

    Args:
        answer: The submitted answer.
        accepted: The reference and its aliases.

    Returns:
        True where ``match_answer`` holds for one of them; False for an empty collection.

    Examples:
        >>> match_any_answer("GDR", ["East Germany", "GDR"])
        True
    """
    return any(match_answer(answer, reference) for reference in accepted)
