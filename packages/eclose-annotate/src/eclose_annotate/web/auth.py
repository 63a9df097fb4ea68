"""Pages of login, logout, invitations and passwords."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from eclose_annotate import events
from eclose_annotate.people import people, sessions
from eclose_annotate.people.passwords import LoginDelayedError
from eclose_annotate.web.dependencies import (
    AnnotationServerState,
    ExplainedHTTPError,
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
from eclose_annotate.web.pages import format_duration, render_annotation_page

_LOG = logging.getLogger(__name__)

router = APIRouter()
Fields = Annotated[dict[str, str], Depends(parse_web_form)]
State = Annotated[AnnotationServerState, Depends(get_server_state)]
Visitor = Annotated[LoggedInVisit, Depends(require_login)]

_WRONG = "Name or password is wrong."
_USED_INVITATION = "This invitation is not valid: it was used, replaced or has expired."
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

    def verify() -> sessions.VerifiedLogin | None:
        # Hashing happens on a reading connection, so that it blocks no writer.
        with state.project.reading() as connection:
            return sessions.verify_login(connection, name, password)

    try:
        verified = state.attempts.attempt(name, address, verify)
    except LoginDelayedError as delay:
        # Not in the audit log, which an attacker could fill the disk with.
        _LOG.warning("%s: a login was delayed", events.current_timestamp())
        message = f"Too many wrong passwords. Try again in {format_duration(delay.seconds)}."
        response = _login_page(state, name, message, status=429)
        response.headers["Retry-After"] = str(delay.seconds)
        return response
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
    _log(state, "login", name)
    return _redirect_home(state, session)


# Leads on by itself: a browser does not send the new cookie along with a redirect that began on another site.
_ENTERED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>Welcome</title></head>
<body><p><a href="/">Go on</a></p></body></html>
"""


@router.get("/open/{token}")
def log_in_single_user(request: Request, token: str, state: State) -> Response:
    """Log in the single user of a server without accounts, by a URL that works once."""
    if state.single is not None and find_request_session(request) is not None:
        return RedirectResponse("/", status_code=303)
    # On servers with accounts, the page does not exist.
    if state.single is None:
        raise not_found_error()
    if not state.entry_tokens.redeem(token):
        raise HTTPException(404, "This link is not valid: it works once. Stop the command and start it again.")
    with state.project.writing() as connection:
        verified = sessions.VerifiedLogin(state.single, people.NO_PASSWORD, None)
        session = sessions.open_login_session(connection, verified, now=current_time())
    assert session is not None
    if request.headers.get("sec-fetch-site") != "cross-site":
        return _redirect_home(state, session)
    response = HTMLResponse(_ENTERED)
    set_session_cookie(response, state, session.token)
    return response


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
    if not problems:
        problems = _change_password(request, visit, current, new)
    html = render_annotation_page("account.html", **visit.context, problems=problems, changed=not problems)
    return HTMLResponse(html, 422 if problems else 200)


def _change_password(request: Request, visit: LoggedInVisit, current: str, new: str) -> tuple[str, ...]:
    """Change a password; return why it was refused, or nothing."""
    address = "" if request.client is None else request.client.host
    problems: list[str] = []

    def change() -> bool | None:
        try:
            with visit.project.writing() as connection:
                token = request.cookies[visit.state.cookie]
                people.change_password(
                    connection, visit.person.id, current, new, now=current_time(), except_token=token
                )
        except people.WrongPasswordError as error:
            problems.append(str(error))
            return None
        except people.AccountError as error:
            problems.append(str(error))
        return True

    # The limit of logins applies here too, or the current password could be guessed on this page.
    try:
        visit.state.attempts.attempt(visit.person.name, address, change)
    except LoginDelayedError as delay:
        return (f"Too many wrong passwords. Try again in {format_duration(delay.seconds)}.",)
    if not problems:
        _log(visit.state, "password changed", visit.person.name)
    return tuple(problems)


def _login_page(
    state: AnnotationServerState, name: str = "", problem: str | None = None, *, status: int = 200
) -> HTMLResponse:
    html = render_annotation_page("login.html", **_anonymous_context(state), name=name[:64], problem=problem)
    return HTMLResponse(html, status)


def _invitation_page(state: AnnotationServerState, token: str, problems: tuple[str, ...] = ()) -> HTMLResponse:
    with state.project.reading() as connection:
        invitation = people.find_invitation(connection, token, now=current_time())
    if invitation is None:
        raise ExplainedHTTPError(
            404,
            _USED_INVITATION,
            back="/login",
            action="Already joined? Log in",
            note="Ask the lead of the study for a new link.",
        )
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
        events.append_audit_event(connection, "unknown" if person is None else person.name, action)
