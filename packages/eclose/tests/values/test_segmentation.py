"""Traces come in all shapes; whatever the shape, every step is a piece of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.segmentation import TraceLayout, segment_prose, segment_trace, split_sentences, trace_from_step_texts


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


def test_numbered_lines_are_steps_as_they_are_and_a_line_without_a_number_goes_on():
    found = segment_trace("1. Ana directed it. It is a film.\n   A good one.\n2. She was born in Arica.\n")
    assert found.shape is TraceLayout.LINES
    assert found.trace.texts == ("Ana directed it. It is a film. A good one.", "She was born in Arica.")


@pytest.mark.parametrize(
    "mark",
    ["1) ", "- ", "* ", "• ", "Step 1: ", "(1) ", "Step 1 - ", "**Step 1:** ", "### Step 1: ", "a) ", "(b) ", "– "],
)
def test_other_lists_are_lists_too(mark):
    found = segment_trace(f"{mark}One.\n{mark}Two.")
    assert (found.shape, found.trace.texts) == (TraceLayout.LINES, ("One.", "Two."))


def test_words_before_a_list_are_a_step_of_their_own():
    assert segment_trace("Let us see.\n1. One.\n2. Two.").trace.texts == ("Let us see.", "One.", "Two.")


def test_prose_is_cut_into_sentences():
    found = segment_trace("Blue Harbour was directed by Ana Ruiz. She was born in Arica.\n\nSo the answer is Arica.")
    assert found.shape is TraceLayout.PROSE
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
    found = segment_trace(log)
    assert found.shape is TraceLayout.AGENT
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
    assert segment_trace(" \n ").shape is TraceLayout.EMPTY
    assert len(segment_trace("").trace) == 0


def test_numbers_that_count_from_one_make_a_list_however_long_its_items_are():
    found = segment_trace("1. Ada\n   built it\n   long ago.\n   So they say.\n2. She left.\n   Then.\n   And then.")
    assert found.shape is TraceLayout.LINES
    assert found.trace.texts == ("Ada built it long ago. So they say.", "She left. Then. And then.")


@pytest.mark.parametrize("text", ["1. Ada built it.", "1. Ada built it.\n"])
def test_a_list_may_have_one_item(text):
    assert segment_trace(text).trace.texts == ("Ada built it.",)


@pytest.mark.parametrize(
    "text", ["In 1843\n1. FC Köln did not exist.", "7. That is so.", "1926 was warm.", "- 3 is less."]
)
def test_one_number_does_not_make_a_list(text):
    assert segment_trace(text).shape is TraceLayout.PROSE


def test_a_paragraph_behind_a_list_is_no_part_of_its_last_item():
    text = "1. Ada built it.\n\n   In 1843.\n2. She left.\n\nSo it is hers. That is all."
    assert segment_trace(text).trace.texts == ("Ada built it. In 1843.", "She left.", "So it is hers.", "That is all.")


def test_a_list_that_begins_with_its_paragraphs_keeps_them():
    text = "Let us see. What is known?\n\n1. One.\n\nAn aside.\n\n2. Two."
    assert segment_trace(text).trace.texts == ("Let us see.", "What is known?", "One.", "An aside.", "Two.")


def test_lines_that_break_in_mid_sentence_are_joined():
    text = "Ada Rowe built the bridge,\nand it stands. She was\nborn in Lund\nSo the answer is Lund"
    assert segment_trace(text).trace.texts == (
        "Ada Rowe built the bridge, and it stands.",
        "She was born in Lund",
        "So the answer is Lund",
    )


def test_what_stands_before_the_first_label_of_a_log_was_thought():
    found = segment_trace(
        "I must search.\nAction: search[x]\nAction Input: y\nObservation: Ada built\n\nit.\nAnswer: Ada"
    )
    assert (found.trace.texts, found.observations) == (("I must search.",), ("Ada built\nit.",))


def test_labels_of_a_log_may_be_adorned_and_its_question_is_no_thought():
    found = segment_trace(
        "Question: Who?\n**Thought 1:** Ada\ndid it. Or not.\n**Observation 1**: Ada.\nObservation 2:\n"
    )
    assert (found.trace.texts, found.observations) == (("Ada did it.", "Or not."), ("Ada.",))


def test_an_observation_alone_is_a_word_like_any_other():
    assert segment_trace("Observation: it rained. It was wet.").shape is TraceLayout.PROSE


def test_a_list_of_texts_is_a_trace_as_it_is():
    found = trace_from_step_texts(["Ada built it. She did.", " ", "She was\nborn in Lund.\n"])
    assert (found.shape, found.trace.texts) == (TraceLayout.LINES, ("Ada built it. She did.", "She was born in Lund."))
    assert trace_from_step_texts(["1. One.", "2. Two."]).trace.texts == ("One.", "Two.")
    assert trace_from_step_texts(["1. One.", "Two."]).trace.texts == ("1. One.", "Two.")
    assert trace_from_step_texts([" ", ""]).shape is trace_from_step_texts([]).shape is TraceLayout.EMPTY


def test_a_list_of_texts_may_be_a_log():
    found = trace_from_step_texts(["Thought: who? Ada.", "Action: search", "Observation: Ada."])
    assert (found.shape, found.trace.texts, found.observations) == (TraceLayout.AGENT, ("who?", "Ada."), ("Ada.",))


lines = st.sampled_from(
    [
        "Ada built it.",
        "she left. Then",
        "1. One. Two.",
        "2) Two",
        "- item",
        "  more",
        "",
        "Step 1: x.",
        "b) y",
        "隆。隆。",
    ]
)


@given(st.lists(lines, max_size=12).map("\n".join))
def test_every_step_is_a_piece_of_the_text_and_only_markers_are_missing(text):
    left = " ".join(text.split())
    for step in segment_trace(text).trace.texts:
        before, found, left = left.partition(" ".join(step.split()))
        assert found
        assert before.strip() in {"", "1.", "2)", "-", "Step 1:", "b)"}
    assert not left.strip()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Ada built it. [1] She was born in Lund.[2] She died.", [
            "Ada built it. [1]", "She was born in Lund.[2]", "She died."]),
        ("Ada built it [1]. See Dr. Ruiz et al. (2020), e.g. on p. 3. Done so.", [
            "Ada built it [1].", "See Dr. Ruiz et al. (2020), e.g. on p. 3.", "Done so."]),
        ("It cost 3.5 million.【4†source】 It opened.", ["It cost 3.5 million.【4†source】", "It opened."]),
        ("Two facts:\n- Ada built it. In Lund.\n- It opened.\n\nSo it is hers. Yes.", [
            "Two facts:", "Ada built it. In Lund.", "It opened.", "So it is hers.", "Yes."]),
        ("1. Ada built it.\n\n2. It opened.", ["Ada built it.", "It opened."]),
        ("Run this.\n```python\nx = 1. \n\nprint(x)\n```\nIt prints one.", [
            "Run this.", "```python x = 1. print(x) ```", "It prints one."]),
        ("Ada built it.\n\n---\n\nIt opened.", ["Ada built it.", "It opened."]),
        ("She was born in Lund.", ["She was born in Lund."]),
        ("Lund", []), ("42", []), ("In Lund.", []), ("", []), ("```\ncode", []), (" \n ", []),
    ],
)  # fmt: skip
def test_prose_is_split_into_sentences_items_and_code(text, steps):
    assert list(segment_prose(text).texts) == steps


def test_prose_of_any_size_takes_linear_time():
    text = "Ada built it. [1] She was born in Lund.[2] " * 1_000
    assert len(segment_prose(text)) == 2_000
