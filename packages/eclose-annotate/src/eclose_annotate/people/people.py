"""The people of a project: roles, pools, invitations, passwords, activation.

A person keeps one role and one pool. People are never deleted, because submissions refer to them; deactivation locks
them out. All functions run inside the caller's transaction and take the current time as an argument.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.errors import SettingError, UserError
from eclose_annotate import events
from eclose_annotate.events import format_utc_timestamp
from eclose_annotate.people import passwords

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row

INVITATION_LASTS = timedelta(days=7)
NO_PASSWORD = "!"
"""Stored instead of a hash before a person has chosen a password. No password matches it."""


class AccountError(UserError):
    """A refused request about an account. The message is shown to the requester and reveals nothing about others."""


class WrongPasswordError(AccountError):
    """Raised where the current password of a person is wrong."""


class PersonRole(StrEnum):
    """The function of a person in a project."""

    LEAD = "lead"
    SCREENER = "screener"
    ANNOTATOR = "annotator"
    ADJUDICATOR = "adjudicator"


class AnnotatorPool(StrEnum):
    """The kind of material a person works on."""

    NONE = "none"
    QUESTIONS = "questions"
    RESPONSES = "responses"
    FAMILIES = "families"


# The pools of each role, the default first. A CHECK of the table annotate_people enforces the same rule.
_POOLS = {
    PersonRole.LEAD: (AnnotatorPool.NONE,),
    PersonRole.SCREENER: (AnnotatorPool.QUESTIONS,),
    PersonRole.ANNOTATOR: (AnnotatorPool.RESPONSES, AnnotatorPool.FAMILIES),
    PersonRole.ADJUDICATOR: (AnnotatorPool.RESPONSES, AnnotatorPool.QUESTIONS, AnnotatorPool.FAMILIES),
}


@dataclass(frozen=True, slots=True)
class Person:
    """A participant of a project."""

    id: int
    name: str
    role: PersonRole
    pool: AnnotatorPool
    active: bool


def pool_for_role(role: PersonRole, pool: AnnotatorPool | None = None) -> AnnotatorPool:
    """Return ``pool`` where the role allows it, or the default of the role; raise where it does not."""
    allowed = _POOLS[role]
    if pool is not None and pool not in allowed:
        raise SettingError(f"pool {pool}: does not fit the role {role}. Choose {' or '.join(allowed)}.")
    return allowed[0] if pool is None else pool


def _is_valid_person_name(name: str) -> bool:
    """Return whether a text may be the name of a person."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) is not None


def check_person_name(name: str) -> str:
    """Return the name; raise where it is not allowed."""
    if not _is_valid_person_name(name):
        raise SettingError(
            f"name {name!r}: is not allowed. Use 1 to 64 unaccented letters, digits, dots, dashes and underscores,"
            " beginning with a letter or digit."
        )
    return name


def new_secret_token() -> str:
    """Return 256 random bits as text that needs no escaping in a URL."""
    return secrets.token_urlsafe(32)


def hash_secret_token(token: str) -> str:
    """Return the SHA-256 of a token, which is what the database stores."""
    # No salt: a table of precomputed hashes is useless against 256 random bits.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class OneTimeTokens:
    """Secret tokens that a server holds in memory and accepts once each."""

    def __init__(self) -> None:
        self._hashes: set[str] = set()
        self._lock = Lock()

    def issue(self) -> str:
        """Return a new token."""
        token = new_secret_token()
        with self._lock:
            self._hashes.add(hash_secret_token(token))
        return token

    def redeem(self, token: str) -> bool:
        """Return whether a token was issued and not used before; it cannot be used again."""
        # Compared by hash, so that the time of the search tells nothing about a token.
        token_hash = hash_secret_token(token)
        with self._lock:
            if token_hash not in self._hashes:
                return False
            self._hashes.remove(token_hash)
            return True


def end_person_sessions(connection: Connection, person_id: int, except_token: str | None = None) -> int:
    """End all sessions of a person, except that of ``except_token``, and return how many ended."""
    excepted = "" if except_token is None else hash_secret_token(except_token)
    return connection.execute(_END_ALL, {"person": person_id, "excepted": excepted}).rowcount


def invite_to_reset_password(connection: Connection, person: Person, *, now: datetime) -> str:
    """Return a token with which a person chooses a password, and which is not stored; lock the account until then."""
    token = new_secret_token()
    # The old password and all sessions end at once: the link may replace a compromised password.
    connection.execute(_SET_PASSWORD, {"id": person.id, "password": NO_PASSWORD})
    end_person_sessions(connection, person.id)
    until = format_utc_timestamp(now + INVITATION_LASTS)
    connection.execute(_INVITE, {"person": person.id, "token": hash_secret_token(token), "until": until})
    return token


def find_invitation(connection: Connection, token: str, *, now: datetime) -> Person | None:
    """Return the person whom a token invites; None where the token is unknown, used, replaced or expired."""
    values = {"token": hash_secret_token(token), "now": format_utc_timestamp(now)}
    row = connection.execute(_INVITED, values).first()
    return None if row is None else person_from_row(row)


def accept_invitation(connection: Connection, token: str, password: str, *, now: datetime) -> Person:
    """Set the password of the invited person. Works once; after an error the invitation is still unused."""
    values = {"token": hash_secret_token(token), "now": format_utc_timestamp(now)}
    # A refused password rolls the savepoint back, so that the invitation stays unused.
    with connection.begin_nested():
        # The deletion decides between two simultaneous requests: the second finds the invitation used.
        person_id = connection.execute(_TAKE, values).scalar()
        if person_id is None:
            raise AccountError("this invitation is not valid: it was used, replaced or has expired. Ask for a new one.")
        set_password(connection, person_id, password)
        return person_from_row(connection.execute(_BY_ID, {"id": person_id}).one())


