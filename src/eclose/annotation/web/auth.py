"""The way in and out: login, invitations, one's own password."""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.annotation import audit_log
from eclose.annotation.accounts import people, sessions
from eclose.annotation.web.dependencies import (
    House,
    Visit,
    checked,
    drop_cookie,
    house_of,
    not_found,
    now,
    only,
    posted,
    session_of,
    set_cookie,
    visitor,
)
from eclose.annotation.web.pages import page

_LOG = logging.getLogger(__name__)

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(posted)]
Here = Annotated[House, Depends(house_of)]
Visitor = Annotated[Visit, Depends(visitor)]

_NOT_RIGHT = "Name or password is not right."
_DIFFERENT = "The two passwords differ."


@router.get("/login")
def login_page(house: Here) -> HTMLResponse:
    """Where everybody begins."""
    return _login_page(house)


@router.post("/login")
def login(request: Request, house: Here, fields: Fields) -> Response:
    """Let somebody in, or say no in the same words whatever was wrong."""
    name, password = only(_anonymous(fields), "name", "password")
    address = "" if request.client is None else request.client.host
    if wait := house.attempts.take(name, address):
        # Not kept for good: whoever is made to wait could otherwise fill the disk.
        _LOG.warning("%s: a login was delayed", audit_log.now())
        answer = _login_page(house, name, f"Too many attempts. Try again in {wait} seconds.", status=429)
        answer.headers["Retry-After"] = str(wait)
        return answer
    with house.project.reading() as connection:
        verified = sessions.verify(connection, name, password)
    opened = None
    if verified is not None:
        with house.project.writing() as connection:
            opened = sessions.open_session(connection, verified, now=now())
            sessions.logout(connection, request.cookies.get(house.cookie, ""))
            sessions.sweep(connection, now())
    if opened is None:
        _log(house, "login refused", name)
        return _login_page(house, name, _NOT_RIGHT, status=401)
    house.attempts.succeeded(name, address)
    _log(house, "login", name)
    return _welcome(house, opened)


@router.get("/open/{door}")
def let_in(request: Request, door: str, house: Here) -> Response:
    """Let the one user of a server without accounts in, by the address that was printed when it started."""
    if house.single is None or not compare_digest(door.encode(), house.door.encode()):
        raise not_found()
    if session_of(request) is not None:
        return RedirectResponse("/", status_code=303)
    with house.project.writing() as connection:
        verified = sessions.Verified(house.single, people.NO_PASSWORD, None)
        opened = sessions.open_session(connection, verified, now=now())
    assert opened is not None
    return _welcome(house, opened)


@router.post("/logout")
def logout(request: Request, visit: Visitor, fields: Fields) -> Response:
    """End this session, here and on the server."""
    only(checked(visit, fields))
    token = request.cookies[visit.house.cookie]
    with visit.project.writing() as connection:
        sessions.logout(connection, token)
    _log(visit.house, "logout", visit.person.name)
    answer = RedirectResponse("/login", status_code=303)
    drop_cookie(answer, visit.house)
    return answer


@router.get("/invitation/{token}")
def invitation_page(token: str, house: Here) -> HTMLResponse:
    """Where somebody who was invited chooses a password."""
    return _invitation_page(house, token)


@router.post("/invitation/{token}")
def accept(token: str, house: Here, fields: Fields) -> Response:
    """Make a person of an invitation, and let them in."""
    password, again = only(_anonymous(fields), "password", "again")
    if password != again:
        return _invitation_page(house, token, (_DIFFERENT,))
    try:
        with house.project.writing() as connection:
            person = people.accept(connection, token, password, now=now())
            opened = sessions.login(connection, person.name, password, now=now())
    except people.Refused as refused:
        return _invitation_page(house, token, (str(refused),))
    _log(house, "joined", person.name)
    # Somebody may have been kept out after they were invited.
    return RedirectResponse("/login", status_code=303) if opened is None else _welcome(house, opened)


@router.get("/account")
def account_page(visit: Visitor) -> HTMLResponse:
    """Where people change their password."""
    return HTMLResponse(page("account.html", **visit.context, problems=(), changed=False))


@router.post("/account")
def change_password(request: Request, visit: Visitor, fields: Fields) -> HTMLResponse:
    """Another password for somebody who knows the current one. Their other sessions end."""
    current, new, again = only(checked(visit, fields), "current", "password", "again")
    problems: tuple[str, ...] = () if new == again else (_DIFFERENT,)
    # Guessing the current password here is no easier than at the door.
    address = "" if request.client is None else request.client.host
    if visit.house.attempts.take(visit.person.name, address):
        problems = ("Too many attempts. Wait a minute.",)
    if not problems:
        try:
            with visit.project.writing() as connection:
                token = request.cookies[visit.house.cookie]
                people.change_password(connection, visit.person.id, current, new, now=now(), except_token=token)
            visit.house.attempts.succeeded(visit.person.name, address)
            _log(visit.house, "password changed", visit.person.name)
        except people.Refused as refused:
            problems = (str(refused),)
    words = page("account.html", **visit.context, problems=problems, changed=not problems)
    return HTMLResponse(words, 422 if problems else 200)


def _login_page(house: House, name: str = "", problem: str | None = None, *, status: int = 200) -> HTMLResponse:
    words = page("login.html", **_nobody(house), name=name[:64], problem=problem)
    return HTMLResponse(words, status)


def _invitation_page(house: House, token: str, problems: tuple[str, ...] = ()) -> HTMLResponse:
    with house.project.reading() as connection:
        found = people.invitation(connection, token, now=now())
    if found is None:
        raise HTTPException(404, "This invitation is not valid: it was used or replaced, or is too old.")
    action = f"/invitation/{token}"
    words = page(
        "invitation.html", **_nobody(house), name=found.name, role=found.role, problems=problems, action=action
    )
    return HTMLResponse(words, 422 if problems else 200)


def _anonymous(fields: dict[str, str]) -> dict[str, str]:
    """A form of somebody without a session, which has an empty place for what shows one."""
    return {name: value for name, value in fields.items() if name != "csrf"}


def _nobody(house: House) -> dict[str, object]:
    return {"project": house.project.settings.name, "person": None, "csrf": None}


def _welcome(house: House, opened: sessions.Opened) -> Response:
    answer = RedirectResponse("/", status_code=303)
    set_cookie(answer, house, opened.token)
    return answer


def _log(house: House, action: str, name: str) -> None:
    """Who came and went, refused attempts included. A text that is nobody's name is not kept: it may be a password."""
    with house.project.writing() as connection:
        known = people.person(connection, name)
        link = audit_log.append(connection, "unknown" if known is None else known.name, action)
    house.project.head.advance(link)
