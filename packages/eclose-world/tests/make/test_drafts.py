"""Pieces of families: words of a passage for others, and steps that count from where they begin."""

from __future__ import annotations

import pytest

from eclose.values.instance import Passage
from eclose_world.language import relations as rel
from eclose_world.language.claims import FactClaim
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.scene_facts import FactStatement
from eclose_world.make.drafts import (
    change_conclusion,
    insert_solution_move,
    replace_statement_value,
    write_numbered_steps,
)
from eclose_world.make.solve import SolutionMove

LIFE = "Ada Berger (born 12 March 1934) is a novelist. She was born in Kelport, and she died in Kelport. She was born on March 12, 1934."  # noqa: E501 - one passage
ADA = Passage("0", "Ada Berger", LIFE)


def test_the_same_words_stay_where_they_mean_something_else():
    rewording = replace_statement_value(ADA, 0, FactStatement(None, rel.BIRTH_PLACE, "Kelport"), "Halton")
    assert rewording.keep == ("she died in Kelport",)
    assert rewording.claim == "She was born in Kelport, and she died in Kelport."
    assert "born in Halton, and she died in Kelport" in rewording.passage.text


def test_a_value_is_exchanged_in_every_spelling_that_the_passage_has():
    replacement = replace_statement_value(ADA, 0, FactStatement(None, rel.BIRTH_DATE, "1934-03-12"), "1951-03-12")
    assert dict(replacement.pairs) == {"12 March 1934": "12 March 1951", "March 12, 1934": "March 12, 1951"}
    assert "1934" not in replacement.passage.text


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        (FactStatement(None, rel.BIRTH_PLACE, "Halton"), "Kelport"),
        (FactStatement(None, rel.SPOUSE, "Ada Berger"), "Felix Rell"),
    ],
    ids=["not told", "in the title"],
)
def test_what_words_alone_cannot_change_is_left(statement, value):
    assert replace_statement_value(ADA, 0, statement, value) is None


MOVES = (
    SolutionMove(FactClaim(RelationPhrase("Blue Harbour", (rel.DIRECTOR,)), "Ada Berger"), (3,)),
    SolutionMove(FactClaim(RelationPhrase("Ada Berger", (rel.BIRTH_PLACE,)), "Kelport"), (5,)),
    SolutionMove(FactClaim(RelationPhrase("Blue Harbour", (rel.DIRECTOR, rel.BIRTH_PLACE)), "Kelport"), (), (0, 1)),
)


def test_steps_rest_on_passages_and_on_steps_by_their_ids():
    steps = write_numbered_steps(MOVES, "x")
    assert [(step["passages"], step["premises"]) for step in steps] == [([3], []), ([5], []), ([], [1, 2])]
    rest = write_numbered_steps(MOVES, "x", {0: 2}, 4)
    assert [(step["passages"], step["premises"]) for step in rest] == [([5], []), ([], [2, 4])]


def test_a_move_in_between_shifts_what_rests_on_others():
    extra = SolutionMove(FactClaim(RelationPhrase("Felix Rell", (rel.BIRTH_PLACE,)), "Halton"), (1,))
    assert insert_solution_move(MOVES, 1, extra)[-1].premises == (0, 2)
    assert insert_solution_move(MOVES, 0, extra)[-1].premises == (1, 2)


def test_another_end_is_another_conclusion_or_the_last_fact():
    assert [move.claim.value for move in change_conclusion(MOVES, "Halton")] == ["Ada Berger", "Kelport", "Halton"]
    assert [move.claim.value for move in change_conclusion(MOVES[:2], "Halton")] == ["Ada Berger", "Halton"]
