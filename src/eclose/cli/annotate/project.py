"""``eclose annotate``: the human protocol, with disclosure that the server enforces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.benchmarks.layouts import RecordLayout
from eclose.cli.annotate import results
from eclose.cli.shared.output import plural, print_table, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from eclose.annotation.assignment.assign import CountRange
    from eclose.annotation.dashboard import PersonRow
    from eclose.annotation.setup import Crew, ProjectStart

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Let people label responses: each decision sees what it may rest on and no more.",
)

app.command(name="agree")(results.agree)
app.command(name="export")(results.export)
app.command(name="import")(results.import_labels)

PORT = 8300
BROKEN = 3
"""The exit code where the log is not as it was written."""

Folder = Annotated[Path, typer.Argument(help="The project's folder.", show_default=False)]
Names = Annotated[str, typer.Option(metavar="NAMES", help="Who labels responses, with commas between.")]
Adjudicators = Annotated[str, typer.Option(metavar="NAMES", help="Who looks again where annotators differ.")]
Screeners = Annotated[str, typer.Option(metavar="NAMES", help="Who says which questions can be used.")]
ScreeningAdjudicators = Annotated[str, typer.Option(metavar="NAMES", help="Who looks again where screeners differ.")]
PerResponse = Annotated[int, typer.Option(min=1, help="How many annotators label each response.")]
Short = Annotated[bool, typer.Option("--short", help="Three passes without single steps.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0 takes a free one.")]
PublicUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Where a proxy before the server is reached, such as https://...")
]


@app.command()
def init(
    folder: Folder,
    responses: Annotated[
        Path | None, typer.Argument(help="A run's folder, or a file of responses.", show_default=False)
    ] = None,
    *,
    instances: Annotated[Path | None, typer.Option(help="The questions, where they are in a file apart.")] = None,
    audit: Annotated[
        Path | None, typer.Option(help="Instead of responses, the folder that eclose families audit sample wrote.")
    ] = None,
    annotators: Names = "",
    adjudicators: Adjudicators = "",
    screeners: Screeners = "",
    screening_adjudicators: ScreeningAdjudicators = "",
    lead: Annotated[str, typer.Option(help="Who sees the dashboard.")] = "lead",
    per_response: PerResponse = 2,
    short: Short = False,
    name: Annotated[str | None, typer.Option(help="What people see as the name of the project.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the assignment and of everybody's order.")] = 42,
    share_questions: Annotated[
        bool, typer.Option("--share-questions", help="Let an annotator meet several responses to one question.")
    ] = False,
    hide_evidence: Annotated[
        bool, typer.Option("--hide-evidence", help="Take the evidence out of sight after the first pass.")
    ] = False,
    labels_to_adjudicator: Annotated[
        bool, typer.Option("--labels-to-adjudicator", help="Show an adjudicator what annotators said, pass by pass.")
    ] = False,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="A PostgreSQL database for many people; else a file.")
    ] = None,
    layout: Annotated[RecordLayout, typer.Option("--format", help="The layout of the records.")] = RecordLayout.AUTO,
    port: Port = PORT,
    public_url: PublicUrl = None,
) -> None:
    """Begin a project: take in responses, invite people and give them their tasks.

    Prints one link for each person, with which they choose a password. Work begins with: eclose annotate serve
    """
    from eclose.annotation import setup
    from eclose.annotation.project import ProjectSettings, create_project
    from eclose.annotation.web.serve import server_url

    crew = _crew(annotators, adjudicators, screeners, screening_adjudicators, lead, per_response, short=short)
    if audit is None:
        add_material = _responses(responses, folder, instances, layout)
    else:
        add_material, crew = _audited(audit, responses, crew)
    settings = ProjectSettings(
        name or folder.resolve().name,
        seed,
        hide_evidence=hide_evidence,
        labels_to_adjudicator=labels_to_adjudicator,
        share_questions=share_questions,
    )

    def begin(connection: Connection) -> None:
        say(f"{folder}: {add_material(connection)}")
        _say_begun(setup.invite_and_assign(connection, settings, crew), folder, server_url(public_url, port))

    create_project(folder, settings, database, begin).close()


def _responses(
    given: Path | None, folder: Path, instances: Path | None, layout: RecordLayout
) -> Callable[[Connection], str]:
    """What puts responses in, and says how many."""
    from eclose.annotation.setup import add_material
    from eclose.core.instance import Instance
    from eclose.core.response import Response
    from eclose.errors import SettingError
    from eclose.judging.inputs import find_run_inputs
    from eclose.store.records.jsonl import read_records

    if given is None:
        raise SettingError(
            "name the responses to label: a run's folder or a file; or an audit of families, with --audit."
        )
    sources = find_run_inputs(given, folder / "material", instances, layout)

    def put(connection: Connection) -> str:
        counts = add_material(
            connection, read_records(sources.instances, Instance), read_records(sources.responses, Response)
        )
        return f"{plural(counts[0], 'question')}, {plural(counts[1], 'response')}"

    return put


def _audited(audit: Path, responses: Path | None, crew: Crew) -> tuple[Callable[[Connection], str], Crew]:
    """What puts the families of an audit in, and who looks at them."""
    from dataclasses import replace

    from eclose.annotation.forms import TaskKind
    from eclose.annotation.setup import add_family_material
    from eclose.construction.audit.sample import read_key
    from eclose.errors import SettingError

    key = read_key(audit)
    if responses is not None or crew.screeners:
        raise SettingError("--audit: families are looked at in a project of their own, without responses or screeners.")
    if len(crew.annotators) != key.annotators:
        asked = plural(key.annotators, "annotator")
        raise SettingError(f"--annotators: this sample has forms for {asked}, and {len(crew.annotators)} are named.")

    def put(connection: Connection) -> str:
        count = add_family_material(connection, ((item.forms, item.shown) for item in key.items))
        return plural(count, "family", "families")

    return put, replace(crew, kind=TaskKind.FAMILY)


@app.command()
def assign(
    folder: Folder,
    *,
    annotators: Names = "",
    adjudicators: Adjudicators = "",
    screeners: Screeners = "",
    screening_adjudicators: ScreeningAdjudicators = "",
    per_response: PerResponse = 2,
    short: Short = False,
    port: Port = PORT,
    public_url: PublicUrl = None,
) -> None:
    """Invite people and give them their tasks, where that was not done when the project began.

    Everybody gets the same share of responses, of systems and of colleagues; nobody meets a question twice.
    """
    from eclose.annotation import setup
    from eclose.annotation.project import open_project
    from eclose.annotation.web.serve import server_url

    crew = _crew(annotators, adjudicators, screeners, screening_adjudicators, "", per_response, short=short)
    project = open_project(folder)
    with project.writing() as connection:
        _say_begun(setup.invite_and_assign(connection, project.settings, crew), folder, server_url(public_url, port))
    project.record_head()
    project.close()


@app.command()
def invite(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Who.", show_default=False)],
    *,
    role: Annotated[str, typer.Option(help="lead or adjudicator; of those who have tasks it is known.")] = "",
    port: Port = PORT,
    public_url: PublicUrl = None,
) -> None:
    """A new link for somebody: another lead or adjudicator, or one who lost their password."""
    from eclose.annotation import setup
    from eclose.annotation.project import open_project
    from eclose.annotation.web.serve import server_url

    project = open_project(folder)
    with project.writing() as connection:
        taken = setup.invite(connection, name, role or None)
    project.record_head()
    project.close()
    say(f"{taken.person.name} ({taken.person.role}): {server_url(public_url, port)}/invitation/{taken.token}")


@app.command()
def serve(folder: Folder, *, port: Port = PORT, public_url: PublicUrl = None) -> None:
    """Answer on this machine until stopped with Ctrl+C. Others reach it through a proxy that speaks TLS."""
    from eclose.annotation.project import open_project
    from eclose.annotation.web.dependencies import ServerState
    from eclose.annotation.web.serve import serve as serve_house

    project = open_project(folder)
    try:
        serve_house(ServerState(project), port=port, public_url=public_url, ready=lambda url: say(f"{folder}: {url}"))
    finally:
        project.close()


@app.command()
def status(folder: Folder) -> None:
    """Who is how far, and what waits. Never a label."""
    from eclose.annotation import dashboard
    from eclose.annotation.project import open_project
    from eclose.annotation.reopening import list_requests

    project = open_project(folder)
    with project.reading() as connection:
        people, queues, asked = (
            dashboard.read_people(connection),
            dashboard.read_queues(connection),
            list_requests(connection),
        )
    project.close()
    rows = [[one.name, one.role, _joined(one), f"{one.finished:,}", f"{one.total:,}"] for one in people]
    print_table("People", ["name", "role", "state", "done", "of"], rows)
    if queues:
        typer.echo()
        heads = ["kind", "in all", "finished by all", "in adjudication", "adjudicated", "settled"]
        print_table("Work", heads, [[one.kind, *(f"{count:,}" for count in one[1:])] for one in queues])
    if asked:
        say(f"{plural(len(asked), 'request')} to change a submitted pass: see the dashboard.")


@app.command(name="verify-audit")
def verify_audit(folder: Folder) -> None:
    """Work the whole log out again: find what was changed, taken out or cut off. Exits with 3 where something was."""
    from eclose.annotation import audit_log
    from eclose.annotation.project import open_project

    project = open_project(folder)
    with project.reading() as connection:
        problems = list(audit_log.verify_log(connection, project.head))
        count = audit_log.last_event(connection).seq
    project.close()
    for problem in problems:
        say(f"{folder}: {problem}")
    if problems:
        raise typer.Exit(BROKEN)
    say(f"{folder}: {plural(count, 'event')}, every one as it was written, and every submission with them")


def _crew(
    annotators: str,
    adjudicators: str,
    screeners: str,
    screening_adjudicators: str,
    lead: str,
    per_response: int,
    *,
    short: bool,
) -> Crew:
    from eclose.annotation.forms import TaskKind
    from eclose.annotation.setup import Crew

    return Crew(
        annotators=_names(annotators),
        adjudicators=_names(adjudicators),
        screeners=_names(screeners),
        screening_adjudicators=_names(screening_adjudicators),
        leads=_names(lead),
        per_response=per_response,
        kind=TaskKind.SHORT if short else TaskKind.RESPONSE,
    )


def _names(given: str) -> list[str]:
    return [name for part in given.split(",") if (name := part.strip())]


def _say_begun(begun: ProjectStart, folder: Path, where: str) -> None:
    for kind, made in begun.assignments:
        found = made.summary()
        each, shared = _spread(found.load_spread), _spread(found.group_spread)
        say(f"{kind}: {plural(len(made.tasks), 'task')}, {each} for each of {len(made.annotators)}")
        if 1 < made.per_response < len(made.annotators):
            say(f"  every {made.per_response} of them share {shared}")
    if begun.invitees:
        say("Links with which people choose a password, each good for one use within 7 days:")
    for one in begun.invitees:
        say(f"  {one.person.name} ({one.person.role}): {where}/invitation/{one.token}")
    say(f"Then: eclose annotate serve {folder}")


def _spread(found: CountRange) -> str:
    return f"{found.least:,}" if found.least == found.most else f"{found.least:,} to {found.most:,}"


def _joined(one: PersonRow) -> str:
    if not one.active:
        return "inactive"
    return "joined" if one.joined else "invited"
