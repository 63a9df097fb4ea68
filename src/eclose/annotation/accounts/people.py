"""The people of a project: roles, pools, invitations, passwords, activation.

A person keeps one role and one pool. People are never deleted, because submissions refer to them; deactivation locks
them out. All functions run inside the caller's transaction and take the current time as an argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation import audit_log
from eclose.annotation.accounts import passwords
from eclose.annotation.accounts.tokens import (
    end_person_sessions,
    format_utc_timestamp,
    hash_secret_token,
    new_secret_token,
)
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Invitation:
    """The account that a valid invitation token opens."""

    name: str
    role: PersonRole
    pool: AnnotatorPool
    until: datetime


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


def invite_person(
    connection: Connection,
    name: str,
    role: PersonRole,
    pool: AnnotatorPool | None,
    *,
    now: datetime,
    lasts: timedelta = INVITATION_LASTS,
) -> str:
    """Invite a new person and return the token, which is not stored. Replaces an unused invitation of that name."""
    if lasts <= timedelta(0):
        raise SettingError("lasts: an invitation must last longer than 0 seconds.")
    token = new_secret_token()
    row = {"name": check_person_name(name), "role": role, "pool": pool_for_role(role, pool)}
    # Writing first takes the write lock, so that no other writer gets between the check and the insert.
    with connection.begin_nested():
        connection.execute(_WITHDRAW, {"like": name.lower()})
        if connection.execute(_LIKE_NAMED, {"like": name.lower()}).first() is not None:
            raise AccountError(f"name {name}: is taken. Choose another.")
        added = connection.execute(
            _INVITE, {**row, "token": hash_secret_token(token), "until": format_utc_timestamp(now + lasts)}
        )
        if added.rowcount != 1:
            raise AccountError(f"name {name}: is taken. Choose another.")
    return token


def invite_to_reset_password(
    connection: Connection, person: Person, *, now: datetime, lasts: timedelta = INVITATION_LASTS
) -> str:
    """Return a token with which an existing person chooses a new password; lock the account until then."""
    token = new_secret_token()
    # The old password and all sessions end at once: the link may replace a compromised password.
    connection.execute(_SET_PASSWORD, {"id": person.id, "password": NO_PASSWORD})
    end_person_sessions(connection, person.id)
    connection.execute(_FORGET, {"name": person.name})
    row = {"name": person.name, "role": person.role, "pool": person.pool}
    connection.execute(_INVITE, {**row, "token": hash_secret_token(token), "until": format_utc_timestamp(now + lasts)})
    return token


def find_invitation(connection: Connection, token: str, *, now: datetime) -> Invitation | None:
    """Return the invitation of a token; None where the token is unknown, used, replaced or expired."""
    row = connection.execute(_INVITATION, {"token": hash_secret_token(token), "now": format_utc_timestamp(now)}).first()
    return None if row is None else _invitation(row)


def accept_invitation(connection: Connection, token: str, password: str, *, now: datetime) -> Person:
    """Set the password of the invited person. Works once; after an error the invitation is still unused."""
    # The update of _TAKE decides between two simultaneous requests: the second finds the invitation used.
    with connection.begin_nested():
        row = connection.execute(_TAKE, {"token": hash_secret_token(token), "now": format_utc_timestamp(now)}).first()
        if row is None:
            raise AccountError("this invitation is not valid: it was used, replaced or has expired. Ask for a new one.")
        invited = _invitation(row)
        # A refused password rolls the savepoint back, so that the invitation stays unused.
        _check_password(password, invited.name)
        credentials = find_login_credentials(connection, invited.name)
        if credentials is not None and credentials[1] == NO_PASSWORD:
            set_password(connection, credentials[0].id, password)
            return credentials[0]
        password_hash = passwords.hash_password(password)
        return add_person(connection, invited.name, invited.role, invited.pool, password_hash, now, by=invited.name)


def add_person(
    connection: Connection,
    name: str,
    role: PersonRole,
    pool: AnnotatorPool | None,
    password_hash: str,
    now: datetime,
    *,
    by: str = audit_log.LEAD_NAME,
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
    try:
        with connection.begin_nested():
            number = connection.execute(_ADD, {**row, "like": name.lower()}).scalar()
    # The unique index on lower(name) decides between simultaneous additions.
    except IntegrityError as error:
        raise AccountError(f"name {name}: is taken. Choose another.") from error
    if number is None:
        raise AccountError(f"name {name}: is taken. Choose another.")
    audit_log.append_audit_event(connection, by, "added person", detail={"name": name, "role": role})
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
    _check_password(new, row.name)
    connection.execute(_SET_PASSWORD, {"id": person_id, "password": passwords.hash_password(new)})
    end_person_sessions(connection, person_id, except_token)


def person_from_row(row: Row[Any]) -> Person:
    """Return the person of a row with the columns of annotate_people."""
    return Person(row.id, row.name, PersonRole(row.role), AnnotatorPool(row.pool), bool(row.active))


def _invitation(row: Row[Any]) -> Invitation:
    return Invitation(row.name, PersonRole(row.role), AnnotatorPool(row.pool), datetime.fromisoformat(row.until))


def _check_password(password: str, name: str) -> None:
    if messages := passwords.password_problems(password, name):
        raise AccountError(" ".join(messages))


def _set_active(connection: Connection, person_id: int, *, active: bool) -> None:
    if connection.execute(_SET_ACTIVE, {"id": person_id, "active": int(active)}).rowcount != 1:
        raise AccountError(f"person {person_id}: is unknown.")


_WITHDRAW = text("DELETE FROM annotate_invitations WHERE lower(name) = :like AND used IS NULL")
_FORGET = text("DELETE FROM annotate_invitations WHERE lower(name) = lower(:name)")
_LIKE_NAMED = text("SELECT id FROM annotate_people WHERE lower(name) = :like")
# Of two simultaneous invitations of one name, the later one is valid.
_INVITE = text("""
    INSERT INTO annotate_invitations (token, name, role, pool, until) VALUES (:token, :name, :role, :pool, :until)
    ON CONFLICT (name) DO UPDATE
    SET token = excluded.token, role = excluded.role, pool = excluded.pool, until = excluded.until
    WHERE annotate_invitations.used IS NULL
""")
_INVITATION = text("""
    SELECT name, role, pool, until FROM annotate_invitations WHERE token = :token AND used IS NULL AND until > :now
""")
_TAKE = text("""
    UPDATE annotate_invitations SET used = :now WHERE token = :token AND used IS NULL AND until > :now
    RETURNING name, role, pool, until
""")
_ADD = text("""
    INSERT INTO annotate_people (name, role, pool, password, since)
    SELECT :name, :role, :pool, :password, :since
    WHERE NOT EXISTS (SELECT 1 FROM annotate_people WHERE lower(name) = :like)
    RETURNING id
""")
_BY_NAME = text("SELECT id, name, role, pool, active, password FROM annotate_people WHERE lower(name) = lower(:name)")
_ALL_PEOPLE = text("SELECT id, name, role, pool, active FROM annotate_people ORDER BY id")
# Locks the row in both databases; SELECT ... FOR UPDATE does not exist in SQLite.
_HOLD = text("UPDATE annotate_people SET active = active WHERE id = :id RETURNING name, password, active")
_SET_ACTIVE = text("UPDATE annotate_people SET active = :active WHERE id = :id")
_SET_PASSWORD = text("UPDATE annotate_people SET password = :password WHERE id = :id")
_SEEN = text("UPDATE annotate_sessions SET seen = :now WHERE token = :token AND person = :person")
