"""Pages of the lead: dashboard, invitations, people, agreement and export. No page shows single labels."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.errors import UserError
from eclose_annotate import events, setup, staffing
from eclose_annotate.choices import InvitedRole, LabelExportFormat
from eclose_annotate.people import people
from eclose_annotate.read import read_annotations
from eclose_annotate.results.agreement_pairs import COMPARED_LABELS, measure_pair_agreement, measure_person_agreement
from eclose_annotate.results.agreement_report import build_agreement_report, why_alpha_undefined
from eclose_annotate.results.export_project import export_labels
from eclose_annotate.web.dashboard import read_dashboard_people, read_lead_dashboard, summarise_pass_times
from eclose_annotate.web.dependencies import (
    LoggedInVisit,
    check_csrf_token,
    current_time,
    not_found_error,
    parse_web_form,
    require_lead,
    take_form_fields,
)
from eclose_annotate.web.pages import render_annotation_page

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from sqlalchemy import Connection

    from eclose.metrics.agreement import AnnotatorAgreementRow
    from eclose_annotate.project import AnnotationProject

DASHBOARD_RESAMPLES = 200
"""Bootstrap resamples of the dashboard; the command ``eclose annotate agree`` uses the paper's 2,000."""

CONFIRMED_CHANGES = ("deactivate", "end", "renew", "reassign")
"""Changes of a person that a page asks to confirm, because they shut the person out or move their work."""

router = APIRouter(prefix="/dashboard")
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
Lead = Annotated[LoggedInVisit, Depends(require_lead)]


@router.get("")
def show_dashboard(visit: Lead) -> HTMLResponse:
    """Show the dashboard."""
    return _dashboard(visit)


@router.get("/agreement")
def show_agreement(visit: Lead) -> HTMLResponse:
    """Show agreement by decision, person and pair, and times; computing it takes seconds in large projects."""
    with visit.project.reading() as connection:
        annotations = read_annotations(connection, names=True)
        pairs = measure_pair_agreement(annotations)
        html = render_annotation_page(
            "agreement.html",
            **visit.context,
            decisions=_summarise_annotator_agreement(connection),
            pairs=pairs,
            persons=measure_person_agreement(pairs),
            labels=[name for name in COMPARED_LABELS if any(name in pair.labels for pair in pairs)],
            times=summarise_pass_times(annotations.times),
        )
    return HTMLResponse(html)


@router.post("/export")
def download_labels(visit: Lead, fields: Fields) -> Response:
    """Download all labels, and record that in the audit log: the files link labels to models."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.reading() as connection:
        archive = _zip_export(connection, visit.project)
    # Only now: the export itself needs no write lock.
    with visit.project.writing() as connection:
        detail = {"sha256": sha256(archive).hexdigest()}
        events.append_audit_event(connection, visit.person.name, "exported", detail=detail)
    headers = {"content-disposition": 'attachment; filename="labels.zip"'}
    return Response(archive, media_type="application/zip", headers=headers)


@router.post("/invite")
def post_invitation_form(visit: Lead, fields: Fields) -> HTMLResponse:
    """Add leads or adjudicators and show their links once; a known name gets a page that asks for confirmation."""
    entered, role = take_form_fields(check_csrf_token(visit, fields), "names", "role")
    names = _split_names(entered)
    with visit.project.reading() as connection:
        members = [person.name for name in names if (person := people.find_person(connection, name)) is not None]
    if members and len(names) == 1:
        return show_confirmation(visit, members[0], "renew")
    try:
        if members or not names:
            raise UserError(f"{members[0]}: is in the project already." if members else "Name at least one person.")
        with visit.project.writing() as connection:
            invitees = [
                setup.issue_or_renew_invitation(connection, visit.project, name, role, by=visit.person.name)
                for name in names
            ]
    except UserError as error:
        return _dashboard(visit, problem=str(error), entered=(entered, role))
    return _dashboard(visit, invitees=invitees)


def _split_names(entered: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", entered) if name]


@router.get("/people/{name}/{change}")
def show_confirmation(visit: Lead, name: str, change: str) -> HTMLResponse:
    """Show what a change means for a person, before it is made."""
    with visit.project.reading() as connection:
        members = read_dashboard_people(connection)
    member = next((each for each in members if each.name == name), None)
    if member is None or change not in CONFIRMED_CHANGES or name == visit.person.name:
        raise not_found_error()
    successors = [
        each.name
        for each in members
        if (each.role, each.pool) == (member.role, member.pool) and each.active and each.name != name
    ]
    html = render_annotation_page("confirm.html", **visit.context, member=member, change=change, successors=successors)
    return HTMLResponse(html)


@router.post("/people/{name}/renew")
def post_renewed_invitation(visit: Lead, name: str, fields: Fields) -> HTMLResponse:
    """Give a known person a new link; their password and sessions end."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.writing() as connection:
        person = people.find_person(connection, name)
        if person is None or person.id == visit.person.id:
            raise not_found_error()
        invitee = setup.issue_or_renew_invitation(connection, visit.project, name, by=visit.person.name)
    return _dashboard(visit, invitees=[invitee])


