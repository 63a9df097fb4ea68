"""Notes to the lead: who may write them, what a skip does to the queue, and what the lead answers."""

from __future__ import annotations

import pytest
from tests.annotation.projects import filled, make_project, next_sheet, submit, who, work_off

from eclose.annotation import audit_log, notes, queues
from eclose.annotation.notes import MAX_NOTE_CHARACTERS, NoteKind


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study")
    yield project
    project.close()


def note(project, name, task, kind=NoteKind.COMMENT, body="The second passage is cut off.", pass_name="A"):
    with project.writing() as connection:
        event = notes.add_note(connection, who(project, name), task, pass_name, kind, body)
    if event is not None:
        project.head.advance(event)
    return event


def order(project, name):
    """Tasks of a person that are not finished, in the order in which they will be met."""
    with project.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT t.id, t.place FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
            f" WHERE p.name = '{name}' ORDER BY t.place"
        ).all()
    assert [place for _, place in rows] == list(range(1, len(rows) + 1))
    return [task for task, _ in rows]


def test_note_is_listed_with_its_question_until_it_is_resolved(project):
    sheet = next_sheet(project, who(project, "ann"))
    assert note(project, "ann", sheet.task) is not None
    with project.reading() as connection:
        (only,) = notes.list_notes(connection)
    assert (only.person, only.kind, only.position, only.pass_name) == ("ann", NoteKind.COMMENT, 1, "A")
    assert (only.question, only.text) == (sheet.material.question, "The second passage is cut off.")
    assert (only.reply, only.resolved_by, only.resolved_at) == (None, None, None)
    with project.writing() as connection:
        assert notes.resolve_note(connection, who(project, "lead"), only.id, " Judge what is there. ") is not None
        assert notes.resolve_note(connection, who(project, "lead"), only.id, "again") is None
        assert notes.resolve_note(connection, who(project, "lead"), "nothing") is None
    with project.reading() as connection:
        assert notes.list_notes(connection) == ()
        (closed,) = notes.list_notes(connection, resolved=True)
        assert notes.list_person_notes(connection, who(project, "ann")) == (closed,)
        assert notes.list_task_notes(connection, who(project, "ann"), sheet.task) == (closed,)
        assert notes.list_person_notes(connection, who(project, "bob")) == ()
    assert (closed.reply, closed.resolved_by) == ("Judge what is there.", "lead")


@pytest.mark.parametrize(
    ("name", "kind", "body"),
    [
        ("bob", NoteKind.COMMENT, "not my task"),
        ("ann", NoteKind.COMMENT, "  "),
        ("ann", NoteKind.SKIP, ""),
        ("ann", NoteKind.COMMENT, "x" * (MAX_NOTE_CHARACTERS + 1)),
    ],
)
def test_notes_that_are_refused_leave_nothing_behind(project, name, kind, body):
    task = next_sheet(project, who(project, "ann")).task
    before = order(project, "ann")
    assert note(project, name, task, kind, body) is None
    with project.reading() as connection:
        assert notes.list_notes(connection, resolved=True) == ()
    assert order(project, "ann") == before


def test_flag_needs_no_text(project):
    task = next_sheet(project, who(project, "ann")).task
    assert note(project, "ann", task, NoteKind.FLAG, "") is not None


def test_skipped_task_waits_at_the_end_with_what_was_submitted(project):
    ann = who(project, "ann")
    first = next_sheet(project, ann)
    submit(project, ann, first, filled(first))
    before = order(project, "ann")
    assert before[0] == first.task
    assert note(project, "ann", first.task, NoteKind.SKIP, "I know the author.", "B") is not None
    assert order(project, "ann") == [*before[1:], first.task]
    assert next_sheet(project, ann).task == before[1]
    # Only the task at hand can be skipped.
    assert note(project, "ann", first.task, NoteKind.SKIP, "again") is None
    work_off(project, ann)
    with project.reading() as connection:
        assert queues.read_task_progress(connection, ann)[:2] == (len(before), len(before))
        assert list(audit_log.verify_audit_log(connection, project.head)) == []


def test_last_task_can_be_skipped_and_stays(project):
    ann = who(project, "ann")
    (*_, last) = order(project, "ann")
    while (sheet := next_sheet(project, ann)).task != last:
        submit(project, ann, sheet)
    assert note(project, "ann", last, NoteKind.SKIP, "later") is not None
    assert next_sheet(project, ann).task == last


def test_adjudicator_may_comment_but_not_skip(project):
    for name in ("ann", "bob", "cyd"):
        work_off(project, who(project, name))
    work_off(project, who(project, "dan"), closed="no")
    task = next_sheet(project, who(project, "eve")).task
    assert note(project, "eve", task, NoteKind.SKIP, "hard") is None
    assert note(project, "eve", task, NoteKind.COMMENT, "hard") is not None


def test_log_names_the_note_but_not_its_words(project):
    task = next_sheet(project, who(project, "ann")).task
    note(project, "ann", task, body="I said that step 2 is L1")
    with project.reading() as connection:
        row = connection.exec_driver_sql("SELECT * FROM annotate_events WHERE action = 'noted'").mappings().one()
    assert row["task"] == task
    assert "L1" not in row["detail"]
