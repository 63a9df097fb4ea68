"""Traces of Phoenix, Langfuse and MLflow by time window, in the notation of their exported files.

A trace belongs to the window in which it began, and is read whole. Windows are appended to one file; a file beside it
says up to which moment and byte it is complete. A fetch that breaks off goes on there, so that no trace is lost or
doubled, and the same command fetches what came since.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from eclose.calls.http.client import HttpClient
from eclose.calls.http.endpoint import check_base_url
from eclose.calls.sync import iterate_async
from eclose.diagnosis.trend import read_window_length
from eclose.errors import SettingError, UserError
from eclose.files.atomic import write_json
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import parse_dataclass
from eclose.integrations.stores import TRACE_STORES, StoreClient, StoreRefusal
from eclose.values.times import normalize_time, to_datetime, to_microseconds

if TYPE_CHECKING:
    from eclose.files.json_reader import JsonObject

SETTLING = timedelta(minutes=15)
"""How long before now a fetch ends by default: traces that still run would be read in part."""
_OUTAGE = (
    "does not return the traces",
    "Run the same command again when it is up: it goes on where it ended.",
)
_MOST_BYTES = 64 * 2**20
"""Largest body of a reply."""
_PAGE = 1_000
_MLFLOW_PAGE = 500
_CONCURRENCY = 8
_LANGFUSE_OBSERVATIONS = "/api/public/v2/observations"

Query: TypeAlias = tuple[tuple[str, str], ...]
Records: TypeAlias = "dict[str, list[JsonObject]]"
"""Records by the id of their trace."""


class _Window(NamedTuple):
    """A project of a store, and the moments between which its traces began."""

    project: str
    since: datetime
    until: datetime

    def name(self, since: str, until: str) -> Query:
        """Return the two moments as parameters of a query."""
        return ((since, _format(self.since)), (until, _format(self.until)))


@dataclass(frozen=True, slots=True)
class TraceSource:
    """How the traces of a store are found and read."""

    list_ids: Callable[[StoreClient, _Window], Awaitable[list[str]]]
    """Function that returns the ids of the traces that began in a window, and perhaps of some that began before."""
    read: Callable[[StoreClient, _Window, Sequence[str]], Awaitable[Records]]
    """Function that returns the records of some traces; none for a trace that began before the window."""
    project: str
    """The project that is read where none is named."""
    batch: int
    """Traces of one request."""


def _format(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def _read_pages(
    client: StoreClient, path: str, query: Query, find_cursor: Callable[[JsonObject], object]
) -> list[JsonObject]:
    """Return the items of all pages of a list."""
    items: list[JsonObject] = []
    cursors: set[object] = {None}
    cursor: object = None
    while True:
        page: Query = () if cursor is None else (("cursor", str(cursor)),)
        reply = await client.send("GET", path, query=(*query, *page))
        items += _require_objects(reply, "data")
        cursor = find_cursor(reply) or None
        if cursor is None:
            return items
        _refuse_repeat(cursor, cursors)


def _refuse_repeat(cursor: object, cursors: set[object]) -> None:
    if cursor in cursors:
        raise StoreRefusal("its pages repeat, so they have no end")
    cursors.add(cursor)


def _require_objects(reply: JsonObject, key: str) -> list[JsonObject]:
    items = reply.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise StoreRefusal(f"the reply has no list of objects under {key!r}")
    return items


def _group(records: Sequence[JsonObject], ids: Sequence[str], find_id: Callable[[JsonObject], object]) -> Records:
    """Return records by trace; raise where one is of another trace than those that were asked for."""
    by_trace: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for record in records:
        trace_id = find_id(record)
        if not isinstance(trace_id, str) or trace_id not in ids:
            raise StoreRefusal("it returned spans of other traces than it was asked for; its version is too old")
        by_trace[trace_id].append(record)
    return by_trace


def _take_ids(items: Sequence[JsonObject], key: str) -> list[str]:
    ids = [item.get(key) for item in items]
    if not all(isinstance(trace_id, str) and trace_id for trace_id in ids):
        raise StoreRefusal(f"it listed a trace without {key}")
    return list(dict.fromkeys(map(str, ids)))


# --- Phoenix ---------------------------------------------------------------------------------------------------------


def _phoenix_path(window: _Window, kind: str) -> str:
    return f"/v1/projects/{quote(window.project, safe='')}/{kind}"


def _find_next_cursor(reply: JsonObject) -> object:
    return reply.get("next_cursor")


async def _list_phoenix(client: StoreClient, window: _Window) -> list[str]:
    query = (*window.name("start_time", "end_time"), ("order", "asc"), ("limit", str(_PAGE)))
    return _take_ids(await _read_pages(client, _phoenix_path(window, "traces"), query, _find_next_cursor), "trace_id")


async def _read_phoenix(client: StoreClient, window: _Window, ids: Sequence[str]) -> Records:
    query = (*(("trace_id", trace_id) for trace_id in ids), ("order", "asc"), ("limit", str(_PAGE)))
    spans = await _read_pages(client, _phoenix_path(window, "spans"), query, _find_next_cursor)
    return _group(spans, ids, lambda span: _object(span.get("context")).get("trace_id"))


# --- Langfuse --------------------------------------------------------------------------------------------------------


def _find_meta_cursor(reply: JsonObject) -> object:
    return _object(reply.get("meta")).get("cursor")


async def _list_langfuse(client: StoreClient, window: _Window) -> list[str]:
    query = (*window.name("fromStartTime", "toStartTime"), ("fields", "core"), ("limit", str(_PAGE)))
    # All observations and not the roots alone: the root of a trace may be elsewhere, or nowhere.
    return _take_ids(await _read_pages(client, _LANGFUSE_OBSERVATIONS, query, _find_meta_cursor), "traceId")


async def _read_langfuse(client: StoreClient, window: _Window, ids: Sequence[str]) -> Records:
    (trace_id,) = ids
    query = (("traceId", trace_id), ("fields", "core,basic,io,model"), ("limit", str(_PAGE)))
    rows = await _read_pages(client, _LANGFUSE_OBSERVATIONS, query, _find_meta_cursor)
    starts = [start for row in rows if (start := normalize_time(row.get("startTime"))) is not None]
    if starts and (to_microseconds(min(starts)) or 0) < (to_microseconds(_format(window.since)) or 0):
        return {trace_id: []}
    # A column that is null may be left out, and the parent is what tells the notation.
    return _group([{"parentObservationId": None, **row} for row in rows], ids, lambda row: row.get("traceId"))


# --- MLflow ----------------------------------------------------------------------------------------------------------


async def _list_mlflow(client: StoreClient, window: _Window) -> list[str]:
    since, until = (int(moment.timestamp() * 1_000) for moment in (window.since, window.until))
    body: JsonObject = {
        "locations": [
            {
                "type": "MLFLOW_EXPERIMENT",
                "mlflow_experiment": {"experiment_id": await _find_experiment(client, window.project)},
            }
        ],
        "filter": f"timestamp_ms >= {since} AND timestamp_ms < {until}",
        "order_by": ["timestamp_ms ASC"],
        "max_results": _MLFLOW_PAGE,
    }
    traces: list[JsonObject] = []
    tokens: set[object] = set()
    while True:
        reply = await client.send("POST", "/api/3.0/mlflow/traces/search", body)
        # Protobuf leaves an empty list out.
        traces += _require_objects({"traces": [], **reply}, "traces")
        if not (token := reply.get("next_page_token")):
            return _take_ids(traces, "trace_id")
        _refuse_repeat(token, tokens)
        body = {**body, "page_token": token}


async def _find_experiment(client: StoreClient, name: str) -> str:
    """Return the id of an experiment by its id or name."""
    if name.isdecimal():
        return name
    query = (("experiment_name", name),)
    reply = await client.send("GET", "/api/2.0/mlflow/experiments/get-by-name", query=query)
    return str(_object(reply.get("experiment")).get("experiment_id"))


async def _read_mlflow(client: StoreClient, _window: _Window, ids: Sequence[str]) -> Records:
    (trace_id,) = ids
    try:
        # What MLflow's own page reads: it finds the spans wherever they are, in the database or in a file.
        data = await client.send("GET", "/ajax-api/3.0/mlflow/get-trace-artifact", query=(("request_id", trace_id),))
    except StoreRefusal as refusal:
        # Deleted since it was listed.
        if refusal.status != 404:
            raise
        return {}
    return {trace_id: [{"info": {"trace_id": trace_id}, "data": data}]} if _require_objects(data, "spans") else {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


TRACE_SOURCES: Mapping[str, TraceSource] = {
    "phoenix": TraceSource(_list_phoenix, _read_phoenix, "default", batch=10),
    # The keys name the project.
    "langfuse": TraceSource(_list_langfuse, _read_langfuse, "", batch=1),
    "mlflow": TraceSource(_list_mlflow, _read_mlflow, "0", batch=1),
}


# --- Windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchState:
    """What a file of fetched traces holds, and up to which moment and byte."""

    store: str
    address: str
    project: str
    since: str
    until: str
    bytes: int = 0
    traces: int = 0
    records: int = 0
    """Lines: spans of Phoenix, observations of Langfuse, traces of MLflow."""
    empty: int = 0
    """Traces that the store listed and returned without a span, which are not in the file."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What a fetch added to its file."""

    path: Path
    state: FetchState
    """What the file holds now."""
    before: FetchState
    """What it held before."""

    def __str__(self) -> str:
        """Return ``traces.jsonl: 12 traces of phoenix added, 60 records, from ... to ...``."""
        traces, records = self.state.traces - self.before.traces, self.state.records - self.before.records
        return (
            f"{self.path}: {traces:,} {'trace' if traces == 1 else 'traces'} of {self.state.store} added, "
            f"{records:,} {'record' if records == 1 else 'records'}, from {self.before.until} to {self.state.until}"
        )

    @property
    def empty(self) -> int:
        """Traces of this fetch that the store returned without a span."""
        return self.state.empty - self.before.empty


