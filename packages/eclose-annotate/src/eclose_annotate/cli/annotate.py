"""``eclose annotate``: set up and serve a project in which people label responses; agreement, export, import."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.options import takes_import_options
from eclose.cli.shared.output import format_count, print_line, print_table
from eclose.cli.shared.recipe import recipe_key
from eclose.readers.import_settings import ImportSettings
from eclose_annotate.choices import PracticeMode, ScreeningMode
from eclose_annotate.cli import family_audit as audit
from eclose_annotate.cli import results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from eclose.judging.inputs import JudgeInputFiles
    from eclose_annotate.assignment.assign import AssignmentCountRange
    from eclose_annotate.project import AnnotationProject
    from eclose_annotate.setup import AnnotationCrew, ProjectStaffing
    from eclose_annotate.web.dashboard import DashboardPerson

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Let people label responses; each decision is shown only what it may rest on.",
)

Folder = Annotated[Path, typer.Argument(help="Folder of the project.")]
Names = Annotated[str, typer.Option(metavar="NAMES", help="Names of annotators, separated by commas.")]
Adjudicators = Annotated[
    str, typer.Option(metavar="NAMES", help="Names of adjudicators, who settle disagreements of annotators.")
]
Screeners = Annotated[
    str, typer.Option(metavar="NAMES", help="Names of screeners, who decide which questions are eligible.")
]
ScreeningAdjudicators = Annotated[str, recipe_key()]
PerResponse = Annotated[int, typer.Option(min=1, help="Number of annotators who label each response.")]
Short = Annotated[bool, typer.Option("--short", help="Label each response in three passes, without its single steps.")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port on this machine (0 = any free port).  [default: that of init, or 8300]"),
]
PublicUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="URL of a proxy in front of the server, such as https://...  [default: of init]"),
]
InsecureHttp = Annotated[bool, recipe_key()]
OtherPort = Annotated[int | None, recipe_key("--port", min=0, max=65535)]
OtherUrl = Annotated[str | None, recipe_key("--public-url")]


@app.command()
@takes_import_options
def init(
    folder: Folder,
    responses: Annotated[Path | None, typer.Argument(help="Folder of a run, or file of responses.")] = None,
    *,
    instances: Annotated[Path | None, typer.Option(help="File of the questions, where it is not in the run.")] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", min=1, help="Number of responses to draw of the run, with equal probability.  [default: all]"
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="Folder of eclose annotate audit sample, to audit families instead of responses."),
    ] = None,
    annotators: Names = "",
    adjudicators: Adjudicators = "",
    screeners: Screeners = "",
    screening_adjudicators: ScreeningAdjudicators = "",
    lead: Annotated[str, recipe_key()] = "lead",
    per_response: PerResponse = 2,
    short: Short = False,
    name: Annotated[str | None, recipe_key()] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the sample of --n, the assignment and the order of tasks.")
    ] = 42,
    share_questions: Annotated[
        bool, typer.Option("--share-questions", help="Let an annotator label several responses to one question.")
    ] = False,
    hide_evidence: Annotated[bool, recipe_key()] = False,
    screening: Annotated[ScreeningMode, recipe_key()] = ScreeningMode.REQUIRED,
    practice: Annotated[PracticeMode, recipe_key()] = PracticeMode.OPTIONAL,
    labels_to_adjudicator: Annotated[bool, recipe_key()] = False,
    database: Annotated[str | None, recipe_key()] = None,
    audit_head: Annotated[Path | None, recipe_key()] = None,
    port: Port = None,
    public_url: PublicUrl = None,
    insecure_http: InsecureHttp = False,
    imported: ImportSettings,
) -> None:
    """Create a project: import responses, invite people and assign their tasks.

    Prints one link for each person, to choose a password. Then run: eclose annotate serve
    """
    from eclose.files.atomic import owner_only
    from eclose_annotate import setup
    from eclose_annotate.project import (
        MATERIAL_FOLDER,
        AnnotationProjectSettings,
        create_annotation_project,
        remove_new_folder_on_error,
    )
    from eclose_annotate.web.serve import DEFAULT_PORT, AnnotationAddress, save_server_address

    address = AnnotationAddress(DEFAULT_PORT if port is None else port, public_url, insecure_http)
    url = address.url
    crew = _crew(annotators, adjudicators, screeners, screening_adjudicators, lead, per_response, short=short)
    if audit is not None:
        _refuse_options_of_responses(imported, n)
    settings = AnnotationProjectSettings(
        name or folder.resolve().name,
        seed,
        hide_evidence=hide_evidence,
        labels_to_adjudicator=labels_to_adjudicator,
        share_questions=share_questions,
        screening=screening,
        practice=practice,
        audit_head=None if audit_head is None else str(audit_head.resolve()),
    )
    material, start = "", setup.ProjectStaffing((), ())
    with remove_new_folder_on_error(folder, folder / MATERIAL_FOLDER):
        if audit is None:
            with owner_only():
                sources = _find_responses(responses, folder / MATERIAL_FOLDER, instances, imported)
            add_material = _response_importer(sources, n, seed)
        else:
            # The same options name the people, but in an audit their tasks are families.
            add_material, crew = _family_importer(audit, responses, crew)

        # Runs in the transaction that creates the project: where a response or a person is refused, no project is left.
        def begin(connection: Connection) -> None:
            nonlocal material, start
            save_server_address(connection, address)
            material = add_material(connection)
            start = setup.invite_and_assign_crew(connection, settings, crew)

        create_annotation_project(folder, settings, database, begin).close()
    # After the commit: a closed pipe (init | head) must not take back a project whose links were printed.
    print_line(f"{folder}: {material}")
    _print_start(start, folder, url)


def _refuse_options_of_responses(imported: ImportSettings, n: int | None) -> None:
    """Raise where an audit of families is given options that need responses."""
    from eclose.errors import SettingError

    if imported.identity:
        raise SettingError("--audit: no file of another tool is read, so --map, model and the like do nothing.")
    if n is not None:
        raise SettingError("--audit: a project of families has no responses, so --n does nothing. Leave it out.")


def _find_responses(
    responses: Path | None, out: Path, instances: Path | None, imported: ImportSettings
) -> JudgeInputFiles:
    from eclose.errors import SettingError
    from eclose.judging.inputs import find_judge_inputs

    if responses is None:
        raise SettingError("name the responses to label (the folder of a run, or a file), or an audit with --audit.")
    # A file of another tool is split into questions and responses; the two files stay in the project's folder.
    return find_judge_inputs(responses, out, instances, imported)


def _response_importer(sources: JudgeInputFiles, n: int | None, seed: int) -> Callable[[Connection], str]:
    """Return a function that adds the responses, or a sample of them, to a database and describes them."""
    from eclose.files.jsonl import read_records
    from eclose.values.instance import Instance
    from eclose.values.response import Response
    from eclose_annotate.setup import add_project_material, draw_project_sample

    sample = None if n is None else draw_project_sample(sources.responses, n, seed)

    def add(connection: Connection) -> str:
        counts = add_project_material(
            connection, read_records(sources.instances, Instance), read_records(sources.responses, Response), sample
        )
        drawn = "" if sample is None else f", drawn of {len(sample.strata):,} with equal probability (seed {seed})"
        return f"{format_count(counts[0], 'question')}, {format_count(counts[1], 'response')}{drawn}"

    return add


def _family_importer(
    audit: Path, responses: Path | None, crew: AnnotationCrew
) -> tuple[Callable[[Connection], str], AnnotationCrew]:
    """Return a function that adds the families of an audit to a database, and the people who check them."""
    from dataclasses import replace

    from eclose.errors import SettingError
    from eclose_annotate.audit_tasks import add_audit_families
    from eclose_annotate.family_audit.sample import read_audit_key
    from eclose_annotate.forms import AnnotationTaskKind

    key = read_audit_key(audit)
    if responses is not None or crew.screeners:
        raise SettingError("--audit: a project of families has no responses and no screeners. Leave them out.")
    # The sample was drawn with one form for each annotator; another number of people could not be matched to the forms.
    if len(crew.annotators) != key.annotators:
        expected = format_count(key.annotators, "annotator")
        raise SettingError(f"--annotators: this sample has forms for {expected}, and {len(crew.annotators)} are named.")

    def add(connection: Connection) -> str:
        count = add_audit_families(connection, ((item.forms, item.shown) for item in key.items))
        return format_count(count, "family", "families")

    return add, replace(crew, kind=AnnotationTaskKind.FAMILY)


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
    port: OtherPort = None,
    public_url: OtherUrl = None,
    insecure_http: InsecureHttp = False,
) -> None:
    """Invite people and assign their tasks, where the project was created without them.

    Annotators get equal shares of responses, systems and co-annotators; no annotator sees a question twice.
    """
    from eclose_annotate import setup
    from eclose_annotate.project import open_annotation_project
    from eclose_annotate.web.serve import read_server_address

    # No lead is invited here: init did that already.
    crew = _crew(annotators, adjudicators, screeners, screening_adjudicators, "", per_response, short=short)
    with closing(open_annotation_project(folder)) as project, project.writing() as connection:
        url = read_server_address(connection, port, public_url, insecure_http=insecure_http).url
        start = setup.invite_and_assign_crew(connection, project.settings, crew)
    _print_start(start, folder, url)


@app.command()
def invite(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the person.")],
    *,
    role: Annotated[str, typer.Option(help="Role of a new person: lead, adjudicator or screening-adjudicator.")] = "",
    port: OtherPort = None,
    public_url: OtherUrl = None,
    insecure_http: InsecureHttp = False,
) -> None:
    """Print a new link for a new lead or adjudicator, or for a person who lost their password."""
    from eclose_annotate import setup
    from eclose_annotate.project import open_annotation_project
    from eclose_annotate.web.serve import read_server_address

    with closing(open_annotation_project(folder)) as project, project.writing() as connection:
        url = read_server_address(connection, port, public_url, insecure_http=insecure_http).url
        # The token is printed once and stored only as a hash; a lost link is replaced by inviting again.
        invitee = setup.issue_or_renew_invitation(connection, project, name, role or None)
    print_line(f"{invitee.person.name} ({invitee.person.role}): {url}/invitation/{invitee.token}")


@app.command()
def reassign(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the person who leaves.")],
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Names of the successors.  [default: the new people, or all others of the role]"
        ),
    ] = "",
    new: Annotated[
        str, typer.Option(metavar="NAMES", help="Names of new people, who are invited and take over too.")
    ] = "",
    reason: Annotated[str, typer.Option(help="Reason, which is written to the audit log.")],
    port: OtherPort = None,
    public_url: OtherUrl = None,
    insecure_http: InsecureHttp = False,
) -> None:
    """Hand the unfinished tasks of a person over to others or to new people, by the rules of the assignment.

    Each response keeps its number of different annotators, and no annotator gets a question twice. Where a task fits
    none of the others, nothing changes: name new people with --new. Drafts and submitted passes of unfinished tasks are
    kept apart. A case of an adjudicator goes back to the queue. The person can still log in; make them inactive on the
    dashboard.
    """
    from eclose_annotate.project import LEAD_NAME, open_annotation_project
    from eclose_annotate.staffing import reassign_tasks
    from eclose_annotate.web.serve import read_server_address

    with closing(open_annotation_project(folder)) as project:
        with project.reading() as connection:
            url = read_server_address(connection, port, public_url, insecure_http=insecure_http).url
        result = reassign_tasks(
            project, name, to=_split_names(to) or None, new=_split_names(new), actor=LEAD_NAME, reason=reason
        )
    if result.released:
        print_line(f"{format_count(result.released, 'case')} of {result.person} back in the queue")
    started = f", {result.started:,} of them started" if result.started else ""
    print_line(f"{format_count(result.total, 'task')} of {result.person} handed over{started}")
    for successor, count in sorted(result.tasks.items()):
        print_line(f"  {successor}: {count:,}")
    for invitee in result.invitees:
        print_line(f"{invitee.person.name} ({invitee.person.role}): {url}/invitation/{invitee.token}")


@app.command()
def serve(
    folder: Folder, *, port: Port = None, public_url: PublicUrl = None, insecure_http: InsecureHttp = False
) -> None:
    """Serve the project on this machine until Ctrl+C. Other machines need a proxy with TLS in front of it."""
    from eclose_annotate.project import open_annotation_project
    from eclose_annotate.web.dependencies import AnnotationServerState
    from eclose_annotate.web.serve import read_server_address
    from eclose_annotate.web.serve import serve_annotation as serve_project

    with closing(open_annotation_project(folder)) as project:
        with project.reading() as connection:
            address = read_server_address(connection, port, public_url, insecure_http=insecure_http)
        serve_project(
            AnnotationServerState(project),
            port=address.port,
            public_url=address.public_url,
            insecure_http=address.insecure_http,
            ready=lambda url: print_line(f"{folder}: {url}"),
        )


@app.command()
def status(folder: Folder) -> None:
    """Print the progress of people and the state of the tasks, without any label."""
    from eclose_annotate.project import open_annotation_project
    from eclose_annotate.web import dashboard

    with closing(open_annotation_project(folder)) as project, project.reading() as connection:
        people, queues = dashboard.read_dashboard_people(connection), dashboard.read_dashboard_queues(connection)
        notices = _list_status_notices(project, connection, people)
    rows = [[row.name, row.role, _describe_state(row), f"{row.finished:,}", f"{row.total:,}"] for row in people]
    print_table("People", ["name", "role", "state", "done", "of"], rows)
    if queues:
        typer.echo()
        heads = ["kind", "total", "finished by all", "in adjudication", "adjudicated", "settled"]
        # The columns follow the fields of DashboardQueue after its kind.
        print_table("Work", heads, [[queue.kind, *(f"{count:,}" for count in queue[1:])] for queue in queues])
    for notice in notices:
        print_line(notice)


app.command(name="agree")(results.agree)
app.command(name="export")(results.export)
app.command(name="import")(results.import_labels)
app.add_typer(audit.app, name="audit")


def _list_status_notices(
    project: AnnotationProject, connection: Connection, people: Sequence[DashboardPerson]
) -> list[str]:
    """Return sentences about the log, screening, idle cases and flags that reach no adjudicator."""
    from eclose_annotate.queues import count_eligibility, find_flagged_responses

    notices = []
    try:
        project.head.read()
    except ValueError as error:
        notices.append(f"{error}, so whether the database lost its end cannot be checked. Put back your copy.")
    if outcomes := count_eligibility(connection):
        notices.append("Screening: " + ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items()))
    notices += [
        f"A case waits for {person.name}, who is inactive: eclose annotate reassign"
        for person in people
        if person.role == "adjudicator" and person.unfinished and not person.active
    ]
    if flagged := len(find_flagged_responses(connection)):
        flags = format_count(flagged, "response")
        notices.append(
            f"{flags} with inconsistent labels and no adjudicator: eclose annotate invite --role adjudicator"
        )
    return notices


def _crew(
    annotators: str,
    adjudicators: str,
    screeners: str,
    screening_adjudicators: str,
    lead: str,
    per_response: int,
    *,
    short: bool,
) -> AnnotationCrew:
    from eclose_annotate.forms import AnnotationTaskKind
    from eclose_annotate.setup import AnnotationCrew

    return AnnotationCrew(
        annotators=_split_names(annotators),
        adjudicators=_split_names(adjudicators),
        screeners=_split_names(screeners),
        screening_adjudicators=_split_names(screening_adjudicators),
        leads=_split_names(lead),
        per_response=per_response,
        kind=AnnotationTaskKind.SHORT if short else AnnotationTaskKind.RESPONSE,
    )


def _split_names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _print_start(start: ProjectStaffing, folder: Path, url: str) -> None:
    for kind, assignment in start.assignments:
        summary = assignment.summary()
        each, shared = _format_range(summary.load_spread), _format_range(summary.group_spread)
        print_line(
            f"{kind}: {format_count(len(assignment.tasks), 'task')}, {each} for each of {len(assignment.annotators)}"
        )
        # With one annotator for each response there are no groups, and with all of them there is a single one.
        if 1 < assignment.per_response < len(assignment.annotators):
            noun = "response" if shared == "1" else "responses"
            print_line(f"  each group of {assignment.per_response} has {shared} {noun} in common")
    if start.invitees:
        print_line("Links to choose a password, each valid once within 7 days:")
    for invitee in start.invitees:
        print_line(f"  {invitee.person.name} ({invitee.person.role}): {url}/invitation/{invitee.token}")
    print_line(f"Then: eclose annotate serve {folder}")


def _format_range(counts: AssignmentCountRange) -> str:
    return f"{counts.least:,}" if counts.least == counts.most else f"{counts.least:,} to {counts.most:,}"


def _describe_state(row: DashboardPerson) -> str:
    if not row.active:
        return "inactive"
    return "joined" if row.joined else "invited"
