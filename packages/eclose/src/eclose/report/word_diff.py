"""Word-level differences between two texts, for display."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from eclose.values.answers import TextSpan, is_whole_word_span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class DiffMark(StrEnum):
    """What happened to a piece of text."""

    SAME = "same"
    OLD = "old"
    """In the old text only."""
    NEW = "new"
    """In the new text only."""


class DiffPiece(NamedTuple):
    """A piece of text with its mark."""

    text: str
    mark: DiffMark = DiffMark.SAME


MarkedText: TypeAlias = tuple[DiffPiece, ...]
"""A text in pieces; old words come before the new ones that replace them."""


class _Change(NamedTuple):
    """A replacement of words, with the unchanged text before it."""

    same: str
    old: str
    new: str


def mark_text_unchanged(text: str) -> MarkedText:
    """Return the whole text as unchanged."""
    return (DiffPiece(text),) if text else ()


def mark_text_new(text: str) -> MarkedText:
    """Return the whole text as new."""
    return (DiffPiece(text, DiffMark.NEW),) if text else ()


def diff_words(old: str, new: str) -> MarkedText:
    """Return the new text with removed words and the words that replace them.

    >>> [f"{piece.mark}: {piece.text}" for piece in diff_words("born in Arica.", "born in Lima.")]
    ['same: born in ', 'old: Arica', 'new: Lima', 'same: .']
    """
    # Most edits change a few words: comparing only the middle is faster and keeps the matcher on track.
    before, after = _shared_ends(old, new)
    changes = _changes(_words(old[before : len(old) - after]), _words(new[before : len(new) - after]))
    pieces = [DiffPiece(old[:before])]
    for same, removed, inserted in _merge_changes(_merge_changes(changes, _is_blank), _is_short):
        pieces += [DiffPiece(same), DiffPiece(removed, DiffMark.OLD), DiffPiece(inserted, DiffMark.NEW)]
    pieces.append(DiffPiece(old[len(old) - after :]))
    return tuple(_merge_pieces(pieces))


def has_word_changes(words: MarkedText) -> bool:
    """Return whether any word was removed or added."""
    return any(piece.mark is not DiffMark.SAME for piece in words)


def word_overlap(first: str, second: str) -> float:
    """Return the share of words that two texts have in common: 1 for the same words, 0 for none."""
    first_words, second_words = (Counter(filter(str.strip, _words(text.casefold()))) for text in (first, second))
    return 2 * (first_words & second_words).total() / max(1, first_words.total() + second_words.total())


def match_text_counterparts(old: Sequence[str], new: Sequence[str], *, least: float = 0.5) -> list[int | None]:
    """Return for each new text the index of its old counterpart, in order and each at most once.

    Maximises the total overlap of the pairs; texts with an overlap below ``least`` are not paired.
    """
    # totals[i][j]: greatest total overlap of the first i old and the first j new texts.
    totals = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    overlaps = [[word_overlap(before, after) for after in new] for before in old]
    for i, row in enumerate(overlaps):
        for j, value in enumerate(row):
            # Below `least` a pair would mark nearly every word as changed: two separate steps are easier to read.
            paired = totals[i][j] + value if value >= least else 0.0
            totals[i + 1][j + 1] = max(totals[i][j + 1], totals[i + 1][j], paired)
    counterparts: list[int | None] = [None] * len(new)
    # Walk back through the table; a cell that equals no neighbour was reached by a pair.
    i, j = len(old), len(new)
    while i and j:
        if totals[i][j] == totals[i - 1][j]:
            i -= 1
        elif totals[i][j] == totals[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            counterparts[j] = i
    return counterparts


def _shared_ends(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the common beginning and the common end, without cutting a word."""
    before = _shared(old, new)
    # Step back to a word boundary of both texts.
    while not (_is_boundary(old, before) and _is_boundary(new, before)):
        before -= 1
    behind = _shared(old[before:][::-1], new[before:][::-1])
    while not (_is_boundary(old, len(old) - behind) and _is_boundary(new, len(new) - behind)):
        behind -= 1
    return before, behind


def _shared(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_boundary(text: str, at: int) -> bool:
    return is_whole_word_span(text, TextSpan(at, at))


def _words(text: str) -> list[str]:
    """Split a text into words, blanks and signs; joined they are the text."""
    # A cut wherever a word may end.
    cuts = [0, *(at for at in range(1, len(text)) if _is_boundary(text, at)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    same = ""
    # The matcher ignores words that are very frequent in a long text (its autojunk heuristic).
    for kind, i, until_i, j, until_j in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            same = "".join(old[i:until_i])
        else:
            yield _Change(same, "".join(old[i:until_i]), "".join(new[j:until_j]))
            same = ""
    if same:
        yield _Change(same, "", "")


def _merge_changes(changes: Iterable[_Change], too_little: Callable[[_Change, _Change], bool]) -> list[_Change]:
    """Merge neighbouring changes where the text between them is too short to read by itself."""
    merged: list[_Change] = []
    for change in changes:
        # Unchanged text at the end has no change to merge with.
        if merged and (change.old or change.new) and too_little(merged[-1], change):
            same, old, new = merged.pop()
            merged.append(_Change(same, old + change.same + change.old, new + change.same + change.new))
        else:
            merged.append(change)
    return merged


def _is_blank(_: _Change, change: _Change) -> bool:
    """Return whether only blanks separate a change from the one before."""
    return not change.same.strip()


def _is_short(before: _Change, change: _Change) -> bool:
    """Return whether a few words separate two longer changes, as in a rewritten sentence."""
    sizes = [max(len(each.old.split()), len(each.new.split())) for each in (before, change)]
    return 3 * len(change.same.split()) <= min(sizes)


def _merge_pieces(pieces: list[DiffPiece]) -> Iterator[DiffPiece]:
    """Yield non-empty pieces, neighbours with the same mark as one."""
    text, mark = "", DiffMark.SAME
    for piece in pieces:
        if piece.text and piece.mark is not mark:
            if text:
                yield DiffPiece(text, mark)
            text, mark = "", piece.mark
        text += piece.text
    if text:
        yield DiffPiece(text, mark)
