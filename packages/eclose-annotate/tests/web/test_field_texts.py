"""Words: every field, pass and role has some, every choice a key of its own, every decision its part of a guideline."""

from __future__ import annotations

import re

import pytest

from eclose_annotate.forms import PASSES_BY_TASK_KIND, AnnotationPass, AnnotationTaskKind, FormField, find_form_problems
from eclose_annotate.people.people import AnnotatorPool, PersonRole
from eclose_annotate.web import field_texts

FORMS = [(kind, form) for kind, forms in PASSES_BY_TASK_KIND.items() for form in forms]
ALL_FIELDS = {field.name: field for _, form in FORMS for field in form.fields}


def test_there_are_words_for_every_field_and_for_nothing_else():
    assert set(field_texts.FIELD_TEXTS) == set(ALL_FIELDS)


@pytest.mark.parametrize("field", ALL_FIELDS.values(), ids=lambda field: field.name)
def test_choices_are_those_of_the_form_in_its_order_with_keys_of_their_own(field: FormField):
    choices = field_texts.FIELD_TEXTS[field.name].choices
    assert tuple(choice.value for choice in choices) == tuple(map(str, field.choices))
    keys = [choice.key for choice in choices]
    assert len(set(keys)) == len(keys)
    # Keys that do something else on the page.
    assert not set(keys) & set("jklhufgepvc./,? ")


def test_a_code_has_its_own_digit():
    assert {choice.value: choice.key for choice in field_texts.FIELD_TEXTS["code"].choices} == {
        "N4": "4", "N1": "1", "N2": "2", "N3": "3", "N5": "5",
    }  # fmt: skip


def test_every_pass_role_pool_and_kind_has_words():
    assert set(field_texts.PASS_TEXTS) == {(kind, form.name) for kind, form in FORMS}
    assert set(field_texts.ROLE_TEXTS) == set(PersonRole)
    assert set(field_texts.POOL_TEXTS) == set(AnnotatorPool)
    assert set(field_texts.TASK_KIND_TEXTS) == set(AnnotationTaskKind)


def sections():
    return {section.field: section for _, form in FORMS for section in field_texts.read_pass_guideline(form).sections}


@pytest.mark.parametrize(("kind", "form"), FORMS, ids=lambda one: getattr(one, "name", one))
def test_every_decision_has_rules_and_examples_of_its_own(kind: AnnotationTaskKind, form: AnnotationPass):
    guideline = field_texts.read_pass_guideline(form)
    assert [section.field for section in guideline.sections] == [field.name for field in form.fields]
    assert guideline.introduction
    for section in guideline.sections:
        assert section.title.endswith("?")
        assert len(section.rules) > 60
        assert len(section.examples) > 40


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("substantive", "states a tautology"),
        ("sound", "Ignore citation marks"),
        ("sound", "from sound steps before it"),
        ("failure", "**L4** It misjudges"),
        ("aligned", "leave them uncombined"),
        ("closed", "A fact that stands only in a passage, or that you know, is missing."),
        ("complete", "is missing, even if a passage has it"),
        ("correct", "a fuller name"),
        ("code", "Choose the **first** reason"),
        ("locally_sound", "A part is substantive if deleting it would remove a claim of fact"),
        ("locally_sound", "tautologies and repetitions of the question are not"),
        ("locally_sound", "from sound parts before it"),
    ],
)
def test_rules_of_the_protocol_are_told_to_people(field, rule):
    assert rule in sections()[field].rules


@pytest.mark.parametrize("name", ["B", "C", "D"])
def test_passes_after_the_first_say_above_their_form_that_passages_fill_no_gap(name):
    assert "The passages fill no gap." in field_texts.PASS_TEXTS[AnnotationTaskKind.RESPONSE, name].counts


def test_rules_that_the_protocol_does_not_have_are_not_told():
    assert "exact" not in sections()["correct"].rules
    assert "shorter" not in sections()["correct"].rules
    assert "rests on an unsound" not in sections()["sound"].rules


def test_codes_stand_in_the_order_of_precedence():
    for field in ("code", "failure"):
        codes = re.findall(r"^- \*\*(\w\d)\*\*", sections()[field].rules, re.MULTILINE)
        assert codes == [choice.value for choice in field_texts.FIELD_TEXTS[field].choices]


def test_guideline_speaks_to_people():
    """No names of fields, no word on a model's reply, and no claim that what stands beside it is not seen."""
    for section in sections().values():
        text = f"{section.title} {section.rules} {section.examples}"
        assert not re.search(r"\b(gold|evidence|question)\.\w", text)
        assert not re.search(r"`\w+`|\bnull\b|\bverdict\b|You do not see", text)


def test_entry_is_described_by_what_decides():
    assert field_texts.describe_entry({"substantive": "no"}) == "not substantive"
    assert field_texts.describe_entry({"substantive": "yes", "sound": "yes"}) == "sound"
    assert field_texts.describe_entry({"eligible": "no", "code": "N2"}) == "N2"
    assert field_texts.describe_entry({"correct": "no", "complete": "yes"}) == "not correct, complete"


def test_a_problem_is_told_with_the_question():
    form = PASSES_BY_TASK_KIND[AnnotationTaskKind.RESPONSE][0]
    first, second = find_form_problems(form, [{}, {"substantive": "yes"}], 2)
    assert field_texts.describe_form_problem(first) == "Step 1: “Is the step substantive?” is not decided."
    assert field_texts.describe_form_problem(second) == "Step 2: “Is it sound?” is not decided."
    assert field_texts.describe_form_problem(find_form_problems(form, [], 2)[0]) == "form 0 entries instead of 2."


def test_speakers_have_no_names():
    assert [field_texts.anonymous_annotator_name(number) for number in range(4)] == [
        "First",
        "Second",
        "Third",
        "Third",
    ]