def fetch_traces(
    store: str,
    out: Path | str,
    *,
    since: str,
    until: str | None = None,
    url: str | None = None,
    project: str | None = None,
    by: str = "1h",
    environ: Mapping[str, str] | None = None,
    watch: Callable[[FetchState], None] | None = None,
) -> FetchResult:
    """Append the traces of a store that began in a span of time to a file, which ``evaluate`` reads.

    Args:
        store: ``phoenix``, ``langfuse`` or ``mlflow``.
        out: File to write, JSON Lines; where it was written by an earlier fetch, this one goes on where that ended.
        since: When the first trace began, as ISO 8601; without an offset, in UTC.
        until: Moment before which the last one began; a quarter of an hour ago by default.
        url: Address of the store; by default the one in the environment, as for ``export``.
        project: Project of Phoenix (``default``), or experiment of MLflow by id or name (``0``). That of Langfuse is
            named by its keys.
        by: Length of a window, after which the file is complete so far: a number with ``m``, ``h``, ``d`` or ``w``.
        environ: Variables that hold keys and addresses; those of the process by default.
        watch: Function that is called after each window with what the file holds.

    Returns:
        What the file holds, and what it held before.

    Raises:
        SettingError: A setting is refused, or a key is missing.
        UserError: The store cannot be reached or refuses a request, or the file is none of an earlier fetch.
    """
    environ = os.environ if environ is None else environ
    if (source := TRACE_SOURCES.get(store)) is None:
        raise SettingError(f"{store!r}: traces are fetched from {', '.join(TRACE_SOURCES)}. Name one of them.")
    if (address := url or TRACE_STORES[store].find_address(environ)) is None:
        raise SettingError(f"{store}: name the address with --url, or set {TRACE_STORES[store].address_variables[0]}.")
    begin, end = _read_moment("since", since), _format(datetime.now(UTC) - SETTLING)
    if until is not None:
        end = _read_moment("until", until)
    path, address = Path(out), check_base_url(address)
    headers = TRACE_STORES[store].read_headers(environ)
    wanted = FetchState(store, address, project or source.project, since=begin, until=begin)
    before = _find_state(path, wanted)
    state = before
    windows = list(_divide(before.until, end, by))
    if not windows:
        return FetchResult(path, state, before)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        # What stands behind is of a window that broke off.
        file.truncate(before.bytes)
        _write_state(path, before)
        for piece in iterate_async(_read_windows(source, wanted, windows, headers)):
            content = b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in piece.records)
            file.write(content)
            state = replace(
                state,
                bytes=state.bytes + len(content),
                traces=state.traces + piece.traces,
                records=state.records + len(piece.records),
                empty=state.empty + piece.empty,
            )
            if piece.end is not None:
                state = replace(state, until=_format(piece.end))
                file.flush()
                os.fsync(file.fileno())
                # Only now is the window part of the file.
                _write_state(path, state)
                if watch is not None:
                    watch(state)
    return FetchResult(path, state, before)


