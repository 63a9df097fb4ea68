"""What a person can do with a task, and what they cannot."""

from __future__ import annotations

import threading
from dataclasses import fields

import pytest
from sqlalchemy import text

from eclose.prompts.disclosure import EligibilityMaterial, SoundnessMaterial
from eclose_annotate import queues, submissions
from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.submissions import SubmissionRefusal
from eclose_annotate.visible import AnnotatorAnswerMaterial, AnnotatorReferenceMaterial, AnnotatorTraceMaterial
from tests.projects import filled, make_project, next_sheet, submit, who, work_off


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study", screeners=("sue", "sam"))
    yield project
    project.close()


def open_sheet(project, person, task):
    with project.writing() as connection:
        return submissions.open_task_page(connection, project, person, task)


def test_passes_show_one_thing_more_each_time(project):
    ann = who(project, "ann")
    kinds = []
    sheet = next_sheet(project, ann)
    task = sheet.task
    for _ in range(4):
        kinds.append(type(sheet.material))
        assert sheet.task == task
        assert submit(project, ann, sheet).refusal is None
        sheet = next_sheet(project, ann)
    assert kinds == [SoundnessMaterial, AnnotatorTraceMaterial, AnnotatorAnswerMaterial, AnnotatorReferenceMaterial]
    assert sheet.task != task
    assert open_sheet(project, ann, task) is None


def test_earlier_passes_have_no_field_for_what_comes_later(project):
    ann = who(project, "ann")
    assert {field.name for field in fields(next_sheet(project, ann).material)} == {"question", "evidence", "steps"}


@pytest.mark.parametrize("shown", [False, True])
def test_adjudicator_sees_labels_of_others_only_where_the_project_shows_them(tmp_path, shown):
    project = make_project(tmp_path / "study", questions=1, labels_to_adjudicator=shown)
    for name, aligned in (("ann", "yes"), ("bob", "no"), ("cyd", "yes"), ("dan", "no")):
        work_off(project, who(project, name), aligned=aligned)
    sheet = next_sheet(project, who(project, "eve"))
    assert len(sheet.others) == (2 if shown else 0)
    project.close()


def test_screener_sees_question_evidence_and_reference(project):
    material = next_sheet(project, who(project, "sue")).material
    assert isinstance(material, EligibilityMaterial)
    assert {field.name for field in fields(material)} == {"question", "evidence", "reference", "aliases"}


def test_task_of_another_does_not_exist(project):
    ann, bob = who(project, "ann"), who(project, "bob")
    sheet = next_sheet(project, ann)
    assert open_sheet(project, bob, sheet.task) is None
    assert submit(project, bob, sheet).refusal is SubmissionRefusal.UNKNOWN
    with project.writing() as connection:
        assert not submissions.save_pass_draft(connection, bob, sheet.task, "A", [{}])
        assert submissions.count_form_entries(connection, bob, sheet.task, "A") is None


def test_later_task_does_not_open_before_its_turn(project):
    ann = who(project, "ann")
    with project.reading() as connection:
        second = connection.execute(queues._NEXT, {"person": ann.id, "done": 1}).scalar_one()
    assert open_sheet(project, ann, second) is None
    assert submissions.submit_pass_and_commit(project, ann, second, "A", [{}], "k").refusal is SubmissionRefusal.CLOSED


@pytest.mark.parametrize("name", ["B", "C", "D", "S", "", "AB", "x"])
def test_pass_that_is_not_open_is_refused(project, name):
    ann = who(project, "ann")
    sheet = next_sheet(project, ann)
    outcome = submissions.submit_pass_and_commit(project, ann, sheet.task, name, [{"aligned": "yes"}], "k")
    assert outcome.refusal is SubmissionRefusal.CLOSED
    assert next_sheet(project, ann).form.name == "A"


def test_incomplete_form_is_refused_with_all_problems(project):
    ann = who(project, "ann")
    sheet = next_sheet(project, ann)
    entries = [{"substantive": "yes"}, *filled(sheet)[1:]]
    outcome = submit(project, ann, sheet, entries)
    assert (outcome.refusal, [str(problem) for problem in outcome.problems]) == (
        SubmissionRefusal.WRONG,
        ["step 1: sound: is not decided."],
    )
    assert submit(project, ann, sheet, [{}]).refusal is SubmissionRefusal.WRONG


def count_submissions(project):
    with project.reading() as connection:
        return connection.execute(text("SELECT count(*) FROM annotate_events WHERE action = 'submitted'")).scalar_one()


