"""A database that lost events is refused, by the last event that is recorded outside."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress

import pytest
from sqlalchemy import text

from eclose.errors import UserError
from eclose_annotate import events as audit_log
from eclose_annotate.project import DATABASE_FILE, open_annotation_project
from eclose_annotate.schema import APPEND_ONLY
from tests.projects import make_project, next_sheet, submit, who


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study")
    ann = who(project, "ann")
    for _ in range(3):
        assert submit(project, ann, next_sheet(project, ann)).receipt
    yield project
    project.close()


def events(project):
    with project.reading() as connection:
        return audit_log.last_audit_event(connection).seq


def tamper(project, *statements):
    """Change the database as a person with its file in hand could: without triggers and foreign keys."""
    project.close()
    with closing(sqlite3.connect(project.folder / DATABASE_FILE)) as connection:
        for table in APPEND_ONLY:
            for verb in ("UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER IF EXISTS {table}_no_{verb}")
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        connection.commit()


def cut_off(project, count):
    """Remove the last events with their submissions, and set the end of the log back."""
    last = events(project) - count
    tamper(
        project,
        f"DELETE FROM annotate_submissions WHERE event > {last}",
        f"DELETE FROM annotate_events WHERE seq > {last}",
        f"UPDATE annotate_head SET count = {last}",
    )


def test_events_are_numbered_without_a_gap_and_the_last_is_recorded_outside(project):
    with project.reading() as connection:
        numbers = connection.execute(text("SELECT seq FROM annotate_events ORDER BY seq")).scalars().all()
        assert project.head.read() == audit_log.last_audit_event(connection)
    assert numbers == list(range(1, len(numbers) + 1))


def test_project_is_not_opened_when_its_database_lost_its_end(project):
    open_annotation_project(project.folder).close()
    cut_off(project, 1)
    with pytest.raises(UserError, match=r"lacks event \d+, which audit-head.txt records.*-wal"):
        open_annotation_project(project.folder)


def test_project_is_not_opened_when_its_end_was_replaced(project):
    head = project.head.read()
    cut_off(project, 1)
    with project.writing() as connection:
        other = audit_log.append_audit_event(connection, "mallory", "something else")
    assert (other.seq, other.id != head.id) == (head.seq, True)
    with pytest.raises(UserError, match=r"lacks event \d+, which audit-head.txt records"):
        open_annotation_project(project.folder)


def test_project_is_not_opened_when_events_in_between_are_missing(project):
    last = events(project)
    tamper(
        project,
        f"DELETE FROM annotate_submissions WHERE event = {last - 1}",
        f"DELETE FROM annotate_events WHERE seq = {last - 1}",
    )
    with pytest.raises(UserError, match=rf"lacks 1 of the events up to number {last}"):
        open_annotation_project(project.folder)


def test_missing_head_stays_missing(project):
    """The next event does not hide that the file was deleted."""
    project.head.path.unlink()
    ann = who(project, "ann")
    assert submit(project, ann, next_sheet(project, ann)).receipt
    assert not project.head.path.exists()
    open_annotation_project(project.folder).close()


def test_head_only_grows(tmp_path):
    head = audit_log.AuditLogHead(tmp_path / "head")
    with pytest.raises(ValueError, match="is missing"):
        head.read()
    head.advance(audit_log.AuditEventRef(1, "a" * 12))
    assert not head.path.exists()
    head.start(audit_log.AuditEventRef(1, "a" * 12))
    head.advance(audit_log.AuditEventRef(2, "b" * 12))
    head.advance(audit_log.AuditEventRef(1, "a" * 12))
    assert head.read() == audit_log.AuditEventRef(2, "b" * 12)
    for line in ("nonsense", "no number", "\xff", ""):
        head.path.write_text(line, encoding="latin-1")
        with pytest.raises(ValueError, match=r"damaged|empty"):
            head.read()
        head.advance(audit_log.AuditEventRef(3, "c" * 12))
        assert head.path.read_text(encoding="latin-1") == line


def test_head_follows_every_transaction_with_events(project):
    with project.writing() as connection:
        event = audit_log.append_audit_event(connection, "lead", "something")
    assert project.head.read() == event
    with suppress(RuntimeError), project.writing() as connection:
        audit_log.append_audit_event(connection, "lead", "rolled back")
        raise RuntimeError
    assert project.head.read() == event


def test_log_does_not_tell_what_was_decided(project):
    with project.reading() as connection:
        details = connection.execute(text("SELECT detail FROM annotate_events")).scalars().all()
    for detail in details:
        assert not {"yes", "no"} & set(json.dumps(json.loads(detail)).replace('"', " ").split())


def test_receipt_names_number_and_id_of_the_event(project):
    event = project.head.read()
    assert event.receipt == f"{event.seq}-{event.id}"
