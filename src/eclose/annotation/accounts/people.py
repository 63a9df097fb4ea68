"""People of a project: who they are, what they work on, how they are invited, and how they stop.

A person has one role and one pool for good. Nobody is ever removed, since what they submitted names them; who should
not get in any more is made inactive. All functions work inside the caller's transaction and are given the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from eclose.annotation.accounts import passwords
from eclose.annotation.accounts.tokens import end_all, hash_of, kept, new_token
from eclose.errors import SettingError, UserError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

INVITATION_LASTS = timedelta(days=7)
NO_PASSWORD = "!"
"""Of somebody who has tasks and has not come yet. No password matches it."""


class Refused(UserError):  # noqa: N818 - an answer, not a mistake of the program
    """Somebody asked for what they may not have; the message says why, and nothing that they should not know."""


class Role(StrEnum):
    """What a person does."""

    LEAD = "lead"
    SCREENER = "screener"
    ANNOTATOR = "annotator"
    ADJUDICATOR = "adjudicator"


class Pool(StrEnum):
    """What a person works on."""

    NONE = "none"
    QUESTIONS = "questions"
    RESPONSES = "responses"
    FAMILIES = "families"


# The first is what a role works on unless told otherwise. The table of people holds the same rule.
_POOLS = {
    Role.LEAD: (Pool.NONE,),
    Role.SCREENER: (Pool.QUESTIONS,),
    Role.ANNOTATOR: (Pool.RESPONSES, Pool.FAMILIES),
    Role.ADJUDICATOR: (Pool.RESPONSES, Pool.QUESTIONS, Pool.FAMILIES),
}


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who takes part."""

    id: int
    name: str
    role: Role
    pool: Pool
    active: bool


@dataclass(frozen=True, slots=True)
class Invitation:
    """What somebody with a valid token may become."""

    name: str
    role: Role
    pool: Pool
    until: datetime


def pool_of(role: Role, pool: Pool | None = None) -> Pool:
    """What somebody of a role works on: what is asked for, where the role allows it, or the role's usual."""
    allowed = _POOLS[role]
    if pool is not None and pool not in allowed:
        raise SettingError(f"pool {pool}: is not for the role {role}. Choose {' or '.join(allowed)}.")
    return allowed[0] if pool is None else pool


