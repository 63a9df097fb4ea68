"""The oracle's conditions on families: none against a correct one, and the right one against each that was broken."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    ROLE_REPLY_SCHEMAS,
    ConstructionRole,
    SourceQuestionDefect,
)
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import make_world_item
from eclose_world.oracle.family_conditions import (
    ReasonedResponse,
    check_evidence_switch,
    check_question_switch,
    check_target_response,
    find_family_defects,
    is_answer_warranted,
    is_only_warranted_answer,
    label_warranted_steps,
    screen_evidence_edit,
    screen_question_edit,
    screen_source,
)

PROFILES = ("2wiki", "musique", "hotpot", "short-easy", "short-hard")


@pytest.fixture(scope="module")
def families():
    return [family for profile in PROFILES for family in islice(make_world_families(profile, 3), 12)]


@pytest.mark.slow
def test_nothing_is_wrong_with_a_correct_family(families):
    assert [find_family_defects(family) for family in families] == [()] * len(families)


def broken_gold(family, **changes):
    return replace(family, gold=replace(family.gold, **changes))


def broken_edit(family, **changes):
    edit = family.evidence_edits[0]
    return replace(family, evidence_edits=(replace(edit, view=replace(edit.view, **changes)),))


def broken_question(family, **changes):
    return replace(
        family, question_edit=replace(family.question_edit, view=replace(family.question_edit.view, **changes))
    )


@pytest.mark.slow
def test_a_foreign_answer_is_seen_wherever_it_stands(families):
    for family in families:
        new, question_answer = family.evidence_edits[0].view.answer, family.question_edit.view.answer
        assert "gold: answer" in find_family_defects(broken_gold(family, answer=new))
        assert "gold: closure.closed" in find_family_defects(broken_gold(family, answer=new))
        defects = find_family_defects(broken_edit(family, answer=family.gold.answer))
        assert {"evidence edit 1: edited_after", "evidence edit 1: closure.edited"} <= set(defects)
        defects = find_family_defects(broken_question(family, answer=family.gold.answer))
        assert {"question edit: edited_warranted", "question edit: closure.closed"} <= set(defects)
        assert "question edit: degenerate" not in find_family_defects(broken_question(family, answer=question_answer))


@pytest.mark.slow
def test_a_foreign_trace_is_seen_wherever_it_stands(families):
    for family in families:
        gold, edit, question_trace = (
            family.gold.trace,
            family.evidence_edits[0].view.trace,
            family.question_edit.view.trace,
        )
        assert "gold: alignment.aligned" in find_family_defects(broken_gold(family, trace=question_trace))
        assert any(
            defect.startswith("gold: soundness") for defect in find_family_defects(broken_gold(family, trace=edit))
        )
        defects = find_family_defects(broken_edit(family, trace=gold))
        assert "evidence edit 1: switching.edited_after" in defects
        assert "evidence edit 1: closure.edited_to_original" in defects
        defects = find_family_defects(broken_question(family, trace=gold))
        assert {"question edit: alignment.edited", "question edit: alignment.edited_to_original"} <= set(defects)


@pytest.mark.slow
def test_the_first_affected_step_is_held_to(families):
    for family in families:
        edit = family.evidence_edits[0]
        later = replace(family, evidence_edits=(replace(edit, first_affected_step=edit.first_affected_step + 1),))
        defects = find_family_defects(later)
        assert {"evidence edit 1: no shared beginning", "evidence edit 1: prefix.after"} <= set(defects)
        if edit.first_affected_step:
            early = replace(family, evidence_edits=(replace(edit, first_affected_step=edit.first_affected_step - 1),))
            assert "evidence edit 1: switching.original_after" in find_family_defects(early)
        beyond = replace(family, evidence_edits=(replace(edit, first_affected_step=99),))
        assert "evidence edit 1: cannot read: switching.edited_after" in find_family_defects(beyond)


@pytest.mark.slow
def test_support_counts(families):
    for family in families:
        edited = {edit.passage_id for edit in family.evidence_edits}
        support = tuple(passage_id for passage_id in family.gold.support_ids if passage_id not in edited)
        defects = find_family_defects(broken_gold(family, support_ids=support))
        assert "evidence edit 1: an edit outside the support" in defects
        assert "gold: grounding.grounded" in defects


@pytest.mark.slow
def test_what_cannot_be_read_is_never_silently_right(families):
    for family in families[::6]:
        odd = replace(family.source, question="Why though?")
        defects = find_family_defects(replace(broken_gold(family, question="Why though?"), source=odd))
        assert "source: malformed" in defects
        assert "gold: cannot read: answer" in defects
        assert any(
            defect.startswith("evidence edit 1: cannot read") or "another question" in defect for defect in defects
        )
        mumbled = Trace.of("Hm, well.", *family.gold.trace.texts)
        assert "gold: cannot read: step 1" in find_family_defects(broken_gold(family, trace=mumbled))
        assert "question edit: cannot read: changed" in find_family_defects(
            broken_question(family, question="Why though?")
        )


@pytest.mark.slow
def test_a_source_must_be_the_one_that_was_answered(families):
    family, other = families[0], families[1]
    assert "gold: another question or other passages than the source's" in find_family_defects(
        replace(family, source=other.source)
    )
    assert "source: there is no reference" in find_family_defects(
        replace(family, source=replace(family.source, reference_answer=None))
    )
    wrong = replace(family.source, reference_answer="Nobody", aliases=())
    assert "source: unsupported_reference" in find_family_defects(replace(family, source=wrong))
    assert "there is no evidence edit" in find_family_defects(replace(family, evidence_edits=()))


def test_only_one_passage_may_change(families):
    family = families[0]
    edit = family.evidence_edits[0]
    other = next(n for n, passage in enumerate(family.gold.evidence) if passage.id != edit.passage_id)
    evidence = list(edit.view.evidence)
    evidence[other] = replace(evidence[other], text=f"{evidence[other].text} It rained.")
    assert "evidence edit 1: not one changed passage" in find_family_defects(
        broken_edit(family, evidence=tuple(evidence))
    )
    assert "question edit: other passages" in find_family_defects(broken_question(family, evidence=tuple(evidence)))


def test_every_judgement_that_is_wanted_is_made(families):
    """No label is missing, and none is made that nobody asked for."""
    family = families[0]
    gold, edit, question_view = family.gold, family.evidence_edits[0], family.question_edit.view
    index = int(edit.passage_id)
    gold_answer, new = ReasonedResponse(gold.trace, gold.answer), ReasonedResponse(edit.view.trace, edit.view.answer)
    labels = {
        ConstructionRole.SCREEN_SEED: screen_source(gold.question, gold.evidence, [gold.answer]).conditions,
        ConstructionRole.VERIFY_TARGET: check_target_response(gold.question, gold.evidence, (0, 1), gold_answer)[0],
        ConstructionRole.SCREEN_EVIDENCE: screen_evidence_edit(
            gold.question, gold.evidence, index, edit.view.evidence[index], gold.answer, edit.view.answer
        ),
        ConstructionRole.VERIFY_EVIDENCE: check_evidence_switch(
            gold.question, gold.evidence, edit.view.evidence, gold_answer, new, 0
        ),
        ConstructionRole.SCREEN_QUESTION: screen_question_edit(
            gold.question, question_view.question, gold.evidence, gold.answer, question_view.answer
        ),
        ConstructionRole.VERIFY_QUESTION: check_question_switch(
            gold.question,
            question_view.question,
            gold.evidence,
            gold_answer,
            ReasonedResponse(question_view.trace, question_view.answer),
        ),
    }
    assert {role: set(judged.labels) for role, judged in labels.items()} == {
        role: set(names) for role, names in ACCEPTANCE_CONDITIONS.items()
    }
    assert {role for role in labels if "soundness" in ROLE_REPLY_SCHEMAS[role]["properties"]} == {
        role for role, judged in labels.items() if judged.steps is not None
    }


FILM = Passage("0", "Blue Harbour", "Blue Harbour is a comedy film by Ada Berger.")
ADA = Passage("1", "Ada Berger", "Ada Berger is a film director. Ada Berger was born in Kelport.")
TWIN = Passage("2", "Ada Berger (film director)", "Ada Berger is a film director. She was born in Halton.")
ALL = Passage(
    "2", "Kelport", "Kelport is a busy city. Ada Berger directed Blue Harbour. Ada Berger was born in Kelport."
)
WHERE = "Where was the director of Blue Harbour born?"


@pytest.mark.parametrize(
    ("passages", "reference", "support", "labels", "defect"),
    [
        ((FILM, ADA), "Kelport", (0, 1), (True, True, False), None),
        ((FILM, ADA), "Halton", (0, 1), (False, False, False), SourceQuestionDefect.UNSUPPORTED_REFERENCE),
        ((FILM,), "Kelport", (), (False, False, False), SourceQuestionDefect.UNDERDETERMINED),
        ((ADA,), "Kelport", (), (False, False, False), SourceQuestionDefect.BROKEN_LINK),
        ((FILM, ADA), " ".join(["Kelport"] * 11), (0, 1), (False, False, False), SourceQuestionDefect.LONG_ANSWER),
        ((FILM, ADA, TWIN), "Kelport", (0, 1), (True, False, False), SourceQuestionDefect.UNDERDETERMINED),
        ((FILM, ADA, ALL), "Kelport", (2,), (True, True, True), None),
    ],
)  # fmt: skip
def test_sources_by_hand(passages, reference, support, labels, defect):
    screening = screen_source(WHERE, passages, [reference])
    assert (screening.support, tuple(screening.conditions.labels.values()), screening.defect) == (
        support,
        labels,
        defect,
    )


def test_a_source_with_a_sentence_nobody_can_read_is_left_open():
    odd = replace(ADA, text=f"{ADA.text} Who would have thought it.")
    screening = screen_source(WHERE, (FILM, odd), ["Kelport"])
    assert screening.conditions.labels == {"warranted": True, "unique": None, "elsewhere": False}
    assert is_answer_warranted(WHERE, (FILM, odd), "Halton") is None
    assert is_only_warranted_answer(WHERE, (FILM, odd), "Halton") is False


def test_an_answer_may_come_under_another_name():
    alias = replace(FILM, text="Blue Harbour is a comedy film by Greta Dahl.")
    with_alias = replace(ADA, text=f"{ADA.text} Ada Berger is also known as Greta Dahl.")
    for answer, right in (("Greta Dahl", True), ("Ada Berger", True), ("Felix Rell", False)):
        assert is_answer_warranted("Who directed Blue Harbour?", (alias, with_alias), answer) is right


def test_steps_that_claim_nothing_hold():
    trace = Trace.of(
        "Let us read the passages.", "Blue Harbour was directed by Ada Berger.", "Ada Berger was born in Halton."
    )
    assert label_warranted_steps(WHERE, (FILM, ADA), trace) == (True, True, False)


@pytest.mark.parametrize(
    ("edited", "answer", "against"),
    [
        ("In which city was the director of Blue Harbour born?", "Kelport", "changed"),
        ("Where was Ada Berger born?", "Kelport", "several_steps"),
        ("Where was she born?", "Kelport", "natural"),
        ("Were Ada Berger and Ada Berger born in the same city?", "yes", "degenerate"),
        ("Who directed Blue Harbour?", "Felix Rell", "edited_warranted"),
    ],
)
def test_questions_by_hand(edited, answer, against):
    judged = screen_question_edit(WHERE, edited, (FILM, ADA), "Kelport", answer)
    assert against in set(judged.objections(ConstructionRole.SCREEN_QUESTION))


def test_both_sides_of_a_comparison_may_change_places():
    item = next(
        candidate
        for candidate in (make_world_item("2wiki", 3, n) for n in range(40))
        if " or " in candidate.instance.question
    )
    first, other = item.target.options
    turned = item.instance.question.replace(f"{first} or {other}", f"{other} or {first}")
    judged = screen_question_edit(item.instance.question, turned, item.instance.evidence, first, other)
    assert judged.labels["changed"] is False
