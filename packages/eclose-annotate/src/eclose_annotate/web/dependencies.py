"""What request handlers depend on: server state, session and person of a request, form fields, cookies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, HTTPException, Request

from eclose_annotate.people import sessions
from eclose_annotate.people.passwords import LoginAttemptCounter
from eclose_annotate.people.people import OneTimeTokens, Person, PersonRole
from eclose_annotate.people.sessions import LoginSession
from eclose_annotate.project import AnnotationProject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from eclose_annotate.forms import FormEntry

MAX_FORM_FIELDS = 5_000
"""Largest number of fields in a form."""
# Entry number and field name, as in 12.failure; anything else is refused.
_ENTRY = re.compile(r"([1-9][0-9]{0,3})\.([a-z_.]{1,40})")


@dataclass(frozen=True, slots=True)
class AnnotationServerState:
    """State shared by all requests of a server."""

    project: AnnotationProject
    tls: bool = False
    """Whether a proxy in front of the server provides TLS; cookies are then restricted to TLS."""
    url: str = "http://127.0.0.1"
    """URL of the server without a trailing slash, for the links of invitations."""
    attempts: LoginAttemptCounter = field(default_factory=LoginAttemptCounter)
    single: Person | None = None
    """The only user of a server without accounts."""
    entry_tokens: OneTimeTokens = field(default_factory=OneTimeTokens, repr=False)
    """Secrets in the URLs with which the single user logs in; each works once."""
    finished: Event = field(default_factory=Event, repr=False)
    """Set when the single user ends the session on the page."""

    @property
    def cookie(self) -> str:
        """Name of the session cookie. Browsers accept a __Host- cookie only from this very host and over TLS."""
        # Browsers send a cookie to every port of its host.
        port = urlsplit(self.url).port
        return ("__Host-eclose" if self.tls else "eclose") + (f"-{port}" if port else "")


@dataclass(frozen=True, slots=True)
class LoggedInVisit:
    """A request of a person who is logged in."""

    state: AnnotationServerState
    person: Person
    session: LoginSession

    @property
    def project(self) -> AnnotationProject:
        """The project of the server."""
        return self.state.project

    @property
    def context(self) -> dict[str, object]:
        """Template variables that every page needs."""
        return {
            "project": self.project.settings.name,
            "person": self.person,
            "csrf": self.session.csrf,
            "single": self.state.single is not None,
        }


class LoginNeededError(Exception):
    """Raised where a page needs a login and the request has no valid session."""


def current_time() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def get_server_state(request: Request) -> AnnotationServerState:
    """Return the state of the server."""
    state: AnnotationServerState = request.app.state.server
    return state


def find_request_session(request: Request) -> LoginSession | None:
    """Return the session of a request; None where it has no valid one."""
    state = get_server_state(request)
    token = request.cookies.get(state.cookie)
    if not token:
        return None
    with state.project.reading() as connection:
        return sessions.find_login_session(connection, token, now=current_time())


def require_login(request: Request) -> LoggedInVisit:
    """Return the visit of the logged-in person; raise LoginNeededError without a valid session."""
    state, session = get_server_state(request), find_request_session(request)
    if session is None:
        raise LoginNeededError
    # For the log of refused requests.
    request.state.person = session.person.name
    # At most one write a minute and session, so that page loads stay reads.
    if session.due:
        with state.project.writing() as connection:
            sessions.renew_login_session(connection, session, now=current_time())
    return LoggedInVisit(state, session.person, session)


def require_lead(visit: Annotated[LoggedInVisit, Depends(require_login)]) -> LoggedInVisit:
    """Return the visit of the lead; answer 404 to all others."""
    if visit.person.role is not PersonRole.LEAD:
        raise not_found_error()
    return visit


def require_annotator(visit: Annotated[LoggedInVisit, Depends(require_login)]) -> LoggedInVisit:
    """Return the visit of an annotator, screener or adjudicator; answer 404 to the lead."""
    if visit.person.role is PersonRole.LEAD:
        raise not_found_error()
    return visit


async def parse_web_form(request: Request) -> dict[str, str]:
    """Parse a form; refuse repeated fields, NUL characters and other content types."""
    # Browsers send all forms of this server in this encoding.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This is not a form of this server.")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            max_num_fields=MAX_FORM_FIELDS,
        )
    except ValueError:
        raise HTTPException(422, "This form cannot be read.") from None
    fields = dict(pairs)
    if any("\0" in part for pair in pairs for part in pair):
        # PostgreSQL cannot store NUL, and browsers do not send it.
        raise HTTPException(422, "This form cannot be read.")
    if len(fields) != len(pairs):
        raise HTTPException(422, "This form has a repeated field.")
    return fields


def check_csrf_token(visit: LoggedInVisit, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields without the CSRF token; answer 403 where it is not that of the session."""
    if not sessions.csrf_token_matches(visit.session, fields.get("csrf", "")):
        raise HTTPException(403, "This form has expired. Open the page again.")
    return {name: value for name, value in fields.items() if name != "csrf"}


def take_form_fields(fields: Mapping[str, str], *names: str) -> tuple[str, ...]:
    """Return the values of these fields; answer 422 where the form has others."""
    # Exact: a field that a page does not have was added by hand or by an old page.
    if set(fields) != set(names):
        raise HTTPException(422, "This form has unexpected fields.")
    return tuple(fields[name] for name in names)


def parse_form_entries(fields: Mapping[str, str], count: int) -> tuple[FormEntry, ...]:
    """Return the ``count`` entries of a form from fields named like ``1.substantive``; answer 422 to other fields."""
    entries: list[dict[str, str]] = [{} for _ in range(count)]
    for name, value in fields.items():
        match = _ENTRY.fullmatch(name)
        if match is None or int(match[1]) > count:
            raise HTTPException(422, "This form has unexpected fields.")
        entries[int(match[1]) - 1][match[2]] = value
    return tuple(entries)


class ExplainedHTTPError(HTTPException):
    """An error whose page says what to do next."""

    def __init__(self, status: int, message: str, *, back: str, action: str, note: str) -> None:
        """Keep the address and the words of the link on the page, and the note below it."""
        super().__init__(status, message)
        self.texts = {"back": back, "action": action, "note": note}


def not_found_error() -> HTTPException:
    """Return the error for missing pages and for those of other people, which look the same."""
    return HTTPException(404, "There is nothing here.")


def set_session_cookie(response: Response, state: AnnotationServerState, token: str) -> None:
    """Set the session cookie, which lasts until the browser closes or the session ends."""
    # Strict: a link on another site never opens a page with this session; httponly: no script reads the token.
    response.set_cookie(state.cookie, token, path="/", secure=state.tls, httponly=True, samesite="strict")


def delete_session_cookie(response: Response, state: AnnotationServerState) -> None:
    """Delete the session cookie."""
    response.delete_cookie(state.cookie, path="/", secure=state.tls, httponly=True, samesite="strict")
