"""Tests of ``studies/campaigns/annotate_kills.py``: the audit of diaries against rows finds every loss."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import event, text

from eclose_annotate import submissions
from eclose_annotate.events import AuditEventRef, AuditLogHead
from studies.campaigns.annotators.audit import audit
from studies.campaigns.annotators.retrying_labeller import DIARY, SentForm, SubmissionDiary
from tests.projects import filled, make_project, next_sheet, who

SCRIPT = Path(__file__).parents[1] / "campaigns" / "annotate_kills.py"


@pytest.fixture
def study(tmp_path):
    project = make_project(tmp_path / "study", questions=2)
    yield project
    project.close()


def submitted(project, name="ann"):
    """Submit a pass and return its entry in the diary."""
    person = who(project, name)
    sheet = next_sheet(project, person)
    entries = filled(sheet)
    outcome = submissions.submit_pass_and_commit(project, person, sheet.task, sheet.form.name, entries, sheet.key)
    return SentForm(sheet.task, sheet.form.name, sheet.key, list(entries), 1, 303, outcome.receipt)


def audited(project, *sent):
    folder = project.folder.parent
    (folder / DIARY).write_text(json.dumps({"ann": asdict(SubmissionDiary(list(sent)))}))
    return audit(project.folder, folder)


def test_what_was_acknowledged_and_is_there_is_no_problem(study):
    result = audited(study, submitted(study), submitted(study))
    assert (result.acknowledged, result.lost, result.doubled, result.problems) == (2, 0, 0, [])


def test_what_was_acknowledged_and_is_not_there_is_lost(study):
    sent = submitted(study)
    unknown = SentForm("nowhere", "A", "k", [], 1, 303, "9-abc")
    other_key = SentForm(sent.task, sent.name, "another", sent.entries, 1, 303, sent.receipt)
    other_receipt = SentForm(sent.task, sent.name, sent.key, sent.entries, 1, 303, "1-000000000000")
    for form in (unknown, other_key, other_receipt):
        result = audited(study, sent, form)
        assert (result.lost, len(result.problems)) == (1, 1)


def test_a_form_that_was_recorded_and_refused_is_a_problem_and_one_beside_it_is_not(study):
    sent = submitted(study)
    refused = SentForm(sent.task, sent.name, sent.key, sent.entries, 2, 409)
    assert audited(study, refused).problems
    given_up = SentForm(sent.task, sent.name, sent.key, sent.entries, 1)
    another = SentForm(sent.task, sent.name, "another", sent.entries, 1, 409)
    result = audited(study, given_up, another)
    assert (result.given_up, result.given_up_kept, result.problems) == (1, 1, [])


def test_what_nobody_sent_is_found(study):
    submitted(study)
    assert audited(study).problems == ["pass A of a task holds a form that was never sent"]


def test_half_of_a_submission_is_found(study):
    sent = [submitted(study) for _ in range(4)]
    assert audited(study, *sent).problems == []
    with study.writing() as connection:
        connection.execute(text("UPDATE annotate_cursors SET done = 0"))
    assert audited(study, *sent).problems == ["a person has finished 1 tasks, and the cursor says 0"]


def test_the_head_outside_is_whole_at_every_moment(tmp_path):
    head, stop, problems = AuditLogHead(tmp_path / "head.txt"), threading.Event(), []
    head.start(AuditEventRef(1, "0" * 64))

    def look():
        while not stop.is_set():
            try:
                assert head.read() is not None
            except ValueError as damaged:
                problems.append(damaged)

    looking = threading.Thread(target=look)
    looking.start()
    for seq in range(2, 2_000):
        head.advance(AuditEventRef(seq, "f" * 64))
    stop.set()
    looking.join()
    assert not problems
    assert head.read() == AuditEventRef(1_999, "f" * 64)


def test_those_who_write_to_a_file_wait_for_their_turn(study):
    @event.listens_for(study.engine, "connect")
    def impatient(connection, _record):
        # Who finds the file taken would fail at once.
        connection.execute("PRAGMA busy_timeout = 0")

    study.engine.dispose()
    inside, failed = threading.Barrier(4), []

    def write():
        inside.wait()
        try:
            for _ in range(20):
                with study.writing() as connection:
                    connection.execute(text("UPDATE annotate_people SET active = active"))
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failed


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [None, "head first"])
def test_a_server_that_is_killed_loses_nothing_and_one_that_is_wrong_is_found(mutant):
    flags = [] if mutant is None else ["--mutant", mutant]
    process = subprocess.run(
        [sys.executable, str(SCRIPT), "--kills", "8", *flags], check=False, capture_output=True, text=True
    )
    output = process.stdout + process.stderr
    if mutant is None:
        assert process.returncode == 0, output
        assert json.loads(process.stdout.splitlines()[-1])["value"] == 8, output
    else:
        assert process.returncode == 1, output
        assert "so submissions are missing" in output
    assert "too few forms" not in process.stdout
