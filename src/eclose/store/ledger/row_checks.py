"""Integrity checks of the rows of the call ledger, and the description of damaged rows in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, text

from eclose.store.ledger.queries import BODY_SIZE, PagedQuery
from eclose.store.ledger.rows import (
    decode_call_key,
    decode_intent_row,
    decode_ledger_request,
    decode_outcome_row,
    decode_reply_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_WITH_KEY = "LEFT JOIN ledger_calls AS c ON c.seq = call"
# The seal of a reply does not cover its writer, which is only known in the INSERT. So its intent must exist instead.
_INTENDED = "(SELECT max(i.seq) FROM ledger_intents AS i WHERE i.call = r.call AND i.writer = r.writer) AS intended"
_CALLS = PagedQuery.of("*", "ledger_calls", order_by="seq", size="length(request)")
_INTENTS = PagedQuery.of("i.*, c.key", f"ledger_intents AS i {_WITH_KEY}", order_by="i.seq", size="length(record_id)")
_REPLIES = PagedQuery.of(
    f"r.*, c.key, {_INTENDED}", f"ledger_replies AS r {_WITH_KEY}", order_by="call", size=BODY_SIZE
)
_ALL_OUTCOMES = PagedQuery.of("*", "ledger_outcomes", order_by="seq", size=BODY_SIZE)
# Name in messages, query, and whether a row is sound.
ROW_CHECKS: tuple[tuple[str, PagedQuery, Callable[[Row[Any]], bool]], ...] = (
    ("the request of", _CALLS, lambda row: decode_ledger_request(row) is not None),
    ("an intent of", _INTENTS, lambda row: decode_intent_row(row) is not None),
    ("the reply to", _REPLIES, lambda row: decode_reply_row(row) is not None and row.intended is not None),
    ("the outcome of", _ALL_OUTCOMES, lambda row: decode_outcome_row(row) is not None),
)


def find_database_problems(connection: Connection) -> list[str]:
    """Return the problems that the database itself reports; only SQLite has such a check."""
    if connection.dialect.name != "sqlite":
        return []
    problems = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    orphaned = [
        f"row {row[1]} of {row[0]} refers to a missing row"
        for row in connection.execute(text("PRAGMA foreign_key_check"))
    ]
    return [problem for problem in problems if problem != "ok"] + orphaned


def describe_ledger_row(row: Row[Any]) -> str:
    """Return the name of a row for messages, as far as it can still be decoded."""
    fields = row._asdict()
    names = ["key"] if "key" in fields else ["record_id", "stage", "run"]
    return " of ".join(_readable(fields[name], name) for name in names)


def _readable(value: object, name: str) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    return decode_call_key(value) if name == "key" else value.decode("utf-8", "backslashreplace")