def is_name(name: str) -> bool:
    """Whether a text can be the name of a person."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) is not None


def check_name(name: str) -> str:
    """The name, if it can be one."""
    if not is_name(name):
        raise SettingError(
            f"name {name!r}: cannot be used. Take 1 to 64 letters without accents, digits, dots, dashes and"
            " underscores, with a letter or digit first."
        )
    return name


def invite(
    connection: Connection,
    name: str,
    role: Role,
    pool: Pool | None,
    *,
    now: datetime,
    lasts: timedelta = INVITATION_LASTS,
) -> str:
    """The token of a new invitation, told once. An earlier one of that name, unless used, is valid no longer."""
    if lasts <= timedelta(0):
        raise SettingError("an invitation lasts for some time. Choose more than nothing.")
    token = new_token()
    invited = {"name": check_name(name), "role": role, "pool": pool_of(role, pool)}
    # Writing comes before reading, so that no other writer gets in between.
    with connection.begin_nested():
        connection.execute(_WITHDRAW, {"like": name.lower()})
        if connection.execute(_LIKE_NAMED, {"like": name.lower()}).first() is not None:
            raise Refused(f"name {name}: is taken. Choose another.")
        added = connection.execute(_INVITE, {**invited, "token": hash_of(token), "until": kept(now + lasts)})
        if added.rowcount != 1:
            raise Refused(f"name {name}: is taken. Choose another.")
    return token


def invite_known(connection: Connection, known: Person, *, now: datetime, lasts: timedelta = INVITATION_LASTS) -> str:
    """The token with which somebody who is known chooses a (new) password. Until then nobody gets in as them."""
    token = new_token()
    connection.execute(_SET_PASSWORD, {"id": known.id, "password": NO_PASSWORD})
    end_all(connection, known.id)
    connection.execute(_FORGET, {"name": known.name})
    row = {"name": known.name, "role": known.role, "pool": known.pool}
    connection.execute(_INVITE, {**row, "token": hash_of(token), "until": kept(now + lasts)})
    return token


def invitation(connection: Connection, token: str, *, now: datetime) -> Invitation | None:
    """What a token invites to; None when it is unknown, used, replaced or too old."""
    row = connection.execute(_INVITATION, {"token": hash_of(token), "now": kept(now)}).first()
    return None if row is None else _invitation(row)


def accept(connection: Connection, token: str, password: str, *, now: datetime) -> Person:
    """Make a person of an invitation. It can be done once; refused, the invitation stays as it was."""
    # Of two who come at once the first takes it, and the second finds it used.
    with connection.begin_nested():
        row = connection.execute(_TAKE, {"token": hash_of(token), "now": kept(now)}).first()
        if row is None:
            raise Refused("this invitation is not valid: it was used or replaced, or is too old. Ask for a new one.")
        invited = _invitation(row)
        _check_password(password, invited.name)
        found = with_password(connection, invited.name)
        if found is not None and found[1] == NO_PASSWORD:
            set_password(connection, found[0].id, password)
            return found[0]
        return add(connection, invited.name, invited.role, invited.pool, passwords.hashed(password), now)


def add(connection: Connection, name: str, role: Role, pool: Pool | None, password_hash: str, now: datetime) -> Person:
    """A new person. Names that differ only in capitals count as one."""
    chosen = pool_of(role, pool)
    row = {"name": check_name(name), "role": role, "pool": chosen, "password": password_hash, "since": kept(now)}
    try:
        with connection.begin_nested():
            number = connection.execute(_ADD, {**row, "like": name.lower()}).scalar()
    except IntegrityError as error:
        raise Refused(f"name {name}: is taken. Choose another.") from error
    if number is None:
        raise Refused(f"name {name}: is taken. Choose another.")
    return Person(number, name, role, chosen, active=True)


def person(connection: Connection, name: str) -> Person | None:
    """Who has a name, capitals as they are."""
    found = with_password(connection, name)
    return None if found is None else found[0]


def with_password(connection: Connection, name: str) -> tuple[Person, str] | None:
    """Who has a name, and what is kept of their password."""
    # A database may not even be able to be asked for a text that is no name.
    row = connection.execute(_BY_NAME, {"name": name}).first() if is_name(name) else None
    return None if row is None else (read(row), row.password)


def person_by_id(connection: Connection, person_id: int) -> Person | None:
    """Who has a number."""
    row = connection.execute(_BY_ID, {"id": person_id}).first()
    return None if row is None else read(row)


def people(connection: Connection) -> tuple[Person, ...]:
    """Everybody, in the order in which they came."""
    return tuple(read(row) for row in connection.execute(_EVERYBODY))


def deactivate(connection: Connection, person_id: int) -> None:
    """Keep a person out, from now on: all their sessions end."""
    _set_active(connection, person_id, active=False)
    end_all(connection, person_id)


def activate(connection: Connection, person_id: int) -> None:
    """Let a person in again, with the password they had."""
    _set_active(connection, person_id, active=True)


def change_password(
    connection: Connection, person_id: int, current: str, new: str, *, now: datetime, except_token: str | None = None
) -> None:
    """Another password for somebody who knows the current one. Ends their sessions, but for the one of the token."""
    # Changing nothing makes everybody else wait, so that the password that is compared is the one that is replaced.
    row = connection.execute(_HOLD, {"id": person_id}).first()
    if row is None or not passwords.matches(row.password, current) or not row.active:
        raise Refused("the current password is not right. Type it again.")
    if new == current:
        raise Refused("this is the current password. Choose another.")
    set_password(connection, person_id, new, except_token=except_token)
    if except_token is not None:
        connection.execute(_SEEN, {"token": hash_of(except_token), "person": person_id, "now": kept(now)})


def set_password(connection: Connection, person_id: int, new: str, *, except_token: str | None = None) -> None:
    """Another password for somebody who forgot theirs, by whoever runs the server. Ends their sessions."""
    row = connection.execute(_HOLD, {"id": person_id}).first()
    if row is None:
        raise Refused(f"person {person_id}: is unknown.")
    _check_password(new, row.name)
    connection.execute(_SET_PASSWORD, {"id": person_id, "password": passwords.hashed(new)})
    end_all(connection, person_id, except_token)


def read(row: Row[Any]) -> Person:
    """A person, of a row that has their columns."""
    return Person(row.id, row.name, Role(row.role), Pool(row.pool), bool(row.active))


def _invitation(row: Row[Any]) -> Invitation:
    return Invitation(row.name, Role(row.role), Pool(row.pool), datetime.fromisoformat(row.until))


def _check_password(password: str, name: str) -> None:
    if found := passwords.problems(password, name):
        raise Refused(" ".join(found))


def _set_active(connection: Connection, person_id: int, *, active: bool) -> None:
    if connection.execute(_SET_ACTIVE, {"id": person_id, "active": int(active)}).rowcount != 1:
        raise Refused(f"person {person_id}: is unknown.")


_WITHDRAW = text("DELETE FROM annotate_invitations WHERE lower(name) = :like AND used IS NULL")
_FORGET = text("DELETE FROM annotate_invitations WHERE lower(name) = lower(:name)")
_LIKE_NAMED = text("SELECT id FROM annotate_people WHERE lower(name) = :like")
# Two who invite one name at once: the later one holds.
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
_BY_NAME = text("SELECT id, name, role, pool, active, password FROM annotate_people WHERE name = :name")
_BY_ID = text("SELECT id, name, role, pool, active FROM annotate_people WHERE id = :id")
_EVERYBODY = text("SELECT id, name, role, pool, active FROM annotate_people ORDER BY id")
_HOLD = text("UPDATE annotate_people SET active = active WHERE id = :id RETURNING name, password, active")
_SET_ACTIVE = text("UPDATE annotate_people SET active = :active WHERE id = :id")
_SET_PASSWORD = text("UPDATE annotate_people SET password = :password WHERE id = :id")
_SEEN = text("UPDATE annotate_sessions SET seen = :now WHERE token = :token AND person = :person")
