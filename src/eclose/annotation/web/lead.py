"""Pages of the lead: dashboard, invitations, people, requests, agreement and export. No page shows single labels."""

from __future__ import annotations

import io
import tempfile
import zipfile
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.annotation import audit_log, reopening, setup
from eclose.annotation.accounts import people, tokens
from eclose.annotation.dashboard import DashboardAgreement, read_lead_dashboard
from eclose.annotation.material_store import read_stored_material
from eclose.annotation.project import guideline_hashes
from eclose.annotation.read_annotations import read_annotations
from eclose.annotation.results.agreement_report import build_agreement_report, why_alpha_undefined
from eclose.annotation.results.export_files import export_annotations
from eclose.annotation.results.formats import LabelExportFormat
from eclose.annotation.web.dependencies import (
    LoggedInVisit,
    check_csrf_token,
    current_time,
    not_found_error,
    parse_web_form,
    require_lead,
    take_form_fields,
)
from eclose.annotation.web.pages import render_annotation_page
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from eclose.annotation.project import AnnotationProject
    from eclose.metrics.agreement import AnnotatorAgreementRow

DASHBOARD_RESAMPLES = 200
"""Bootstrap resamples of the dashboard; the command ``eclose annotate agree`` uses the paper's 2,000."""

router = APIRouter(prefix="/dashboard")
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
Lead = Annotated[LoggedInVisit, Depends(require_lead)]


@router.get("")
def show_dashboard(request: Request, visit: Lead) -> HTMLResponse:
    """Show the dashboard."""
    return _dashboard(request, visit)


@router.get("/agreement")
def show_dashboard_agreement(request: Request, visit: Lead) -> HTMLResponse:
    """Show the dashboard with agreement, which takes seconds in large projects."""
    with visit.project.reading() as connection:
        lines = _summarise_annotator_agreement(connection)
    return _dashboard(request, visit, agreement=lines)


@router.post("/export")
def download_labels(visit: Lead, fields: Fields) -> Response:
    """Download all labels, and record that in the audit log: the files link labels to models."""
    take_form_fields(check_csrf_token(visit, fields))
    with visit.project.reading() as connection:
        archive = _zip_export(connection, visit.project)
    # Only now: the export itself needs no write lock.
    with visit.project.writing() as connection:
        event = audit_log.append_audit_event(
            connection, visit.person.name, "exported", detail={"sha256": sha256(archive).hexdigest()}
        )
    visit.project.head.advance(event)
    headers = {"content-disposition": 'attachment; filename="labels.zip"'}
    return Response(archive, media_type="application/zip", headers=headers)


@router.post("/invite")
def post_invitation_form(request: Request, visit: Lead, fields: Fields) -> HTMLResponse:
    """Invite a person, or renew an invitation. The link is shown once."""
    name, role, pool = take_form_fields(check_csrf_token(visit, fields), "name", "role", "pool")
    try:
        with visit.project.writing() as connection:
            invitee = setup.issue_or_renew_invitation(
                connection, name, role, people.AnnotatorPool(pool) if pool else None, by=visit.person.name
            )
    except (UserError, ValueError) as error:
        raise HTTPException(422, str(error)) from None
    # setup.invite returns no event, so the head is read from the log again.
    visit.project.record_head()
    return _dashboard(request, visit, f"{visit.state.url}/invitation/{invitee.token}")


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
        rows = {audit_log.AuditedKind.PEOPLE: [person.id]}
        event = audit_log.append_audit_event(connection, visit.person.name, change, detail={"name": name}, rows=rows)
    visit.project.head.advance(event)
    return RedirectResponse("/dashboard", status_code=303)


@router.post("/requests/{request_id}/{decision}")
def post_reopen_request_answer(visit: Lead, request_id: str, decision: str, fields: Fields) -> Response:
    """Grant or refuse a request to change a submitted pass."""
    take_form_fields(check_csrf_token(visit, fields))
    if decision not in ("grant", "refuse"):
        raise not_found_error()
    with visit.project.writing() as connection:
        event = reopening.decide_reopen_request(connection, visit.person, request_id, grant=decision == "grant")
    if event is None:
        raise not_found_error()
    visit.project.head.advance(event)
    return RedirectResponse("/dashboard", status_code=303)


def _end_sessions(connection: Connection, person_id: int) -> None:
    tokens.end_person_sessions(connection, person_id)


_CHANGES: dict[str, Callable[[Connection, int], None]] = {
    "deactivate": people.deactivate_person,
    "activate": people.reactivate_person,
    "end": _end_sessions,
}


def _dashboard(
    request: Request,
    visit: LoggedInVisit,
    invitation: str | None = None,
    agreement: tuple[DashboardAgreement, ...] | None = None,
) -> HTMLResponse:
    with visit.project.reading() as connection:
        an_hour_ago = tokens.format_utc_timestamp(current_time() - timedelta(hours=1))
        board = read_lead_dashboard(connection, agreement, an_hour_ago=an_hour_ago)
    html = render_annotation_page(
        "dashboard.html", **visit.context, board=board, invitation=invitation, origin=f"{request.app.state.server.url}/"
    )
    return HTMLResponse(html)


def _summarise_annotator_agreement(connection: Connection) -> tuple[DashboardAgreement, ...]:
    """Return the agreement so far, one line per judgment; empty before two people have finished the same subject."""
    report = build_agreement_report(read_annotations(connection), resamples=DASHBOARD_RESAMPLES)
    rows: list[AnnotatorAgreementRow] = []
    if report.screening is not None:
        rows += [report.screening.overall.eligibility, report.screening.overall.reason]
    if report.responses is not None:
        rows += report.responses.rows
    return tuple(_agreement_line(row) for row in rows if row.n)


def _agreement_line(row: AnnotatorAgreementRow) -> DashboardAgreement:
    alpha = why_alpha_undefined(row) if row.alpha.value is None else f"{row.alpha.value:.3f}"
    return DashboardAgreement(row.judgment, row.n, f"{100 * (row.raw.value or 0):.1f} %", alpha or "undefined")


def _zip_export(connection: Connection, project: AnnotationProject) -> bytes:
    """Return the files of ``eclose annotate export`` as a ZIP archive, in JSON Lines and CSV, without names."""
    annotations, material = read_annotations(connection), read_stored_material(connection)
    settings = {"project": project.settings.name, "names": False, "guidelines": guideline_hashes()}
    formats = (LabelExportFormat.JSONL, LabelExportFormat.CSV)
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "labels"
        export_annotations(
            annotations, out, stage="annotate export", settings=settings, material=material, formats=formats
        )
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(out.iterdir()):
                archive.write(path, f"labels/{path.name}")
    return buffer.getvalue()
