"""Windows: a long text cut into pieces that a model can read, so that nothing of it is truncated.

Windows follow one another without overlap. They end at the end of a sentence or line; a sentence that is too long ends
at a word, and a text without blanks at a character.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from eclose.core.segmentation import split_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LINE = re.compile(r"[^\r\n]+")
_WORD = re.compile(r"\S+")


def split_into_windows(text: str, fits: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the windows of a text, in order; all characters except blanks between windows are in exactly one.

    Args:
        text: The text to split.
        fits: Whether the model can read a piece of the text.

    Returns:
        The whole text where it fits, else two or more pieces of it; empty where not even one character fits.

    >>> split_into_windows("Ada built it. She was born in Lund.", lambda piece: len(piece) < 25)
    ('Ada built it.', 'She was born in Lund.')
    """
    text = text.strip()
    if fits(text):
        return (text,)
    # The coarsest cut that fits is taken: a sentence that is torn apart may mean something else.
    cuts = (_find_sentence_ends(text), [match.end() for match in _WORD.finditer(text)], range(1, len(text) + 1))
    windows: list[str] = []
    start = 0
    while start < len(text):
        ends = (_find_last_fit(text, start, positions, fits) for positions in cuts)
        end = next((end for end in ends if end is not None), None)
        if end is None:
            return ()
        if piece := text[start:end].strip():
            windows.append(piece)
        start = end
    return tuple(windows)


def _find_sentence_ends(text: str) -> list[int]:
    """Return the index after each sentence; a line break ends a sentence as well."""
    ends = []
    for line in _LINE.finditer(text):
        end = line.start()
        for sentence in split_sentences(line[0]):
            # Sentences are pieces of their line, so each is found after the one before it.
            end = text.index(sentence, end) + len(sentence)
            ends.append(end)
    return ends


def _find_last_fit(text: str, start: int, ends: Sequence[int], fits: Callable[[str], bool]) -> int | None:
    """Return the last of the given ends up to which the text after ``start`` fits; None where it fits to none."""
    first = bisect_right(ends, start)
    # Doubled before it is halved: testing the rest of a long text each time would take quadratic time.
    last, step = first - 1, 1
    while (number := last + step) < len(ends) and fits(text[start : ends[number]].strip()):
        last, step = number, step * 2
    while step := step // 2:
        if (number := last + step) < len(ends) and fits(text[start : ends[number]].strip()):
            last = number
    return ends[last] if last >= first else None
