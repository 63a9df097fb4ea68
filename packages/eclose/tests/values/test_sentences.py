"""Where sentences end, and where full stops end nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.segmentation import split_sentences
from tests.growth import grows_in_proportion
from tests.tables import each_row

# Sentences are parted by " | ".
CASES = [
    "He joined the U.S. Senate in 1950. | The U.S. Army paid him.",
    "She moved to the U.S. | She then left.",
    "He came to Washington, D.C. | It is big.",
    "He played No. 5. | It was good. | Chanel No. 5 is a perfume.",
    "So the answer is no. | Ada was born in Lund.",
    "So it is no. | I am sure.",
    "Louis No. IV is wrong. | See Vol. X there.",
    "There the cat sat. | The dog did not.",
    "Jones et al. showed it. | See Smith et al. (2015) for more. | Then see Smith et al. | They differ.",
    "It is 3.5 million. | Pi is 3.14. | Good.",
    'He said "I came. I saw. I won." | Then he left.',
    "He said “I came. I saw.” | Then he left.",
    '"Ada built it. | She was born in Lund."',
    '"Odd Film" is a film. | It is by "X".',
    '"Stop!" she said. | "Stop." she said again.',
    "He waited... | Then he left. | Wait… | What?",
    "The name We Are ... Robin is odd. | So is “... Baby One More Time”.",
    "The film (dir. A. Ruiz. It won.) is old. | It sold.",
    "(It did. | It did not.) | End.",
    "It is called AKB (Amri Karbi. | It is a (short) name.",
    "There are two reasons: 1. Ada built it. | 2. She left it. | So it is hers.",
    "See https://example.com/a.b?c=D. | Then go on. | Visit www.example.org. | It works.",
    "J. R. R. Tolkien wrote it. | George R.R. Martin did not. | E.B. White did. | So did P. A. Rao.",
    "Elwyn Brooks “E. B.” White wrote it. | Matthew “M.” Ward sang it.",
    "In World War I. | Germany lost. | I. M. Pei built it.",
    "Brown v. Board of Education was in 1954. | Roe vs. Wade followed.",
    "Warner Bros. Pictures made it. | It was made by Warner Bros. | The film sold.",
    "He was born c. 1500 (d. 1560). | Then he lived.",
    "It begins at 5 p.m. Eastern. | It ends at 7 p.m. | Ada left.",
    "Apple Inc. was founded in 1976. | It was made by Pixar Inc. | Pixar was founded in 1986.",
    "He works for two firms (X Ltd. and Y Co.). | 5 others do not. | He likes films (etc.) | 5 of them.",
    "ada built it. | she was born in lund. | so it is lund.",
    "We solve for x. | The value is 3.",
    "**Ada built it.** | She was born in Lund.",
    "¿Quién lo hizo? | ¡Ada! | Ella nació en Lund.",
    "She is 5'10\" tall. | He is 6'1\" tall. | They met.",
    "Lt. Gen. Grant met Lee on Apr. 9, 1865. | It was a Sun. | The war ended.",
    "Who directed \"What?\"? | Ada did.",
    '"Trot Lovers" and "Cheer Up!" (2015) are shows. | He sang.',
    "Author! Author! is a film. | Help!, their album, sold.",
    "In 44 B.C. Caesar died. | He was 55.",
    'It debuted on the U.S. "Billboard" chart. | It fell.',
    "In 1862. | Then at 10. | Done.",
]  # fmt: skip


@each_row(CASES)
def test_where_sentences_end(case):
    assert split_sentences(case.replace(" | ", " ")) == case.split(" | ")


@pytest.mark.parametrize(
    "case",
    ["艾达建造了它。|她出生在隆德！|真的吗？|是的。", "彼は「来た。見た。」と言った。|そして去った。"],
)
def test_scripts_that_leave_no_gap(case):
    assert split_sentences(case.replace("|", "")) == case.split("|")


@pytest.mark.parametrize(("sign", "closing"), ["()", "“”", '""'])
def test_what_is_never_closed_or_only_pages_later_holds_nothing_together(sign, closing):
    text = f"He saw {sign}one thing. " + "Then he left. " * 60
    assert len(split_sentences(text)) == len(split_sentences(f"{text}It was{closing} odd.")) - 1 == 61


def test_a_parenthesis_holds_no_page_together_though_others_are_closed_in_it():
    assert len(split_sentences("Ada ((left. ) " + "( He left. ) " * 60)) == 2


pieces = st.sampled_from(
    ["Ada", "he", "U.S.", "J.", "No.", "5", "3.5", "et al.", "etc.", "...", "…", ".", "!", "?", '"', "“", "”", "(", ")",
     "[", "]", "。", "！", "「", "」", "1.", "\n", "\t", "\u00a0", "a.m.", "I", "*", "—", ",", "Inc.", "隆", "\u2028"]
)  # fmt: skip


@pytest.mark.slow
@given(st.one_of(st.lists(pieces, max_size=30).map(" ".join), st.lists(pieces, max_size=30).map("".join), st.text()))
def test_nothing_is_lost_or_made_up_and_every_sentence_is_a_piece(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    offset = 0
    for sentence in sentences:
        assert sentence == sentence.strip() != ""
        offset = text.index(sentence, offset) + len(sentence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "repeats"),
    [(".", 50_000), ("a. ", 20_000), ("x (( A. ) ( A. ) (", 3_000), ("隆。", 20_000), ('x "A. B. ', 5_000)],
)
def test_time_grows_with_the_text_alone(part, repeats):
    assert grows_in_proportion(split_sentences, part, repeats)