@router.post("/people/{name}/reassign")
def post_reassignment(visit: Lead, name: str, fields: Fields) -> HTMLResponse:
    """Hand the unfinished tasks of a person over to colleagues or new people; without a choice, to all that fit."""
    fields = check_csrf_token(visit, fields)
    successors = [field.removeprefix("to.") for field in fields if field.startswith("to.")]
    others = {key: value for key, value in fields.items() if not key.startswith("to.")}
    new, reason = take_form_fields(others, "new", "reason")
    by = visit.person.name
    try:
        result = staffing.reassign_tasks(
            visit.project, name, to=successors or None, new=_split_names(new), actor=by, reason=reason
        )
    except UserError as error:
        return _dashboard(visit, problem=str(error))
    tasks = ", ".join(f"{count:,} to {person}" for person, count in result.tasks.items())
    parts = [f"{result.total:,} tasks of {name} were handed over ({tasks})." if tasks else "", ""]
    if result.released:
        parts[1] = f"{result.released:,} taken cases of {name} are back in the queue."
    notice = " ".join(filter(None, parts)) or f"{name} had no unfinished task."
    return _dashboard(visit, invitees=result.invitees, notice=notice)


@router.post("/people/{name}/{change}")
def change_person_access(visit: Lead, name: str, change: str, fields: Fields) -> Response:
    """Deactivate or activate a person, or end their sessions."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.writing() as connection:
        person = people.find_person(connection, name)
        # Leads cannot lock themselves out.
        if person is None or change not in _CHANGES or person.id == visit.person.id:
            raise not_found_error()
        _CHANGES[change](connection, person.id)
        events.append_audit_event(connection, visit.person.name, change, detail={"name": person.name})
    return RedirectResponse("/dashboard", status_code=303)


_CHANGES: dict[str, Callable[[Connection, int], object]] = {
    "deactivate": people.deactivate_person,
    "activate": people.reactivate_person,
    "end": people.end_person_sessions,
}


def _dashboard(
    visit: LoggedInVisit,
    *,
    invitees: Iterable[setup.InvitedPerson] = (),
    notice: str = "",
    problem: str = "",
    entered: tuple[str, str] = ("", ""),
) -> HTMLResponse:
    with visit.project.reading() as connection:
        an_hour_ago = events.format_utc_timestamp(current_time() - timedelta(hours=1))
        board = read_lead_dashboard(connection, an_hour_ago=an_hour_ago)
    html = render_annotation_page(
        "dashboard.html",
        **visit.context,
        board=board,
        roles=list_offered_roles(board.pools),
        links={each.person.name: f"{visit.state.url}/invitation/{each.token}" for each in invitees},
        notice=notice,
        problem=problem,
        entered=entered,
        origin=f"{visit.state.url}/",
    )
    return HTMLResponse(html, 422 if problem else 200)


def list_offered_roles(pools: Collection[str]) -> tuple[str, ...]:
    """Return the roles in which people can join without tasks: those whose work the project has, and the lead."""
    screening = people.AnnotatorPool.QUESTIONS in pools
    responses = bool(set(pools) - {people.AnnotatorPool.QUESTIONS})
    offered = {InvitedRole.ADJUDICATOR: responses, InvitedRole.SCREENING_ADJUDICATOR: screening, InvitedRole.LEAD: True}
    return tuple(str(role) for role, offer in offered.items() if offer)


def _summarise_annotator_agreement(connection: Connection) -> tuple[DecisionAgreement, ...]:
    """Return the agreement so far, one line per judgment; empty before two people have finished the same subject."""
    report = build_agreement_report(read_annotations(connection), resamples=DASHBOARD_RESAMPLES)
    rows: list[AnnotatorAgreementRow] = []
    if report.screening is not None:
        rows += [report.screening.overall.eligibility, report.screening.overall.reason]
    if report.responses is not None:
        rows += report.responses.rows
    lines = []
    for row in (row for row in rows if row.n):
        alpha = why_alpha_undefined(row) if row.alpha.value is None else f"{row.alpha.value:.3f}"
        raw = f"{100 * (row.raw.value or 0):.1f} %"
        lines.append(DecisionAgreement(row.judgment, row.n, raw, alpha or "undefined"))
    return tuple(lines)


class DecisionAgreement(NamedTuple):
    """Agreement on one decision, formatted."""

    judgment: str
    n: int
    raw: str
    alpha: str


def _zip_export(connection: Connection, project: AnnotationProject) -> bytes:
    """Return the files of ``eclose annotate export`` as a ZIP archive, in JSON Lines and CSV, without names."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "labels"
        export_labels(connection, project, out, (LabelExportFormat.JSONL, LabelExportFormat.CSV))
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(out.iterdir()):
                archive.write(path, f"labels/{path.name}")
    return buffer.getvalue()
