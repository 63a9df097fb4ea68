"""Segments of a text: whatever its shape, every step is a piece of it, and what is no step has a role."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.reading.languages import load_languages
from eclose.reading.segments import Role, Words, segment_text
from eclose.reading.text import claims_of, segment_protocol

ENGLISH = Words.of(load_languages()["en"])


def steps(text):
    return claims_of(segment_protocol(text, ENGLISH))


def roles(text):
    return [(part.text, part.role) for part in segment_text(text, ENGLISH) if part.role is not Role.CLAIM]


def test_numbered_lines_are_steps_as_they_are_and_a_line_without_a_number_goes_on():
    text = "1. Ana directed it. It is a film.\n   A good one.\n2. She was born in Arica.\n"
    assert steps(text) == ("Ana directed it. It is a film. A good one.", "She was born in Arica.")


@pytest.mark.parametrize(
    "mark",
    ["1) ", "- ", "* ", "• ", "Step 1: ", "(1) ", "Step 1 - ", "**Step 1:** ", "### Step 1: ", "a) ", "(b) ", "– "],
)
def test_other_lists_are_lists_too(mark):
    assert steps(f"{mark}One is odd.\n{mark}Two is not.") == ("One is odd.", "Two is not.")


def test_prose_is_cut_into_sentences():
    assert len(steps("Blue Harbour was directed by Ana Ruiz. She was born in Arica.\n\nSo it is Arica.")) == 3


def test_numbers_that_count_from_one_make_a_list_however_long_its_items_are():
    text = "1. Ada\n   built it\n   long ago.\n   So they say.\n2. She left.\n   Then.\n   And then."
    assert steps(text) == ("Ada built it long ago. So they say.", "She left. Then. And then.")


@pytest.mark.parametrize("text", ["1. Ada built it.", "1. Ada built it.\n"])
def test_list_may_have_one_item(text):
    assert steps(text) == ("Ada built it.",)


@pytest.mark.parametrize(
    "text", ["In 1843\n1. FC Köln did not exist.", "7. That is so.", "1926 was warm.", "- 3 is less."]
)
def test_one_number_does_not_make_a_list(text):
    assert " ".join(steps(text)) == " ".join(text.split())


def test_paragraph_behind_a_list_is_no_part_of_its_last_item():
    text = "1. Ada built it.\n\n   In 1843.\n2. She left.\n\nSo it is hers. That is all."
    assert steps(text) == ("Ada built it. In 1843.", "She left.", "So it is hers.", "That is all.")


def test_lines_that_break_in_mid_sentence_are_joined():
    text = "Ada Rowe built the bridge,\nand it stands. She was\nborn in Lund\nSo the bridge is hers"
    assert steps(text) == ("Ada Rowe built the bridge, and it stands.", "She was born in Lund", "So the bridge is hers")


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
def test_every_segment_is_a_piece_of_the_text_and_only_markers_are_missing(text):
    rest = " ".join(text.split())
    for part in segment_text(text, ENGLISH):
        before, piece, rest = rest.partition(" ".join(part.text.split()))
        assert piece
        assert before.strip() in {"", "1.", "2)", "-", "Step 1:", "b)"}
    assert not rest.strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada built it. [1] She was born in Lund.[2] She died.", [
            "Ada built it. [1]", "She was born in Lund.[2]", "She died."]),
        ("Ada built it [1]. See Dr. Ruiz et al. (2020), e.g. on p. 3. Done so.", [
            "Ada built it [1].", "See Dr. Ruiz et al. (2020), e.g. on p. 3.", "Done so."]),
        ("It cost 3.5 million.【4†source】 It opened.", ["It cost 3.5 million.【4†source】", "It opened."]),
        ("Two facts:\n- Ada built it. In Lund.\n- It opened.\n\nSo it is hers.", [
            "Ada built it. In Lund.", "It opened.", "So it is hers."]),
        ("1. Ada built it.\n\n2. It opened.", ["Ada built it.", "It opened."]),
        ("Ada built it.\n\n---\n\nIt opened.", ["Ada built it.", "It opened."]),
        ("| Hall | Seats |\n|--|--|\n| A | 320 |", ["| A | 320 |"]),
        ("1. **Early train**\n   - It departs at 7.\n2. **Late train**\n   - It departs at 8.", [
            "It departs at 7.", "It departs at 8."]),
        ("", []), ("```\ncode", []), (" \n ", []),
    ],
)  # fmt: skip
def test_claims_are_sentences_items_and_rows(text, expected):
    assert list(claims_of(segment_text(text, ENGLISH))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Run this.\n```python\nx = 1. \n\nprint(x)\n```\nIt prints one.",
            ("```python x = 1.  print(x) ```", Role.CODE),
        ),
        ("## Halls\nHall A has 320 seats.", ("Halls", Role.LAYOUT)),
        ("It opened [^1].\n\n[^1]: halls.pdf", ("[^1]: halls.pdf", Role.LAYOUT)),
        ("It opened.\n\nSources:\n- halls.pdf", ("Sources:", Role.LAYOUT)),
        ("Let me check the plan. It opened.", ("Let me check the plan.", Role.PLAN)),
        ("It opened. So the answer is Lund.", ("So the answer is Lund.", Role.NAMES_ANSWER)),
    ],
)
def test_what_is_no_claim_is_kept_with_its_role(text, expected):
    assert expected in roles(text)


def test_prose_of_any_size_takes_linear_time():
    text = "Ada built it. [1] She was born in Lund.[2] " * 1_000
    assert len(steps(text)) == 2_000
