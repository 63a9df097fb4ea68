"""The lead's overview: times between submissions."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from eclose_annotate import events as audit_log
from eclose_annotate.events import format_utc_timestamp
from eclose_annotate.read import read_annotations
from eclose_annotate.web import dashboard
from tests.projects import NOW, make_project, next_sheet, submit, who


@pytest.fixture
def project(tmp_path):
    with closing(make_project(tmp_path / "study")) as project:
        yield project


def test_times_of_passes_are_medians_by_person(project, monkeypatch):
    now = NOW

    def pass_after(seconds):
        nonlocal now
        person = who(project, "ann")
        sheet = next_sheet(project, person)
        now += timedelta(seconds=seconds)
        submit(project, person, sheet)

    monkeypatch.setattr(audit_log, "current_timestamp", lambda: format_utc_timestamp(now))
    # Passes A to D of two tasks.
    for seconds in (60, 20, 10, 5, 90, 40, 14, 1):
        pass_after(seconds)
    with project.reading() as connection:
        times = dashboard.summarise_pass_times(read_annotations(connection, names=True).times)
    assert times == (("ann", {"A": (75, 2), "B": (30, 2), "C": (12, 2), "D": (3, 2)}, 1),)
