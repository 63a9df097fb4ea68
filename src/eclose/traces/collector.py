"""A collector for OTLP over HTTP on this machine: it writes the traces of programs to a file, and judges nothing.

A request is answered only after its line is on disk, so that an acknowledged span survives a crash. Lines that wait
are written together and share one fsync. Only loopback addresses are served: there is no authentication.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, UserError
from eclose.loopback import listen_for_stop_signals, require_loopback, start_listening
from eclose.store.records.atomic import sync_folder
from eclose.store.records.strict_json import RECORD_LIMIT, parse_json_object
from eclose.traces.otlp import RESOURCE_KEYS, read_otlp_record
from eclose.traces.otlp_protobuf import decode_trace_request, encode_status
from eclose.traces.spans import Span

try:
    from aiohttp import web
except ImportError as missing:
    raise UserError("the collector needs aiohttp. Run: pip install 'eclose[otel]'") from missing

# Windows has no such lock.
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

DEFAULT_PORT = 4318
"""Port to which OpenTelemetry sends traces over HTTP unless told otherwise."""
MAX_BODY_BYTES = 16 * 2**20
"""Largest request in bytes, after unpacking."""
MAX_QUEUE_BYTES = 64 * 2**20
"""Most bytes of lines that wait for the disk; more requests are sent away with status 429."""
SHUTDOWN_GRACE_SECONDS = 5.0
"""Seconds that requests under way have when the collector stops."""
RETRY_SECONDS = 1
"""Seconds after which a client that was sent away should try again."""
JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/x-protobuf"
# Codes of google.rpc, which OTLP uses in the body of an error.
_INVALID_ARGUMENT = 3
_RESOURCE_EXHAUSTED = 8
_UNAVAILABLE = 14
_TAIL_CHUNK = 2**16


class QueueFullError(Exception):
    """More lines wait for the disk than memory is set aside for."""


@dataclass(slots=True)
class CollectorCounts:
    """What a collector received since it started."""

    requests: int = 0
    spans: int = 0
    """Spans that are on disk."""
    refused: int = 0
    """Requests that were not stored, each answered with a reason."""


class DurableLines:
    """A file to which lines are appended durably by a thread of its own. A context manager.

    Every line that waits is written with one fsync. A write that fails, as on a full disk, is undone and refused as a
    whole, so that the file never holds half a line.
    """

    def __init__(self, path: Path, *, max_queue_bytes: int = MAX_QUEUE_BYTES) -> None:
        self.path = path
        self.cut_bytes = 0
        """Bytes of an unacknowledged line that a crash had left at the end of the file, and that were removed."""
        self._max_queue_bytes = max_queue_bytes
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0
        self._changed = Condition()
        self._closing = False

    def __enter__(self) -> Self:
        """Open the file, remove half a line at its end, and start the thread."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(self.path, "a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}).") from error
        try:
            _lock(self._file, self.path)
            self._repair_end()
            # A disk that fails here fails for the lines too, and their requests are then refused with the reason.
            with suppress(OSError):
                sync_folder(self.path.parent)
        except BaseException:
            self._file.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="eclose-collector", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what waits, then close the file."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._file.close()

    async def append(self, line: bytes) -> None:
        """Append a line and return when it is on disk.

        Raises:
            QueueFullError: Too many bytes wait already.
            OSError: The disk refused the line; nothing of it is in the file.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            if self._closing or self._waiting_bytes + len(line) > self._max_queue_bytes:
                raise QueueFullError
            self._waiting.append((line, future))
            self._waiting_bytes += len(line)
            self._changed.notify()
        await future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                batch = list(self._waiting)
                self._waiting.clear()
            failure = self._write([line for line, _ in batch])
            with self._changed:
                # Bytes count until they are on disk: those under way are in memory, too.
                self._waiting_bytes -= sum(len(line) for line, _ in batch)
            with suppress(RuntimeError):  # the loop is closed: no request waits for the answer
                self._loop.call_soon_threadsafe(_settle, [future for _, future in batch], failure)

    def _write(self, lines: list[bytes]) -> OSError | None:
        """Write and sync lines; return the error where the disk refused them, with the file as it was before."""
        start = self._file.seek(0, os.SEEK_END)
        try:
            data = memoryview(b"".join(lines))
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(start)
            return error
        return None

    def _repair_end(self) -> None:
        """Remove half a line at the end of the file, or end a whole one that lacks its line break."""
        end = self._file.seek(0, os.SEEK_END)
        start, tail = end, b""
        while start and b"\n" not in tail:
            size = min(_TAIL_CHUNK, start)
            start -= size
            self._file.seek(start)
            tail = self._file.read(size) + tail
        last = tail.rpartition(b"\n")[2]
        if not last:
            return
        try:
            parse_json_object(last)
        except RecordError:
            self.cut_bytes = len(last)
            self._file.truncate(end - len(last))
        else:
            self._file.write(b"\n")
        os.fsync(self._file.fileno())


def _settle(futures: list[asyncio.Future[None]], failure: OSError | None) -> None:
    for future in futures:
        if future.done():  # the client left
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(OSError(failure.errno, failure.strerror))


def _lock(file: BinaryIO, path: Path) -> None:
    """Raise where another collector writes to the file; two would mix their lines when undoing a failed write."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(f"{path}: another collector writes to it. Stop that one, or name another file.") from error


