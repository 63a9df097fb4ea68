"""What must never happen is tried in SQL, past all our code, in both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from eclose_annotate import events as audit_log
from eclose_annotate.people.people import PersonRole
from eclose_annotate.schema import APPEND_ONLY
from tests.calls.ledger.postgres import DATABASES, fresh_database
from tests.projects import join, make_project, next_sheet, submit, who

SUBMIT = """
    INSERT INTO annotate_submissions (task, number, follows, pass, entries, key, event, at)
    VALUES (:task, :number, :follows, :pass, '[]', 'k', :event, 'now')
"""
TASK = """
    INSERT INTO annotate_tasks (id, kind, subject, question, response, person, role, pool, place, apart, passes)
    SELECT :id, :kind, :subject, question, response, :person, :role, :pool, 99, :apart, passes
    FROM annotate_tasks LIMIT 1
"""


@pytest.fixture(scope="module", params=DATABASES)
def project(request, tmp_path_factory):
    database = None if request.param == "sqlite" else fresh_database()
    project = make_project(tmp_path_factory.mktemp("project"), database=database, screeners=("sue", "sam"))
    ann = who(project, "ann")
    submit(project, ann, next_sheet(project, ann))
    yield project
    project.close()


def refused(project, statement, **given):
    """Whether the database refuses a statement; nothing of it stays."""
    with project.writing() as connection:
        nested = connection.begin_nested()
        try:
            if "event" in statement:
                given["event"] = audit_log.append_audit_event(connection, "mallory", "tries").seq
            connection.execute(text(statement), given)
        except DatabaseError:
            return True
        finally:
            if nested.is_active:
                nested.rollback()
    return False


def task_of(project, name, place=1):
    with project.reading() as connection:
        statement = text(
            "SELECT t.* FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
            " WHERE p.name = :name AND t.place = :place"
        )
        return connection.execute(statement, {"name": name, "place": place}).one()


@pytest.mark.parametrize(
    "number, follows, name",
    [
        pytest.param(1, None, "A", id="a pass twice"),
        pytest.param(3, 2, "C", id="after one that is not there"),
        pytest.param(2, None, "B", id="after nothing"),
        pytest.param(3, 1, "C", id="leaving one out"),
        pytest.param(2, 1, "A", id="the first again under another number"),
        pytest.param(0, None, "B", id="before the first"),
    ],
)
def test_pass_cannot_be_submitted_out_of_order(project, number, follows, name):
    task = task_of(project, "ann").id
    row = {"task": task, "number": number, "follows": follows, "pass": name}
    assert refused(project, SUBMIT, **row)
    assert not refused(project, SUBMIT, **{"task": task, "number": 2, "follows": 1, "pass": "B"})


def test_pass_cannot_follow_one_of_another_task(project):
    other = task_of(project, "bob").id
    assert refused(project, SUBMIT, **{"task": other, "number": 2, "follows": 1, "pass": "B"})
    assert not refused(project, SUBMIT, **{"task": other, "number": 1, "follows": None, "pass": "A"})


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = 'then'", "DELETE FROM {}"])
def test_what_was_submitted_or_logged_is_never_changed(project, table, statement):
    if table == "annotate_amendments":
        with project.writing() as connection:
            task = task_of(project, "ann").id
            seq = audit_log.append_audit_event(connection, "x", "y").seq
            connection.execute(
                text(
                    "INSERT INTO annotate_reopenings (id, task, number, at)"
                    " VALUES (:id, :task, 1, '') ON CONFLICT DO NOTHING"
                ),
                {"id": f"r{seq}", "task": task},
            )
            connection.execute(
                text(
                    "INSERT INTO annotate_amendments (reopening, entries, event, at)"
                    " SELECT id, '[]', :seq, '' FROM annotate_reopenings r"
                    " WHERE NOT EXISTS (SELECT 1 FROM annotate_amendments) LIMIT 1"
                ),
                {"seq": seq},
            )
    assert refused(project, statement.format(table))


def test_nobody_meets_two_responses_of_one_question(project):
    task = task_of(project, "ann")
    row = {"id": "new", "kind": "response", "subject": "response 0", "role": "annotator", "pool": "responses"}
    assert refused(project, TASK, **row, person=task.person, apart=task.apart)
    assert not refused(project, TASK, **row, person=task.person, apart=None)


@pytest.mark.parametrize(
    "name, role, pool, kind",
    [
        pytest.param("sue", "annotator", "responses", "response", id="a screener as an annotator"),
        pytest.param("sue", "screener", "questions", "response", id="a response for a screener"),
        pytest.param("ann", "annotator", "responses", "screening", id="a question for an annotator"),
        pytest.param("ann", "screener", "questions", "screening", id="an annotator as a screener"),
        pytest.param("sol", "adjudicator", "responses", "response", id="the screeners' adjudicator"),
        pytest.param("lead", "lead", "none", "response", id="the lead"),
    ],
)
def test_pools_are_apart(project, name, role, pool, kind):
    row = {"id": "new", "kind": kind, "subject": "response 0", "role": role, "pool": pool, "apart": None}
    assert refused(project, TASK, **row, person=who(project, name).id)


def test_person_of_tasks_keeps_role_and_pool(project):
    move = "UPDATE annotate_people SET role = 'screener', pool = 'questions' WHERE name = :name"
    assert refused(project, move, name="ann")
    assert refused(project, "UPDATE annotate_people SET pool = 'responses' WHERE name = :name", name="sue")


def test_one_adjudicator_for_a_subject(project):
    row = {"kind": "response", "subject": "response 1", "role": "adjudicator", "pool": "responses", "apart": None}
    with project.writing() as connection:
        eve, max_ = (join(connection, name, PersonRole.ADJUDICATOR).id for name in ("fay", "max"))
        connection.execute(text(TASK), {**row, "id": "first", "person": eve})
    assert refused(project, TASK, **row, id="second", person=max_)
    assert not refused(project, TASK, **{**row, "subject": "response 2"}, id="second", person=max_)
