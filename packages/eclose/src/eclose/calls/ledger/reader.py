"""Reading of a ledger: its calls with requests, replies and the runs that sent them.

No statement writes, so a ledger can be read while a run writes to it.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from eclose.calls.ledger.database import describe_database_location, is_database_url, make_database_engine
from eclose.calls.ledger.queries import PagedQuery
from eclose.calls.ledger.rows import (
    ROW_CHECKS,
    LedgerReply,
    decode_call_key,
    decode_ledger_request,
    decode_reply_row,
    decode_utf8_text,
    encode_call_key,
)
from eclose.errors import UserError

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
_SENDERS = text(
    "SELECT DISTINCT call, run FROM ledger_intents WHERE call >= :first AND call <= :last ORDER BY call, run"
)
_RUNS = text("SELECT DISTINCT run FROM ledger_intents ORDER BY run")


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call with its request, its reply and the runs that sent it."""

    key: str
    request: dict[str, Any] | None
    """None where the row is damaged."""
    settled: LedgerReply | None
    """The reply; None where there is none, or where its row is damaged."""
    damaged: bool
    runs: tuple[str, ...]
    """Runs that sent the request. Those that reused the reply from the ledger are not listed."""


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
            senders = _read_senders(connection, page[0].seq, page[-1].seq)
            for row in page:
                yield _build_call(row, tuple(senders[row.seq]))
            parameters["first"] = page[-1].seq + 1


def find_stored_calls(location: Path | str, keys: Iterable[str]) -> Iterator[StoredCall]:
    """Yield the calls with the given keys by the index of keys; a key without a call is left out."""
    with _connect_read_only(location) as connection:
        for key in keys:
            for row in connection.execute(_BY_KEY, {"key": encode_call_key(key)}):
                yield _build_call(row, tuple(_read_senders(connection, row.seq, row.seq)[row.seq]))


def list_ledger_runs(location: Path | str) -> list[str]:
    """Return the ids of all runs that intended a call."""
    with _connect_read_only(location) as connection:
        return [decode_utf8_text(run) for run in connection.execute(_RUNS).scalars()]


def find_ledger_damage(location: Path | str) -> tuple[set[str], set[str], int]:
    """Check every row against its checksum; return the calls and runs of the damaged rows.

    The number is that of the damaged rows whose call or run cannot be decoded.
    """
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
    return calls, runs, lost


def _read_rows(connection: Connection, query: PagedQuery) -> Iterator[Row[Any]]:
    """Yield all rows of a query, page by page."""
    parameters = {"first": 0}
    while page := query.read_page(connection, parameters):
        yield from page
        parameters["first"] = page[-1].position + 1


def _read_senders(connection: Connection, first: int, last: int) -> dict[int, list[str]]:
    senders: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(_SENDERS, {"first": first, "last": last}):
        # Damaged bytes that are not UTF-8 are read with escapes.
        senders[row.call].append(bytes(row.run).decode("utf-8", "backslashreplace"))
    return senders


def _build_call(row: Row[Any], runs: tuple[str, ...]) -> StoredCall:
    request = decode_ledger_request(row)
    settled = None if row.body is None else decode_reply_row(row)
    damaged = request is None or (row.body is not None and settled is None)
    return StoredCall(decode_call_key(row.key), request, settled, damaged, runs)


@contextmanager
def _connect_read_only(location: Path | str) -> Iterator[Connection]:
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
