"""Login sessions: verify a password, open a session, find the session of a token, end sessions.

Only the browser has the token; the database has its hash. ``find_login_session`` only reads, so that pages can be
served from a reading connection; ``renew_login_session`` records from time to time that a session is in use.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose_annotate.events import format_utc_timestamp
from eclose_annotate.people import passwords
from eclose_annotate.people.people import (
    NO_PASSWORD,
    Person,
    find_login_credentials,
    hash_secret_token,
    new_secret_token,
    person_from_row,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection


IDLE, ABSOLUTE = timedelta(hours=2), timedelta(hours=12)
"""Longest time of a session without a request, and since the login."""
RENEWAL = timedelta(minutes=1)
"""Shortest time between two renewals of a session: more frequent requests write nothing."""


@dataclass(frozen=True, slots=True)
class VerifiedLogin:
    """A person whose password was verified."""

    person: Person
    stored: str = field(repr=False)
    """Hash that the password was compared with."""
    renewed: str | None = field(repr=False)
    """Hash of the same password under the current parameters; None where ``stored`` has them."""


@dataclass(frozen=True, slots=True)
class NewLoginSession:
    """A new session with its secrets, which only the browser receives."""

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    person: Person


@dataclass(frozen=True, slots=True)
class LoginSession:
    """A valid session."""

    person: Person
    csrf: str = field(repr=False)
    """Token that every form of this session carries."""
    token_hash: str
    due: bool
    """Whether ``renew_login_session`` should be called."""


def log_in_person(connection: Connection, name: str, password: str, *, now: datetime) -> NewLoginSession | None:
    """Verify a password and open a session in one transaction; return None where the login fails.

    For frequent logins call ``verify_login`` on a reading and ``open_login_session`` on a writing connection: hashing
    takes tens of milliseconds, during which a writing connection would block all other writers of SQLite.
    """
    verified = verify_login(connection, name, password)
    return None if verified is None else open_login_session(connection, verified, now=now)


def verify_login(connection: Connection, name: str, password: str) -> VerifiedLogin | None:
    """Return the verified login, or None. All failures take the same time."""
    person, stored = find_login_credentials(connection, name) or (None, NO_PASSWORD)
    # Unknown names and unset passwords are verified against a dummy hash, for equal timing.
    matches = passwords.password_matches(passwords.DUMMY_HASH if stored == NO_PASSWORD else stored, password)
    if person is None or stored == NO_PASSWORD or not matches or not person.active:
        return None
    return VerifiedLogin(
        person, stored, passwords.hash_password(password) if passwords.password_needs_rehash(stored) else None
    )


def open_login_session(connection: Connection, verified: VerifiedLogin, *, now: datetime) -> NewLoginSession | None:
    """Open a session under a new token; return None where person or password changed meanwhile."""
    token = new_secret_token()
    csrf = _csrf(token)
    row = {
        "token": hash_secret_token(token),
        "csrf": hash_secret_token(csrf),
        "now": format_utc_timestamp(now),
        "until": format_utc_timestamp(now + ABSOLUTE),
        "person": verified.person.id,
        "stored": verified.stored,
    }
    if connection.execute(_OPEN, row).rowcount != 1:
        return None
    if verified.renewed is not None:
        connection.execute(_RENEW, {**row, "renewed": verified.renewed})
    # The only place where the token exists in clear text: it goes into the cookie and is not stored.
    return NewLoginSession(token, csrf, verified.person)


def find_login_session(connection: Connection, token: str, *, now: datetime) -> LoginSession | None:
    """Return the session of a token; None where it is unknown or over, or its person is inactive. Writes nothing."""
    token_hash = hash_secret_token(token)
    row = connection.execute(_FIND, {"token": token_hash, **_bounds(now)}).first()
    if row is None:
        return None
    return LoginSession(
        person_from_row(row), _csrf(token), token_hash, due=row.seen <= format_utc_timestamp(now - RENEWAL)
    )


def renew_login_session(connection: Connection, session: LoginSession, *, now: datetime) -> None:
    """Record that a session is in use. Never revives an ended session, nor moves its time back."""
    connection.execute(_TOUCH, {"token": session.token_hash, "now": format_utc_timestamp(now)})


def csrf_token_matches(session: LoginSession, csrf: str) -> bool:
    """Return whether a form was issued to this session, in constant time."""
    return hmac.compare_digest(session.csrf.encode(), csrf.encode("utf-8", "surrogatepass"))


def end_login_session(connection: Connection, token: str) -> None:
    """End a session; do nothing where it is over already."""
    connection.execute(_END, {"token": hash_secret_token(token)})


def delete_expired_sessions(connection: Connection, now: datetime) -> int:
    """Delete the sessions that are over and return how many there were."""
    return connection.execute(_DELETE_EXPIRED, _bounds(now)).rowcount


def _bounds(now: datetime) -> dict[str, str]:
    return {
        "now": format_utc_timestamp(now),
        "idle": format_utc_timestamp(now - IDLE),
        "oldest": format_utc_timestamp(now - ABSOLUTE),
    }


def _csrf(token: str) -> str:
    """Derive the form token from the session token, which cannot be computed back from it."""
    return hmac.new(token.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()


# The condition on the stored hash detects a password change since the verification.
_OPEN = text("""
    INSERT INTO annotate_sessions (token, person, csrf, started, seen, until)
    SELECT :token, id, :csrf, :now, :now, :until FROM annotate_people
    WHERE id = :person AND active = 1 AND password = :stored
""")
_RENEW = text("UPDATE annotate_people SET password = :renewed WHERE id = :person AND password = :stored")
# The start is compared too, so that a shortened lifetime applies to sessions opened under a longer one.
_HOLDS = "until > :now AND seen > :idle AND started > :oldest"
_FIND = text(f"""
    SELECT p.id, p.name, p.role, p.pool, p.active, s.seen
    FROM annotate_sessions AS s JOIN annotate_people AS p ON p.id = s.person
    WHERE s.token = :token AND p.active = 1 AND {_HOLDS}
""")
# The condition on seen keeps a delayed request from moving the time back.
_TOUCH = text("UPDATE annotate_sessions SET seen = :now WHERE token = :token AND seen < :now")
_END = text("DELETE FROM annotate_sessions WHERE token = :token")
_DELETE_EXPIRED = text(f"DELETE FROM annotate_sessions WHERE NOT ({_HOLDS})")
