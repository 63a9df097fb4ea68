"""Secret tokens, which the database stores only as hashes, and the text form of stored times."""

from __future__ import annotations

import hashlib
import secrets
from threading import Lock
from typing import TYPE_CHECKING

from sqlalchemy import text

from eclose.annotation.audit_log import format_utc_timestamp

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "OneTimeTokens",
    "end_person_sessions",
    "format_utc_timestamp",
    "hash_secret_token",
    "new_secret_token",
]


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


_END_ALL = text("DELETE FROM annotate_sessions WHERE person = :person AND token <> :excepted")
