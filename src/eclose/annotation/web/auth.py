"""Pages of login, logout, invitations and passwords."""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose.annotation import audit_log
from eclose.annotation.accounts import people, sessions
from eclose.annotation.web.dependencies import (
    AnnotationServerState,
    LoggedInVisit,
    check_csrf_token,
    current_time,
    delete_session_cookie,
    find_request_session,
    get_server_state,
    not_found_error,
    parse_web_form,
    require_login,
    set_session_cookie,
    take_form_fields,
)
from eclose.annotation.web.pages import render_annotation_page

_LOG = logging.getLogger(__name__)

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
State = Annotated[AnnotationServerState, Depends(get_server_state)]
Visitor = Annotated[LoggedInVisit, Depends(require_login)]

_WRONG = "Name or password is wrong."
_DIFFERENT = "The two passwords differ."


@router.get("/login")
def show_login_page(state: State) -> HTMLResponse:
    """Show the login form."""
    return _login_page(state)


@router.post("/login")
def post_login_form(request: Request, state: State, fields: Fields) -> Response:
    """Log a person in; the message of a failure does not reveal its reason."""
    name, password = take_form_fields(_without_csrf(fields), "name", "password")
    address = "" if request.client is None else request.client.host
    if wait := state.attempts.admit(name, address):
        # Not in the audit log, which an attacker could fill the disk with.
        _LOG.warning("%s: a login was delayed", audit_log.current_timestamp())
        response = _login_page(state, name, f"Too many attempts. Try again in {wait} seconds.", status=429)
        response.headers["Retry-After"] = str(wait)
        return response
    # Hashing happens on a reading connection, so that it blocks no writer.
    with state.project.reading() as connection:
        verified = sessions.verify_login(connection, name, password)
    session = None
    if verified is not None:
        with state.project.writing() as connection:
            session = sessions.open_login_session(connection, verified, now=current_time())
            # A new session replaces the one of this browser (session fixation).
            sessions.end_login_session(connection, request.cookies.get(state.cookie, ""))
            # Logins are rare: a good moment to delete expired sessions.
            sessions.delete_expired_sessions(connection, current_time())
    if session is None:
        _log(state, "login refused", name)
        return _login_page(state, name, _WRONG, status=401)
    # Only after the session exists: a wrong password must stay counted.
    state.attempts.record_success(name, address)
    _log(state, "login", name)
    return _redirect_home(state, session)


@router.get("/open/{door}")
def log_in_single_user(request: Request, door: str, state: State) -> Response:
    """Log in the single user of a server without accounts, by the URL printed at its start."""
    # In constant time, and 404 also on servers with accounts.
    if state.single is None or not compare_digest(door.encode(), state.entry_token.encode()):
        raise not_found_error()
    if find_request_session(request) is not None:
        return RedirectResponse("/", status_code=303)
    with state.project.writing() as connection:
        verified = sessions.VerifiedLogin(state.single, people.NO_PASSWORD, None)
        session = sessions.open_login_session(connection, verified, now=current_time())
    assert session is not None
    return _redirect_home(state, session)


@router.post("/logout")
def post_logout(request: Request, visit: Visitor, fields: Fields) -> Response:
    """End the session on the server and delete its cookie."""
    take_form_fields(check_csrf_token(visit, fields))
    token = request.cookies[visit.state.cookie]
    with visit.project.writing() as connection:
        sessions.end_login_session(connection, token)
    _log(visit.state, "logout", visit.person.name)
    response = RedirectResponse("/login", status_code=303)
    delete_session_cookie(response, visit.state)
    return response


@router.get("/invitation/{token}")
def show_invitation_page(token: str, state: State) -> HTMLResponse:
    """Show the form in which an invited person chooses a password."""
    return _invitation_page(state, token)


@router.post("/invitation/{token}")
def post_invitation_password(token: str, state: State, fields: Fields) -> Response:
    """Set the password of an invited person and log them in."""
    password, again = take_form_fields(_without_csrf(fields), "password", "again")
    if password != again:
        return _invitation_page(state, token, (_DIFFERENT,))
    try:
        with state.project.writing() as connection:
            person = people.accept_invitation(connection, token, password, now=current_time())
            # Hashing here blocks other writers for tens of milliseconds, which is acceptable: people join once.
            session = sessions.log_in_person(connection, person.name, password, now=current_time())
    except people.AccountError as error:
        return _invitation_page(state, token, (str(error),))
    _log(state, "joined", person.name)
    # The person may have been deactivated after the invitation.
    return RedirectResponse("/login", status_code=303) if session is None else _redirect_home(state, session)


@router.get("/account")
def show_account_page(visit: Visitor) -> HTMLResponse:
    """Show the form in which people change their password."""
    return HTMLResponse(render_annotation_page("account.html", **visit.context, problems=(), changed=False))


@router.post("/account")
def post_password_change(request: Request, visit: Visitor, fields: Fields) -> HTMLResponse:
    """Change a password after checking the current one, and end the person's other sessions."""
    current, new, again = take_form_fields(check_csrf_token(visit, fields), "current", "password", "again")
    problems: tuple[str, ...] = () if new == again else (_DIFFERENT,)
    # The rate limit of logins applies here too, or the current password could be guessed on this page.
    address = "" if request.client is None else request.client.host
    if visit.state.attempts.admit(visit.person.name, address):
        problems = ("Too many attempts. Wait a minute.",)
    if not problems:
        try:
            with visit.project.writing() as connection:
                token = request.cookies[visit.state.cookie]
                people.change_password(
                    connection, visit.person.id, current, new, now=current_time(), except_token=token
                )
            visit.state.attempts.record_success(visit.person.name, address)
            _log(visit.state, "password changed", visit.person.name)
        except people.AccountError as error:
            problems = (str(error),)
    html = render_annotation_page("account.html", **visit.context, problems=problems, changed=not problems)
    return HTMLResponse(html, 422 if problems else 200)


def _login_page(
    state: AnnotationServerState, name: str = "", problem: str | None = None, *, status: int = 200
) -> HTMLResponse:
    html = render_annotation_page("login.html", **_anonymous_context(state), name=name[:64], problem=problem)
    return HTMLResponse(html, status)


def _invitation_page(state: AnnotationServerState, token: str, problems: tuple[str, ...] = ()) -> HTMLResponse:
    with state.project.reading() as connection:
        invitation = people.find_invitation(connection, token, now=current_time())
    if invitation is None:
        raise HTTPException(404, "This invitation is not valid: it was used, replaced or has expired.")
    action = f"/invitation/{token}"
    html = render_annotation_page(
        "invitation.html",
        **_anonymous_context(state),
        name=invitation.name,
        role=invitation.role,
        problems=problems,
        action=action,
    )
    return HTMLResponse(html, 422 if problems else 200)


def _without_csrf(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields without the CSRF token, which is empty in forms before the login."""
    return {name: value for name, value in fields.items() if name != "csrf"}


def _anonymous_context(state: AnnotationServerState) -> dict[str, object]:
    return {"project": state.project.settings.name, "person": None, "csrf": None}


def _redirect_home(state: AnnotationServerState, session: sessions.NewLoginSession) -> Response:
    response = RedirectResponse("/", status_code=303)
    set_session_cookie(response, state, session.token)
    return response


def _log(state: AnnotationServerState, action: str, name: str) -> None:
    """Record a login event, failed ones included. Unknown names are not recorded: they may be mistyped passwords."""
    with state.project.writing() as connection:
        person = people.find_person(connection, name)
        event = audit_log.append_audit_event(connection, "unknown" if person is None else person.name, action)
    state.project.head.advance(event)
