"""What is checked of every row of the call ledger, and how a damaged row is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, text

from eclose.store.ledger.queries import BODY_SIZE, PagedQuery
from eclose.store.ledger.rows import decode_key, read_intent, read_outcome, read_reply, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

_WITH_KEY = "LEFT JOIN ledger_calls AS c ON c.seq = call"
# No seal covers whose intents a reply settles: that is only known when it is written. So they must be there.
_INTENDED = "(SELECT max(i.seq) FROM ledger_intents AS i WHERE i.call = r.call AND i.writer = r.writer) AS intended"
_CALLS = PagedQuery.of("*", "ledger_calls", place="seq", size="length(request)")
_INTENTS = PagedQuery.of("i.*, c.key", f"ledger_intents AS i {_WITH_KEY}", place="i.seq", size="length(record_id)")
_REPLIES = PagedQuery.of(f"r.*, c.key, {_INTENDED}", f"ledger_replies AS r {_WITH_KEY}", place="call", size=BODY_SIZE)
_ALL_OUTCOMES = PagedQuery.of("*", "ledger_outcomes", place="seq", size=BODY_SIZE)
ROW_CHECKS: tuple[tuple[str, PagedQuery, Callable[[Row[Any]], bool]], ...] = (
    ("the request of", _CALLS, lambda row: read_request(row) is not None),
    ("an intent of", _INTENTS, lambda row: read_intent(row) is not None),
    ("the reply to", _REPLIES, lambda row: read_reply(row) is not None and row.intended is not None),
    ("the outcome of", _ALL_OUTCOMES, lambda row: read_outcome(row) is not None),
)


def find_database_problems(connection: Connection) -> list[str]:
    """Return what the database finds wrong with itself; only SQLite can be asked."""
    if connection.dialect.name != "sqlite":
        return []
    problems = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    lost = [
        f"row {row[1]} of {row[0]} belongs to nothing" for row in connection.execute(text("PRAGMA foreign_key_check"))
    ]
    return [problem for problem in problems if problem != "ok"] + lost


def describe_row(row: Row[Any]) -> str:
    """Return what a row is called in a message, as far as it can still be read."""
    fields = row._asdict()
    names = ["key"] if "key" in fields else ["record_id", "stage", "run"]
    return " of ".join(_readable(fields[name], name) for name in names)


def _readable(value: object, name: str) -> str:
    if not isinstance(value, bytes):
        return repr(value)
    return decode_key(value) if name == "key" else value.decode("utf-8", "backslashreplace")
