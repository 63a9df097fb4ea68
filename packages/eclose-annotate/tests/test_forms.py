"""Passes in their order, fields where they are asked, and nothing that is not."""

from __future__ import annotations

import pytest

from eclose.prompts.locked_texts import load_prompt_text
from eclose.values.judgment import INELIGIBILITY_PRECEDENCE
from eclose_annotate.forms import (
    NO,
    PASSES_BY_TASK_KIND,
    YES,
    AnnotationTaskKind,
    applicable_annotation_passes,
    find_form_problems,
    next_open_pass,
)

A, B, C, D = PASSES_BY_TASK_KIND[AnnotationTaskKind.RESPONSE]
(S,) = PASSES_BY_TASK_KIND[AnnotationTaskKind.SCREENING]
SOUND = {"substantive": YES, "sound": YES}
UNSOUND = {"substantive": YES, "sound": NO, "failure": "L2"}
EMPTY = {"substantive": NO}


def told(one, entries, steps=None):
    return [str(problem) for problem in find_form_problems(one, entries, steps)]


@pytest.mark.parametrize(
    ("one", "entries", "steps"),
    [
        (A, [SOUND, UNSOUND, EMPTY], 3),
        (B, [{"aligned": NO}], None),
        (C, [{"closed": YES}], None),
        (D, [{"correct": NO, "complete": YES}], None),
        (S, [{"eligible": YES}], None),
        (S, [{"eligible": NO, "code": "N4"}], None),
    ],
)
def test_a_complete_form_may_be_submitted(one, entries, steps):
    assert told(one, entries, steps) == []


@pytest.mark.parametrize(
    ("one", "entries", "steps", "wrong"),
    [
        (A, [SOUND], 2, ["form: 1 entries instead of 2."]),
        (A, [{}], 1, ["step 1: substantive: is not decided."]),
        (A, [SOUND, {"substantive": YES}], 2, ["step 2: sound: is not decided."]),
        (A, [{"substantive": YES, "sound": NO}], 1, ["step 1: failure: is not decided."]),
        (A, [EMPTY | {"sound": YES}], 1, ["step 1: sound: is asked only where substantive is yes."]),
        (A, [SOUND | {"failure": "L1"}], 1, ["step 1: failure: is asked only where sound is no."]),
        (
            A,
            [UNSOUND | {"failure": "L9"}],
            1,
            ["step 1: failure: has no choice 'L9'. Choose from: L1, L2, L3, L4, L5."],
        ),
        (B, [{"aligned": YES, "closed": YES}], None, ["closed: is not asked here."]),
        (B, [], None, ["form: 0 entries instead of 1."]),
        (D, [{"correct": YES}], None, ["complete: is not decided."]),
        (S, [{"eligible": NO}], None, ["code: is not decided."]),
        (S, [{"eligible": YES, "code": "N1"}], None, ["code: is asked only where eligible is no."]),
    ],
)
def test_what_is_missing_odd_or_too_much_is_told(one, entries, steps, wrong):
    assert told(one, entries, steps) == wrong


def test_a_pass_opens_when_the_one_before_it_is_submitted():
    passes = applicable_annotation_passes(AnnotationTaskKind.RESPONSE)
    assert [next_open_pass(passes, "ABCD"[:count]) for count in range(5)] == [A, B, C, D, None]
    for skipped in ("B", "AC", "BA", "ABCDA"):
        with pytest.raises(ValueError, match="their order is"):
            next_open_pass(passes, list(skipped))


def names(**settings):
    return [
        (form.name, [field.name for field in form.fields])
        for form in applicable_annotation_passes(AnnotationTaskKind.RESPONSE, **settings)
    ]


def test_what_cannot_be_asked_is_not():
    assert [name for name, _ in names()] == ["A", "B", "C", "D"]
    assert names(answered=False)[2:] == [("D", ["complete"])]
    assert [name for name, _ in names(referenced=False)] == ["A", "B", "C"]
    assert [name for name, _ in names(steps=0)] == ["B", "C", "D"]


def test_reasons_stand_in_the_order_of_precedence_and_guidelines_exist():
    assert S.fields[1].choices == INELIGIBILITY_PRECEDENCE
    for passes in PASSES_BY_TASK_KIND.values():
        assert all(load_prompt_text(form.guideline).text for form in passes)
