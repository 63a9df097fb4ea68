"""Group commits: many tasks write, one thread commits for all of them at once.

A commit that reaches the disk takes milliseconds, however little it holds. A writer therefore waits for the next
commit, which takes everything that has queued up meanwhile. A server that goes away is waited for, and what was queued
is written when it is back. Knows connections and jobs, nothing of what they write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
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
"""Seconds a server that answered before may stay away or silent until a run on it stops."""
MAX_OUTAGE_SECONDS_AFTER_STOP = 10.0
"""The same once a run was asked to stop."""
_SILENCE = 10.0
"""Seconds without an answer after which a warning is given."""
_PAUSE = 0.5
"""Seconds between two attempts to reach a server."""
# Bounds how long a commit takes, and with it how long a writer waits for one: about 0.2 s when all of them write.
_MOST = 512
# Workers wrote the same keys in different orders, and one transaction was ended for the other's sake (serialization
# failure, deadlock). Jobs that go alone, one by one, cannot get entangled.
_ENTANGLED = {"40001", "40P01"}
# Of a database's errors, those that are the job's own. With the others no job would fare better.
_FAULTS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
# A server that shuts down, starts up, has no connection free, or gave up on a statement. Class 08 is the connection.
_AWAY = {"57P01", "57P02", "57P03", "57P05", "53300", "57014"}

_log = logging.getLogger("eclose.ledger")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A job that is repeated for as long as the commits are open, whether or not anything else is written."""

    job: DatabaseJob[None]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Queued(Generic[T]):
    job: DatabaseJob[T]
    done: asyncio.Future[T] | None
    """None for a beat, which has no waiter."""

    @property
    def withdrawn(self) -> bool:
        return self.done is not None and self.done.cancelled()


class _FaultyJobError(Exception):
    """A job that cannot be done, in the midst of others that can."""

    def __init__(self, queued: _Queued[Any], error: Exception) -> None:
        self.queued = queued
        self.error = error


class GroupCommitter:
    """Runs jobs in the order they came, in transactions of many, in a thread that has the database to itself.

    A job may be run more than once: in transactions that were rolled back, and after a connection that was lost at its
    commit, which may have been made. It refuses by a UserError, which is for its own waiter; what it wrote stays. A
    PostgreSQL server that has answered once may then stay away for ``patience`` seconds.
    """

    def __init__(self, engine: Engine, place: str, *, patience: float = 0.0, beat: Heartbeat | None = None) -> None:
        self._engine = engine
        self._place = place
        self._queue: SimpleQueue[_Queued[Any] | None] = SimpleQueue()
        self._open = True
        self._outage = _Outage(engine, place, patience)
        self._beat = beat
        self._beat_at = time.monotonic() + (beat.seconds if beat else 0.0)
        # A daemon: a job without a waiter must not keep a dying process alive.
        self._thread = Thread(target=self._work, name=f"commits of {place}", daemon=True)
        self._thread.start()

    async def run(self, job: DatabaseJob[T]) -> T:
        """Return the job's result once committed. A waiter that is cancelled withdraws a job that has not begun."""
        return await self._put(job)

    async def run_anyway(self, job: DatabaseJob[T]) -> T:
        """Do the same for what must not be lost: it is done even when the waiter is cancelled."""
        return await asyncio.shield(self._put(job))

    def shorten_waits(self) -> None:
        """Wait only a short time more for a server that is away: the run was asked to stop."""
        self._outage.shorten_waits()

    def close(self) -> None:
        """Finish what is queued. Blocks, so that no cancellation comes between."""
        if self._open:
            self._open = False
            self._queue.put(None)
            self._thread.join()
            self._outage.close()

    def _put(self, job: DatabaseJob[T]) -> asyncio.Future[T]:
        if not self._open:
            raise RuntimeError(f"{self._place} is closed")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(_Queued(job, done))
        return done

    def _work(self) -> None:
        while self._open or not self._queue.empty():
            batch = [queued for queued in self._take() if not queued.withdrawn]
            try:
                self._commit(batch)
            except Exception as error:  # every waiter must hear of it
                _tell(batch, [error] * len(batch))
        self._engine.dispose()

    def _take(self) -> list[_Queued[Any]]:
        """Return everything queued, once there is anything, and the beat where it is due."""
        batch: list[_Queued[Any] | None] = []
        with suppress(Empty):
            batch.append(self._queue.get(timeout=None if self._beat is None else self._until_beat()))
            while len(batch) < _MOST:
                batch.append(self._queue.get_nowait())
        if self._beat is not None and self._until_beat() == 0 and self._open:
            self._beat_at = time.monotonic() + self._beat.seconds
            batch.insert(0, _Queued(self._beat.job, None))
        return [queued for queued in batch if queued is not None]

    def _until_beat(self) -> float:
        return max(0.0, self._beat_at - time.monotonic())

    def _commit(self, batch: list[_Queued[Any]]) -> None:
        while batch:
            if (end := self._outage.end_of_run) is not None:
                return _tell(batch, [end] * len(batch))
            try:
                self._outage.begin()
                results = self._transact(batch)
                self._outage.end()
                return _tell(batch, results)
            except _FaultyJobError as faulty:
                self._outage.end()
                batch.remove(faulty.queued)
                _tell([faulty.queued], [faulty.error])
            except DBAPIError as error:
                if self._outage.waits_after(error):
                    batch = [queued for queued in batch if not queued.withdrawn]
                    continue
                if len(batch) == 1 or _sqlstate(error) not in _ENTANGLED:
                    return _tell(batch, [self._outage.failure(error) for _ in batch])
                for queued in batch:
                    self._commit([queued])
                return None
        return None

    def _transact(self, batch: list[_Queued[Any]]) -> list[Any]:
        with self._engine.begin() as connection:
            return [_attempt(queued, connection) for queued in batch]


