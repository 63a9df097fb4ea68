"""Secrets that are shown once and kept as a hash, and the form in which times are kept."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection


def new_token() -> str:
    """256 bits nobody can guess, in letters that fit into an address."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """What is kept of a token. Without salt: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def kept(moment: datetime) -> str:
    """A time as it is kept: UTC, to the millisecond, in an order that is that of its letters."""
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone is no moment")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def end_all(connection: Connection, person_id: int, except_token: str | None = None) -> int:
    """End the sessions of a person, but for the one of a token. Answers how many there were."""
    spared = "" if except_token is None else hash_of(except_token)
    return connection.execute(_END_ALL, {"person": person_id, "spared": spared}).rowcount


_END_ALL = text("DELETE FROM annotate_sessions WHERE person = :person AND token <> :spared")
