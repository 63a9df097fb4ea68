"""Any difference is looked at again, and so is what cannot be right; everything else is taken over untouched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.values.judgment import Ineligibility, Judgment, LocalFailure, QuestionScreening, StepJudgment
from eclose_annotate.adjudication import (
    AdjudicationTrigger,
    LabelOrigin,
    compare_two_screenings,
    find_adjudication_triggers,
    settle_judgment,
)

SOUND, EMPTY = StepJudgment(True, True), StepJudgment(False)
UNSOUND = StepJudgment(True, False, LocalFailure.INVALID_INFERENCE)
GOOD = Judgment("r", "A1", (SOUND, UNSOUND, EMPTY), aligned=True, closed=True, complete=True, correct=True)
OTHER = replace(GOOD, judge="A2")


@pytest.mark.parametrize(
    ("changes", "trigger"),
    [
        ({"steps": (EMPTY, UNSOUND, EMPTY)}, AdjudicationTrigger.SUBSTANTIVE),
        ({"steps": (UNSOUND, UNSOUND, EMPTY)}, AdjudicationTrigger.SOUNDNESS),
        ({"steps": (SOUND, replace(UNSOUND, failure=LocalFailure.OTHER), EMPTY)}, AdjudicationTrigger.FAILURE),
        ({"aligned": False}, AdjudicationTrigger.ALIGNMENT),
        ({"closed": False}, AdjudicationTrigger.CLOSURE),
        ({"complete": False}, AdjudicationTrigger.COMPLETENESS),
        ({"correct": False}, AdjudicationTrigger.CORRECTNESS),
        ({"correct": None}, AdjudicationTrigger.CORRECTNESS),
    ],
)
def test_one_difference_of_any_kind_is_enough(changes, trigger):
    assert find_adjudication_triggers([GOOD, replace(OTHER, **changes)]) == (trigger,)
    assert settle_judgment([GOOD, replace(OTHER, **changes)]) is None


def test_two_who_agree_on_what_cannot_be_right_are_looked_at_again():
    odd = replace(GOOD, steps=(SOUND,), correct=False)
    assert find_adjudication_triggers([odd, replace(odd, judge="A2")]) == (AdjudicationTrigger.INCONSISTENT,)
    final = settle_judgment([odd, replace(odd, judge="A2")], replace(odd, judge="A7", closed=False))
    assert (final.origin, final.changed) == (LabelOrigin.ADJUDICATED, {"C": (True, True)})


def test_one_inconsistent_judgment_of_two_is_a_trigger_of_its_own():
    consistent = replace(GOOD, steps=(SOUND,))
    inconsistent = replace(consistent, correct=False)
    for pair in ([consistent, inconsistent], [inconsistent, consistent]):
        assert find_adjudication_triggers(pair) == (AdjudicationTrigger.CORRECTNESS, AdjudicationTrigger.INCONSISTENT)


def test_those_who_agree_need_nobody():
    final = settle_judgment([GOOD, OTHER])
    assert (final.judgment, final.origin, final.triggers) == (GOOD, LabelOrigin.AGREED, ())


def test_nothing_holds_before_all_have_looked():
    assert settle_judgment([GOOD]) is None
    assert settle_judgment([], required=1) is None
    assert settle_judgment([GOOD], required=1).origin is LabelOrigin.SINGLE
    assert settle_judgment([GOOD, OTHER], required=3) is None
    assert find_adjudication_triggers([GOOD, OTHER, replace(OTHER, aligned=False)]) == (AdjudicationTrigger.ALIGNMENT,)


def test_what_was_adjudicated_holds_whole_and_says_what_the_others_said():
    second, third = replace(OTHER, closed=False, complete=False), replace(GOOD, judge="A7", complete=False)
    final = settle_judgment([GOOD, second], third)
    assert (final.judgment, final.triggers) == (third, (AdjudicationTrigger.CLOSURE, AdjudicationTrigger.COMPLETENESS))
    assert final.changed == {"C": (True, False), "K": (True, False)}


def test_judgments_of_different_traces_are_no_pair():
    with pytest.raises(ValueError, match="3 steps and 1"):
        find_adjudication_triggers([GOOD, replace(OTHER, steps=(SOUND,))])


def test_questions_are_looked_at_again_for_their_eligibility_or_their_reason():
    no = QuestionScreening("q", "S1", False, Ineligibility.MISSING_LINK)
    assert compare_two_screenings(no, replace(no, judge="S2")) == ()
    assert compare_two_screenings(no, replace(no, code=Ineligibility.ILL_POSED)) == (AdjudicationTrigger.REASON,)
    assert compare_two_screenings(no, QuestionScreening("q", "S2", True)) == (AdjudicationTrigger.ELIGIBILITY,)
