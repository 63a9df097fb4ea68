"""What an edit did to a passage: one claim, its repetitions, and nothing beside it; and whether all fits together."""

from __future__ import annotations

import pytest

from eclose.values.instance import Passage
from eclose_world.language.questions import parse_question
from eclose_world.language.values import ValueKind, parse_value
from eclose_world.oracle.edit_validity import (
    is_coherent_edit,
    is_localized_edit,
    is_same_answer_kind,
    list_surface_forms,
)

PERSON = (
    "Ada Berger (born 12 March 1934) is a novelist. She was born on March 12, 1934. She was married to Tomas Farkas."
)


def passage(text, title="Ada Berger"):
    return Passage("0", title, text)


def edited(**words):
    """The passage with words for words; underscores stand for blanks."""
    text = PERSON
    for old, new in words.items():
        text = text.replace(old.replace("_", " "), new)
    return passage(text)


def test_a_value_may_change_in_every_spelling_and_nothing_else_may():
    assert is_localized_edit(passage(PERSON), passage(PERSON.replace("1934", "1951"))) is True
    assert is_localized_edit(passage(PERSON), edited(Tomas_Farkas="Felix Rell")) is True
    half = passage(PERSON.replace("12 March 1934", "12 March 1951"))
    assert is_localized_edit(passage(PERSON), half) is False  # two birth dates now
    assert (
        is_localized_edit(
            passage(PERSON), passage(PERSON.replace("1934", "1951").replace("Tomas Farkas", "Felix Rell"))
        )
        is False
    )
    assert is_localized_edit(passage(PERSON), passage(PERSON)) is False
    assert is_localized_edit(passage(PERSON), edited(novelist="singer", Tomas_Farkas="Felix Rell")) is False


def test_words_that_claim_nothing_count_too():
    text = "Blue Harbour is a comedy film. Blue Harbour was released in 1994."
    other = text.replace("comedy", "horror").replace("1994", "1987")
    assert (
        is_localized_edit(passage(text, "Blue Harbour"), passage(text.replace("1994", "1987"), "Blue Harbour")) is True
    )
    assert is_localized_edit(passage(text, "Blue Harbour"), passage(other, "Blue Harbour")) is False


def test_what_cannot_be_read_is_neither():
    odd = passage(f"{PERSON} Who would have thought it.")
    assert is_localized_edit(passage(PERSON), odd) is None
    assert is_coherent_edit((passage(PERSON),), (odd,), 0) is None


def fits(after, *others, before=PERSON):
    passages = (passage(before), *others)
    return is_coherent_edit(passages, (passage(after), *others), 0)


def test_nobody_is_their_own_kin():
    assert fits(PERSON.replace("Tomas Farkas", "Felix Rell")) is True
    assert fits(PERSON.replace("Tomas Farkas", "Ada Berger")) is False
    father = "Ada Berger is a novelist. The father of Ada Berger was Felix Rell. She was married to Tomas Farkas."
    assert fits(father.replace("Tomas Farkas", "Felix Rell"), before=father) is False
    assert fits(father.replace("Felix Rell", "Judit Farkas"), before=father) is False  # no father
    child = Passage("1", "Piers Adeyemi", "Piers Adeyemi is a singer. The mother of Piers Adeyemi was Ada Berger.")
    assert fits(father.replace("Felix Rell", "Piers Adeyemi"), child, before=father) is False
    assert fits(father.replace("Felix Rell", "Piers Adeyemi"), before=father) is True


def test_another_passage_may_not_still_tell_the_old_claim():
    again = Passage("1", "Tomas Farkas", "Tomas Farkas is a singer. Ada Berger was married to Tomas Farkas.")
    assert fits(PERSON.replace("Tomas Farkas", "Felix Rell"), again) is False


def test_nobody_dies_before_they_were_born():
    life = "Ada Berger (12 March 1934 to 3 May 1990) was a novelist."
    assert fits(life.replace("1934", "1951"), before=life) is True
    assert fits(life.replace("1934", "1995"), before=life) is False


@pytest.mark.parametrize(
    ("question", "one", "other", "same"),
    [
        ("When was Ada Berger born?", "12 March 1934", "March 12, 1951", True),
        ("When was Ada Berger born?", "12 March 1934", "1951", False),
        ("Who was the spouse of Ada Berger?", "Tomas Farkas", "Felix Rell", True),
        ("Who was the spouse of Ada Berger?", "Tomas Farkas", "1951", False),
        ("Who was the spouse of Ada Berger?", "Tomas Farkas", "Upper Kelport", False),
        ("Who was the spouse of Ada Berger?", "Tomas Farkas", "unknown", False),
        ("Which film was released first, Blue Harbour or Paper Kingdom?", "Blue Harbour", "Paper Kingdom", True),
        ("Which film was released first, Blue Harbour or Paper Kingdom?", "Blue Harbour", "Silver Rain", False),
        ("Were Ada Berger and Felix Rell born in the same city?", "yes", "no", True),
        ("Were Ada Berger and Felix Rell born in the same city?", "yes", "Kelport", False),
        ("How many calendar years did Ada Berger live?", "56", "61", True),
        ("How many calendar years did Ada Berger live?", "56", "Kelport", False),
    ],
)
def test_answers_of_one_kind(question, one, other, same):
    assert is_same_answer_kind(parse_question(question), one, other) is same


@pytest.mark.parametrize(
    ("kind", "value"),
    [(ValueKind.DATE, "1934-03-12"), (ValueKind.NUMBER, "12345"), (ValueKind.NUMBER, "912"), (ValueKind.MINUTES, "95"),
     (ValueKind.YEAR, "1994"), (ValueKind.NAME, "Ada Berger")],
)  # fmt: skip
def test_every_form_reads_back(kind, value):
    assert {parse_value(kind, form) for form in list_surface_forms(kind, value)} == {value}
