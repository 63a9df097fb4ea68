"""Any difference is looked at again, and so is what cannot be right; everything else is taken over untouched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.annotation.adjudication import LabelOrigin, Trigger, find_screening_triggers, find_triggers, settle
from eclose.core.judgment import Ineligibility, Judgment, LocalFailure, Screening, StepJudgment

SOUND, EMPTY = StepJudgment(True, True), StepJudgment(False)
UNSOUND = StepJudgment(True, False, LocalFailure.INVALID_INFERENCE)
GOOD = Judgment("r", "A1", (SOUND, UNSOUND, EMPTY), aligned=True, closed=True, complete=True, correct=True)
OTHER = replace(GOOD, judge="A2")


@pytest.mark.parametrize(
    ("changes", "trigger"),
    [
        ({"steps": (EMPTY, UNSOUND, EMPTY)}, Trigger.SUBSTANTIVE),
        ({"steps": (UNSOUND, UNSOUND, EMPTY)}, Trigger.SOUNDNESS),
        ({"steps": (SOUND, replace(UNSOUND, failure=LocalFailure.OTHER), EMPTY)}, Trigger.FAILURE),
        ({"aligned": False}, Trigger.ALIGNMENT),
        ({"closed": False}, Trigger.CLOSURE),
        ({"complete": False}, Trigger.COMPLETENESS),
        ({"correct": False}, Trigger.CORRECTNESS),
        ({"correct": None}, Trigger.CORRECTNESS),
    ],
)
def test_one_difference_of_any_kind_is_enough(changes, trigger):
    assert find_triggers([GOOD, replace(OTHER, **changes)]) == (trigger,)
    assert settle([GOOD, replace(OTHER, **changes)]) is None


def test_two_who_agree_on_what_cannot_be_right_are_looked_at_again():
    odd = replace(GOOD, steps=(SOUND,), correct=False)
    assert find_triggers([odd, replace(odd, judge="A2")]) == (Trigger.INCONSISTENT,)
    found = settle([odd, replace(odd, judge="A2")], replace(odd, judge="A7", closed=False))
    assert (found.origin, found.changed) == (LabelOrigin.ADJUDICATED, {"C": (True, True)})


def test_those_who_agree_need_nobody():
    found = settle([GOOD, OTHER])
    assert (found.judgment, found.origin, found.triggers) == (GOOD, LabelOrigin.AGREED, ())


def test_nothing_holds_before_all_have_looked():
    assert settle([GOOD]) is None
    assert settle([], required=1) is None
    assert settle([GOOD], required=1).origin is LabelOrigin.SINGLE
    assert settle([GOOD, OTHER], required=3) is None
    assert find_triggers([GOOD, OTHER, replace(OTHER, aligned=False)]) == (Trigger.ALIGNMENT,)


def test_what_was_adjudicated_holds_whole_and_says_what_the_others_said():
    second, third = replace(OTHER, closed=False, complete=False), replace(GOOD, judge="A7", complete=False)
    found = settle([GOOD, second], third)
    assert (found.judgment, found.triggers) == (third, (Trigger.CLOSURE, Trigger.COMPLETENESS))
    assert found.changed == {"C": (True, False), "K": (True, False)}


def test_judgments_of_different_traces_are_no_pair():
    with pytest.raises(ValueError, match="3 steps and 1"):
        find_triggers([GOOD, replace(OTHER, steps=(SOUND,))])


def test_questions_are_looked_at_again_for_their_eligibility_or_their_reason():
    no = Screening("q", "S1", False, Ineligibility.MISSING_LINK)
    assert find_screening_triggers(no, replace(no, judge="S2")) == ()
    assert find_screening_triggers(no, replace(no, code=Ineligibility.ILL_POSED)) == (Trigger.REASON,)
    assert find_screening_triggers(no, Screening("q", "S2", True)) == (Trigger.ELIGIBILITY,)
