"""Sentences of prose; every sentence is a piece of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.segmentation import SentenceWords, split_sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("Dr. Ruiz met Mr. Hale. They left.", ["Dr. Ruiz met Mr. Hale.", "They left."]),
        ("J. K. Rowling wrote it. So did I. Nobody else.", ["J. K. Rowling wrote it.", "So did I.", "Nobody else."]),
        ("The U.S. Navy came at 5 p.m. Then it left.", ["The U.S. Navy came at 5 p.m.", "Then it left."]),
        ("It cost 3.5 million. That is much.", ["It cost 3.5 million.", "That is much."]),
        ('He said "Stop." She did not.', ['He said "Stop."', "She did not."]),
        ("Is it so? Yes! It is.", ["Is it so?", "Yes!", "It is."]),
        ("Help! was their fifth album. It sold.", ["Help! was their fifth album.", "It sold."]),
        ("He waited … and left. Then rain.", ["He waited … and left.", "Then rain."]),
        ("Blue Harbour (dir. Ana Ruiz) is a film. She was born in Arica.",
         ["Blue Harbour (dir. Ana Ruiz) is a film.", "She was born in Arica."]),
        ("Born on 3 Jan. 1950 in Arica, Chile.", ["Born on 3 Jan. 1950 in Arica, Chile."]),
        ("It is e.g. Arica. Or not.", ["It is e.g. Arica.", "Or not."]),
        ("No full stop", ["No full stop"]),
        ("", []),
        ("   ", []),
        ("He lives in St. Louis. It is big.", ["He lives in St. Louis.", "It is big."]),
        ("“It rained.” “It did not.”", ["“It rained.”", "“It did not.”"]),
        ("Smith et al. found it. We agree.", ["Smith et al. found it.", "We agree."]),
    ],
)  # fmt: skip
def test_sentences(text, found):
    assert split_sentences(text) == found


@pytest.mark.slow
@given(st.text(alphabet=st.sampled_from("abAB.!?…\"'”( )1I\u00e9"), max_size=60))
def test_nothing_is_lost_or_made_up(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_abbreviations_of_another_language_end_no_sentence():
    text = "Der Plan gilt lt. Amt bis S. 3. Dann nicht."
    words = SentenceWords(frozenset({"lt"}), frozenset({"s"}))
    assert split_sentences(text, words) == ["Der Plan gilt lt. Amt bis S. 3.", "Dann nicht."]


def test_ordinal_number_before_a_month_ends_no_sentence():
    words = SentenceWords(after_ordinal=frozenset({"juni"}))
    assert split_sentences("Es entsteht ab dem 4. Juni. Es hat 4. Dann kam er.", words) == [
        "Es entsteht ab dem 4. Juni.",
        "Es hat 4.",
        "Dann kam er.",
    ]


def test_letter_that_names_a_thing_ends_a_sentence_where_the_thing_is_named_again():
    assert split_sentences("Hall A. Hall A has 320 seats.") == ["Hall A.", "Hall A has 320 seats."]


def test_unit_ends_a_sentence_before_a_word_that_begins_one():
    assert split_sentences("It runs on 24 V. The rail has 24 V.") == ["It runs on 24 V.", "The rail has 24 V."]
