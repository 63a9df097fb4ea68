"""Forms become judgments in the words that all judges share."""

from __future__ import annotations

from eclose.values.judgment import (
    NO_ANSWER_REASON,
    NO_REFERENCE_REASON,
    NO_TRACE_REASON,
    Criterion,
    Ineligibility,
    LocalFailure,
)
from eclose_annotate.forms import AnnotationTaskKind, judgment_from_form, screening_from_form

FILLED = {
    "A": [
        {"substantive": "yes", "sound": "yes"}, {"substantive": "yes", "sound": "no", "failure": "L3"},
        {"substantive": "no"},
    ],
    "B": [{"aligned": "yes"}],
    "C": [{"closed": "no"}],
    "D": [{"correct": "no", "complete": "yes"}],
}  # fmt: skip


def test_four_passes_become_one_judgment():
    judgment = judgment_from_form("r", "A1", AnnotationTaskKind.RESPONSE, FILLED)
    assert [(step.substantive, step.sound, step.failure) for step in judgment.steps] == [
        (True, True, None), (True, False, LocalFailure.CONSTRAINT_OR_COMPUTATION), (False, None, None),
    ]  # fmt: skip
    verdict = judgment.verdict
    assert (verdict.locally_sound, verdict.aligned, verdict.closed) == (False, True, False)
    assert (verdict.complete, verdict.correct, judgment.unjudged) == (True, False, {})


def test_a_trace_of_one_step_is_no_different():
    answers = FILLED | {"A": FILLED["A"][:1]}
    judgment = judgment_from_form("r", "A1", AnnotationTaskKind.RESPONSE, answers)
    assert (len(judgment.steps), judgment.locally_sound, judgment.aligned) == (1, True, True)


def test_what_was_not_asked_has_no_label_and_a_reason():
    unanswered = {"A": FILLED["A"], "B": FILLED["B"], "D": [{"complete": "no"}]}
    judgment = judgment_from_form("r", "A1", AnnotationTaskKind.RESPONSE, unanswered)
    assert judgment.unjudged == {Criterion.CLOSURE: NO_ANSWER_REASON, Criterion.CORRECTNESS: NO_ANSWER_REASON}
    bare = {name: FILLED[name] for name in "BC"}
    assert judgment_from_form("r", "A1", AnnotationTaskKind.RESPONSE, bare).unjudged == {
        Criterion.LOCAL_SOUNDNESS: NO_TRACE_REASON,
        Criterion.COMPLETENESS: NO_REFERENCE_REASON,
        Criterion.CORRECTNESS: NO_REFERENCE_REASON,
    }


def test_the_short_form_decides_the_trace_as_a_whole():
    filled = {"B": [{"locally_sound": "no", "aligned": "yes"}], "C": FILLED["C"], "D": FILLED["D"]}
    judgment = judgment_from_form("r", "me", AnnotationTaskKind.SHORT, filled)
    assert (judgment.locally_sound, judgment.aligned, judgment.closed) == (False, True, False)


def test_a_screening_has_its_code():
    screening = screening_from_form("q", "S1", {"eligible": "no", "code": "N2"})
    assert (screening.eligible, screening.code) == (False, Ineligibility.MISSING_LINK)
    assert screening_from_form("q", "S1", {"eligible": "yes"}).code is None
