"""Responses and questions with all that was said of them, and what holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose_annotate.adjudication import AdjudicationTrigger, LabelOrigin
from eclose_annotate.annotations import (
    AWAITING_ADJUDICATION,
    AWAITING_SCREENING,
    NOT_FINISHED,
    Annotation,
    ScreeningAnnotation,
    group_annotations,
)
from eclose_annotate.forms import AnnotationTaskKind
from tests.results.records import L1, annotation, grouped, grouped_questions, screening


def test_two_who_agree_settle_a_response():
    (response,) = grouped(annotation("r", "A2"), annotation("r", "A1"))
    assert [each.annotator for each in response.annotations] == ["A1", "A2"]
    assert (response.final.origin, response.open_reason, response.triggers, response.complete) == (
        LabelOrigin.AGREED,
        None,
        (),
        True,
    )


def test_a_difference_waits_for_an_adjudicator():
    rows = [annotation("r", "A1"), annotation("r", "A2", labels="1011")]
    (response,) = grouped(*rows)
    assert (response.final, response.open_reason, response.triggers) == (
        None,
        AWAITING_ADJUDICATION,
        (AdjudicationTrigger.CLOSURE,),
    )
    (response,) = grouped(*rows, annotation("r", "A7", adjudicates=True))
    assert (response.final.origin, response.open_reason) == (LabelOrigin.ADJUDICATED, None)
    assert response.final.changed == {"C": (True, False)}
    assert [row.annotator for row in response.records] == ["A1", "A2", "A7"]


def test_what_is_unfinished_says_how_far_it_is():
    nobody = Annotation("r", "q", AnnotationTaskKind.RESPONSE, 2)
    (response,) = grouped(nobody)
    assert (response.open_reason, response.judgments, list(response.records)) == (NOT_FINISHED, (), [nobody])
    (response,) = grouped(annotation("r", "A1", asked=3), annotation("r", "A2", asked=3, labels="0111"))
    assert (response.open_reason, response.triggers) == ("2 of 3 have finished", ())


def test_one_person_alone_is_settled_and_goes_to_nobody():
    (response,) = grouped(annotation("r", "A1", asked=1, labels="1110"))
    assert (response.final.origin, response.triggers) == (LabelOrigin.SINGLE, ())


def test_more_than_were_asked_must_agree_all_the_same():
    (response,) = grouped(annotation("r", "A1", asked=1), annotation("r", "A2", asked=1, labels="0111"))
    assert response.open_reason == AWAITING_ADJUDICATION


def test_a_difference_that_was_undone_when_the_case_was_taken_leaves_it_to_the_adjudicator():
    rows = [annotation("r", name, queued=True) for name in ("A1", "A2")]
    (response,) = grouped(*rows)
    assert (response.final, response.triggers) == (None, (AdjudicationTrigger.AMENDMENT,))
    (response,) = grouped(*rows, annotation("r", "A7", [L1], adjudicates=True, queued=True))
    assert (response.final.origin, response.final.judgment.steps) == (LabelOrigin.ADJUDICATED, (L1,))
    assert response.final.changed == {"L": (True, True)}


def test_the_flag_of_a_single_annotator_waits_where_it_was_sent_to_an_adjudicator():
    flagged = annotation("r", "A1", asked=1, labels="1110", queued=True)
    (response,) = grouped(flagged)
    assert (response.open_reason, response.triggers) == (AWAITING_ADJUDICATION, (AdjudicationTrigger.INCONSISTENT,))
    (response,) = grouped(flagged, annotation("r", "A7", adjudicates=True, asked=1, labels="1010", queued=True))
    assert (response.final.origin, response.final.changed) == (LabelOrigin.ADJUDICATED, {"C": (True,)})


@pytest.mark.parametrize(
    "screenings, reason",
    [
        ([screening("q", "S1"), screening("q", "S2")], None),
        ([screening("q", "S1", "N4"), screening("q", "S2", "N4")], "ineligible (N4)"),
        ([screening("q", "S1", "N4"), screening("q", "S2")], AWAITING_SCREENING),
        ([ScreeningAnnotation("q", 2)], AWAITING_SCREENING),
    ],
)
def test_screening_decides_on_the_responses_where_it_is_required(screenings, reason):
    rows = [annotation("r", "A1", question="q"), annotation("r", "A2", question="q")]
    annotations = group_annotations(rows, [replace(row, decides=True) for row in screenings])
    assert (annotations.responses[0].open_reason, annotations.responses[0].final is None) == (
        reason,
        reason is not None,
    )
    assert annotations.eligible_responses == (() if reason == "ineligible (N4)" else annotations.responses)
    # Advisory screening excludes nothing.
    assert group_annotations(rows, screenings).responses[0].final is not None


@pytest.mark.parametrize(
    "rows,open_,eligible",
    [
        ([screening("q", "S1"), screening("q", "S2")], None, True),
        ([screening("q", "S1"), screening("q", "S2", "N1")], AWAITING_ADJUDICATION, None),
        ([screening("q", "S1", "N2"), screening("q", "S2", "N1")], AWAITING_ADJUDICATION, None),
        ([screening("q", "S1"), screening("q", "S2", "N1"), screening("q", "S3", "N1", adjudicates=True)], None, False),
        ([screening("q", "S1")], "1 of 2 have finished", None),
        ([ScreeningAnnotation("q", 2)], NOT_FINISHED, None),
        ([screening("q", "S1", asked=1)], None, True),
    ],
)
def test_questions_are_settled_the_same_way(rows, open_, eligible):
    (question,) = grouped_questions(rows)
    assert question.open_reason == open_
    assert (question.final and question.final.eligible) == eligible
    assert list(question.records) == rows


def test_reasons_of_screening_are_compared_where_both_say_no():
    (question,) = grouped_questions([screening("q", "S1", "N3"), screening("q", "S2", "N1")])
    assert question.triggers == (AdjudicationTrigger.REASON,)


def test_an_adjudicated_question_has_all_its_lines():
    rows = [screening("q", "S1"), screening("q", "S2", "N1"), screening("q", "S3", adjudicates=True)]
    (question,) = grouped_questions(rows[::-1])
    assert list(question.records) == rows
