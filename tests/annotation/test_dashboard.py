"""The lead's overview: times between submissions, and requests with their questions."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest
from tests.annotation.projects import NOW, make_project, next_sheet, submit, who

from eclose.annotation import audit_log, dashboard, notes
from eclose.annotation.accounts.tokens import format_utc_timestamp


@pytest.fixture
def project(tmp_path):
    with closing(make_project(tmp_path / "study")) as project:
        yield project


def test_pass_times_are_medians_without_pauses(project, monkeypatch):
    now = NOW

    def after(seconds):
        nonlocal now
        now += timedelta(seconds=seconds)
        monkeypatch.setattr(audit_log, "current_timestamp", lambda: format_utc_timestamp(now))
        person = who(project, "ann")
        submit(project, person, next_sheet(project, person))

    # Passes A to D of two tasks; a pause of an hour before the second.
    for seconds in (0, 20, 10, 5, 3600, 40, 14, 7):
        after(seconds)
    with project.reading() as connection:
        times = dashboard.read_pass_times(connection)
    assert [row.person for row in times] == ["ann"]
    assert times[0].passes == {"B": (30, 2), "C": (12, 2), "D": (6, 2)}


def test_notes_and_requests_come_oldest_first_with_their_question(project):
    sheets = {}
    for name in ("bob", "ann"):
        person = who(project, name)
        sheets[name] = next_sheet(project, person)
        with project.writing() as connection:
            notes.add_note(connection, person, sheets[name].task, "A", notes.NoteKind.FLAG, "")
    with project.reading() as connection:
        requests = dashboard.list_dashboard_requests(connection)
    assert [(request.person, request.kind, request.position) for request in requests] == [
        ("bob", "flag", 1),
        ("ann", "flag", 1),
    ]
    assert [request.question for request in requests] == [sheet.material.question for sheet in sheets.values()]
