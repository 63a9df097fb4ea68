"""Traces come in all shapes; whatever the shape, every step is a piece of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclosure.core.segmentation import Shape, segment, sentences


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
    assert sentences(text) == found


@given(st.text(alphabet=st.sampled_from("abAB.!?…\"'”( )1I\u00e9"), max_size=60))
def test_nothing_is_lost_or_made_up(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_numbered_lines_are_steps_as_they_are_and_a_line_without_a_number_goes_on():
    found = segment("1. Ana directed it. It is a film.\n   A good one.\n2. She was born in Arica.\n")
    assert found.shape is Shape.LINES
    assert found.trace.texts == ("Ana directed it. It is a film. A good one.", "She was born in Arica.")


@pytest.mark.parametrize("mark", ["1) ", "- ", "* ", "• ", "Step 1: ", "(1) "])
def test_other_lists_are_lists_too(mark):
    found = segment(f"{mark}One.\n{mark}Two.")
    assert (found.shape, found.trace.texts) == (Shape.LINES, ("One.", "Two."))


def test_words_before_a_list_are_a_step_of_their_own():
    assert segment("Let us see.\n1. One.\n2. Two.").trace.texts == ("Let us see.", "One.", "Two.")


def test_prose_is_cut_into_sentences():
    found = segment("Blue Harbour was directed by Ana Ruiz. She was born in Arica.\n\nSo the answer is Arica.")
    assert found.shape is Shape.PROSE
    assert len(found.trace) == 3


def test_of_an_agents_log_thoughts_are_steps_and_observations_are_evidence():
    log = """Thought 1: I must find the director. Then her birthplace.
Action 1: search[Blue Harbour]
Observation 1: Blue Harbour is a film
directed by Ana Ruiz.
Thought 2: Ana Ruiz directed it.
Action 2: search[Ana Ruiz]
Observation 2: Ana Ruiz was born in Arica.
Thought 3: So it is Arica.
Final Answer: Arica"""
    found = segment(log)
    assert found.shape is Shape.AGENT
    assert found.trace.texts == (
        "I must find the director.",
        "Then her birthplace.",
        "Ana Ruiz directed it.",
        "So it is Arica.",
    )
    assert found.observations == (
        "Blue Harbour is a film\ndirected by Ana Ruiz.",
        "Ana Ruiz was born in Arica.",
    )


def test_no_trace_is_no_trace():
    assert segment(" \n ").shape is Shape.EMPTY
    assert len(segment("").trace) == 0