def test_same_submission_twice_is_one(project):
    ann = who(project, "ann")
    sheet = next_sheet(project, ann)
    arguments = (project, ann, sheet.task, "A", filled(sheet), sheet.key)
    first, second = submissions.submit_pass_and_commit(*arguments), submissions.submit_pass_and_commit(*arguments)
    assert first.receipt == second.receipt is not None
    assert count_submissions(project) == 1
    other_key = submissions.submit_pass_and_commit(*arguments[:-1], "another key")
    other_form = submissions.submit_pass_and_commit(*arguments[:4], filled(sheet, sound="no", failure="L1"), sheet.key)
    assert {other_key.refusal, other_form.refusal} == {SubmissionRefusal.CLOSED}


def test_of_many_at_once_one_wins(project):
    ann = who(project, "ann")
    sheet = next_sheet(project, ann)
    outcomes = []
    gate = threading.Barrier(12)

    def race(number):
        gate.wait()
        # Different forms: equal ones would all get the same receipt.
        form = filled(sheet, sound="no", failure=f"L{number % 5 + 1}") if number % 2 else filled(sheet)
        form = (*form[:-1], {"substantive": "no"}) if number in (0, 1) else form
        outcomes.append(submissions.submit_pass_and_commit(project, ann, sheet.task, "A", form, sheet.key))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Others got the receipt of an equal form.
    assert len({outcome.receipt for outcome in outcomes if outcome.receipt is not None}) == 1
    assert count_submissions(project) == 1
    assert {outcome.refusal for outcome in outcomes} == {None, SubmissionRefusal.CLOSED}


def test_a_pass_that_was_not_opened_cannot_be_submitted(project):
    ann = who(project, "ann")
    with project.reading() as connection:
        task = queues.find_next_task(connection, ann.id)
        steps = submissions.count_form_entries(connection, ann, task, "A")
    form = [{"substantive": "yes", "sound": "yes"}] * steps
    for key in ("", "k", "x" * 64):
        outcome = submissions.submit_pass_and_commit(project, ann, task, "A", form, key)
        assert outcome.refusal is SubmissionRefusal.CLOSED
    sheet = open_sheet(project, ann, task)
    assert submissions.submit_pass_and_commit(project, ann, task, "A", form, "k").refusal is SubmissionRefusal.CLOSED
    # Opened again, a page carries the same key, and the time of the first opening counts.
    assert open_sheet(project, ann, task).key == sheet.key
    assert submissions.submit_pass_and_commit(project, ann, task, "A", form, sheet.key).receipt
    later = submissions.submit_pass_and_commit(project, ann, task, "B", [{"aligned": "yes"}], sheet.key)
    assert later.refusal is SubmissionRefusal.CLOSED


def test_draft_is_kept_until_submitted(project):
    ann = who(project, "ann")
    sheet = next_sheet(project, ann)
    with project.writing() as connection:
        assert submissions.save_pass_draft(
            connection, ann, sheet.task, "A", [{"substantive": "no", "sound": "maybe", "x": "y"}]
        )
    assert next_sheet(project, ann).draft == ({"substantive": "no"},)
    assert submit(project, ann, sheet).receipt
    assert next_sheet(project, ann).draft == ()
    with project.writing() as connection:
        assert not submissions.save_pass_draft(connection, ann, sheet.task, "A", [{"substantive": "no"}])


def test_evidence_goes_out_of_sight_where_the_project_wants_it(tmp_path):
    project = make_project(tmp_path / "study", hide_evidence=True)
    ann = who(project, "ann")
    first = next_sheet(project, ann)
    submit(project, ann, first)
    assert first.material.evidence
    assert next_sheet(project, ann).material.evidence == ()
    project.close()


def test_short_form_has_three_passes_and_no_steps(tmp_path):
    project = make_project(tmp_path / "study", kind=AnnotationTaskKind.SHORT)
    sheet = next_sheet(project, who(project, "ann"))
    assert (sheet.passes, sheet.steps, type(sheet.material)) == (("B", "C", "D"), None, AnnotatorTraceMaterial)
    project.close()


def test_passes_that_will_be_left_out_are_not_told(project):
    """That a response has no answer is not known before pass C would come."""
    everybody = [who(project, name) for name in ("ann", "bob", "cyd", "dan")]
    assert {next_sheet(project, person).passes for person in everybody} == {("A", "B", "C", "D")}
