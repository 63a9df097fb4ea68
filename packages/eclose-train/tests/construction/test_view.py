"""What is shown of a family: views held against Gold, passages that matter first, what each step rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eclose.report.word_diff import DiffMark
from eclose.values.instance import Passage
from eclose.values.response import Trace
from eclose_train.construction.view import FamilyCitationDisplay, make_family_display, name_family_views
from tests.construction.family_making import full_family, hostile_family

MARKS = {DiffMark.SAME: "{}", DiffMark.OLD: "[-{}-]", DiffMark.NEW: "{{+{}+}}"}


def marked(words):
    return "".join(MARKS[piece.mark].format(piece.text) for piece in words)


@pytest.fixture(scope="module")
def display():
    return make_family_display(full_family())


def test_views_come_in_order_and_edits_are_numbered_where_there_are_several(display):
    assert [view.name for view in display.views] == ["Gold", "Evidence-CF 1", "Evidence-CF 2", "Question-CF"]
    family = full_family()
    entry = replace(family, evidence_edits=family.evidence_edits[:1])
    assert name_family_views(entry) == ("Gold", "Evidence-CF", "Question-CF")
    assert name_family_views(replace(family, evidence_edits=())) == ("Gold", "Question-CF")
    assert [view.name for view in make_family_display(replace(family, evidence_edits=())).views] == [
        "Gold",
        "Question-CF",
    ]


def test_gold_is_unmarked(display):
    gold = display.views[0]
    words = [gold.question, gold.answer, *(step.words for step in gold.steps)]
    assert all(piece.mark is DiffMark.SAME for text in words for piece in text)
    assert (gold.change, gold.omitted_steps) == (None, ())


def test_words_that_differ_from_gold_are_marked(display):
    _, first, second, question = display.views
    assert marked(first.question) == "Where was the director of Blue Harbour born?"
    assert [marked(step.words) for step in first.steps] == [
        "Blue Harbour was directed by Ana Ruiz.",
        "Ana Ruiz was born in [-Arica-]{+Iquique+}.",
        "So the director of Blue Harbour was born in [-Arica-]{+Iquique+}.",
    ]
    assert marked(first.answer) == "[-Arica-]{+Iquique+}"
    assert [step.unchanged for step in first.steps] == [True, False, False]
    assert [step.first_affected for step in first.steps] == [False, True, False]
    assert [marked(step.words) for step in second.steps][1] == "{+Bo Lund grew up in Lima.+}"
    assert marked(question.question).endswith(" the director [-of Blue Harbour born-]{+who left Arica come out+}?")


def test_a_step_is_held_against_its_counterpart_wherever_that_stands(display):
    question = display.views[3]
    assert [step.counterpart for step in question.steps] == [2, None]
    assert marked(question.steps[0].words) == "Ana Ruiz [-was born in-]{+left+} Arica."
    assert question.omitted_steps == (1, 3)
    assert not any(step.first_affected for step in question.steps)


def test_every_step_says_what_it_rests_on(display):
    steps = display.views[0].steps
    assert [step.passages for step in steps] == [
        (FamilyCitationDisplay(0, "Blue Harbour"),),
        (FamilyCitationDisplay(2, "Ana Ruiz"),),
        (),
    ]
    assert [step.premises for step in steps] == [(), (), (1, 2)]
    family = full_family()
    unknown = make_family_display(replace(family, gold=replace(family.gold, proof=())))
    assert not any(step.support_recorded for step in unknown.views[0].steps)


def test_passages_that_matter_are_told_from_the_others(display):
    assert [(entry.index, entry.notes) for entry in display.relevant_passages] == [
        (0, ("supports every view", "changed in Evidence-CF 2")),
        (2, ("supports every view", "changed in Evidence-CF 1")),
    ]
    assert [(entry.index, entry.title) for entry in display.other_passages] == [(1, "Arica")]
    (version,) = display.relevant_passages[1].versions
    text = "Ana Ruiz, born in [-Arica-]{+Iquique+}, left [-Arica-]{+Iquique+} early. The Arica Prize is hers."
    assert marked(version.text) == text


def test_a_passage_that_is_edited_but_supports_nothing_matters_too():
    family = full_family()
    gold = replace(family.gold, support_ids=("b",))
    edits = tuple(replace(edit, view=replace(edit.view, support_ids=("b",))) for edit in family.evidence_edits)
    question_edit = replace(family.question_edit, view=replace(family.question_edit.view, support_ids=()))
    display = make_family_display(replace(family, gold=gold, evidence_edits=edits, question_edit=question_edit))
    assert [entry.index for entry in display.relevant_passages] == [0, 1, 2]
    assert [entry.notes for entry in display.relevant_passages] == [
        ("changed in Evidence-CF 2",),
        ("supports Gold, Evidence-CF 1, Evidence-CF 2",),
        ("changed in Evidence-CF 1",),
    ]


def test_passages_that_come_or_go_are_shown():
    family = full_family()
    edit = family.question_edit
    evidence = (*edit.view.evidence[1:], Passage("new", "Newcomer", "Nobody knew it."))
    display = make_family_display(
        replace(family, question_edit=replace(edit, view=replace(edit.view, evidence=evidence)))
    )
    assert "not in Question-CF" in display.passages[0].notes
    assert (display.passages[-1].title, display.passages[-1].notes) == ("Newcomer", ("only in Question-CF",))
    assert any("same_evidence" in failure for failure in display.failures)


def test_how_a_passage_was_changed_is_told_where_it_is_known(display):
    change = display.views[1].change
    assert (change.claim, str(change.passage)) == ("Ana Ruiz, born in Arica, left Arica early.", "[2] Ana Ruiz")
    assert [(entry.old, entry.new) for entry in change.replacements] == [("Arica", "Iquique")]
    assert (change.keep, change.claim_recorded) == (("The Arica Prize",), True)
    assert display.views[3].change.component == "the relation"
    family = full_family()
    silent = tuple(replace(edit, intervention=None) for edit in family.evidence_edits)
    assert make_family_display(replace(family, evidence_edits=silent)).views[1].change.claim_recorded is False


def test_origin_and_provenance(display):
    assert dict(display.facts) == {
        "source": "q", "dataset": "harbours", "kind": "bridge", "hops": "2", "reference": "Arica",
        "also accepted": "Arica, Chile",
    }  # fmt: skip
    assert dict(display.provenance) == {
        "constructor": "maker/large", "verifier": "house/judge", "verified again by": "house/second",
        "attempts": "target 1, evidence 2", "guidelines": "sha256:0123",
    }  # fmt: skip
    family = full_family()
    elsewhere = make_family_display(replace(family, provenance=None, source=replace(family.source, benchmark=None)))
    assert elsewhere.provenance == ()
    assert dict(elsewhere.facts)["dataset"] == "unknown"
    once = make_family_display(replace(family, provenance=replace(family.provenance, reverifier=None)))
    assert dict(once.provenance)["verified again by"] == "none"


def test_what_fails_a_gate_is_shown_with_the_reason():
    family = full_family()
    assert make_family_display(family).failures == ()
    broken = replace(family, gold=replace(family.gold, trace=Trace(()), answer="Lima"))
    display = make_family_display(broken)
    assert any("gold_answer" in failure for failure in display.failures)
    assert display.views[0].steps == ()
    assert all(step.counterpart is None for step in display.views[1].steps)


def test_names_that_are_no_passage_are_kept():
    display = make_family_display(hostile_family(1, "odd"))
    assert str(display.views[1].support[1]) == "[?] x"
    assert display.views[0].steps[0].passages[1] == FamilyCitationDisplay(None, "odd 1")
