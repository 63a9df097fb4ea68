"""Which words of one text became which in another, for people to read. Knows texts, nothing of what they are about."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from eclose.core.text_match import TextSpan, is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class DiffMark(StrEnum):
    """What happened to a stretch of text."""

    SAME = "same"
    OLD = "old"
    """Stood there before and is gone."""
    NEW = "new"


class DiffPiece(NamedTuple):
    """A stretch of text, and what happened to it."""

    text: str
    mark: DiffMark = DiffMark.SAME


MarkedText: TypeAlias = tuple[DiffPiece, ...]
"""A text in pieces, old words before the new ones that took their place."""


class _Change(NamedTuple):
    """Words for words, and what stayed the same before them."""

    same: str
    old: str
    new: str


def mark_same(text: str) -> MarkedText:
    """The text as it is."""
    return (DiffPiece(text),) if text else ()


def mark_new(text: str) -> MarkedText:
    """A text that is new as a whole."""
    return (DiffPiece(text, DiffMark.NEW),) if text else ()


def diff_words(old: str, new: str) -> MarkedText:
    """The new text with the words that are gone and the words that took their place.

    >>> [f"{piece.mark}: {piece.text}" for piece in diff_words("born in Arica.", "born in Lima.")]
    ['same: born in ', 'old: Arica', 'new: Lima', 'same: .']
    """
    before, behind = _shared_ends(old, new)
    changes = _changes(_words(old[before : len(old) - behind]), _words(new[before : len(new) - behind]))
    pieces = [DiffPiece(old[:before])]
    for same, gone, came in _gathered(_gathered(changes, _is_blank), _is_little):
        pieces += [DiffPiece(same), DiffPiece(gone, DiffMark.OLD), DiffPiece(came, DiffMark.NEW)]
    pieces.append(DiffPiece(old[len(old) - behind :]))
    return tuple(_joined(pieces))


def is_changed(words: MarkedText) -> bool:
    """Whether any word is gone or new."""
    return any(piece.mark is not DiffMark.SAME for piece in words)


def word_overlap(one: str, other: str) -> float:
    """How many words two texts share, of all that they have: 1 for the same words, 0 for none."""
    ours, theirs = (Counter(filter(str.strip, _words(text.casefold()))) for text in (one, other))
    return 2 * (ours & theirs).total() / max(1, ours.total() + theirs.total())


def match_counterparts(old: Sequence[str], new: Sequence[str], *, least: float = 0.5) -> list[int | None]:
    """For each new text the place of the old one that it stands for, in order and each at most once.

    Of all such pairings the one in which the paired texts are most alike; texts less alike than ``least`` are no pair.
    """
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    alike = [[word_overlap(one, other) for other in new] for one in old]
    for i, row in enumerate(alike):
        for j, value in enumerate(row):
            paired = best[i][j] + value if value >= least else 0.0
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], paired)
    found: list[int | None] = [None] * len(new)
    i, j = len(old), len(new)
    while i and j:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found[j] = i
    return found


def _shared_ends(old: str, new: str) -> tuple[int, int]:
    """How many characters both begin with and end with, without cutting through a word."""
    before = _shared(old, new)
    while not (_parts(old, before) and _parts(new, before)):
        before -= 1
    behind = _shared(old[before:][::-1], new[before:][::-1])
    while not (_parts(old, len(old) - behind) and _parts(new, len(new) - behind)):
        behind -= 1
    return before, behind


def _shared(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _parts(text: str, at: int) -> bool:
    """Whether a word may end, and another begin, at this point."""
    return is_whole(text, TextSpan(at, at))


def _words(text: str) -> list[str]:
    """Words, blanks and signs, one by one; together they are the text."""
    cuts = [0, *(at for at in range(1, len(text)) if _parts(text, at)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    same = ""
    # Words that are everywhere in a long text are no hold for a comparison; the matcher knows that by itself.
    for kind, i, until_i, j, until_j in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            same = "".join(old[i:until_i])
        else:
            yield _Change(same, "".join(old[i:until_i]), "".join(new[j:until_j]))
            same = ""
    if same:
        yield _Change(same, "", "")


def _gathered(changes: Iterable[_Change], too_little: Callable[[_Change, _Change], bool]) -> list[_Change]:
    """Neighbouring changes as one, where what parts them is too little to be read by itself."""
    gathered: list[_Change] = []
    for change in changes:
        if gathered and (change.old or change.new) and too_little(gathered[-1], change):
            same, old, new = gathered.pop()
            gathered.append(_Change(same, old + change.same + change.old, new + change.same + change.new))
        else:
            gathered.append(change)
    return gathered


def _is_blank(_: _Change, change: _Change) -> bool:
    return not change.same.strip()


def _is_little(before: _Change, change: _Change) -> bool:
    """A word between two longer changes: a rewritten sentence keeps a "the" here and there, and nobody asks where."""
    sizes = [max(len(one.old.split()), len(one.new.split())) for one in (before, change)]
    return 3 * len(change.same.split()) <= min(sizes)


def _joined(pieces: list[DiffPiece]) -> Iterator[DiffPiece]:
    """Without the empty ones, and neighbours of one kind as one."""
    text, mark = "", DiffMark.SAME
    for piece in pieces:
        if piece.text and piece.mark is not mark:
            if text:
                yield DiffPiece(text, mark)
            text, mark = "", piece.mark
        text += piece.text
    if text:
        yield DiffPiece(text, mark)
