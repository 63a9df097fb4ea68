"""Practice examples: labels that the forms know, first answers that count, and results for the lead."""

from __future__ import annotations

import pytest
from tests.annotation.projects import make_project, who

from eclose.annotation.accounts.people import AnnotatorPool
from eclose.annotation.forms import PASSES_BY_TASK_KIND
from eclose.annotation.web import training

FIELDS = {field.name: field for forms in PASSES_BY_TASK_KIND.values() for form in forms for field in form.fields}
ITEMS = [item for items in training.TRAINING_ITEMS.values() for item in items]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_right_label_is_a_choice_of_its_field_and_has_a_reason(item):
    assert item.label in FIELDS[item.field].choices
    assert len(item.reason) > 40


def test_every_decision_on_a_response_is_practised_once():
    fields = [item.field for item in training.TRAINING_ITEMS[AnnotatorPool.RESPONSES]]
    assert fields == ["substantive", "sound", "failure", "aligned", "closed", "correct", "complete"]
    assert len({item.id for item in ITEMS}) == len(ITEMS)


def test_first_answer_counts_and_the_lead_sees_the_result(tmp_path):
    project = make_project(tmp_path / "study", screeners=("sue", "sam"))
    ann = who(project, "ann")
    first, second, *_ = training.list_training_items(ann)
    wrong = next(choice for choice in FIELDS[second.field].choices if choice != second.label)
    with project.writing() as connection:
        training.answer_training_item(connection, ann, first, first.label)
        training.answer_training_item(connection, ann, second, wrong)
        training.answer_training_item(connection, ann, second, second.label)
        assert training.read_training_answers(connection, ann) == {first.id: first.label, second.id: wrong}
        results = {result.name: result[1:] for result in training.list_training_progress(connection)}
    assert results["ann"] == (2, 1, 7)
    assert results["bob"] == (0, 0, 7)
    assert results["sue"] == (0, 0, 3)
    assert "lead" not in results
    project.close()
