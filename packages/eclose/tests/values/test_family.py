"""The gates: the example family passes, and every single way to break it is named."""

from dataclasses import replace

import pytest

from eclose import Family, Instance, Passage, Trace
from eclose.values.family import EvidenceEdit, FamilyFinding, ProofStep, QuestionEdit, View, ViewKind
from eclose.values.family_rules import FamilyGate, check_family

EVIDENCE = (
    Passage("0", "The Lantern", "The Lantern was written by Ada Quist."),
    Passage("1", "Ada Quist", "Ada Quist was born in Paris, France."),
    Passage("2", "Berlin", "Berlin is the capital of Germany."),
)
EDITED = (EVIDENCE[0], replace(EVIDENCE[1], text="Ada Quist was born in Berlin, Germany."), EVIDENCE[2])
PROOF = (ProofStep(("0",)), ProofStep(("1",)), ProofStep(premises=(0, 1)))
QUESTION = "In which country was the author of The Lantern born?"


def view(kind, question, evidence, last, answer, place):
    trace = Trace.of("The Lantern was written by Ada Quist.", f"Ada Quist was born in {place}.", last)
    return View(kind, question, evidence, trace, answer, ("0", "1"), PROOF)


GOLD = view(ViewKind.GOLD, QUESTION, EVIDENCE, "The country is France.", "France", "Paris, France")
CHANGED = view(ViewKind.EVIDENCE_CF, QUESTION, EDITED, "The country is Germany.", "Germany", "Berlin, Germany")
ASKED = view(
    ViewKind.QUESTION_CF,
    "In which city was the author of The Lantern born?",
    EVIDENCE,
    "The city is Paris.",
    "Paris",
    "Paris, France",
)
EDIT = EvidenceEdit(CHANGED, passage_id="1", first_affected_step=1)
FAMILY = Family(
    "f",
    Instance("i", QUESTION, EVIDENCE, "France", aliases=("French Republic",)),
    GOLD,
    (EDIT,),
    QuestionEdit(ASKED),
)


def gold(**changes):
    return replace(FAMILY, gold=replace(GOLD, **changes))


def evidence(edit=EDIT, **changes):
    return replace(FAMILY, evidence_edits=(replace(edit, view=replace(CHANGED, **changes)),))


def asked(**changes):
    return replace(FAMILY, question_edit=QuestionEdit(replace(ASKED, **changes)))


def gates(family):
    return {failure.gate for failure in check_family(family)}


def test_the_example_of_the_paper_passes():
    assert check_family(FAMILY) == ()
    assert [view.kind for view in FAMILY.views] == list(ViewKind)


