"""Reading of a ledger: its calls with requests, replies and the records they were made for.

No statement writes, so a ledger can be read while a run writes to it.
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
from eclose.store.ledger.database import describe_database_location, is_database_url, make_database_engine
from eclose.store.ledger.queries import PagedQuery
from eclose.store.ledger.row_checks import ROW_CHECKS
from eclose.store.ledger.rows import (
    LedgerReply,
    OutcomeKind,
    decode_call_key,
    decode_ledger_request,
    decode_reply_row,
    decode_utf8_text,
    encode_call_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection, Row

LEDGER_FILE = "ledger.sqlite"
"""Name of the ledger in a run's folder."""
_COLUMNS = "c.seq, c.key, c.request, r.*"
_CALLS = "ledger_calls AS c LEFT JOIN ledger_replies AS r ON r.call = c.seq"
_STORED = PagedQuery.of(
    _COLUMNS,
    _CALLS,
    order_by="c.seq",
    size="length(c.request) + coalesce(length(r.body), 0)",
)
_BY_KEY = text(f"SELECT {_COLUMNS} FROM {_CALLS} WHERE c.key = :key")
_PURPOSES = text("""
    SELECT i.call, i.run, i.stage, i.record_id, o.kind, o.reason, o.body
    FROM ledger_intents AS i
    LEFT JOIN ledger_outcomes AS o ON o.run = i.run AND o.stage = i.stage AND o.record_id = i.record_id
    WHERE i.call >= :first AND i.call <= :last ORDER BY i.seq
""")
_RUNS = text("SELECT DISTINCT run FROM ledger_intents ORDER BY run")


@dataclass(frozen=True, slots=True)
class CallPurpose:
    """A record that a call was made for, and the record's outcome."""

    run: str
    stage: str
    record_id: str
    outcome: OutcomeKind | None
    """None while the record is not finished."""
    reason: str | None
    body: Any
    """Result of the record as JSON; None where there is none."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call with its request, its reply and its purposes."""

    key: str
    request: dict[str, Any] | None
    """None where the row is damaged."""
    settled: LedgerReply | None
    """The reply; None where there is none, or where its row is damaged."""
    damaged: bool
    purposes: tuple[CallPurpose, ...]
    """One entry for each time the request was sent. Records that reused the reply from the ledger are not listed."""


@dataclass(frozen=True, slots=True)
class LedgerDamage:
    """Damaged rows, whose content does not match its checksum: the calls and runs they belong to."""

    calls: frozenset[str]
    runs: frozenset[str]
    lost: int
    """Number of damaged rows whose call or run cannot be decoded."""


def find_ledger(location: Path | str) -> Path | str:
    """Return the ledger at a location: a ``postgresql://`` URL, a file, or a run's folder with ledger.sqlite."""
    if is_database_url(location):
        return str(location)
    path = Path(location)
    if path.is_dir():
        path /= LEDGER_FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no such ledger. Name its file, its run's folder or a postgresql:// URL.")
    return path


def read_ledger_calls(location: Path | str) -> Iterator[StoredCall]:
    """Yield the calls of a ledger in the order of their first intents."""
    with _connect_read_only(location) as connection:
        parameters = {"first": 0}
        while page := _STORED.read_page(connection, parameters):
            purposes = _read_purposes(connection, page[0].seq, page[-1].seq)
            for row in page:
                yield _build_call(row, tuple(purposes[row.seq]))
            parameters["first"] = page[-1].seq + 1


def find_stored_calls(location: Path | str, keys: Iterable[str]) -> Iterator[StoredCall]:
    """Yield the calls with the given keys by the index of keys; a key without a call is left out."""
    with _connect_read_only(location) as connection:
        for key in keys:
            for row in connection.execute(_BY_KEY, {"key": encode_call_key(key)}):
                yield _build_call(row, tuple(_read_purposes(connection, row.seq, row.seq)[row.seq]))


def list_ledger_runs(location: Path | str) -> list[str]:
    """Return the ids of all runs that intended a call."""
    with _connect_read_only(location) as connection:
        return [decode_utf8_text(run) for run in connection.execute(_RUNS).scalars()]


def find_ledger_damage(location: Path | str) -> LedgerDamage:
    """Check every row against its checksum; return the calls and runs of the damaged rows."""
    calls, runs, lost = set(), set(), 0
    with _connect_read_only(location) as connection:
        for _, query, is_sound in ROW_CHECKS:
            for row in _read_rows(connection, query):
                if is_sound(row):
                    continue
                try:
                    # Only outcomes have a record id and no key: they belong to a run, all other rows to a call.
                    if "record_id" in row._fields and "key" not in row._fields:
                        runs.add(decode_utf8_text(row.run))
                    else:
                        calls.add(decode_call_key(row.key))
                except (AttributeError, TypeError, ValueError):
                    lost += 1
    return LedgerDamage(frozenset(calls), frozenset(runs), lost)


def _read_rows(connection: Connection, query: PagedQuery) -> Iterator[Row[Any]]:
    """Yield all rows of a query, page by page."""
    parameters = {"first": 0}
    while page := query.read_page(connection, parameters):
        yield from page
        parameters["first"] = page[-1].position + 1


def _read_purposes(connection: Connection, first: int, last: int) -> dict[int, list[CallPurpose]]:
    purposes: dict[int, list[CallPurpose]] = defaultdict(list)
    for row in connection.execute(_PURPOSES, {"first": first, "last": last}):
        purposes[row.call].append(_build_purpose(row))
    return purposes


def _build_purpose(row: Row[Any]) -> CallPurpose:
    reason, body = (None if value is None else bytes(value) for value in (row.reason, row.body))
    return CallPurpose(
        _readable(row.run),
        _readable(row.stage),
        _readable(row.record_id),
        row.kind,
        None if reason is None else _readable(reason),
        _decompress(body),
    )


def _decompress(body: bytes | None) -> Any:
    """Return the JSON value of a compressed body; None where there is none, or it is damaged."""
    if body is None:
        return None
    try:
        return json.loads(zlib.decompress(body))
    except (zlib.error, ValueError):
        return None


def _readable(value: bytes) -> str:
    """Return stored bytes as text, with escapes for bytes that are not UTF-8."""
    return value.decode("utf-8", "backslashreplace")


def _build_call(row: Row[Any], purposes: tuple[CallPurpose, ...]) -> StoredCall:
    request = decode_ledger_request(row)
    settled = None if row.body is None else decode_reply_row(row)
    damaged = request is None or (row.body is not None and settled is None)
    return StoredCall(decode_call_key(row.key), request, settled, damaged, purposes)


@contextmanager
def _connect_read_only(location: Path | str) -> Iterator[Connection]:
    """Open a connection to a ledger for reading."""
    engine = make_database_engine(location)
    try:
        with engine.connect() as connection:
            # Fails here, before the first row, where the file is not a ledger.
            connection.execute(text("SELECT 1 FROM ledger_calls LIMIT 1"))
            yield connection
    except DBAPIError as error:
        sentence = " ".join(str(error.orig).split())
        raise UserError(
            f"{describe_database_location(location)}: cannot be read as a call ledger ({sentence})."
        ) from error
    finally:
        engine.dispose()
