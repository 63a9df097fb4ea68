"""The lead's pages: how the project stands, who takes part, what people ask for. Never a label."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.annotation import audit_log, reopening
from eclose.annotation import dashboard as boards
from eclose.annotation.accounts import people, tokens
from eclose.annotation.accounts.people import Pool
from eclose.annotation.setup import invite_anew
from eclose.annotation.web.dependencies import Visit, checked, leader, not_found, now, only, posted
from eclose.annotation.web.downloads import agreement_so_far, packed_export
from eclose.annotation.web.pages import page
from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

router = APIRouter(prefix="/dashboard")
Fields = Annotated[dict[str, str], Depends(posted)]
Lead = Annotated[Visit, Depends(leader)]


@router.get("")
def dashboard(request: Request, visit: Lead) -> HTMLResponse:
    """How the project stands."""
    return _dashboard(request, visit)


@router.get("/agreement")
def agreement(request: Request, visit: Lead) -> HTMLResponse:
    """The same with how far people agree, which takes a while where much is finished."""
    with visit.project.reading() as connection:
        found = agreement_so_far(connection)
    return _dashboard(request, visit, agreement=found)


@router.post("/export")
def export(visit: Lead, fields: Fields) -> Response:
    """All labels, packed. Whoever has the files knows who said what of which model: that is for the log."""
    only(checked(visit, fields))
    with visit.project.reading() as connection:
        packed = packed_export(connection, visit.project)
    with visit.project.writing() as connection:
        link = audit_log.append(
            connection, visit.person.name, "exported", detail={"sha256": sha256(packed).hexdigest()}
        )
    visit.project.head.advance(link)
    headers = {"content-disposition": 'attachment; filename="labels.zip"'}
    return Response(packed, media_type="application/zip", headers=headers)


@router.post("/invite")
def invite(request: Request, visit: Lead, fields: Fields) -> HTMLResponse:
    """Invite somebody, or invite them anew. The link is shown once."""
    name, role, pool = only(checked(visit, fields), "name", "role", "pool")
    try:
        with visit.project.writing() as connection:
            taken = invite_anew(connection, name, role, Pool(pool) if pool else None, by=visit.person.name)
    except (UserError, ValueError) as problem:
        raise HTTPException(422, str(problem)) from None
    visit.project.note_head()
    return _dashboard(request, visit, f"{request.base_url}invitation/{taken.token}")


@router.post("/people/{name}/{change}")
def change_person(visit: Lead, name: str, change: str, fields: Fields) -> Response:
    """Keep somebody out, let them in again, or end their sessions."""
    only(checked(visit, fields))
    with visit.project.writing() as connection:
        person = people.person(connection, name)
        if person is None or change not in _CHANGES or person.id == visit.person.id:
            raise not_found()
        _CHANGES[change](connection, person.id)
        link = audit_log.append(connection, visit.person.name, change, detail={"name": name})
    visit.project.head.advance(link)
    return RedirectResponse("/dashboard", status_code=303)


@router.post("/requests/{request_id}/{decision}")
def decide(visit: Lead, request_id: str, decision: str, fields: Fields) -> Response:
    """Let somebody change a submitted pass, or not."""
    only(checked(visit, fields))
    if decision not in ("grant", "refuse"):
        raise not_found()
    with visit.project.writing() as connection:
        link = reopening.decide(connection, visit.person, request_id, grant=decision == "grant")
    if link is None:
        raise not_found()
    visit.project.head.advance(link)
    return RedirectResponse("/dashboard", status_code=303)


def _end_sessions(connection: Connection, person_id: int) -> None:
    tokens.end_all(connection, person_id)


_CHANGES: dict[str, Callable[[Connection, int], None]] = {
    "deactivate": people.deactivate,
    "activate": people.activate,
    "end": _end_sessions,
}


def _dashboard(
    request: Request,
    visit: Visit,
    invited: str | None = None,
    agreement: tuple[boards.AgreementLine, ...] | None = None,
) -> HTMLResponse:
    with visit.project.reading() as connection:
        ago = tokens.kept(now() - timedelta(hours=1))
        found = boards.board(connection, agreement, an_hour_ago=ago)
    words = page("dashboard.html", **visit.context, board=found, invited=invited, origin=str(request.base_url))
    return HTMLResponse(words)
