"""Whose turn it is, and what goes to adjudication."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from tests.annotation.projects import filled, make_project, next_sheet, submit, who, work_off
from tests.store.postgres import fresh_database

from eclose.annotation import dashboard, queues
from eclose.annotation.adjudication import LabelOrigin
from eclose.annotation.read_annotations import read_annotations


@pytest.fixture(params=["sqlite", "postgresql"])
def project(request, tmp_path):
    project = make_project(
        tmp_path / "study", database=None if request.param == "sqlite" else fresh_database(), screeners=("sue", "sam")
    )
    yield project
    project.close()


def disputes(project):
    with project.reading() as connection:
        rows = connection.execute(text("SELECT subject, triggers FROM annotate_adjudications"))
        return {subject: json.loads(triggers) for subject, triggers in rows}


def labelled(project):
    with project.reading() as connection:
        return read_annotations(connection).responses


def test_those_who_agree_need_nobody(project):
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name))
    assert disputes(project) == {}
    assert {one.final.origin for one in labelled(project)} == {LabelOrigin.AGREED}
    with project.reading() as connection:
        assert queues.read_task_progress(connection, who(project, "eve")).total == 0


def test_any_difference_goes_to_adjudication_when_all_have_finished(project):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    finished = {one.response_id for one in labelled(project) if len(one.annotations) == 2}
    assert disputes(project) == {}
    work_off(project, who(project, "dan"), closed="no")
    found = disputes(project)
    assert set(map(tuple, found.values())) == {("closure",)}
    assert len(found) == 8 - len(finished)
    assert [one.final is None for one in labelled(project)].count(True) == len(found)


def test_adjudicator_walks_the_same_passes_and_settles(project):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), aligned="no")
    eve = who(project, "eve")
    waiting = len(disputes(project))
    with project.reading() as connection:
        assert queues.find_next_task(connection, eve) is None
        assert (
            queues.count_awaiting_adjudication(connection, eve)
            == waiting
            == queues.read_task_progress(connection, eve).total
        )
    sheet = next_sheet(project, eve)
    assert (sheet.form.name, sheet.others) == ("A", ())
    assert next_sheet(project, eve).task == sheet.task
    work_off(project, eve, aligned="no")
    settled = [one.final for one in labelled(project)]
    assert [one.origin for one in settled].count(LabelOrigin.ADJUDICATED) == waiting
    assert all(one.judgment.aligned is False for one in settled if one.origin is LabelOrigin.ADJUDICATED)
    assert all(one.triggers == ("alignment",) for one in settled if one.origin is LabelOrigin.ADJUDICATED)
    with project.reading() as connection:
        (row,) = [row for row in dashboard.read_dashboard_queues(connection) if row.kind == "response"]
    assert row == ("response", 8, 8, 0, waiting, 8)


def test_questions_not_met_before_come_first_and_a_second_meeting_is_noted(project):
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name), correct="yes" if name in ("ann", "bob") else "no")
    work_off(project, who(project, "eve"))
    seen = [one.adjudication.reference_seen_before for one in labelled(project) if one.adjudication]
    questions = [one.question_id for one in labelled(project) if one.adjudication]
    assert seen.count(True) == len(questions) - len(set(questions))
    with project.reading() as connection:
        order = connection.execute(text("SELECT detail FROM annotate_events WHERE action = 'took' ORDER BY seq"))
        met = [json.loads(detail)["reference_seen_before"] for detail in order.scalars()]
    assert met == sorted(met)


def test_screening_reason_alone_goes_to_adjudication(project):
    work_off(project, who(project, "sue"), eligible="no", code="N1")
    work_off(project, who(project, "sam"), eligible="no", code="N4")
    assert set(map(tuple, disputes(project).values())) == {("reason",)}
    sol = who(project, "sol")
    sheet = next_sheet(project, sol)
    assert {entries[0]["code"] for entries in sheet.others} == {"N1", "N4"}
    work_off(project, sol, eligible="no", code="N1")
    with project.reading() as connection:
        settled = [one.final for one in read_annotations(connection).questions]
    assert {one.code for one in settled} == {"N1"}
    assert next_sheet(project, who(project, "eve")) is None


def test_labels_of_others_are_shown_where_the_project_says_so(tmp_path):
    project = make_project(tmp_path / "study", labels_to_adjudicator=True)
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), closed="no")
    eve = who(project, "eve")
    for _ in range(2):
        sheet = next_sheet(project, eve)
        assert all(set(entry) <= {field.name for field in sheet.form.fields} for form in sheet.others for entry in form)
        submit(project, eve, sheet)
    sheet = next_sheet(project, eve)
    assert sorted(form[0]["closed"] for form in sheet.others) == ["no", "yes"]
    project.close()


def test_pace_is_known_from_the_second_task_on(project):
    ann = who(project, "ann")
    for finished in range(3):
        with project.reading() as connection:
            progress = queues.read_task_progress(connection, ann)
        assert (progress.finished, progress.total) == (finished, 4)
        assert (progress.seconds_each is None) == (finished < 2)
        while (sheet := next_sheet(project, ann)) and sheet.form.name != "D":
            submit(project, ann, sheet)
        submit(project, ann, sheet, filled(sheet))
