"""Read the calls of a ledger, check it, and free what its interrupted and refused calls hold.

An unusable reply is rejected in one of two places: by the client (cut off, refused, wrong schema), with the reason
stored in the call, or by the step that sent the request, with the reason stored in the record. Reading writes nothing,
so a ledger can be read while a run writes to it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from eclose.calls.http.failures import CallFailureKind
from eclose.calls.ledger.database import describe_database_location, is_database_url, make_database_engine
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.ledger.queries import PagedQuery
from eclose.calls.ledger.rows import (
    decode_call_key,
    decode_ledger_request,
    decode_reply_row,
    decode_utf8_text,
    encode_call_key,
)
from eclose.calls.paid_once import StoredAnswer
from eclose.errors import UserError
from eclose.files.jsonl import parse_dataclass
from eclose.files.run_folder import RUN_LEDGER_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Row

    from eclose.calls.ledger.rows import LedgerProblem

MAINTENANCE_RUN = "ledger command"
"""Name of the run that maintenance uses; it has no records."""
_COLUMNS = "c.seq, c.key, c.request, r.*"
_CALLS = "ledger_calls AS c LEFT JOIN ledger_replies AS r ON r.call = c.seq"
_STORED = PagedQuery.of(_COLUMNS, _CALLS, order_by="c.seq", size="length(c.request) + coalesce(length(r.body), 0)")
_BY_KEY = text(f"SELECT {_COLUMNS} FROM {_CALLS} WHERE c.key = :key")
_SENDERS = text(
    "SELECT DISTINCT i.run FROM ledger_intents AS i JOIN ledger_calls AS c ON c.seq = i.call WHERE c.key = :key"
)
_RUNS = text("SELECT DISTINCT run FROM ledger_intents ORDER BY run")


class CallState(StrEnum):
    """State of a call in a ledger."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The model gave an unusable answer: refusal, length, empty or invalid."""
    UNANSWERED = "unanswered"
    """An intent without a stored reply."""
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call with its request and the parts of its reply."""

    key: str
    request: dict[str, Any] | None
    """None where the row is damaged."""
    state: CallState
    kind: CallFailureKind | None = None
    """Kind of failure of an unusable reply; None for a usable one."""
    problem: str | None = None
    text: str | None = None
    """Text of the reply; the raw body where there is no text."""


def find_ledger(location: Path | str) -> Path | str:
    """Return the ledger at a location: a ``postgresql://`` URL, a file, or a run's folder with ledger.sqlite."""
    if is_database_url(location):
        return str(location)
    path = Path(location)
    if path.is_dir():
        path /= RUN_LEDGER_FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no such ledger. Name its file, its run's folder or a postgresql:// URL.")
    return path


def read_ledger_calls(location: Path | str) -> Iterator[StoredCall]:
    """Yield the calls of a ledger in the order of their first intents."""
    with _connect_read_only(location) as connection:
        parameters = {"first": 0}
        while page := _STORED.read_page(connection, parameters):
            yield from map(_build_call, page)
            parameters["first"] = page[-1].seq + 1


def find_stored_calls(location: Path | str, keys: Iterable[str]) -> Iterator[StoredCall]:
    """Yield the calls with the given keys by the index of keys; a key without a call is left out."""
    with _connect_read_only(location) as connection:
        for key in keys:
            yield from map(_build_call, connection.execute(_BY_KEY, {"key": encode_call_key(key)}))


def _build_call(row: Row[Any]) -> StoredCall:
    key, request = decode_call_key(row.key), decode_ledger_request(row)
    settled = None if row.body is None else decode_reply_row(row)
    if request is None or (row.body is not None and settled is None):
        return StoredCall(key, request, CallState.DAMAGED, problem="the row does not match its checksum.")
    if settled is None:
        return StoredCall(key, request, CallState.UNANSWERED)
    answer = parse_dataclass(StoredAnswer, json.loads(settled.body))
    reply = None if answer.reply is None else answer.reply.text
    if answer.failure is None:
        return StoredCall(key, request, CallState.ANSWERED, text=reply)
    failure = answer.failure
    return StoredCall(
        key=key,
        request=request,
        state=CallState.REFUSED,
        kind=failure.kind,
        problem=failure.problem,
        text=reply or failure.raw,
    )


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


async def check_ledger(where: Path | str) -> list[LedgerProblem]:
    """Recompute every key and checksum, and return the mismatches."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        return [problem async for problem in ledger.verify()]


@dataclass(frozen=True, slots=True)
class LedgerDeletion:
    """Calls to delete, and runs whose outcomes are deleted with them."""

    calls: frozenset[str]
    runs: frozenset[str]
    """Runs whose outcomes are all deleted: a reply may have served records that did not send the request."""


def find_damaged_calls(where: Path | str, problems: Sequence[LedgerProblem]) -> LedgerDeletion:
    """Return the calls and runs of damaged rows."""
    calls, runs, lost = set(), set(), 0
    for problem in problems:
        if problem.unreadable:
            raise UserError(problem.message)
        if (row := problem.row) is None:
            continue
        try:
            # Only outcomes have a record id and no key: they belong to a run, all other rows to a call.
            if "record_id" in row._fields and "key" not in row._fields:
                runs.add(decode_utf8_text(row.run))
            else:
                calls.add(decode_call_key(row.key))
        except (AttributeError, TypeError, ValueError):
            lost += 1
    # A damaged row without a readable call or run cannot be matched with the rows that depend on it.
    if lost:
        raise UserError(f"{lost} damaged rows belong to no known call. Restore the ledger from a copy.")
    return LedgerDeletion(frozenset(calls), _find_senders(where, calls).union(runs))


def find_refused_calls(where: Path | str) -> LedgerDeletion:
    """Return the calls whose reply could not be used, and the runs that sent them."""
    refused = frozenset(call.key for call in read_ledger_calls(where) if call.state is CallState.REFUSED)
    return LedgerDeletion(refused, _find_senders(where, refused))


def _find_senders(where: Path | str, keys: Iterable[str]) -> frozenset[str]:
    """Return the runs that sent the calls; those that reused a reply from the ledger are not among them."""
    with _connect_read_only(where) as connection:
        runs = [run for key in keys for run in connection.execute(_SENDERS, {"key": encode_call_key(key)}).scalars()]
    # Damaged bytes that are not UTF-8 are read with escapes.
    return frozenset(bytes(run).decode("utf-8", "backslashreplace") for run in runs)


async def delete_calls(where: Path | str, deletion: LedgerDeletion) -> None:
    """Delete calls and outcomes, so that the calls are sent, and paid, again when they are needed."""
    async with Ledger.open(where, run=MAINTENANCE_RUN) as ledger:
        await ledger.prune(calls=sorted(deletion.calls), runs=sorted(deletion.runs))


async def release_interrupted_calls(where: Path | str, *, dry_run: bool = False) -> int:
    """Release the reservation of every interrupted call as not billed, in all runs, and return their number.

    No run may be in progress: its calls in flight look like interrupted ones.
    """
    released = 0
    with _connect_read_only(where) as connection:
        runs = [decode_utf8_text(run) for run in connection.execute(_RUNS).scalars()]
    for run in runs:
        async with Ledger.open(where, run=run) as ledger:
            orphans = await ledger.list_orphans()
            released += len(orphans)
            while orphans and not dry_run:
                # A release closes the newest open intent of a call, which may be an answered one: repeat to the end.
                for key in {intent.key for intent in orphans}:
                    await ledger.release(key, any_writer=True)
                orphans = await ledger.list_orphans()
    return released
