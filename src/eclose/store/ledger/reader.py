"""Every call of a ledger with its request, its reply and the records it was made for, for a person to read.

Opens the ledger for reading only, so it can be used while a run writes to the same ledger. Knows keys, JSON and bytes,
nothing of chat models.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from eclose.errors import UserError
from eclose.store.ledger.database import describe_location, is_url, make_engine
from eclose.store.ledger.queries import PagedQuery
from eclose.store.ledger.row_checks import ROW_CHECKS
from eclose.store.ledger.rows import LedgerReply, OutcomeKind, decode_key, decode_text, read_reply, read_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Row

LEDGER_FILE = "ledger.sqlite"
"""What a run calls the ledger in its folder."""
_STORED = PagedQuery.of(
    "c.seq, c.key, c.request, r.body, r.run, r.prompt_tokens, r.completion_tokens, r.cost, r.attempts, r.seal",
    "ledger_calls AS c LEFT JOIN ledger_replies AS r ON r.call = c.seq",
    place="c.seq",
    size="length(c.request) + coalesce(length(r.body), 0)",
)
_PURPOSES = text("""
    SELECT i.call, i.run, i.stage, i.record_id, o.kind, o.reason, o.body
    FROM ledger_intents AS i
    LEFT JOIN ledger_outcomes AS o ON o.run = i.run AND o.stage = i.stage AND o.record_id = i.record_id
    WHERE i.call >= :first AND i.call <= :last ORDER BY i.seq
""")
_RUNS = text("SELECT DISTINCT run FROM ledger_intents ORDER BY run")


@dataclass(frozen=True, slots=True)
class CallPurpose:
    """A record that a call was made for, and where that record went."""

    run: str
    stage: str
    record_id: str
    outcome: OutcomeKind | None
    """None while the record is not done."""
    reason: str | None
    body: Any
    """What was made of the record, as JSON; None where there is nothing."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call as the ledger holds it."""

    key: str
    request: dict[str, Any] | None
    """None where it is damaged."""
    settled: LedgerReply | None
    """The reply; None where there is none, or where it is damaged."""
    damaged: bool
    purposes: tuple[CallPurpose, ...]
    """One for each send. A record that found the reply in the ledger is not among them."""


@dataclass(frozen=True, slots=True)
class LedgerDamage:
    """Rows that do not fit their checksums: the calls and the runs they belong to."""

    calls: frozenset[str]
    runs: frozenset[str]
    lost: int
    """Rows of which neither a call nor a run can be told."""


def find_ledger(place: Path | str) -> Path | str:
    """Return the ledger at a place: a ``postgresql://`` URL, a file, or a run's folder with ledger.sqlite in it."""
    if is_url(place):
        return str(place)
    path = Path(place)
    if path.is_dir():
        path /= LEDGER_FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no such ledger. Name its file, its run's folder or a postgresql:// URL.")
    return path


def read_calls(where: Path | str) -> Iterator[StoredCall]:
    """Yield the calls of a ledger in the order they were first made."""
    with _reading(where) as connection:
        given = {"first": 0}
        while page := _STORED.next(connection, given):
            purposes = _purposes(connection, page[0].seq, page[-1].seq)
            for row in page:
                yield _stored(row, tuple(purposes[row.seq]))
            given["first"] = page[-1].seq + 1


def list_runs(where: Path | str) -> list[str]:
    """Return the ids of all runs that intended a call."""
    with _reading(where) as connection:
        return [decode_text(run) for run in connection.execute(_RUNS).scalars()]


def find_damage(where: Path | str) -> LedgerDamage:
    """Check every row against its checksum, and return what is damaged."""
    calls, runs, lost = set(), set(), 0
    with _reading(where) as connection:
        for _, pages, sound in ROW_CHECKS:
            for row in _rows(connection, pages):
                if sound(row):
                    continue
                try:
                    if "record_id" in row._fields and "key" not in row._fields:
                        runs.add(decode_text(row.run))
                    else:
                        calls.add(decode_key(row.key))
                except (AttributeError, TypeError, ValueError):
                    lost += 1
    return LedgerDamage(frozenset(calls), frozenset(runs), lost)


def _rows(connection: Connection, pages: PagedQuery) -> Iterator[Row[Any]]:
    given = {"first": 0}
    while page := pages.next(connection, given):
        yield from page
        given["first"] = page[-1].place + 1


def _purposes(connection: Connection, first: int, last: int) -> dict[int, list[CallPurpose]]:
    purposes: dict[int, list[CallPurpose]] = defaultdict(list)
    for row in connection.execute(_PURPOSES, {"first": first, "last": last}):
        purposes[row.call].append(_purpose(row))
    return purposes


def _purpose(row: Row[Any]) -> CallPurpose:
    reason, body = (None if value is None else bytes(value) for value in (row.reason, row.body))
    return CallPurpose(
        _readable(row.run),
        _readable(row.stage),
        _readable(row.record_id),
        row.kind,
        None if reason is None else _readable(reason),
        _unpacked(body),
    )


def _unpacked(body: bytes | None) -> Any:
    if body is None:
        return None
    try:
        return json.loads(zlib.decompress(body))
    except (zlib.error, ValueError):
        return None


def _readable(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _stored(row: Row[Any], purposes: tuple[CallPurpose, ...]) -> StoredCall:
    request = read_request(row)
    settled = None if row.body is None else read_reply(row)
    damaged = request is None or (row.body is not None and settled is None)
    return StoredCall(decode_key(row.key), request, settled, damaged, purposes)


@contextmanager
def _reading(where: Path | str) -> Iterator[Connection]:
    """Open a connection to a ledger that is only read."""
    engine = make_engine(where)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1 FROM ledger_calls LIMIT 1"))
            yield connection
    except DBAPIError as error:
        sentence = " ".join(str(error.orig).split())
        raise UserError(f"{describe_location(where)}: cannot be read as a call ledger ({sentence}).") from error
    finally:
        engine.dispose()
