"""The log detects changed, removed and added records, and an end that was cut off."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from dataclasses import asdict, replace

import pytest
from sqlalchemy import inspect, text
from tests.annotation.projects import make_project, next_sheet, submit, who, work_off

from eclose.annotation import audit_log, reopening
from eclose.annotation.accounts import people
from eclose.annotation.audit_log import AuditedKind
from eclose.annotation.project import DATABASE_FILE, open_annotation_project
from eclose.annotation.schema import APPEND_ONLY
from eclose.annotation.setup import issue_or_renew_invitation
from eclose.errors import UserError


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
        return list(audit_log.check_audit_log(connection, project.head, asdict(project.settings)).problems)


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
        f"UPDATE annotate_head SET count = {last}, hash = (SELECT hash FROM annotate_events WHERE seq = {last})",
    )


def test_untouched_log_has_no_problem(project):
    assert problems(project) == []
    assert project.head.read().seq == events(project) > 3


# --- tampering -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished project with disagreements, adjudication and an amendment."""
    project = make_project(tmp_path_factory.mktemp("finished") / "study", questions=3)
    for name in ("ann", "bob", "cyd", "dan"):
        work_off(project, who(project, name), closed="no" if name == "ann" else "yes")
    assert work_off(project, who(project, "eve"))
    with project.writing() as connection:
        ann, lead = people.find_person(connection, "ann"), people.find_person(connection, "lead")
        task = connection.execute(text("SELECT task FROM annotate_submissions WHERE pass = 'B'")).scalars().first()
        owner = connection.execute(text("SELECT person FROM annotate_tasks WHERE id = :id"), {"id": task}).scalar_one()
        person = next(each for each in people.list_people(connection) if each.id == owner)
        assert reopening.request_reopening(connection, person, task, "B", "a slip")
        (request,) = reopening.list_reopen_requests(connection)
        assert reopening.decide_reopen_request(connection, lead, request.id, grant=True)
        assert ann is not None
    with project.writing() as connection:
        assert reopening.submit_pass_amendment(connection, project, person, request.id, [{"aligned": "no"}], "k").event
    assert problems(project) == []
    project.close()
    return project.folder


@pytest.fixture
def study(finished, tmp_path):
    """A copy of the finished project, to be tampered with."""
    folder = tmp_path / "study"
    folder.mkdir()
    for path in finished.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    project = open_annotation_project(folder)
    yield project
    project.close()


