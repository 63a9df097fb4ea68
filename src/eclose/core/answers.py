"""When two answers count as the same without a judge: the deterministic matcher of appendix D.5.3.

It forgives case, punctuation, articles and a surrounding phrase. It knows no synonyms and, being made for
English, no letters beyond ASCII.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LABEL = re.compile(r"^\s*final answer:", re.IGNORECASE)
_OTHER = re.compile(r"[^a-z0-9\s]")
_ARTICLES = frozenset({"a", "an", "the"})


def normalize(answer: str) -> tuple[str, ...]:
    """N(a): the tokens that matter. Empty when nothing is left.

    >>> normalize("Final answer: The 'Moonstruck' (film)")
    ('moonstruck', 'film')
    """
    text = _OTHER.sub(" ", _LABEL.sub("", answer).lower())
    return tuple(token for token in text.split() if token not in _ARTICLES)


def contains_span(tokens: tuple[str, ...], span: tuple[str, ...]) -> bool:
    """Whether the span stands in the tokens, whole and unbroken. An empty span stands nowhere."""
    size = len(span)
    return bool(size) and any(tokens[start : start + size] == span for start in range(len(tokens) - size + 1))


def match(answer: str, reference: str) -> bool:
    """Whether one answer, normalised, is a span of the other."""
    ours, theirs = normalize(answer), normalize(reference)
    return contains_span(ours, theirs) or contains_span(theirs, ours)


def match_any(answer: str, accepted: Iterable[str]) -> bool:
    """Whether the answer matches one of several. The paper takes aliases for checkpoint selection only."""
    return any(match(answer, reference) for reference in accepted)
