"""Words: every field, pass and role has some, every choice a key of its own, every decision its part of a guideline."""

from __future__ import annotations

import re

import pytest

from eclose.annotation.accounts.people import AnnotatorPool, PersonRole
from eclose.annotation.forms import (
    PASSES_BY_TASK_KIND,
    AnnotationPass,
    AnnotationTaskKind,
    FormField,
    find_form_problems,
)
from eclose.annotation.web import field_texts
from eclose.protocol.prompts import GuidelineReader, load_prompt_text

FORMS = [(kind, form) for kind, forms in PASSES_BY_TASK_KIND.items() for form in forms]
ALL_FIELDS = {field.name: field for _, form in FORMS for field in form.fields}


def test_there_are_words_for_every_field_and_for_nothing_else():
    assert set(field_texts.FIELD_TEXTS) == set(ALL_FIELDS)


@pytest.mark.parametrize("field", ALL_FIELDS.values(), ids=lambda field: field.name)
def test_choices_are_those_of_the_form_in_its_order_with_keys_of_their_own(field: FormField):
    choices = field_texts.FIELD_TEXTS[field.name].choices
    assert tuple(one.value for one in choices) == tuple(map(str, field.choices))
    keys = [one.key for one in choices]
    assert len(set(keys)) == len(keys)
    # Keys that do something else on the page.
    assert not set(keys) & set("jklhufge./,? ")


def test_a_code_has_its_own_digit():
    assert {one.value: one.key for one in field_texts.FIELD_TEXTS["code"].choices} == {
        "N4": "4", "N1": "1", "N2": "2", "N3": "3", "N5": "5",
    }  # fmt: skip


def test_every_pass_role_pool_and_kind_has_words():
    assert set(field_texts.PASS_TEXTS) == {(kind, form.name) for kind, form in FORMS}
    assert set(field_texts.ROLE_TEXTS) == set(PersonRole)
    assert set(field_texts.POOL_TEXTS) == set(AnnotatorPool)
    assert set(field_texts.TASK_KIND_TEXTS) == set(AnnotationTaskKind)


@pytest.mark.parametrize(
    ("field", "said", "unsaid"),
    [
        ("substantive", "Ask what would be lost", "Support may come"),
        ("sound", "Support may come from any passage", "`L1`"),
        ("failure", "`L4` misjudges", "give in `support`"),
        ("eligible", "well posed", "`N4`"),
        ("code", "`N4` the question cannot", "Examples"),
        ("aligned", "when the director was born. Not aligned", "`pursued`"),
        ("closed", "A premise that stands only in the passages is missing", "In `established`"),
        ("complete", "A premise that stands only in the passages is missing", "In `missing`"),
        ("gold.supported", "One such step is enough", "gold.aligned"),
        ("evidence.answer_switches", "exclude each other", "question.valid"),
        ("question.trace_switches", "Ruiz, her birthplace", "question.valid"),
    ],
)
def test_an_excerpt_is_the_part_that_a_decision_rests_on(field, said, unsaid):
    text = field_texts.read_guideline_excerpt(field)
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize("field", ALL_FIELDS)
def test_every_excerpt_stands_in_its_guideline_and_speaks_to_people(field):
    text = field_texts.read_guideline_excerpt(field)
    whole = load_prompt_text(field_texts.FIELD_TEXTS[field].excerpt.text).text_for(GuidelineReader.PEOPLE)
    assert len(text) > 60
    assert all(sentence in whole for line in text.splitlines() for sentence in re.split(r"(?<=[.?]) ", line))
    assert not re.search(r"`\w+` (is|are) null|and `\w+` are null", text)
    assert not text.startswith(("# ", "You see"))


@pytest.mark.parametrize(("kind", "form"), FORMS, ids=lambda one: getattr(one, "name", one))
def test_guidelines_begin_with_that_of_the_pass_and_leave_no_decision_out(
    kind: AnnotationTaskKind, form: AnnotationPass
):
    texts = field_texts.read_pass_guidelines(form)
    assert texts[0] == load_prompt_text(form.guideline).text_for(GuidelineReader.PEOPLE)
    for field in form.fields:
        assert any(field_texts.read_guideline_excerpt(field.name).splitlines()[-1] in text for text in texts)


@pytest.mark.parametrize(("kind", "form"), FORMS, ids=lambda one: getattr(one, "name", one))
def test_nobody_is_told_not_to_see_what_stands_beside_the_text(kind: AnnotationTaskKind, form: AnnotationPass):
    """Passages stay in sight in every pass; fields of a model's reply are no concern of people."""
    texts = (
        *field_texts.read_pass_guidelines(form),
        *(field_texts.read_guideline_excerpt(field.name) for field in form.fields),
    )
    for text in texts:
        assert not re.search(r"not see (the )?passages|neither passages|see only", text)
        assert not re.search(r"`(evidence|steps|support|pursued|established|missing|verdict|aliases|id)`", text)
    if form.name in ("C", "D"):
        assert any("A premise that stands only in the passages is missing." in text for text in texts)
        assert "Passages fill no gap" in field_texts.PASS_TEXTS[kind, form.name].counts


def test_a_problem_is_told_with_the_question():
    form = PASSES_BY_TASK_KIND[AnnotationTaskKind.RESPONSE][0]
    first, second = find_form_problems(form, [{}, {"substantive": "yes"}], 2)
    assert field_texts.describe_form_problem(first) == "Step 1: “Is the step substantive?” is not decided."
    assert field_texts.describe_form_problem(second) == "Step 2: “Is it sound?” is not decided."
    assert field_texts.describe_form_problem(find_form_problems(form, [], 2)[0]) == "form 0 entries instead of 2."


def test_speakers_have_no_names():
    assert [field_texts.anonymous_annotator_name(number) for number in range(4)] == [
        "One",
        "Another",
        "A third",
        "A third",
    ]
