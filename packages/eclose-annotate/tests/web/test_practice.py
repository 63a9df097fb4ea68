"""Practice examples: labels that the forms know, first answers that count, and results for the lead."""

from __future__ import annotations

import pytest

from eclose_annotate.choices import PracticeMode
from eclose_annotate.forms import PASSES_BY_TASK_KIND
from eclose_annotate.people.people import AnnotatorPool
from eclose_annotate.web import practice as training
from tests.projects import make_project, who, work_off
from tests.web.browsing import Browser, application, hashed, with_passwords

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
    first, second, *_ = training.list_training_items(ann, PracticeMode.OPTIONAL)
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


@pytest.fixture(scope="module")
def password():
    return hashed()


def log_in(project, password, name):
    with_passwords(project, password)
    browser = Browser(application(project), project, name)
    assert browser.login().status_code == 303
    return browser


@pytest.mark.slow
def test_required_practice_opens_the_tasks(tmp_path, password):
    project = make_project(tmp_path / "study", practice=PracticeMode.REQUIRED)
    ann = log_in(project, password, "ann")
    task = ann.task()
    assert ann.get(task).headers["location"] == "/training"
    assert task not in ann.get("/").text
    for item in training.TRAINING_ITEMS[AnnotatorPool.RESPONSES]:
        assert ann.get(task).headers["location"] == "/training"
        assert ann.post(f"/training/{item.id}", label=item.label).status_code == 200
    assert ann.get(task).status_code == 200
    assert task in ann.get("/").text
    project.close()


@pytest.mark.slow
def test_required_practice_comes_before_the_first_case(tmp_path, password):
    project = make_project(tmp_path / "study", practice=PracticeMode.REQUIRED)
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name), closed="no" if name == "ann" else "yes")
    eve = log_in(project, password, "eve")
    assert eve.post("/take").headers["location"] == "/training"
    assert "/take" not in eve.get("/").text
    project.close()


@pytest.mark.slow
def test_optional_practice_is_offered_and_none_is_not(tmp_path, password):
    for practice in (PracticeMode.OPTIONAL, PracticeMode.NONE):
        project = make_project(tmp_path / practice, practice=practice)
        ann = log_in(project, password, "ann")
        assert ("Practise first" in ann.get("/").text) is (practice is PracticeMode.OPTIONAL)
        assert ann.get(ann.task()).status_code == 200
        text = ann.get("/training").text
        assert ("There are no practice examples" in text) is (practice is PracticeMode.NONE)
        assert (ann.post("/training/citation", label="yes").status_code == 404) is (practice is PracticeMode.NONE)
        project.close()