@pytest.mark.parametrize(
    ("family", "gate"),
    [
        (replace(FAMILY, evidence_edits=()), FamilyGate.WELL_FORMED),
        (gold(kind=ViewKind.EVIDENCE_CF), FamilyGate.WELL_FORMED),
        (gold(answer="Spain"), FamilyGate.GOLD_ANSWER),
        (gold(answer="the"), FamilyGate.WELL_FORMED),
        (gold(question="Other?"), FamilyGate.GOLD_INPUT),
        (gold(trace=Trace(()), proof=()), FamilyGate.WELL_FORMED),
        (gold(trace=Trace.of("Final answer: x", "b", "c")), FamilyGate.WELL_FORMED),
        (gold(trace=Trace.of("two\nlines", "b", "c")), FamilyGate.WELL_FORMED),
        (gold(support_ids=("1",)), FamilyGate.WELL_FORMED),
        (gold(support_ids=("0", "1", "9")), FamilyGate.IDENTIFIER_MEMBERSHIP),
        (gold(proof=PROOF[:2]), FamilyGate.WELL_FORMED),
        (gold(proof=(ProofStep(premises=(0,)), *PROOF[1:])), FamilyGate.WELL_FORMED),
        (gold(proof=(ProofStep(premises=(-1,)), *PROOF[1:])), FamilyGate.WELL_FORMED),
        (gold(proof=(ProofStep(("9",)), *PROOF[1:])), FamilyGate.IDENTIFIER_MEMBERSHIP),
        # Passage 2 is shown, but is not among the supporting passages E.
        (gold(proof=(ProofStep(("2",)), *PROOF[1:])), FamilyGate.IDENTIFIER_MEMBERSHIP),
        (gold(proof=(ProofStep(("0", "2")), *PROOF[1:])), FamilyGate.IDENTIFIER_MEMBERSHIP),
        (evidence(proof=(ProofStep(("2",)), *PROOF[1:])), FamilyGate.IDENTIFIER_MEMBERSHIP),
        (asked(proof=(ProofStep(("2",)), *PROOF[1:])), FamilyGate.IDENTIFIER_MEMBERSHIP),
        (gold(proof=(*PROOF[:2], ProofStep())), FamilyGate.WELL_FORMED),
        (evidence(support_ids=(), proof=()), FamilyGate.WELL_FORMED),
        (evidence(question="Other?"), FamilyGate.SAME_QUESTION),
        (evidence(evidence=EVIDENCE), FamilyGate.SINGLE_EDITED_PASSAGE),
        (evidence(evidence=(replace(EVIDENCE[0], text="x"), *EDITED[1:])), FamilyGate.SINGLE_EDITED_PASSAGE),
        (evidence(evidence=EDITED[:2]), FamilyGate.SINGLE_EDITED_PASSAGE),
        (evidence(evidence=(EDITED[0], replace(EDITED[1], title="Ada"), EDITED[2])), FamilyGate.UNEDITED_IDENTICAL),
        (evidence(evidence=(EDITED[0], replace(EDITED[1], id="8"), EDITED[2])), FamilyGate.UNEDITED_IDENTICAL),
        (evidence(evidence=(replace(EVIDENCE[0], text="x "), *EVIDENCE[1:])), FamilyGate.UNEDITED_IDENTICAL),
        (evidence(replace(EDIT, passage_id="2")), FamilyGate.EDIT_IN_SUPPORT),
        (evidence(trace=Trace.of("Other.", *CHANGED.trace.texts[1:])), FamilyGate.SHARED_PREFIX),
        (evidence(replace(EDIT, first_affected_step=0)), FamilyGate.FIRST_DIVERGENCE),
        (evidence(replace(EDIT, first_affected_step=2)), FamilyGate.SHARED_PREFIX),
        (evidence(replace(EDIT, first_affected_step=3)), FamilyGate.FIRST_DIVERGENCE),
        (evidence(replace(EDIT, first_affected_step=-1)), FamilyGate.FIRST_DIVERGENCE),
        (evidence(answer="France"), FamilyGate.ANSWER_CHANGED),
        (evidence(answer="the French Republic"), FamilyGate.ANSWER_CHANGED),
        (evidence(answer="Northern France"), FamilyGate.ANSWER_CHANGED),
        (evidence(evidence=(*EDITED[:2], replace(EDITED[2], id="1"))), FamilyGate.WELL_FORMED),
        (asked(evidence=EDITED), FamilyGate.SAME_EVIDENCE),
        (asked(question=QUESTION.upper()), FamilyGate.QUESTION_CHANGED),
        (asked(question=" "), FamilyGate.WELL_FORMED),
        (asked(question="Was the author of The Lantern born in Paris?"), FamilyGate.NO_ANSWER_LEAK),
        (asked(answer="France."), FamilyGate.ANSWER_CHANGED),
        (asked(support_ids=("0", "9")), FamilyGate.IDENTIFIER_MEMBERSHIP),
    ],
)
def test_every_breach_is_named(family, gate):
    assert gate in gates(family)


def test_two_passages_edited_are_both_refused():
    twice = (replace(EVIDENCE[0], text="x"), *EDITED[1:])
    assert FamilyGate.UNEDITED_IDENTICAL in gates(evidence(evidence=twice))


def test_edited_views_rest_on_supports_of_their_own():
    """An edit may lead to other passages, and several steps may all rest on one (appendices B.4 and B.5)."""
    elsewhere = (ProofStep(("2",)), ProofStep(("1",)), ProofStep(premises=(0, 1)))
    assert check_family(evidence(support_ids=("1", "2"), proof=elsewhere)) == ()
    assert check_family(asked(support_ids=("1", "2"), proof=elsewhere)) == ()
    one_passage = (ProofStep(("1",)), ProofStep(("1",)), ProofStep(premises=(0, 1)))
    assert check_family(asked(support_ids=("1",), proof=one_passage)) == ()
    assert FamilyGate.WELL_FORMED in gates(gold(support_ids=("1",), proof=one_passage))


def test_a_step_outside_the_support_is_named():
    (failure,) = check_family(gold(proof=(PROOF[0], ProofStep(("2",)), PROOF[2])))
    assert str(failure) == "gold: identifier_membership: step 2 rests on passage 2, which is not a supporting passage"


def test_an_offered_candidate_is_no_leak():
    question = "Who was born first, Ada Quist or Bo Lind?"
    family = replace(FAMILY, gold=replace(GOLD, question=question))
    family = replace(
        family,
        question_edit=QuestionEdit(
            replace(ASKED, question="Who was born last, Ada Quist or Bo Lind?", answer="Bo Lind")
        ),
    )
    assert FamilyGate.NO_ANSWER_LEAK not in gates(family)


def test_yes_and_no_cannot_leak():
    assert FamilyGate.NO_ANSWER_LEAK not in gates(asked(question="Is there no author of The Lantern?", answer="no"))


def test_a_failure_is_a_sentence():
    (failure,) = check_family(gold(answer="Spain"))
    assert str(failure) == "gold: gold_answer: 'Spain' does not match the reference 'France'"


def test_an_edit_knows_where_its_passage_stands():
    assert EDIT.passage_index == 1


def test_a_finding_without_objections_is_an_acceptance():
    finding = FamilyFinding("verify_target", "house/judge", {"valid": True})
    assert finding.accepted
    assert not replace(finding, objections=("valid",)).accepted
