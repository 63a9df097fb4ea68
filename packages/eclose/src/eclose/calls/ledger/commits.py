"""Group commit: one thread commits the writes of many tasks in shared transactions.

A commit that reaches the disk takes milliseconds, however little it contains. Jobs are therefore queued, and every
commit takes all jobs that are waiting. While a server is away or a disk is full, the jobs stay queued, and are
committed afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from sqlalchemy import event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from eclose.errors import Resumable, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

T = TypeVar("T")
DatabaseJob: TypeAlias = "Callable[[Connection], T]"

MAX_OUTAGE_SECONDS = 120.0
"""Longest outage or silence of a server that answered before, in seconds; then the run stops."""
MAX_OUTAGE_SECONDS_AFTER_STOP = 10.0
"""The same after the run was asked to stop."""
_SILENCE = 10.0
"""Seconds without an answer until a warning is logged."""
_PAUSE = 0.5
"""Seconds between two attempts to reach a server."""
# Bounds the duration of a commit, and so the wait for one: about 0.2 s where all 512 jobs write.
_MAX_BATCH = 512
# Serialization failure and deadlock: processes wrote the same keys in different orders, and the server rolled one
# transaction back. Jobs are then committed one by one, and a job that conflicts even so is repeated.
_CONFLICTS = {"40001", "40P01"}
_MAX_JOURNAL = 8_192
"""Jobs that are held for a replica that takes over: three a call."""
_MAX_CONFLICTS = 8
"""Conflicts of a single job in a row after which it fails. The server waits a second before it reports a deadlock."""
# Errors that a job causes itself. All others would hit every job alike, as does a missing table (42P01).
_JOB_ERRORS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
_NO_TABLE = "42P01"
# The server shuts down, starts up, has no free connection or no space, or cancelled a statement. Class 08: connection
# errors.
_AWAY = {"57P01", "57P02", "57P03", "57P05", "53100", "53300", "57014", "58030"}
_SQLITE_AWAY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_RESTARTING = {"57P01", "57P02", "57P03"}

_log = logging.getLogger("eclose.ledger")


@dataclass(frozen=True, slots=True, eq=False)
class _Queued(Generic[T]):
    job: DatabaseJob[T]
    future: asyncio.Future[T] | None
    """Future of the waiting task; None for a heartbeat."""

    @property
    def withdrawn(self) -> bool:
        return self.future is not None and self.future.cancelled()


class _FaultyJobError(Exception):
    """One job of a batch failed by itself; the others can be committed without it."""

    def __init__(self, queued: _Queued[Any], error: Exception) -> None:
        self.queued = queued
        self.error = error


class CommitJournal:
    """The latest jobs of a committer: those that a replica lacks when it takes over are run again.

    ``read`` returns the number of the last commit that the database has, None where it is another database. ``write``
    stores the number of the current commit, and returns False where its transaction has only read.
    """

    def __init__(self, engine: Engine, read: DatabaseJob[int | None], write: Callable[[Connection, int], bool]) -> None:
        self._read, self._write = read, write
        self._commits: deque[tuple[int, list[DatabaseJob[Any]]]] = deque()
        self._jobs = 0
        self._dropped = 0
        """Number of the last commit whose jobs are not held any more."""
        self._last = 0
        """Number of the last attempt to commit."""
        self._is_new = False
        """Whether nothing was committed over the current connection yet."""
        event.listen(engine, "connect", self._connected)

    def _connected(self, _driver: Any, _record: Any) -> None:
        self._is_new = True

    def restore(self, connection: Connection, label: str) -> None:
        """Run the jobs again whose commits the database lacks; raise where they are not known any more."""
        if not (self._is_new and self._commits):
            return
        stored = self._read(connection)
        if stored is None or stored < self._dropped:
            raise _lost_rows(label)
        lost = [jobs for number, jobs in self._commits if number > stored]
        for job in (job for jobs in lost for job in jobs):
            with suppress(UserError):
                job(connection)
        if lost:
            _log.warning("%s: lacked the last %d commits of this run, which were repeated.", label, len(lost))

    def number(self, connection: Connection) -> int | None:
        """Store a number for the current commit and return it; None where its transaction has only read."""
        self._last += 1  # also after a failure: a commit in doubt keeps its number for itself
        return self._last if self._write(connection, self._last) else None

    def add(self, number: int | None, batch: list[_Queued[Any]]) -> None:
        """Hold the jobs of a commit."""
        self._is_new = False
        if number is not None:
            self._commits.append((number, [queued.job for queued in batch]))
            self._jobs += len(batch)
        while self._jobs > _MAX_JOURNAL and len(self._commits) > 1:
            self._dropped, jobs = self._commits.popleft()
            self._jobs -= len(jobs)


class GroupCommitter:
    """Runs jobs in the order of their arrival, many in a transaction, in a thread of its own.

    A job may be executed more than once: after a rollback, and after a connection that was lost at the commit, which
    may have taken effect. A job refuses by raising a UserError for its own waiter; what it wrote before is committed.
    After its first answer, a database may be away, or without space, for ``max_outage`` seconds.
    """

    def __init__(
        self,
        engine: Engine,
        label: str,
        *,
        max_outage: float = 0.0,
        beat: DatabaseJob[None] | None = None,
        beat_seconds: float = inf,
        journal: CommitJournal | None = None,
    ) -> None:
        self._engine = engine
        self._label = label
        self._queue: SimpleQueue[_Queued[Any] | None] = SimpleQueue()
        self._open = True
        self._outage = _Outage(engine, label, max_outage)
        self._beat = beat
        """A job that is repeated until the committer is closed."""
        self._beat_seconds = beat_seconds
        self._beat_at = time.monotonic() + beat_seconds
        self._journal = journal
        # A daemon thread: a heartbeat must not keep a process alive whose main thread has ended.
        self._thread = Thread(target=self._work, name=f"commits of {label}", daemon=True)
        self._thread.start()

    async def run(self, job: DatabaseJob[T]) -> T:
        """Return the job's result once it is committed. Cancelling the wait withdraws a job that has not started."""
        return await self._put(job)

    async def run_anyway(self, job: DatabaseJob[T]) -> T:
        """Run a job that must not be lost: it is committed even when the wait is cancelled."""
        return await asyncio.shield(self._put(job))

    def shorten_waits(self) -> None:
        """Shorten the wait for a server that is away: the run was asked to stop."""
        self._outage.shorten_waits()

    def close(self) -> None:
        """Commit all queued jobs. Blocks the event loop, so that no cancellation can interrupt it."""
        if self._open:
            self._open = False
            self._queue.put(None)
            self._thread.join()
            self._outage.close()

    def _put(self, job: DatabaseJob[T]) -> asyncio.Future[T]:
        if not self._open:
            raise RuntimeError(f"{self._label} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(_Queued(job, future))
        return future

    def _work(self) -> None:
        while self._open or not self._queue.empty():
            batch = [queued for queued in self._take() if not queued.withdrawn]
            try:
                self._commit(batch)
            except Exception as error:  # every waiting task must get it, or it would wait forever
                _deliver_results(batch, [error] * len(batch))
        self._engine.dispose()

    def _take(self) -> list[_Queued[Any]]:
        """Wait for jobs; return all that are queued, after the heartbeat where it is due."""
        batch: list[_Queued[Any] | None] = []
        with suppress(Empty):
            batch.append(self._queue.get(timeout=None if self._beat is None else self._until_beat()))
            while len(batch) < _MAX_BATCH:
                batch.append(self._queue.get_nowait())
        if self._beat is not None and self._until_beat() == 0 and self._open:
            self._beat_at = time.monotonic() + self._beat_seconds
            batch.insert(0, _Queued(self._beat, None))
        return [queued for queued in batch if queued is not None]

    def _until_beat(self) -> float:
        return max(0.0, self._beat_at - time.monotonic())

    def _commit(self, batch: list[_Queued[Any]]) -> None:
        conflicts = 0
        while batch:
            if (end := self._outage.end_of_run) is not None:
                return _deliver_results(batch, [end] * len(batch))
            try:
                self._outage.begin()
                results = self._transact(batch)
                self._outage.end()
                return _deliver_results(batch, results)
            except _FaultyJobError as faulty:
                self._outage.end()
                batch.remove(faulty.queued)
                _deliver_results([faulty.queued], [faulty.error])
            except UserError as lost:
                self._outage.end()
                return _deliver_results(batch, [lost] * len(batch))
            except DBAPIError as error:
                if self._outage.waits_after(error):
                    batch = [queued for queued in batch if not queued.withdrawn]
                    continue
                if _sqlstate(error) in _CONFLICTS and len(batch) == 1 and conflicts < _MAX_CONFLICTS:
                    conflicts += 1
                    continue
                if len(batch) == 1 or _sqlstate(error) not in _CONFLICTS:
                    return _deliver_results(batch, [self._outage.failure(error) for _ in batch])
                for queued in batch:
                    self._commit([queued])
                return None
        return None

    def _transact(self, batch: list[_Queued[Any]]) -> list[Any]:
        journal = self._journal
        with self._engine.begin() as connection:
            if journal is not None:
                journal.restore(connection, self._label)
            results = [_attempt(queued, connection) for queued in batch]
            number = None if journal is None else journal.number(connection)
        if journal is not None:
            journal.add(number, batch)
        return results


class _Outage:
    """Measures the outage of a server, and decides whether to wait for it.

    A frozen server keeps its sockets open and sends nothing, which no timeout of the transport detects. A thread logs
    a warning about the silence, and closes the connection when it has lasted too long.
    """

    def __init__(self, engine: Engine, label: str, max_outage: float) -> None:
        self._label = label
        self._max_outage = max_outage
        self._answered = False
        """Whether the server ever answered; one that never did probably has a wrong URL, and is not waited for."""
        self._since: float | None = None
        """Start of the first transaction without an answer."""
        self._stop_requested = inf
        """When the run was asked to stop."""
        self._began: float | None = None
        """Start of the current transaction."""
        self._warned = False
        self.end_of_run: Resumable | None = None
        """The error that ends the run, set once the server is given up; all further jobs fail with it at once."""
        self._closed = Event()
        self._driver: Any = None
        if self._max_outage and engine.dialect.name == "postgresql":
            event.listen(engine, "connect", self._connected)
            Thread(target=self._watch, name=f"silence of {label}", daemon=True).start()

    def _connected(self, driver: Any, _record: Any) -> None:
        self._driver = driver
        self._answered = True

    def begin(self) -> None:
        """Record the start of a transaction."""
        self._began = time.monotonic()

    def end(self) -> None:
        """Record an answer of the database."""
        if self._warned:
            _log.warning("%s: answers again.", self._label)
        self._answered, self._began, self._since, self._warned = True, None, None, False

    def shorten_waits(self) -> None:
        """Shorten the wait for the server from now on."""
        self._stop_requested = min(self._stop_requested, time.monotonic())

    def close(self) -> None:
        self._closed.set()

    def waits_after(self, error: DBAPIError) -> bool:
        """Pause and return True where the transaction should be repeated; return False where it failed for good."""
        if self._since is None and _is_away(error):
            self._since = self._began
        self._began = None
        # A server that starts, stops or recovers refuses connections. Such a refusal has no SQLSTATE in psycopg, so the
        # server's own words are all there is.
        restarts = _sqlstate(error) in _RESTARTING or "FATAL:  the database system is " in str(error.orig)
        self._answered = self._answered or restarts
        if not (self._max_outage and self._answered and _is_away(error)) or time.monotonic() >= self._end():
            return False
        self._warn(f"cannot be used now ({_sentence(error)})")
        time.sleep(_PAUSE)
        return True

    def failure(self, error: DBAPIError) -> UserError:
        """Return the error for the waiting tasks."""
        if _sqlstate(error) == _NO_TABLE:
            return _lost_rows(self._label)
        if self._max_outage and self._answered and _is_away(error):
            seconds = time.monotonic() - (self._since or time.monotonic())
            self.end_of_run = Resumable(
                f"{self._label}: did not answer for {seconds:.0f} s ({_sentence(error)}). Finished work is kept: run "
                "the same command again once the database is back."
            )
            return self.end_of_run
        kind = Resumable if self._answered else UserError
        return kind(
            f"{self._label}: cannot be read or written now ({_sentence(error)}). Put that right and start again: "
            "what was finished before is kept."
        )

    def _end(self) -> float:
        since = self._since if self._since is not None else self._began
        since = time.monotonic() if since is None else since
        return min(since + self._max_outage, max(since, self._stop_requested) + MAX_OUTAGE_SECONDS_AFTER_STOP)

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            remaining = max(0.0, self._end() - time.monotonic())
            _log.warning(
                "%s: %s. Waiting up to %.0f s for it; replies that have come back are kept meanwhile.",
                self._label,
                problem,
                remaining,
            )

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            began = self._began
            if began is None or not self._answered:
                continue
            now = time.monotonic()
            if now >= began + _SILENCE:
                self._warn(f"has not answered for {now - began:.0f} s")
            if now >= self._end():
                self._hang_up()

    def _hang_up(self) -> None:
        """Shut the socket down, so that the thread that waits for an answer gets an error."""
        with suppress(Exception):  # the connection may be closed already
            if self._driver is not None and not self._driver.closed:
                # A duplicate descriptor, since closing this socket object would close the driver's own.
                with socket.socket(fileno=os.dup(self._driver.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)


def _lost_rows(label: str) -> Resumable:
    return Resumable(
        f"{label}: the database was replaced by one that lost rows of this run, as by a failover. Bring it back and run"
        " the same command again: without the rows, replies are paid again."
    )


def _is_away(error: DBAPIError) -> bool:
    """Return whether the error is due to the server and not to the statement."""
    if _is_job_error(error):
        return False
    if isinstance(error.orig, sqlite3.Error):
        # The extended codes of a kind have its number in their last byte.
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _SQLITE_AWAY
    state = _sqlstate(error)
    return state is None or state.startswith("08") or state in _AWAY


def _is_job_error(error: DBAPIError) -> bool:
    return isinstance(error, _JOB_ERRORS) and _sqlstate(error) != _NO_TABLE


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _attempt(queued: _Queued[T], connection: Connection) -> T | UserError:
    try:
        return queued.job(connection)
    except UserError as refusal:
        return refusal
    except Exception as error:
        if isinstance(error, DBAPIError) and not _is_job_error(error):
            raise
        raise _FaultyJobError(queued, error) from error


def _deliver_results(batch: list[_Queued[Any]], results: list[Any]) -> None:
    """Wake all waiting tasks in one callback: their next jobs are then queued together, too."""
    pairs = [
        (queued.future, result) for queued, result in zip(batch, results, strict=True) if queued.future is not None
    ]
    if pairs:
        # A closed event loop has no waiting tasks.
        with suppress(RuntimeError):
            pairs[0][0].get_loop().call_soon_threadsafe(_resolve_futures, pairs)


def _resolve_futures(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _sentence(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())
