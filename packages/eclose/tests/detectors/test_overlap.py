"""Controls: their values on small texts, and a reason where there is none."""

from __future__ import annotations

import pytest

from eclose.detectors.overlap import TextControl, measure_controls, score_controls
from eclose.detectors.scores import Unscored
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace

QUESTION = "In which year was the director of Moonstruck born?"


def measure(*steps, answer="1926"):
    return measure_controls(QUESTION, Response("r", "q", Trace.of(*steps), answer))


def test_words_of_question_and_answer_in_the_last_step_alone():
    values = measure("The director of Moonstruck was born in 1926 in a year.", "Jewison was born in 1926.")
    # Of year, director, Moonstruck and born, the last step has one.
    assert values[TextControl.QUESTION_WORDS] == 1 / 4
    assert values[TextControl.ANSWER_WORDS] == 1
    assert values[TextControl.WORD_OVERLAP] == 1 / 4
    assert measure("It was 1927.")[TextControl.ANSWER_WORDS] == 0
    assert measure("It was July 1926.", answer="12 July 1926")[TextControl.WORD_OVERLAP] == 0


def test_the_smaller_overlap_counts():
    values = measure("The year the director of Moonstruck was born: unknown.")
    assert (values[TextControl.QUESTION_WORDS], values[TextControl.WORD_OVERLAP]) == (1, 0)


@pytest.mark.parametrize("last,expected", [("Thus, it is.", 1), ("In conclusion it is.", 1), ("It is thus so.", 0)])
def test_conclusion_words_open_the_last_step(last, expected):
    assert measure("Therefore.", last)[TextControl.CONCLUSION] == expected


def test_more_steps_score_higher():
    counts = [measure(*["A step."] * n)[TextControl.STEPS] for n in (1, 2, 5)]
    assert counts == [1 / 2, 2 / 3, 5 / 6]


def test_what_cannot_be_measured_has_a_reason():
    assert set(measure().values()) == {Unscored.NO_TRACE}
    for answer in (None, "", "?"):
        values = measure("A step.", answer=answer)
        assert values[TextControl.ANSWER_WORDS] == values[TextControl.WORD_OVERLAP] == Unscored.NO_ANSWER
        assert values[TextControl.QUESTION_WORDS] == 0


def test_scores_of_all_controls_and_none_without_a_question():
    instance = Instance("q", QUESTION, (Passage("p", "T", "Text."),))
    responses = [Response("r", "q", Trace.of("A step."), None), Response("s", "other", Trace.of("A step."), "x")]
    rows = list(score_controls({"q": instance}, responses))
    assert [row.model for row in rows] == list(TextControl)
    assert {row.response_id for row in rows} == {"r"}
    assert [row.unscored for row in rows] == ["no answer", None, "no answer", None, None]
