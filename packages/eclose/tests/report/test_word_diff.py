"""Which words became which: nothing is lost, whole words only, and no confetti."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.report.word_diff import (
    DiffMark,
    diff_words,
    has_word_changes,
    mark_text_new,
    mark_text_unchanged,
    match_text_counterparts,
    word_overlap,
)

MARKS = {DiffMark.SAME: "{}", DiffMark.OLD: "[-{}-]", DiffMark.NEW: "{{+{}+}}"}


def marked(old, new):
    return "".join(MARKS[piece.mark].format(piece.text) for piece in diff_words(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("born in Arica.", "born in Lima.", "born in [-Arica-]{+Lima+}."),
        # The same beginning of two words is not the same word.
        ("in 1994", "in 1995", "in [-1994-]{+1995+}"),
        ("left Arica. The Arica Prize", "left Lima. The Arica Prize", "left [-Arica-]{+Lima+}. The Arica Prize"),
        # A blank between two changed words is no word of its own.
        ("by Ana Ruiz of Arica", "by Bo Lund of Lima", "by [-Ana Ruiz-]{+Bo Lund+} of [-Arica-]{+Lima+}"),
        # Nor are single words between long changes: the question was rewritten.
        (
            "Where was the director of Blue Harbour born?",
            "When did the film of the director who left Arica come out?",
            "[-Where was-]{+When did the film of+} the director [-of Blue Harbour born-]{+who left Arica come out+}?",
        ),
        ("one two the three four five", "1 2 the 3 4 5", "[-one two-]{+1 2+} the [-three four five-]{+3 4 5+}"),
        ("one two three the four five six", "1 2 3 the 4 5", "[-one two three the four five six-]{+1 2 3 the 4 5+}"),
        # Scripts without blanks; an accent of its own stays with its letter.
        ("東京に住む", "大阪に住む", "[-東京-]{+大阪+}に住む"),
        ("cafe\u0301 noir", "cafe noir", "[-cafe\u0301-]{+cafe+} noir"),
        ("same", "same", "same"),
        ("", "new", "{+new+}"),
        ("gone", "", "[-gone-]"),
        ("", "", ""),
        ("a a", "a a a", "a a{+ a+}"),
    ],
)  # fmt: skip
def test_words_for_words(old, new, expected):
    assert marked(old, new) == expected


TEXTS = st.lists(st.sampled_from([*"ab é.-'", "word", "Wörter", "\n", "東", "\u0301", "🇨🇱"]), max_size=30).map("".join)


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_both_texts_are_in_the_difference(old, new):
    pieces = diff_words(old, new)
    assert "".join(piece.text for piece in pieces if piece.mark is not DiffMark.NEW) == old
    assert "".join(piece.text for piece in pieces if piece.mark is not DiffMark.OLD) == new
    assert all(piece.text for piece in pieces)
    assert has_word_changes(pieces) is (old != new)
    # No two neighbours of one kind.
    assert all(first_piece.mark is not other.mark for first_piece, other in pairwise(pieces))


@pytest.mark.slow
def test_a_long_text_with_two_changes_far_apart_is_compared_quickly_and_well():
    text = " ".join(f"the word {number} of it" for number in range(1_000))
    changed = text.replace("word 10 ", "name 10 ").replace("word 990 ", "name 990 ")
    pieces = diff_words(text, changed)
    assert [piece.text for piece in pieces if piece.mark is DiffMark.OLD] == ["word", "word"]


def test_texts_that_are_not_compared():
    assert [piece.mark for piece in mark_text_unchanged("x")] == [DiffMark.SAME]
    assert [piece.mark for piece in mark_text_new("x")] == [DiffMark.NEW]
    assert mark_text_unchanged("") == mark_text_new("") == ()


def test_likeness_counts_shared_words():
    assert word_overlap("born in Arica", "Born in Lima") == 4 / 6
    assert word_overlap("a", "b") == word_overlap("", "") == 0
    assert word_overlap("a a b", "a a b") == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (["a b c", "d e f"], ["a b x", "d e y"], [0, 1]),
        # One step more in front, one less at the end.
        (["a b c", "d e f"], ["n n n", "a b c"], [None, 0]),
        (["a b c", "d e f", "g h i"], ["g h i"], [2]),
        # In order: of two that cross, one has no counterpart.
        (["a b c d", "e f"], ["e f", "a b c d"], [None, 0]),
        (["a b"], ["c d"], [None]),
        # Two of five words are the same: not enough for a pair.
        (["a b c d e"], ["a b v w x"], [None]),
        # Each at most once.
        (["a b c"], ["a b c", "a b c"], [0, None]),
        ([], ["a"], [None]),
        (["a"], [], []),
    ],
)
def test_counterparts(old, new, expected):
    pairs = match_text_counterparts(old, new)
    if expected == [0, None]:
        assert sorted(pairs, key=str) == [0, None]
    else:
        assert pairs == expected
