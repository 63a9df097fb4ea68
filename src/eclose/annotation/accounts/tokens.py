"""Secret tokens, which the database stores only as hashes, and the text form of stored times."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection


def new_secret_token() -> str:
    """Return 256 random bits as text that needs no escaping in a URL."""
    return secrets.token_urlsafe(32)


def hash_secret_token(token: str) -> str:
    """Return the SHA-256 of a token, which is what the database stores."""
    # No salt: a table of precomputed hashes is useless against 256 random bits.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def format_utc_timestamp(moment: datetime) -> str:
    """Return a time as it is stored: UTC with milliseconds, so that text order is time order."""
    if moment.tzinfo is None:
        raise ValueError("the time has no time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def end_person_sessions(connection: Connection, person_id: int, except_token: str | None = None) -> int:
    """End all sessions of a person, except that of ``except_token``, and return how many ended."""
    excepted = "" if except_token is None else hash_secret_token(except_token)
    return connection.execute(_END_ALL, {"person": person_id, "excepted": excepted}).rowcount


_END_ALL = text("DELETE FROM annotate_sessions WHERE person = :person AND token <> :excepted")