def add_person(
    connection: Connection,
    name: str,
    role: PersonRole,
    pool: AnnotatorPool | None,
    password_hash: str,
    now: datetime,
    *,
    by: str = events.LEAD_NAME,
) -> Person:
    """Add a person in the name of ``by``; raise where the name is taken. Names that differ only in case are equal."""
    chosen = pool_for_role(role, pool)
    row = {
        "name": check_person_name(name),
        "role": role,
        "pool": chosen,
        "password": password_hash,
        "since": format_utc_timestamp(now),
    }
    # The unique index on lower(name) decides, also between simultaneous additions.
    try:
        with connection.begin_nested():
            number = int(connection.execute(_ADD, row).scalar_one())
    except IntegrityError as error:
        raise AccountError(f"name {name}: is taken. Choose another.") from error
    events.append_audit_event(connection, by, "added person", detail={"name": name, "role": role})
    return Person(number, name, role, chosen, active=True)


def find_person(connection: Connection, name: str) -> Person | None:
    """Return the person of a name, in capitals or not; None where there is none."""
    credentials = find_login_credentials(connection, name)
    return None if credentials is None else credentials[0]


def find_login_credentials(connection: Connection, name: str) -> tuple[Person, str] | None:
    """Return the person of a name and the stored hash of the password; None where there is none."""
    # PostgreSQL fails on some texts that are not valid names, such as one with a NUL.
    row = connection.execute(_BY_NAME, {"name": name}).first() if _is_valid_person_name(name) else None
    return None if row is None else (person_from_row(row), row.password)


def list_people(connection: Connection) -> tuple[Person, ...]:
    """Return all people, in the order in which they were added."""
    return tuple(person_from_row(row) for row in connection.execute(_ALL_PEOPLE))


def deactivate_person(connection: Connection, person_id: int) -> None:
    """Lock a person out and end all their sessions."""
    _set_active(connection, person_id, active=False)
    end_person_sessions(connection, person_id)


def reactivate_person(connection: Connection, person_id: int) -> None:
    """Let a person in again, with the password they had before."""
    _set_active(connection, person_id, active=True)


def change_password(
    connection: Connection, person_id: int, current: str, new: str, *, now: datetime, except_token: str | None = None
) -> None:
    """Change a password after checking the current one. Ends all sessions but that of ``except_token``."""
    # An update without effect locks the row, so that the compared password is the one that gets replaced.
    row = connection.execute(_HOLD, {"id": person_id}).first()
    if row is None or not passwords.password_matches(row.password, current) or not row.active:
        raise WrongPasswordError("the current password is wrong. Type it again.")
    if new == current:
        raise AccountError("the new password is the current one. Choose another.")
    set_password(connection, person_id, new, except_token=except_token)
    # The remaining session counts as used now, or it could expire while the form was open.
    if except_token is not None:
        connection.execute(
            _SEEN, {"token": hash_secret_token(except_token), "person": person_id, "now": format_utc_timestamp(now)}
        )


def set_password(connection: Connection, person_id: int, new: str, *, except_token: str | None = None) -> None:
    """Set a password without asking for the current one. Ends all sessions but that of ``except_token``."""
    row = connection.execute(_HOLD, {"id": person_id}).first()
    if row is None:
        raise AccountError(f"person {person_id}: is unknown.")
    if messages := passwords.password_problems(new, row.name):
        raise AccountError(" ".join(messages))
    connection.execute(_SET_PASSWORD, {"id": person_id, "password": passwords.hash_password(new)})
    end_person_sessions(connection, person_id, except_token)


def person_from_row(row: Row[Any]) -> Person:
    """Return the person of a row with the columns of annotate_people."""
    return Person(row.id, row.name, PersonRole(row.role), AnnotatorPool(row.pool), bool(row.active))


def _set_active(connection: Connection, person_id: int, *, active: bool) -> None:
    if connection.execute(_SET_ACTIVE, {"id": person_id, "active": int(active)}).rowcount != 1:
        raise AccountError(f"person {person_id}: is unknown.")


_END_ALL = text("DELETE FROM annotate_sessions WHERE person = :person AND token <> :excepted")
_INVITE = text("""
    INSERT INTO annotate_invitations (person, token, until) VALUES (:person, :token, :until)
    ON CONFLICT (person) DO UPDATE SET token = excluded.token, until = excluded.until
""")
_INVITED = text("""
    SELECT p.id, p.name, p.role, p.pool, p.active FROM annotate_invitations i JOIN annotate_people p ON p.id = i.person
    WHERE i.token = :token AND i.until > :now
""")
_TAKE = text("DELETE FROM annotate_invitations WHERE token = :token AND until > :now RETURNING person")
_BY_ID = text("SELECT id, name, role, pool, active FROM annotate_people WHERE id = :id")
_ADD = text("""
    INSERT INTO annotate_people (name, role, pool, password, since) VALUES (:name, :role, :pool, :password, :since)
    RETURNING id
""")
_BY_NAME = text("SELECT id, name, role, pool, active, password FROM annotate_people WHERE lower(name) = lower(:name)")
_ALL_PEOPLE = text("SELECT id, name, role, pool, active FROM annotate_people ORDER BY id")
# Locks the row in both databases; SELECT ... FOR UPDATE does not exist in SQLite.
_HOLD = text("UPDATE annotate_people SET active = active WHERE id = :id RETURNING name, password, active")
_SET_ACTIVE = text("UPDATE annotate_people SET active = :active WHERE id = :id")
_SET_PASSWORD = text("UPDATE annotate_people SET password = :password WHERE id = :id")
_SEEN = text("UPDATE annotate_sessions SET seen = :now WHERE token = :token AND person = :person")
