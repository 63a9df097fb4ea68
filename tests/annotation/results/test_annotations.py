"""Responses and questions with all that was said of them, and what holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.annotation.results.telling import L1, SOUND, judged, said, screened, told

from eclose.annotation.adjudication import Origin, Trigger
from eclose.annotation.forms import Kind
from eclose.annotation.results.annotations import NOBODY, WAITS, Annotation, ScreeningAnnotation, questions_of


def test_two_who_agree_settle_a_response():
    (one,) = told(said("r", "A2"), said("r", "A1"))
    assert [each.annotator for each in one.said] == ["A1", "A2"]
    assert (one.settled.origin, one.open, one.triggers, one.complete) == (Origin.AGREED, None, (), True)


def test_a_difference_waits_for_an_adjudicator():
    rows = [said("r", "A1"), said("r", "A2", labels="1011")]
    (one,) = told(*rows)
    assert (one.settled, one.open, one.triggers) == (None, WAITS, (Trigger.CLOSURE,))
    (one,) = told(*rows, said("r", "A7", adjudicates=True))
    assert (one.settled.origin, one.open) == (Origin.ADJUDICATED, None)
    assert one.settled.changed == {"C": (True, False)}
    assert [row.annotator for row in one.rows] == ["A1", "A2", "A7"]


def test_what_is_unfinished_says_how_far_it_is():
    nobody = Annotation("r", "q", Kind.RESPONSE, 2)
    (one,) = told(nobody)
    assert (one.open, one.first, list(one.rows)) == (NOBODY, (), [nobody])
    (one,) = told(said("r", "A1", asked=3), said("r", "A2", asked=3, labels="0111"))
    assert (one.open, one.triggers) == ("2 of 3 have finished", ())


def test_one_person_alone_is_settled_and_goes_to_nobody():
    (one,) = told(said("r", "A1", asked=1, labels="1110"))
    assert (one.settled.origin, one.triggers) == (Origin.SINGLE, ())


def test_more_than_were_asked_must_agree_all_the_same():
    (one,) = told(said("r", "A1", asked=1), said("r", "A2", asked=1, labels="0111"))
    assert one.open == WAITS


def test_agreement_rests_on_the_first_word_and_labels_on_the_last():
    changed = replace(said("r", "A2", [L1]), amended=judged("r", "A2"))
    (one,) = told(said("r", "A1"), changed)
    assert [judgment.locally_sound for judgment in one.first] == [True, False]
    assert one.settled.origin is Origin.AGREED
    assert one.settled.judgment.steps == (SOUND,)


@pytest.mark.parametrize(
    "rows,open_,eligible",
    [
        ([screened("q", "S1"), screened("q", "S2")], None, True),
        ([screened("q", "S1"), screened("q", "S2", "N1")], WAITS, None),
        ([screened("q", "S1", "N2"), screened("q", "S2", "N1")], WAITS, None),
        ([screened("q", "S1"), screened("q", "S2", "N1"), screened("q", "S3", "N1", adjudicates=True)], None, False),
        ([screened("q", "S1")], "1 of 2 have finished", None),
        ([ScreeningAnnotation("q", 2)], NOBODY, None),
        ([screened("q", "S1", asked=1)], None, True),
    ],
)
def test_questions_are_settled_the_same_way(rows, open_, eligible):
    (one,) = questions_of(rows)
    assert one.open == open_
    assert (one.settled and one.settled.eligible) == eligible
    assert list(one.rows) == rows


def test_reasons_of_screening_are_those_of_the_last_word():
    rows = [screened("q", "S1"), replace(screened("q", "S2", "N1"), amended=screened("q", "S2").screening)]
    (one,) = questions_of(rows)
    assert (one.triggers, one.settled.eligible, one.first[1].eligible) == ((), True, False)
    (one,) = questions_of([screened("q", "S1", "N3"), screened("q", "S2", "N1")])
    assert one.triggers == (Trigger.REASON,)


def test_an_adjudicated_question_has_all_its_lines():
    rows = [screened("q", "S1"), screened("q", "S2", "N1"), screened("q", "S3", adjudicates=True)]
    (one,) = questions_of(rows[::-1])
    assert list(one.rows) == rows
