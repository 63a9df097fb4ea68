"""Who asks, and what came with the request: sessions, forms, and the errors a page can end in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, HTTPException, Request

from eclose.annotation.accounts import sessions
from eclose.annotation.accounts.login_attempts import Attempts
from eclose.annotation.accounts.people import Person, Role
from eclose.annotation.accounts.sessions import Session
from eclose.annotation.accounts.tokens import new_token
from eclose.annotation.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from eclose.annotation.forms import Entry

MOST_FIELDS = 5_000
_ENTRY = re.compile(r"([1-9][0-9]{0,3})\.([a-z_.]{1,40})")


@dataclass(frozen=True, slots=True)
class House:
    """What all pages of a server share."""

    project: Project
    tls: bool = False
    """Whether a proxy before the server speaks TLS: cookies are then for TLS alone."""
    attempts: Attempts = field(default_factory=Attempts)
    single: Person | None = None
    """The one user of a server without accounts."""
    door: str = field(default_factory=new_token, repr=False)
    """What the address holds by which the single user is let in."""

    @property
    def cookie(self) -> str:
        """Browsers let nobody but this very host set a cookie of the first name, and only over TLS."""
        return "__Host-eclose" if self.tls else "eclose"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request by somebody who is logged in."""

    house: House
    person: Person
    session: Session

    @property
    def project(self) -> Project:
        """Where they work."""
        return self.house.project

    @property
    def context(self) -> dict[str, object]:
        """What every page is given."""
        return {"project": self.project.settings.name, "person": self.person, "csrf": self.session.csrf}


class LoginNeeded(Exception):  # noqa: N818 - the answer is a page
    """Nobody is logged in."""


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def house_of(request: Request) -> House:
    """What all pages share."""
    house: House = request.app.state.house
    return house


def session_of(request: Request) -> Session | None:
    """The session that a request belongs to, if it holds."""
    house = house_of(request)
    token = request.cookies.get(house.cookie)
    if not token:
        return None
    with house.project.reading() as connection:
        return sessions.find(connection, token, now=now())


def visitor(request: Request) -> Visit:
    """Who asks; LoginNeeded where nobody is logged in."""
    house, session = house_of(request), session_of(request)
    if session is None:
        raise LoginNeeded
    request.state.person = session.person.name
    if session.due:
        with house.project.writing() as connection:
            sessions.touch(connection, session, now=now())
    return Visit(house, session.person, session)


def leader(visit: Annotated[Visit, Depends(visitor)]) -> Visit:
    """The lead; for all others the page does not exist."""
    if visit.person.role is not Role.LEAD:
        raise not_found()
    return visit


def worker(visit: Annotated[Visit, Depends(visitor)]) -> Visit:
    """Whoever labels; for the lead the page does not exist."""
    if visit.person.role is Role.LEAD:
        raise not_found()
    return visit


async def posted(request: Request) -> dict[str, str]:
    """The fields of a form, each once."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This is no form of ours.")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        raise HTTPException(422, "This form cannot be read.") from None
    fields = dict(pairs)
    if any("\0" in part for pair in pairs for part in pair):
        # Nobody types it, and PostgreSQL has no place for it.
        raise HTTPException(422, "This form cannot be read.")
    if len(fields) != len(pairs):
        raise HTTPException(422, "This form says one thing twice.")
    return fields


def checked(visit: Visit, fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a form that was made for this session, without what shows it."""
    if not sessions.csrf_matches(visit.session, fields.get("csrf", "")):
        raise HTTPException(403, "This form is out of date. Open the page again.")
    return {name: value for name, value in fields.items() if name != "csrf"}


def only(fields: Mapping[str, str], *names: str) -> tuple[str, ...]:
    """The values of exactly these fields."""
    if set(fields) != set(names):
        raise HTTPException(422, "This form has other fields than it should.")
    return tuple(fields[name] for name in names)


def entries_of(fields: Mapping[str, str], count: int) -> tuple[Entry, ...]:
    """The entries of a form of so many, out of fields named ``1.substantive``."""
    entries: list[dict[str, str]] = [{} for _ in range(count)]
    for name, value in fields.items():
        found = _ENTRY.fullmatch(name)
        if found is None or int(found[1]) > count:
            raise HTTPException(422, "This form has other fields than it should.")
        entries[int(found[1]) - 1][found[2]] = value
    return tuple(entries)


def not_found() -> HTTPException:
    """What is not there, and what is somebody else's: the two are not told apart."""
    return HTTPException(404, "There is nothing here.")


def set_cookie(response: Response, house: House, token: str) -> None:
    """Let the browser keep a session until it is closed or the session ends."""
    response.set_cookie(house.cookie, token, path="/", secure=house.tls, httponly=True, samesite="strict")


def drop_cookie(response: Response, house: House) -> None:
    """Let the browser forget a session."""
    response.delete_cookie(house.cookie, path="/", secure=house.tls, httponly=True, samesite="strict")
