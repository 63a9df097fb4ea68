"""A project in which people have worked: some agree, some do not, some are not done."""

from __future__ import annotations

from tests.projects import filled, make_project, next_sheet, submit, who, work_off


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
