"""Criteria of a user's own: their names, labels and parts."""

import pytest

from eclose.errors import SettingError
from eclose.values.own_criterion import OwnCriterion


def test_parts_have_the_order_of_the_prompt():
    assert OwnCriterion("tone", "Polite?", sees=("answer", "question", "answer")).sees == ("question", "answer")


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"name": "Tone"}, "a name has small letters"),
        ({"question": " "}, "the question is empty"),
        ({"labels": ("yes", "yes")}, "two different texts"),
        ({"labels": ("yes",)}, "two different texts"),
        ({"labels": ("yes", " ")}, "two different texts"),
        ({"sees": ()}, "sees names some of"),
        ({"sees": ("tone",)}, "sees names some of"),
    ],
)
def test_criterion_that_no_judge_can_decide_is_refused(fields, problem):
    with pytest.raises(SettingError, match=problem):
        OwnCriterion(**{"name": "tone", "question": "Polite?", **fields})