TAMPERINGS = {
    # The ten of the review.
    "end cut off, head deleted": (None, "audit-head.txt: is missing"),
    "task given to another person": (
        "UPDATE annotate_tasks SET place = 99, apart = NULL,"
        " person = (SELECT id FROM annotate_people WHERE name = 'dan')"
        " WHERE id = (SELECT t.id FROM annotate_tasks t WHERE t.role = 'annotator'"
        " AND NOT EXISTS (SELECT 1 FROM"
        " annotate_tasks o JOIN annotate_people p ON p.id = o.person AND p.name = 'dan' WHERE o.subject = t.subject)"
        " ORDER BY t.id LIMIT 1)",
        "1 of the tasks differ",
    ),
    "labels moved to another response": (
        "UPDATE annotate_tasks SET response = CASE response WHEN 1 THEN 2 ELSE 1 END WHERE response IN (1, 2)",
        "of the tasks differ",
    ),
    "answer replaced": ("UPDATE annotate_answers SET answer = '\"Paris\"' WHERE response = 1", "1 of the responses"),
    "reference replaced": (
        "UPDATE annotate_references SET reference = '\"Paris\"' WHERE question = 2",
        "1 of the ques",
    ),
    "model names replaced": (
        "UPDATE annotate_response_origins SET origin = replace(origin, '\"model\"', '\"method\"')",
        "6 of the responses differ",
    ),
    "person renamed": ("UPDATE annotate_people SET name = 'zed' WHERE name = 'ann'", "1 of the people differ"),
    "role changed": ("UPDATE annotate_people SET role = 'adjudicator' WHERE name = 'ann'", "1 of the people differ"),
    "adjudications deleted": ("DELETE FROM annotate_adjudications", "are in the log, but not in the database"),
    "settings changed in the database": (
        "UPDATE annotate_settings SET value = replace(value, 'false', 'true') WHERE name = 'settings'",
        "1 of the settings differ",
    ),
    # And more of their kind.
    "trace replaced": ("UPDATE annotate_responses SET steps = '[\"So Paris.\"]' WHERE id = 3", "1 of the responses"),
    "question replaced": ("UPDATE annotate_questions SET question = '\"Who?\"' WHERE id = 1", "1 of the questions"),
    "evidence replaced": ("UPDATE annotate_questions SET evidence = '[]' WHERE id = 1", "1 of the questions"),
    "response moved to another question": ("UPDATE annotate_responses SET question = 1 WHERE id = 6", "1 of the resp"),
    "benchmark replaced": ("UPDATE annotate_question_origins SET origin = '{}'", "3 of the questions differ"),
    "answer removed": ("DELETE FROM annotate_answers WHERE response = 1", "1 of the responses differ"),
    "reference removed": ("DELETE FROM annotate_references WHERE question = 1", "1 of the questions differ"),
    "person added": (
        "INSERT INTO annotate_people (name, role, pool, password, since) VALUES ('eva', 'lead', 'none', 'x', '2026')",
        "1 of the people are in the database, but not in the log",
    ),
    "person let in again": ("UPDATE annotate_people SET active = 0 WHERE name = 'bob'", "1 of the people differ"),
    "task removed": (
        "DELETE FROM annotate_tasks WHERE id = (SELECT id FROM annotate_tasks WHERE role = 'adjudicator' LIMIT 1)",
        "1 of the tasks are in the log, but not in the database",
    ),
    "pass skipped": ("UPDATE annotate_tasks SET passes = 'ABC'", "of the tasks differ"),
    "reason of an adjudication replaced": ("UPDATE annotate_adjudications SET triggers = '[]'", "adjudications differ"),
    "permission to amend invented": (
        "UPDATE annotate_reopenings SET reason = '\"told to\"'",
        "of the reopenings differ",
    ),
    "amendment changed": ('UPDATE annotate_amendments SET entries = \'[{"aligned": "yes"}]\'', "differs from the stor"),
    "time of a submission changed": (
        "UPDATE annotate_submissions SET at = '2026-01-01' WHERE number = 1",
        "pass, time",
    ),
    "submissions of two tasks swapped": (
        "UPDATE annotate_submissions SET task = (SELECT max(task) FROM annotate_submissions)"
        " WHERE pass = 'A' AND task = (SELECT min(task) FROM annotate_submissions)",
        "differs from the stored form",
    ),
    "time of opening changed": ("UPDATE annotate_openings SET at = '2026-01-01'", "was opened differs from the log"),
    "guideline hashes replaced": (
        "UPDATE annotate_settings SET value = '{}' WHERE name = 'guidelines'",
        "1 of the set",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_detected(study, name):
    statement, message = TAMPERINGS[name]
    if statement is None:
        cut_off(study, 50)
        study.head.path.unlink()
    elif "swapped" in name:
        tamper(study, "DROP INDEX IF EXISTS none", "PRAGMA foreign_keys = OFF", "DELETE FROM annotate_submissions"
               " WHERE pass = 'A' AND task = (SELECT max(task) FROM annotate_submissions)", statement)  # fmt: skip
    else:
        tamper(study, statement)
    assert [problem for problem in problems(study) if message in problem], problems(study)


def test_changed_settings_file_is_detected(study):
    study.settings = replace(study.settings, labels_to_adjudicator=True)
    assert problems(study) == ["the setting labels_to_adjudicator is True, but False was recorded."]


@pytest.mark.parametrize(
    "statement, message",
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
def test_changes_are_found(project, statement, message):
    tamper(project, statement)
    assert any(message in problem for problem in problems(project))


def test_event_taken_out_is_found(project):
    last = events(project)
    tamper(
        project,
        f"DELETE FROM annotate_submissions WHERE event = {last - 1}",
        f"DELETE FROM annotate_events WHERE seq = {last - 1}",
    )
    assert problems(project) == [f"event {last - 1} is missing."]


def test_form_taken_out_is_found(project):
    last = events(project)
    tamper(project, f"DELETE FROM annotate_submissions WHERE event = {last}")
    assert problems(project) == [f"the submission of event {last} is missing."]


# --- the end of the log, recorded outside ----------------------------------------------------------------------------


def test_end_cut_off_is_found_by_what_is_known_outside(project):
    cut_off(project, 1)
    assert any("its end was cut off" in problem for problem in problems(project))
    project.head.path.unlink()
    (problem,) = problems(project)
    assert "audit-head.txt: is missing: whether the end of the log was cut off cannot be checked" in problem


def test_project_is_not_opened_when_its_database_lost_its_end(project):
    open_annotation_project(project.folder).close()
    cut_off(project, 1)
    with pytest.raises(UserError, match=r"lacks event \d+, which audit-head.txt records.*-wal"):
        open_annotation_project(project.folder)
    open_annotation_project(project.folder, check_end=False).close()


def test_missing_head_stays_missing(project):
    """The next event does not hide that the file was deleted."""
    project.head.path.unlink()
    ann = who(project, "ann")
    assert submit(project, ann, next_sheet(project, ann)).receipt
    assert not project.head.path.exists()
    assert any("is missing" in problem for problem in problems(project))


def test_end_replaced_is_found(project):
    known = project.head.read()
    cut_off(project, 1)
    with project.writing() as connection:
        other = audit_log.append_audit_event(connection, "mallory", "something else")
    assert (other.seq, other.hash != known.hash) == (known.seq, True)
    assert any("another event of that number" in problem for problem in problems(project))


def test_copy_of_the_head_elsewhere_detects_a_rewritten_folder(project, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(project.head.path.read_bytes())
    cut_off(project, 1)
    with project.reading() as connection:
        project.head.start(audit_log.last_audit_event(connection))
        assert audit_log.check_audit_log(connection, project.head).problems == ()
        (problem,) = audit_log.check_audit_log(connection, audit_log.AuditLogHead(copy)).problems
    assert "copy.txt" in problem
    assert "its end was cut off" in problem


def test_head_only_grows(tmp_path):
    head = audit_log.AuditLogHead(tmp_path / "head")
    with pytest.raises(ValueError, match="is missing"):
        head.read()
    head.advance(audit_log.AuditEventRef(1, "a" * 64))
    assert not head.path.exists()
    head.start(audit_log.AuditEventRef(1, "a" * 64))
    head.advance(audit_log.AuditEventRef(2, "b" * 64))
    head.advance(audit_log.AuditEventRef(1, "a" * 64))
    assert head.read() == audit_log.AuditEventRef(2, "b" * 64)
    for line in ("nonsense", "no number", ""):
        head.path.write_text(line)
        with pytest.raises(ValueError, match=r"damaged|empty"):
            head.read()
        head.advance(audit_log.AuditEventRef(3, "c" * 64))
        assert head.path.read_text() == line


@pytest.mark.parametrize("line", ["nonsense", "no number", "\xff", ""])
def test_a_damaged_head_is_a_problem_and_no_crash(project, line):
    project.head.path.write_text(line, encoding="latin-1")
    assert [problem for problem in problems(project) if "is damaged" in problem or "is empty" in problem]


# --- changes that are allowed ----------------------------------------------------------------------------------------


def test_recorded_changes_verify_clean(project):
    """New people, deactivation, a reassigned task, a deleted case: each with the event that records it."""
    with project.writing() as connection:
        issue_or_renew_invitation(connection, "gus", "adjudicator")
        bob = people.find_person(connection, "bob")
        people.deactivate_person(connection, bob.id)
        audit_log.append_audit_event(connection, "lead", "deactivate", rows={AuditedKind.PEOPLE: [bob.id]})
        tasks = connection.execute(text("SELECT id FROM annotate_tasks WHERE place > 1")).scalars().all()
        connection.execute(text("UPDATE annotate_tasks SET unasked = passes WHERE place > 1"))
        audit_log.append_audit_event(connection, "lead", "reassigned", rows={AuditedKind.TASKS: tasks})
    assert problems(project) == []
    with project.writing() as connection:
        connection.execute(text("DELETE FROM annotate_tasks WHERE id = :id"), {"id": tasks[-1]})
        audit_log.append_audit_event(connection, "lead", "withdrawn", rows={AuditedKind.TASKS: [tasks[-1]]})
    assert problems(project) == []


def test_change_without_an_event_is_detected(project):
    with project.writing() as connection:
        people.deactivate_person(connection, people.find_person(connection, "bob").id)
    assert problems(project)


def test_head_follows_every_transaction_with_events(project):
    """Also those whose caller does not record the head."""
    with project.writing() as connection:
        event = audit_log.append_audit_event(connection, "lead", "something")
    assert project.head.read() == event
    with suppress(RuntimeError), project.writing() as connection:
        audit_log.append_audit_event(connection, "lead", "rolled back")
        raise RuntimeError
    assert project.head.read() == event


def test_every_table_is_covered_or_listed(project):
    """A new table must be covered by the log, or be listed as not covered on the page of the decision."""
    covered = {"settings", "people", "questions", "references", "question_origins", "responses", "answers",
               "response_origins", "families", "tasks", "adjudications", "reopenings", "gold"}  # fmt: skip
    checked = {"events", "head", "submissions", "amendments", "openings"}
    # Eligibility follows from the screenings, which are covered; results settle them again and do not read it.
    uncovered = {"sessions", "invitations", "drafts", "cursors", "schema", "eligibility", "training"}
    with project.reading() as connection:
        tables = {name.removeprefix("annotate_") for name in inspect(connection).get_table_names()}
    assert tables == covered | checked | uncovered
    queries = " ".join(query for query, _ in audit_log._RECORD_QUERIES.values())
    assert not [table for table in covered if f"annotate_{table} " not in f"{queries} "]
    with project.reading() as connection:
        report = audit_log.check_audit_log(connection, project.head)
    sentences = " ".join(audit_log.describe_audit_coverage(report, project.head)).partition("Not covered: ")[2]
    listed = (
        "passwords",
        "sessions",
        "invitations",
        "drafts",
        "practice answers",
        "order of a person's tasks",
    )
    assert [words for words in listed if words not in sentences] == []


def test_report_counts_what_it_covers(project):
    with project.reading() as connection:
        report = audit_log.check_audit_log(connection, project.head)
    assert report.records == {
        "settings": 2, "people": 6, "questions": 4, "responses": 8, "families": 0, "tasks": 16, "adjudications": 0,
        "reopenings": 0, "gold labels": 0,
    }  # fmt: skip
    assert report.events == report.last.seq == report.head.seq


def test_log_does_not_tell_what_was_decided(project):
    with project.reading() as connection:
        details = connection.execute(text("SELECT detail FROM annotate_events")).scalars().all()
    for detail in details:
        assert not {"yes", "no"} & set(json.dumps(json.loads(detail)).replace('"', " ").split())


def test_receipt_names_event_and_hash(project):
    event = project.head.read()
    assert event.receipt == f"{event.seq}-{event.hash[:12]}"