def _state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.fetched.json")


def _write_state(path: Path, state: FetchState) -> None:
    write_json(_state_path(path), {name: getattr(state, name) for name in FetchState.__slots__})


def _read_moment(name: str, text: str) -> str:
    if (moment := normalize_time(text)) is None:
        raise SettingError(f"{name} = {text!r}: write ISO 8601, such as 2026-11-20 or 2026-11-20T10:00:00Z.")
    return moment


def _find_state(path: Path, wanted: FetchState) -> FetchState:
    """Return what a file holds by an earlier fetch; raise where it is of something else."""
    if not _state_path(path).is_file():
        if path.exists() and path.stat().st_size:
            raise UserError(f"{path}: exists, and no fetch wrote it. Name another file, or remove it.")
        return wanted
    state = parse_dataclass(FetchState, parse_json_object(_state_path(path).read_bytes()))
    for name in ("store", "address", "project"):
        if (earlier := getattr(state, name)) != getattr(wanted, name):
            raise SettingError(
                f"{path}: holds traces of {name} {earlier}. Name another file for {getattr(wanted, name)}."
            )
    if (to_microseconds(wanted.since) or 0) < (to_microseconds(state.since) or 0):
        raise SettingError(f"{path}: begins at {state.since}. Name another file for what came before.")
    if not path.is_file() or path.stat().st_size < state.bytes:
        raise UserError(f"{path}: is shorter than it was fetched. Name another file, or remove {_state_path(path)}.")
    return state


