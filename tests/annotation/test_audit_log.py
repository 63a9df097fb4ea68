"""The log finds what was changed, taken out or cut off."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text
from tests.annotation.projects import make_project, next_sheet, submit, who

from eclose.annotation import audit_log
from eclose.annotation.project import DATABASE_FILE
from eclose.annotation.schema import APPEND_ONLY


@pytest.fixture
def project(tmp_path):
    project = make_project(tmp_path / "study")
    ann = who(project, "ann")
    for _ in range(3):
        assert submit(project, ann, next_sheet(project, ann)).receipt
    yield project
    project.close()


def problems(project):
    with project.reading() as connection:
        return list(audit_log.verify_audit_log(connection, project.head))


def tamper(project, *statements):
    """Change what the database keeps for good, as somebody with its file in hand could."""
    project.close()
    with closing(sqlite3.connect(project.folder / DATABASE_FILE)) as connection:
        for table in APPEND_ONLY:
            for verb in ("UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER {table}_no_{verb}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_untouched_log_has_no_problem(project):
    assert problems(project) == []
    assert project.head.read() == audit_log.AuditEventRef(4, project.head.read().hash)


@pytest.mark.parametrize(
    "statement, told",
    [
        ("UPDATE annotate_events SET actor = 'bob' WHERE seq = 2", "event 2 was changed"),
        ("UPDATE annotate_events SET detail = '{}' WHERE seq = 3", "event 3 was changed"),
        ("UPDATE annotate_events SET at = '2020' WHERE seq = 4", "event 4 was changed"),
        (
            'UPDATE annotate_submissions SET entries = \'[{"aligned": "no"}]\' WHERE number = 2',
            "differs from the stored form",
        ),
    ],
)
def test_changes_are_found(project, statement, told):
    tamper(project, statement)
    assert any(told in problem for problem in problems(project))


def test_event_taken_out_is_found(project):
    tamper(project, "DELETE FROM annotate_submissions WHERE event = 3", "DELETE FROM annotate_events WHERE seq = 3")
    assert problems(project) == ["event 3 is missing."]


def test_form_taken_out_is_found(project):
    tamper(project, "DELETE FROM annotate_submissions WHERE event = 4")
    assert problems(project) == ["the submission of event 4 is missing."]


def test_end_cut_off_is_found_by_what_is_known_outside(project):
    tamper(
        project,
        "DELETE FROM annotate_submissions WHERE event = 4",
        "DELETE FROM annotate_events WHERE seq = 4",
        "UPDATE annotate_head SET count = 3, hash = (SELECT hash FROM annotate_events WHERE seq = 3)",
    )
    assert any("its end was cut off" in problem for problem in problems(project))
    project.head.path.unlink()
    assert problems(project) == []  # the chain alone does not show it


def test_end_replaced_is_found(project):
    known = project.head.read()
    tamper(project, "DELETE FROM annotate_submissions WHERE event = 4", "DELETE FROM annotate_events WHERE seq = 4",
           "UPDATE annotate_head SET count = 3, hash = (SELECT hash FROM annotate_events WHERE seq = 3)")  # fmt: skip
    with project.writing() as connection:
        other = audit_log.append_audit_event(connection, "mallory", "something else")
    assert (other.seq, other.hash != known.hash) == (known.seq, True)
    assert any("another event of that number" in problem for problem in problems(project))


def test_head_only_grows(tmp_path):
    head = audit_log.AuditLogHead(tmp_path / "head")
    assert head.read() is None
    head.advance(audit_log.AuditEventRef(2, "b" * 64))
    head.advance(audit_log.AuditEventRef(1, "a" * 64))
    assert head.read() == audit_log.AuditEventRef(2, "b" * 64)
    head.path.write_text("nonsense")
    with pytest.raises(ValueError, match="damaged"):
        head.read()
    head.path.write_text("no number")
    head.advance(audit_log.AuditEventRef(3, "c" * 64))
    assert head.path.read_text() == "no number"


@pytest.mark.parametrize("line", ["nonsense", "no number", "\xff"])
def test_a_damaged_head_is_a_problem_and_no_crash(project, line):
    project.head.path.write_text(line, encoding="latin-1")
    assert [problem for problem in problems(project) if "is damaged" in problem]


def test_log_does_not_tell_what_was_decided(project):
    with project.reading() as connection:
        details = connection.execute(text("SELECT detail FROM annotate_events")).scalars().all()
    for detail in details:
        assert not {"yes", "no"} & set(json.dumps(json.loads(detail)).replace('"', " ").split())


def test_receipt_names_event_and_hash(project):
    link = project.head.read()
    assert link.receipt == f"{link.seq}-{link.hash[:12]}"
