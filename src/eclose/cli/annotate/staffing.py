"""``eclose annotate release``, ``reassign`` and ``add-people``: changes of people in a running project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eclose.annotation.assignment.choices import CrewRole
from eclose.cli.shared.output import format_count, print_line

Folder = Annotated[Path, typer.Argument(help="Folder of the project.", show_default=False)]
Reason = Annotated[str, typer.Option(help="Reason, which is written to the audit log.", show_default=False)]


def release(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the adjudicator.", show_default=False)],
    *,
    reason: Reason,
) -> None:
    """Return the case that an adjudicator has taken to the queue, for another adjudicator to take.

    Passes that the adjudicator has submitted are kept separately: they are neither shown to others nor counted.
    """
    from eclose.annotation.project import LEAD_NAME, open_annotation_project
    from eclose.annotation.staffing import list_taken_cases, release_case
    from eclose.errors import UserError

    project = open_annotation_project(folder)
    try:
        with project.reading() as connection:
            taken = [taken for taken in list_taken_cases(connection) if taken.adjudicator.lower() == name.lower()]
        if not taken:
            raise UserError(f"{name}: has taken no case. See the names with: eclose annotate status {folder}")
        for case in taken:
            release_case(project, case.case, actor=LEAD_NAME, reason=reason)
    finally:
        project.close()
    print_line(f"{format_count(len(taken), 'case')} of {taken[0].adjudicator} back in the queue")


def reassign(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the person who leaves.", show_default=False)],
    *,
    to: Annotated[
        str, typer.Option(metavar="NAMES", help="Names of the successors.  [default: all others of the role]")
    ] = "",
    reason: Reason,
) -> None:
    """Hand the unfinished tasks of a person over to others, evenly and by the rules of the assignment.

    Each response keeps its number of different annotators, and no annotator gets a question twice. Where a task fits
    none of the others, nothing changes: add people first. Drafts and submitted passes of unfinished tasks are kept
    apart. The person can still log in; make them inactive on the dashboard.
    """
    from eclose.annotation.project import LEAD_NAME, open_annotation_project
    from eclose.annotation.staffing import reassign_tasks

    project = open_annotation_project(folder)
    try:
        result = reassign_tasks(project, name, to=_split(to) or None, actor=LEAD_NAME, reason=reason)
    finally:
        project.close()
    if result.released:
        print_line(f"{format_count(result.released, 'case')} of {result.person} back in the queue")
    started = f", {result.started:,} of them started" if result.started else ""
    print_line(f"{format_count(result.total, 'task')} of {result.person} handed over{started}")
    for successor, count in sorted(result.tasks.items()):
        print_line(f"  {successor}: {count:,}")


def add_people(
    folder: Folder,
    names: Annotated[str, typer.Argument(help="Names of the people, separated by commas.", show_default=False)],
    *,
    role: Annotated[CrewRole, typer.Option(help="Role of the people.")] = CrewRole.ANNOTATOR,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the server, for the links.  [default: that of init]")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of a proxy in front of the server.  [default: of init]")
    ] = None,
) -> None:
    """Invite more people into a running project, and print one link for each.

    New annotators take over an equal share of the tasks that are not started, first of people who are inactive. New
    screeners get the tasks of a person who leaves, with reassign.
    """
    from eclose.annotation import staffing
    from eclose.annotation.project import LEAD_NAME, open_annotation_project
    from eclose.annotation.web.serve import read_server_address

    project = open_annotation_project(folder)
    try:
        with project.reading() as connection:
            url = read_server_address(connection, port, public_url, insecure_http=False).url
        added = staffing.add_people(project, _split(names), role, actor=LEAD_NAME)
    finally:
        project.close()
    for invitee in added.invitees:
        tasks = added.tasks[invitee.person.name]
        share = f", {format_count(tasks, 'task')} of others" if tasks else ""
        print_line(f"{invitee.person.name} ({role}{share}): {url}/invitation/{invitee.token}")
    if idle := staffing.describe_idle_people(added):
        print_line(idle)
    if added.queued:
        print_line(f"{format_count(added.queued, 'response')} with inconsistent labels in the queue of adjudication")


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]
