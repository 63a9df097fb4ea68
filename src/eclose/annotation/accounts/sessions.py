"""Sessions: from a name and a password to a token, and from a token back to a person.

A token is known to the browser alone; the database has its hash. Reading a session writes nothing, so that pages can be
served from a connection that only reads; `touch` notes, now and then, that somebody is still there.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose.annotation.accounts import passwords
from eclose.annotation.accounts.people import NO_PASSWORD, Person, read, with_password
from eclose.annotation.accounts.tokens import end_all, hash_of, kept, new_token
from eclose.errors import SettingError

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "Lifetimes",
    "Opened",
    "Session",
    "Verified",
    "csrf_matches",
    "end_all",
    "find",
    "login",
    "logout",
    "open_session",
    "sweep",
    "touch",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long a session lasts."""

    idle: timedelta = timedelta(hours=2)
    """Without a request."""
    absolute: timedelta = timedelta(hours=12)
    """Altogether."""
    rest: timedelta = timedelta(minutes=1)
    """Requests closer together than this are noted once."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not timedelta(0) <= self.rest < self.idle <= self.absolute:
            raise SettingError("sessions: rest is less than idle, and idle no more than absolute. Change one of them.")


DEFAULT = Lifetimes()


@dataclass(frozen=True, slots=True)
class Verified:
    """Somebody who typed the right password."""

    person: Person
    stored: str = field(repr=False)
    """What the password was compared with."""
    renewed: str | None = field(repr=False)
    """The same password under today's settings, where it is kept under older ones."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session, with what only the browser is told."""

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    person: Person


@dataclass(frozen=True, slots=True)
class Session:
    """A session that holds."""

    person: Person
    csrf: str = field(repr=False)
    """What every form of this session carries."""
    token_hash: str
    due: bool
    """Whether it is time to `touch` it."""


def login(
    connection: Connection, name: str, password: str, *, now: datetime, lifetimes: Lifetimes = DEFAULT
) -> Opened | None:
    """A new session for somebody active with the right password.

    Both halves in one transaction. A server does better to `verify` while it reads and to `open_session` while it
    writes: hashing takes a while, and nobody else can write to SQLite meanwhile.
    """
    verified = verify(connection, name, password)
    return None if verified is None else open_session(connection, verified, now=now, lifetimes=lifetimes)


def verify(connection: Connection, name: str, password: str) -> Verified | None:
    """Who this is. An unknown name, a wrong password and somebody inactive are the same answer after the same work."""
    found = with_password(connection, name)
    person, stored = found or (None, NO_PASSWORD)
    right = passwords.matches(passwords.NOBODY if stored == NO_PASSWORD else stored, password)
    if person is None or stored == NO_PASSWORD or not right or not person.active:
        return None
    return Verified(person, stored, passwords.hashed(password) if passwords.needs_rehash(stored) else None)


def open_session(
    connection: Connection, verified: Verified, *, now: datetime, lifetimes: Lifetimes = DEFAULT
) -> Opened | None:
    """A session under a new token; None when the person or the password has changed since it was verified."""
    token = new_token()
    csrf = _csrf(token)
    row = {
        "token": hash_of(token),
        "csrf": hash_of(csrf),
        "now": kept(now),
        "until": kept(now + lifetimes.absolute),
        "person": verified.person.id,
        "stored": verified.stored,
    }
    if connection.execute(_OPEN, row).rowcount != 1:
        return None
    if verified.renewed is not None:
        connection.execute(_RENEW, {**row, "renewed": verified.renewed})
    return Opened(token, csrf, verified.person)


def find(connection: Connection, token: str, *, now: datetime, lifetimes: Lifetimes = DEFAULT) -> Session | None:
    """The session of a token; None when there is none, it is over, or its person is inactive. Only reads."""
    token_hash = hash_of(token)
    limits = {"now": kept(now), "idle": kept(now - lifetimes.idle), "oldest": kept(now - lifetimes.absolute)}
    row = connection.execute(_FIND, {"token": token_hash, **limits}).first()
    if row is None:
        return None
    return Session(read(row), _csrf(token), token_hash, due=row.seen <= kept(now - lifetimes.rest))


def touch(connection: Connection, session: Session, *, now: datetime) -> None:
    """Note that a session is in use. Never brings back one that has ended, nor sets it back."""
    connection.execute(_TOUCH, {"token": session.token_hash, "now": kept(now)})


def csrf_matches(session: Session, given: str) -> bool:
    """Whether a form was made for this session. How much of it is right cannot be told from the time it takes."""
    return hmac.compare_digest(session.csrf.encode(), given.encode("utf-8", "surrogatepass"))


def logout(connection: Connection, token: str) -> None:
    """End a session. One that is over already is no error."""
    connection.execute(_END, {"token": hash_of(token)})


def sweep(connection: Connection, now: datetime, lifetimes: Lifetimes = DEFAULT) -> int:
    """Remove the sessions that are over. Answers how many there were."""
    limits = {"now": kept(now), "idle": kept(now - lifetimes.idle), "oldest": kept(now - lifetimes.absolute)}
    return connection.execute(_SWEEP, limits).rowcount


def _csrf(token: str) -> str:
    """Follows from the token, so every page can show it, and does not tell it."""
    return hmac.new(token.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()


_OPEN = text("""
    INSERT INTO annotate_sessions (token, person, csrf, started, seen, until)
    SELECT :token, id, :csrf, :now, :now, :until FROM annotate_people
    WHERE id = :person AND active = 1 AND password = :stored
""")
_RENEW = text("UPDATE annotate_people SET password = :renewed WHERE id = :person AND password = :stored")
# The time of its start counts too, so that a shorter life holds for sessions that were opened under a longer one.
_HOLDS = "until > :now AND seen > :idle AND started > :oldest"
_FIND = text(f"""
    SELECT p.id, p.name, p.role, p.pool, p.active, s.seen
    FROM annotate_sessions AS s JOIN annotate_people AS p ON p.id = s.person
    WHERE s.token = :token AND p.active = 1 AND {_HOLDS}
""")
_TOUCH = text("UPDATE annotate_sessions SET seen = :now WHERE token = :token AND seen < :now")
_END = text("DELETE FROM annotate_sessions WHERE token = :token")
_SWEEP = text(f"DELETE FROM annotate_sessions WHERE NOT ({_HOLDS})")