class TraceCollector:
    """The endpoint ``/v1/traces`` of one running collector."""

    def __init__(self, lines: DurableLines, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.url = ""
        """Where programs send traces: the value of ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        self.counts = CollectorCounts()
        self._lines = lines
        self._max_body_bytes = max_body_bytes

    def application(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(client_max_size=self._max_body_bytes)
        app.router.add_post("/v1/traces", self._traces)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        return app

    async def _unknown(self, request: web.Request) -> web.Response:
        return self._refuse(
            request, 404, _INVALID_ARGUMENT, f"there is no {request.method} {request.path} here: POST /v1/traces."
        )

    async def _traces(self, request: web.Request) -> web.Response:
        """Store a request and acknowledge it, or say why not."""
        self.counts.requests += 1
        # A page in a browser cannot send these types to another origin without being asked first.
        if request.content_type not in (JSON_TYPE, PROTOBUF_TYPE):
            problem = f"send {JSON_TYPE} or {PROTOBUF_TYPE}, not {request.content_type}."
            return self._refuse(request, 415, _INVALID_ARGUMENT, problem)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            problem = f"the request is larger than {self._max_body_bytes:,} bytes. Send smaller batches."
            return self._refuse(request, 413, _RESOURCE_EXHAUSTED, problem)
        try:
            record = decode_trace_request(body) if request.content_type == PROTOBUF_TYPE else parse_json_object(body)
            spans = _count_spans(record)
        except UserError as error:
            return self._refuse(request, 400, _INVALID_ARGUMENT, str(error))
        if spans:
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
            # Escapes make JSON longer than protobuf; a longer line could not be read again.
            if len(line) >= RECORD_LIMIT:
                problem = f"the request takes more than {RECORD_LIMIT:,} bytes as JSON. Send smaller batches."
                return self._refuse(request, 413, _RESOURCE_EXHAUSTED, problem)
            try:
                await self._lines.append(line + b"\n")
            except QueueFullError:
                return self._refuse(request, 429, _RESOURCE_EXHAUSTED, "the disk is behind; try again.", retry=True)
            except OSError as error:
                problem = f"the traces cannot be written ({error.strerror})."
                return self._refuse(request, 503, _UNAVAILABLE, problem, retry=True)
            self.counts.spans += spans
        is_protobuf = request.content_type == PROTOBUF_TYPE
        # An empty response message is full success: no bytes in protobuf.
        return web.Response(body=b"" if is_protobuf else b"{}", content_type=request.content_type)

    def _refuse(
        self, request: web.Request, status: int, code: int, message: str, *, retry: bool = False
    ) -> web.Response:
        self.counts.refused += 1
        headers = {"Retry-After": str(RETRY_SECONDS)} if retry else None
        if request.content_type == PROTOBUF_TYPE:
            body = encode_status(code, message)
            return web.Response(status=status, body=body, content_type=PROTOBUF_TYPE, headers=headers)
        return web.json_response({"code": code, "message": message}, status=status, headers=headers)


def _count_spans(record: dict[str, Any]) -> int:
    """Return the number of spans of a request; raise where one cannot be read."""
    if not any(key in record for key in RESOURCE_KEYS) and record:
        raise RecordError("resourceSpans: is missing.")
    spans = list(read_otlp_record(record)) if record else []
    for span in spans:
        if not isinstance(span, Span):
            raise span
    return len(spans)


@asynccontextmanager
async def open_collector(
    out: Path,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_queue_bytes: int = MAX_QUEUE_BYTES,
) -> AsyncIterator[TraceCollector]:
    """Run a collector for the duration of the block.

    Args:
        out: File to which traces are appended, one request a line (OTLP JSON Lines).
        host: Loopback address to listen at.
        port: Port to listen at; 0 takes any free one.
        max_body_bytes: Largest request in bytes.
        max_queue_bytes: Most bytes that may wait for the disk.

    Raises:
        SettingError: The address is not of this machine, or is in use.
        UserError: The file cannot be written, or another collector writes to it.
    """
    address = require_loopback(host, "collector")
    with DurableLines(out, max_queue_bytes=max_queue_bytes) as lines:
        collector = TraceCollector(lines, max_body_bytes=max_body_bytes)
        runner = web.AppRunner(collector.application(), access_log=None, shutdown_timeout=SHUTDOWN_GRACE_SECONDS)
        await runner.setup()
        try:
            collector.url = await start_listening(runner, address, port)
            if lines.cut_bytes:
                sys.stderr.write(
                    f"{out}: removed {lines.cut_bytes:,} bytes of a request that was never acknowledged.\n"
                )
            yield collector
        finally:
            await runner.cleanup()


def run_collector(out: Path, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> CollectorCounts:
    """Collect until SIGTERM or SIGINT; return what was received. When ready, print one line with the URL."""
    return asyncio.run(_run(out, host, port))


async def _run(out: Path, host: str, port: int) -> CollectorCounts:
    stop = listen_for_stop_signals()
    async with open_collector(out, host=host, port=port) as collector:
        sys.stdout.write(f"collecting at {collector.url}/v1/traces into {out}\n")
        sys.stdout.flush()
        await stop.wait()
    return collector.counts
