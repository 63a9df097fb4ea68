"""A constructor names things, and code puts them together."""

from __future__ import annotations

import json

import pytest

from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.prompts.structured import InconsistentReplyError
from eclose.values.family import Family, PassageIntervention, ProofStep, TextReplacement, ViewKind
from eclose.values.family_rules import check_family
from eclose.values.instance import Instance, Passage
from eclose_train.construction.candidates import (
    CandidateRejection,
    find_support_passage_ids,
    parse_evidence_edit,
    parse_gold_view,
    parse_question_edit,
)

SOURCE = Instance(
    "q", "Where was the director of Blue Harbour born?",
    (
        Passage("a", "Blue Harbour", "Blue Harbour is a 1994 film directed by Ana Ruiz."),
        Passage("b", "Arica", "Arica is a port in Chile. It is small."),
        Passage("c", "Ana Ruiz", "Ana Ruiz, born in Arica, left Arica early. The Arica Prize is hers."),
    ),
    "Arica",
)  # fmt: skip


def step(text, passages=(), premises=()):
    return {"text": text, "passages": list(passages), "premises": list(premises)}


TARGET = {
    "plan": "", "complete": True, "answer": " Arica ",
    "steps": [
        step("Blue Harbour was directed by Ana Ruiz.", [0]), step("Ana Ruiz was born in Arica.", [2]),
        step("So the director of Blue Harbour was born in Arica.", (), [2, 1]),
    ],
}  # fmt: skip
VARIATION = {
    "plan": "", "passage": 2, "claim": "Ana Ruiz, born in Arica, left Arica early.", "first": 2, "answer": "Iquique",
    "replacements": [{"old": "Arica", "new": "Iquique"}], "keep": ["The Arica Prize"],
    "steps": [
        step("Ana Ruiz was born in Iquique.", [2]),
        step("So the director of Blue Harbour was born in Iquique.", (), [1, 2]),
    ],
}  # fmt: skip
QUESTION = {
    "plan": "", "component": "the relation", "question": "When did the film of the director who left Arica come out?",
    "support": [2, 0, 0], "answer": "1994", "complete": True,
    "steps": [step("Ana Ruiz left Arica.", [2]), step("Her film Blue Harbour is of 1994.", [0], [1])],
}  # fmt: skip
GOLD = parse_gold_view(SOURCE, find_support_passage_ids(SOURCE, [2, 0, 2]), TARGET)


def test_what_the_constructor_wrote_becomes_a_view_with_its_proof():
    assert (GOLD.kind, GOLD.answer, GOLD.support_ids) == (ViewKind.GOLD, "Arica", ("a", "c"))
    assert GOLD.proof == (ProofStep(("a",)), ProofStep(("c",)), ProofStep((), (0, 1)))
    assert GOLD.evidence is SOURCE.evidence


def test_an_edit_that_leads_elsewhere_rests_on_other_passages():
    steps = [step("Ana Ruiz was born in Iquique.", [1]), step("So he was born in Iquique.", (), [2])]
    assert parse_evidence_edit(GOLD, VARIATION | {"steps": steps}).view.support_ids == ("a", "b")
    unnamed = [step("Ana Ruiz was born in Iquique."), step("So he was born in Iquique.", (), [2])]
    assert parse_evidence_edit(GOLD, VARIATION | {"steps": unnamed}).view.support_ids == GOLD.support_ids
    single = [step("Ana Ruiz was born in Iquique.", [1]), step("So he was born in Iquique.", (), [1])]
    assert parse_evidence_edit(GOLD, VARIATION | {"first": 1, "steps": single}).view.support_ids == ("a", "b", "c")


def test_a_variation_changes_the_named_words_and_nothing_else():
    edit = parse_evidence_edit(GOLD, VARIATION)
    assert edit.view.evidence[2].text == "Ana Ruiz, born in Iquique, left Iquique early. The Arica Prize is hers."
    assert edit.view.evidence[:2] == SOURCE.evidence[:2]
    assert (edit.passage_id, edit.first_affected_step) == ("c", 1)
    assert edit.view.trace.steps[0] is GOLD.trace.steps[0]
    assert edit.view.trace.texts[1:] == (
        "Ana Ruiz was born in Iquique.", "So the director of Blue Harbour was born in Iquique."
    )  # fmt: skip
    assert edit.view.proof == (ProofStep(("a",)), ProofStep(("c",)), ProofStep((), (0, 1)))
    assert edit.intervention == PassageIntervention(
        VARIATION["claim"], (TextReplacement("Arica", "Iquique"),), ("The Arica Prize",)
    )


def test_views_put_together_pass_the_gates_and_survive_being_written():
    family = Family("f", SOURCE, GOLD, (parse_evidence_edit(GOLD, VARIATION),), parse_question_edit(GOLD, QUESTION))
    assert check_family(family) == ()
    assert family.question_edit.component == "the relation"
    assert family.question_edit.view.support_ids == ("a", "c")
    assert decode_core_value(Family, json.loads(encode_json_line(family))) == family


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"claim": "Ana Ruiz was born in Lima."}, "claim_not_found"),
        ({"first": 0}, "no_such_step"),
        ({"first": 4}, "no_such_step"),
        ({"replacements": [{"old": "Lima", "new": "Quito"}]}, "not_found"),
        ({"replacements": []}, "nothing_asked"),
        ({"replacements": [{"old": "Ana Ruiz", "new": "Eva Ruiz"}]}, "in_title"),
        ({"keep": ["The Lima Prize"]}, "kept_not_found"),
    ],
)
def test_a_variation_that_cannot_be_made_is_refused_with_its_reason(change, reason):
    candidate = parse_evidence_edit(GOLD, VARIATION | change)
    assert isinstance(candidate, CandidateRejection)
    assert candidate.reason == reason
    assert candidate.detail


@pytest.mark.parametrize(
    ("parse", "kind"),
    [
        (lambda: find_support_passage_ids(SOURCE, [3]), "no such passage"),
        (lambda: find_support_passage_ids(SOURCE, [-1]), "no such passage"),
        (lambda: parse_evidence_edit(GOLD, VARIATION | {"passage": 9}), "no such passage"),
        (lambda: parse_gold_view(SOURCE, (), TARGET | {"steps": [step("x", [7])]}), "no such passage"),
        (lambda: parse_gold_view(SOURCE, (), TARGET | {"steps": [step("x", (), [1])]}), "wrong premises"),
        (lambda: parse_gold_view(SOURCE, (), TARGET | {"steps": [step("x", (), [0])]}), "wrong premises"),
        (lambda: parse_evidence_edit(GOLD, VARIATION | {"steps": [step("x", (), [2])]}), "wrong premises"),
    ],
)
def test_what_names_nothing_is_no_reply(parse, kind):
    with pytest.raises(InconsistentReplyError) as refused:
        parse()
    assert refused.value.kind == kind


def test_a_rebuilt_step_may_rest_on_one_that_was_kept():
    edit = parse_evidence_edit(GOLD, VARIATION | {"steps": [step("x", (), [1])]})
    assert edit.view.proof[1] == ProofStep((), (0,))