def _divide(since: str, until: str, by: str) -> Iterator[tuple[datetime, datetime]]:
    """Yield the windows between two moments, cut at multiples of their length."""
    length, offset = read_window_length(by)
    start, end = (to_microseconds(moment) or 0 for moment in (since, until))
    while start < end:
        following = min((start - offset) // length * length + offset + length, end)
        yield to_datetime(start), to_datetime(following)
        start = following


class _Piece(NamedTuple):
    """Some of the records of a window."""

    records: list[JsonObject]
    traces: int
    empty: int
    end: datetime | None
    """Moment up to which the window is complete with this piece; None before its last one."""


async def _read_windows(
    source: TraceSource, wanted: FetchState, windows: Sequence[tuple[datetime, datetime]], headers: Mapping[str, str]
) -> AsyncGenerator[_Piece, None]:
    """Yield the records of the windows, some traces at a time."""
    async with HttpClient(wanted.address, headers, largest=_MOST_BYTES) as http:
        client = StoreClient(http, wanted.address, _OUTAGE)
        for since, until in windows:
            window = _Window(wanted.project, since, until)
            try:
                ids = await source.list_ids(client, window)
                step = source.batch * _CONCURRENCY
                for start in range(0, len(ids), step):
                    yield await _read_some(source, client, window, ids[start : start + step])
            except StoreRefusal as refusal:
                problem = str(refusal).rstrip(".")
                raise UserError(f"{wanted.address}: {_OUTAGE[0]} from {_format(since)} on ({problem}).") from None
            yield _Piece([], 0, 0, until)


async def _read_some(source: TraceSource, client: StoreClient, window: _Window, ids: Sequence[str]) -> _Piece:
    """Return the records of some traces, in the order of their ids."""
    batches = [ids[start : start + source.batch] for start in range(0, len(ids), source.batch)]
    parts = await asyncio.gather(*(source.read(client, window, batch) for batch in batches))
    records = {trace_id: part.get(trace_id) for part, batch in zip(parts, batches, strict=True) for trace_id in batch}
    return _Piece(
        [record for trace_id in ids for record in records[trace_id] or ()],
        traces=sum(bool(found) for found in records.values()),
        empty=sum(found is None for found in records.values()),
        end=None,
    )
