"""Group commits: many tasks write, one thread commits for all of them at once.

A commit that reaches the disk takes milliseconds, however little it holds. So a writer waits for the next commit, and
that takes everything that has queued up meanwhile. Knows connections and jobs, nothing of what they write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from eclosure.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine

T = TypeVar("T")
Job: TypeAlias = "Callable[[Connection], T]"

# Bounds how long a commit takes, and with it how long anybody waits for one: about 0.2 s when all of them write.
_MOST = 512
# Workers wrote the same keys in different orders, and one transaction was ended for the other's sake (serialization
# failure, deadlock). Jobs that go alone, one by one, cannot get entangled.
_ENTANGLED = {"40001", "40P01"}
# Of a database's errors, those that are the job's own. With the others no job would fare better.
_FAULTS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)


@dataclass(frozen=True, slots=True, eq=False)
class _Queued(Generic[T]):
    job: Job[T]
    done: asyncio.Future[T]


class _FaultyJobError(Exception):
    """A job that cannot be done, in the midst of others that can."""

    def __init__(self, queued: _Queued[Any], error: Exception) -> None:
        self.queued = queued
        self.error = error


class Commits:
    """Runs jobs in the order they came, in transactions of many, in a thread that has the database to itself.

    A job may be run more than once, in transactions that were taken back. It refuses by a UserError, which is for its
    own waiter; what it wrote before stays.
    """

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._place = place
        self._queue: SimpleQueue[_Queued[Any] | None] = SimpleQueue()
        self._open = True
        # A daemon: what nobody waits for any more must not keep a dying process alive.
        self._thread = Thread(target=self._work, name=f"commits of {place}", daemon=True)
        self._thread.start()

    async def run(self, job: Job[T]) -> T:
        """The job's result, once committed. A waiter that is cancelled withdraws a job that has not begun."""
        return await self._put(job)

    async def run_anyway(self, job: Job[T]) -> T:
        """The same for what must not be lost: it is done even when the waiter is cancelled."""
        return await asyncio.shield(self._put(job))

    def close(self) -> None:
        """Finish what is queued. Blocks, so that no cancellation comes between."""
        if self._open:
            self._open = False
            self._queue.put(None)
            self._thread.join()

    def _put(self, job: Job[T]) -> asyncio.Future[T]:
        if not self._open:
            raise RuntimeError(f"{self._place} is closed")
        queued: _Queued[T] = _Queued(job, asyncio.get_running_loop().create_future())
        self._queue.put(queued)
        return queued.done

    def _work(self) -> None:
        while self._open or not self._queue.empty():
            batch = [queued for queued in self._take() if not queued.done.cancelled()]
            try:
                self._commit(batch)
            except Exception as error:  # whatever it is, somebody waits to hear it
                _tell(batch, [error] * len(batch))
        self._engine.dispose()

    def _take(self) -> list[_Queued[Any]]:
        """Everything queued, once there is anything."""
        batch = [self._queue.get()]
        try:
            while len(batch) < _MOST:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return [queued for queued in batch if queued is not None]

    def _commit(self, batch: list[_Queued[Any]]) -> None:
        while batch:
            try:
                return _tell(batch, self._transact(batch))
            except _FaultyJobError as faulty:
                batch.remove(faulty.queued)
                _tell([faulty.queued], [faulty.error])
            except DBAPIError as error:
                if len(batch) == 1 or getattr(error.orig, "sqlstate", None) not in _ENTANGLED:
                    return _tell(batch, [self._failure(error) for _ in batch])
                for queued in batch:
                    self._commit([queued])
                return None
        return None

    def _transact(self, batch: list[_Queued[Any]]) -> list[Any]:
        with self._engine.begin() as connection:
            return [_attempt(queued, connection) for queued in batch]

    def _failure(self, error: DBAPIError) -> UserError:
        return UserError(
            f"{self._place}: cannot be read or written now ({_sentence(error)}). Put that right and start again: "
            "what was finished before is kept."
        )


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
    if batch:
        # A loop that is gone has no waiters left.
        with suppress(RuntimeError):
            batch[0].done.get_loop().call_soon_threadsafe(_deliver, batch, results)


def _deliver(batch: list[_Queued[Any]], results: list[Any]) -> None:
    for queued, result in zip(batch, results, strict=True):
        if queued.done.done():
            continue
        if isinstance(result, Exception):
            queued.done.set_exception(result)
        else:
            queued.done.set_result(result)


def _sentence(error: DBAPIError) -> str:
    """What the database says, in one line."""
    return " ".join(str(error.orig).split())
