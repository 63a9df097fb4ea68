"""A project in which people have worked: some agree, some do not, some are not done."""

from __future__ import annotations

import json

from sqlalchemy import text
from tests.annotation.projects import filled, make_project, next_sheet, submit, who, work_off

from eclose.annotation import audit_log


def study(folder, *, adjudicate=True, **settings):
    """Four annotators; dan finds nothing closed, and cyd stops after her first response. Two screeners, one strict."""
    project = make_project(folder, screeners=("sue", "sam"), **settings)
    for name in ("ann", "bob"):
        work_off(project, who(project, name))
    finish_one(project, "cyd")
    work_off(project, who(project, "dan"), closed="no")
    work_off(project, who(project, "sue"))
    strict(project, "sam")
    if adjudicate:
        for name in ("eve", "sol"):
            work_off(project, who(project, name))
    return project


def finish_one(project, name):
    person = who(project, name)
    for _ in range(4):
        submit(project, person, next_sheet(project, person))


def strict(project, name):
    """No to every other question."""
    person, number = who(project, name), 0
    while (sheet := next_sheet(project, person)) is not None:
        no = {"eligible": "no", "code": "N1"}
        submit(project, person, sheet, (no,) if number % 2 else filled(sheet))
        number += 1


def amend(project, person, name, entries):
    """Change the pass of somebody's first finished task, as the lead may allow."""
    with project.writing() as connection:
        row = connection.execute(
            text(
                "SELECT s.task, s.number FROM annotate_submissions s JOIN annotate_tasks t ON t.id = s.task"
                " JOIN annotate_people p ON p.id = t.person WHERE p.name = :name AND s.pass = :pass ORDER BY t.place"
            ),
            {"name": person, "pass": name},
        ).first()
        link = audit_log.append_audit_event(
            connection,
            person,
            audit_log.AMENDED,
            task=row.task,
            detail={"entries": audit_log.hash_form_entries(entries)},
        )
        given = {"task": row.task, "number": row.number, "now": audit_log.current_timestamp(), "event": link.seq}
        connection.execute(
            text(
                "INSERT INTO annotate_reopenings (id, task, number, reason, asked, decision)"
                " VALUES ('once', :task, :number, 'a slip', :now, 'granted')"
            ),
            given,
        )
        connection.execute(
            text(
                "INSERT INTO annotate_amendments (reopening, entries, key, event, at)"
                " VALUES ('once', :entries, 'key', :event, :now)"
            ),
            {**given, "entries": json.dumps(entries)},
        )
