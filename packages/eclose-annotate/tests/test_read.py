"""A project's database becomes records, with and without names."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from sqlalchemy import text

from eclose_annotate.forms import AnnotationTaskKind
from eclose_annotate.material_store import read_stored_material
from eclose_annotate.read import read_annotations
from eclose_annotate.results.agreement_report import build_agreement_report
from eclose_annotate.results.agreement_tables import build_agreement_tables
from tests.projects import make_project, material, who, work_off
from tests.results.studies import study


@pytest.fixture
def project(tmp_path):
    project = study(tmp_path / "study")
    yield project
    project.close()


def gathered(project, **settings):
    with project.reading() as connection:
        return read_annotations(connection, **settings)


@pytest.mark.slow
def test_everything_said_is_there_under_labels_that_name_nobody(project):
    annotation_set = gathered(project)
    names = {row.annotator for response in annotation_set.responses for row in response.records}
    assert names == {"A1", "A2", "A3", "A4", "A5"}
    assert {row.annotator for question in annotation_set.questions for row in question.records} == {"S1", "S2", "S3"}
    assert {response.adjudication.annotator for response in annotation_set.responses if response.adjudication} == {"A5"}
    assert {row.judgment.judge for response in annotation_set.responses for row in response.records} == names


@pytest.mark.slow
def test_names_are_there_where_they_are_asked_for(project):
    names = {row.annotator for response in gathered(project, names=True).responses for row in response.records}
    assert names == {"ann", "bob", "cyd", "dan", "eve"}


@pytest.mark.slow
def test_what_holds_is_what_the_database_says_holds(project):
    annotation_set = gathered(project, names=True)
    with project.reading() as connection:
        disputed = set(connection.execute(text("SELECT subject FROM annotate_adjudications")).scalars())
        keys = connection.execute(text("SELECT id, key FROM annotate_responses")).all()
        questions = connection.execute(text("SELECT id, key FROM annotate_questions")).all()
    adjudicated = {
        response.response_id
        for response in annotation_set.responses
        if response.final and response.final.origin == "adjudicated"
    }
    assert adjudicated == {json.loads(key) for number, key in keys if f"response {number}" in disputed} != set()
    screened = {question.question_id for question in annotation_set.questions if question.triggers}
    assert screened == {json.loads(key) for number, key in questions if f"question {number}" in disputed} != set()
    assert all(
        question.final == question.adjudication.screening for question in annotation_set.questions if question.triggers
    )
    assert {response.open_reason for response in annotation_set.responses} == {None, "1 of 2 have finished"}


def test_who_comes_later_gets_a_later_number(tmp_path):
    project = make_project(tmp_path / "study", annotators=("zoe", "ann"), share_questions=True)
    work_off(project, who(project, "zoe"))
    assert {row.annotator for response in gathered(project).responses for row in response.records} == {"A1"}
    project.close()


def test_short_forms_are_marked_as_such(tmp_path):
    project = make_project(tmp_path / "study", kind=AnnotationTaskKind.SHORT)
    work_off(project, who(project, "ann"), locally_sound="no")
    rows = [row for response in gathered(project).responses for row in response.records if row.judgment]
    assert {(row.kind, row.judgment.locally_sound) for row in rows} == {(AnnotationTaskKind.SHORT, False)}
    project.close()


@pytest.mark.slow
def test_questions_and_responses_come_back(project):
    with project.reading() as connection:
        stored_material = read_stored_material(connection)
    instances, answers = material()
    assert list(stored_material.instances) == [instance.id for instance in instances]
    for instance in instances:
        back = stored_material.instances[instance.id]
        assert (back.question, back.reference_answer, back.aliases) == (
            instance.question, instance.reference_answer, instance.aliases,
        )  # fmt: skip
        assert [(passage.title, passage.text) for passage in back.evidence] == [
            (passage.title, passage.text) for passage in instance.evidence
        ]
    for response in answers:
        back = stored_material.responses[response.id]
        assert (back.trace, back.answer, back.source, back.instance_id) == (
            response.trace, response.answer, response.source, response.instance_id,
        )  # fmt: skip


def test_an_annotator_who_knew_the_reference_is_recorded(tmp_path):
    # As in the audit of results: two reviewers see all responses to a question (D.5.2).
    project = make_project(tmp_path / "study", questions=2, annotators=("ann", "bob"), share_questions=True)
    for name in ("ann", "bob"):
        work_off(project, who(project, name))
    annotation_set = gathered(project)
    by_question = Counter(
        (row.question_id, row.annotator) for response in annotation_set.responses for row in response.annotations
        if row.reference_seen_before
    )  # fmt: skip
    assert by_question == {
        (response.question_id, name): 1 for response in annotation_set.responses for name in ("A1", "A2")
    }
    report = build_agreement_report(annotation_set, resamples=100)
    assert report.responses.knew_reference == 4
    note = "4 annotations are by a person who knew the reference from another response to the question."
    assert note in build_agreement_tables(report)[0].notes
    project.close()


def test_times_of_passes_are_there_and_fast_ones_are_marked(tmp_path):
    project = make_project(tmp_path / "times", questions=2)
    passes = work_off(project, who(project, "ann"))
    with project.writing() as connection:
        # As if every pass had been opened an hour before it was submitted, but for those of the trace as a whole.
        connection.execute(text("UPDATE annotate_openings SET at = '2026-03-01T08:00:00.000+00:00'"))
        connection.execute(text("DROP TRIGGER annotate_submissions_no_UPDATE"))
        connection.execute(text("UPDATE annotate_submissions SET at = '2026-03-01T09:00:00.000+00:00'"))
        quick = text("UPDATE annotate_submissions SET at = '2026-03-01T08:00:01.500+00:00' WHERE pass = 'B'")
        connection.execute(quick)
    times = gathered(project).times
    project.close()
    assert len(times) == passes
    assert {(time.pass_name, time.seconds, time.fast) for time in times} == {
        ("A", 3600.0, False), ("B", 1.5, True), ("C", 3600.0, False), ("D", 3600.0, False),
    }  # fmt: skip
    assert {time.annotator for time in times} == {"A1"}
    assert max(time.entries for time in times if time.pass_name == "A") > 1
    assert all(time.response_id and time.question_id for time in times)


def test_a_pass_of_many_steps_needs_more_time(tmp_path):
    project = make_project(tmp_path / "steps", questions=2)
    work_off(project, who(project, "ann"))
    with project.writing() as connection:
        connection.execute(text("DROP TRIGGER annotate_submissions_no_UPDATE"))
        connection.execute(text("UPDATE annotate_openings SET at = '2026-03-01T08:00:00.000+00:00'"))
        connection.execute(text("UPDATE annotate_submissions SET at = '2026-03-01T08:00:02.500+00:00'"))
    fast = {(time.pass_name, time.entries > 2): time.fast for time in gathered(project).times}
    project.close()
    assert (fast["A", True], fast["B", False]) == (True, False)