class _Outage:
    """How long a server has been away, and whether it is waited for.

    A server that is frozen keeps its sockets open and says nothing, which no time-out of the transport notices. A
    thread warns of the silence, and hangs up when it has lasted too long.
    """

    def __init__(self, engine: Engine, place: str, patience: float) -> None:
        self._place = place
        self._patience = patience if engine.dialect.name == "postgresql" else 0.0
        self._answered = False
        """Whether the database ever answered: one that never did is a mistake in its name, and not waited for."""
        self._since: float | None = None
        """When the first transaction began that got no answer."""
        self._hurried = inf
        """When the run was asked to stop."""
        self._began: float | None = None
        """When the transaction under way began."""
        self._warned = False
        self.end_of_run: Resumable | None = None
        """Set once the server is given up: nothing is tried any more, and the run ends without further delay."""
        self._closed = Event()
        self._driver: Any = None
        if self._patience:
            event.listen(engine, "connect", self._connected)
            Thread(target=self._watch, name=f"silence of {place}", daemon=True).start()

    def _connected(self, driver: Any, _record: Any) -> None:
        self._driver = driver

    def begin(self) -> None:
        """Note that a transaction begins."""
        self._began = time.monotonic()

    def end(self) -> None:
        """Note that the database answered."""
        if self._warned:
            _log.warning("%s: answers again.", self._place)
        self._answered, self._began, self._since, self._warned = True, None, None, False

    def shorten_waits(self) -> None:
        """Give a server that is away a short time from now on."""
        self._hurried = min(self._hurried, time.monotonic())

    def close(self) -> None:
        self._closed.set()

    def waits_after(self, error: DBAPIError) -> bool:
        """Pause and return True where the same transaction should be tried again."""
        if self._since is None and _is_away(error):
            self._since = self._began
        self._began = None
        if not (self._patience and self._answered and _is_away(error)) or time.monotonic() >= self._end():
            return False
        self._warn(f"cannot be reached ({_sentence(error)})")
        time.sleep(_PAUSE)
        return True

    def failure(self, error: DBAPIError) -> UserError:
        """Return what the waiters are told."""
        if self._patience and self._answered and _is_away(error):
            seconds = time.monotonic() - (self._since or time.monotonic())
            self.end_of_run = Resumable(
                f"{self._place}: did not answer for {seconds:.0f} s ({_sentence(error)}). What is done is kept: run "
                "the same command again to go on once the database is back."
            )
            return self.end_of_run
        kind = Resumable if self._answered else UserError
        return kind(
            f"{self._place}: cannot be read or written now ({_sentence(error)}). Put that right and start again: "
            "what was finished before is kept."
        )

    def _end(self) -> float:
        """Return when the server is given up."""
        since = self._since if self._since is not None else self._began
        since = time.monotonic() if since is None else since
        return min(since + self._patience, max(since, self._hurried) + MAX_OUTAGE_SECONDS_AFTER_STOP)

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            left = max(0.0, self._end() - time.monotonic())
            _log.warning(
                "%s: %s. Waiting up to %.0f s for it; replies that have come back are kept meanwhile.",
                self._place,
                problem,
                left,
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
        """End the connection, so that the thread that waits for its answer wakes up with an error."""
        with suppress(Exception):  # the connection may be closed by now
            if self._driver is not None and not self._driver.closed:
                with socket.socket(fileno=os.dup(self._driver.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)


def _is_away(error: DBAPIError) -> bool:
    """Return whether the server, and not the statement, is the problem."""
    if isinstance(error, _FAULTS):
        return False
    state = _sqlstate(error)
    return state is None or state.startswith("08") or state in _AWAY


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _attempt(queued: _Queued[T], connection: Connection) -> T | UserError:
    try:
        return queued.job(connection)
    except UserError as refusal:
        return refusal
    except Exception as error:
        if isinstance(error, DBAPIError) and not isinstance(error, _FAULTS):
            raise
        raise _FaultyJobError(queued, error) from error


def _tell(batch: list[_Queued[Any]], results: list[Any]) -> None:
    """Wake the waiters, all at once: what they ask for next is then queued together too."""
    pairs = [(queued.done, result) for queued, result in zip(batch, results, strict=True) if queued.done is not None]
    if pairs:
        # A loop that is gone has no waiters left.
        with suppress(RuntimeError):
            pairs[0][0].get_loop().call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in pairs:
        if done.done():
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)


def _sentence(error: DBAPIError) -> str:
    """Return what the database says, in one line."""
    return " ".join(str(error.orig).split())
