"""A run on the machines of a Ray cluster: its records are split into shards, and a worker on any machine takes one.

Every worker runs what one process would run, on its shard, and all write to one PostgreSQL ledger. Ray finds the
workers a place, watches them and says when one is dead; its shard is then started again, and the ledger knows how far
it was. Nothing that a run needs in order to go on is kept in Ray.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eclose.core.identity import hash_rank
from eclose.errors import Resumable, SettingError, UserError
from eclose.store.ledger.database import is_url
from eclose.store.runs.runner import RunStoppedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")

_OBJECT_STORE_BYTES = 100 * 2**20
"""Of a Ray of our own. Records do not go through it, so little will do."""
_LOOK_SECONDS = 1.0


class WorkersLost(Resumable):
    """Workers died so often on a shard that it was left."""


@dataclass(frozen=True, slots=True)
class RecordShard:
    """A part of the records of a run, the same on every machine; by itself, all of them."""

    index: int = 0
    of: int = 1

    def mine(self, record_id: str) -> bool:
        """Whether a record with this id belongs here."""
        return int(hash_rank("shard", record_id)[:16], 16) % self.of == self.index

    def __str__(self) -> str:
        """For a message."""
        return f"shard {self.index + 1} of {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """Where and how many. None of it changes what comes out, so a run may go on with other values."""

    workers: int = 2
    shards_per_worker: int = 4
    """More shards than workers: who is done early takes another, and a death loses little."""
    restarts: int = 3
    """How often a shard is started again after the death of its worker."""
    address: str | None = None
    """A running cluster, ``auto`` for the one this machine belongs to; None starts a Ray of our own on this machine."""
    cpus_per_worker: float = 1.0

    def __post_init__(self) -> None:
        """Name every mistake at once."""
        problems = [f"{name} is at least 1." for name in ("workers", "shards_per_worker") if getattr(self, name) < 1]
        if self.restarts < 0:
            problems.append("restarts is not negative.")
        if self.cpus_per_worker <= 0:
            problems.append("cpus_per_worker is more than 0.")
        if problems:
            raise SettingError(" ".join(problems))

    @property
    def shards(self) -> list[RecordShard]:
        """All shards."""
        of = self.workers * self.shards_per_worker
        return [RecordShard(index, of) for index in range(of)]


def run_on_ray(
    work: Callable[[RecordShard], Awaitable[T]],
    ledger: Path | str,
    settings: RaySettings,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[T]:
    """Have every shard worked on, and return what the work returned for each, in order.

    The work is sent to other processes, so it is a function of a module, or a ``partial`` of one with settings that can
    be sent. It opens the ledger itself. An error in one shard stops the others once what they have under way is done.
    """
    require_shared_ledger(ledger)
    with _ray(settings) as ray:
        return _Crew(ray, work, settings, tell).run()


def require_shared_ledger(ledger: Path | str) -> None:
    """Raise unless many may write to the ledger at the same time."""
    if not is_url(ledger):
        raise SettingError(
            f"{ledger}: the workers of a cluster write at the same time, and a file takes one writer. "
            "Name a PostgreSQL database, postgresql://user@host/name."
        )


def when_stopped(act: Callable[[], None]) -> None:
    """For the work of a shard: have this done when the run is asked to stop, such as to take no further record."""
    if (stop := _stop.get()) is not None:
        stop.add(act)


@dataclass(slots=True)
class _Stop:
    """The wish to stop, and who wants to know of it."""

    wished: bool = False
    acts: list[Callable[[], None]] = field(default_factory=list)

    def add(self, act: Callable[[], None]) -> None:
        self.acts.append(act)
        if self.wished:
            act()

    def wish(self) -> None:
        self.wished = True
        for act in self.acts:
            act()


_stop: ContextVar[_Stop | None] = ContextVar("_stop", default=None)


class _Worker:
    """A process somewhere in the cluster. Its methods are asynchronous, so it can be told something while it works."""

    def __init__(self) -> None:
        self._stop = _Stop()

    async def run(self, work: Callable[[RecordShard], Awaitable[T]], shard: RecordShard) -> T:
        self._stop.acts.clear()  # of the shard before
        _stop.set(self._stop)
        return await work(shard)

    async def stop(self) -> None:
        self._stop.wish()


class _Crew(Generic[T]):
    """The workers of one run, and what each is at."""

    def __init__(
        self, ray: Any, work: Callable[[RecordShard], Awaitable[T]], settings: RaySettings, tell: Callable[[str], None]
    ) -> None:
        self._ray = ray
        self._work = work
        self._settings = settings
        self._tell = tell
        self._waiting = deque(settings.shards)
        self._running: dict[Any, tuple[Any, RecordShard]] = {}
        self._results: dict[int, T] = {}
        self._deaths: Counter[RecordShard] = Counter()
        self._left: list[RecordShard] = []
        self._error: Exception | None = None

    def run(self) -> list[T]:
        try:
            for _ in range(self._settings.workers):
                self._take(self._hire())
            self._watch()
        except KeyboardInterrupt:
            # Another one ends it at once.
            self._tell("stopping: what is under way is finished first.")
            self._stop(RunStoppedError("stopped. What is done is kept: run the same command again to go on."))
            self._watch()
        finally:
            for worker, _ in self._running.values():
                self._ray.kill(worker)
        if self._error is not None:
            raise self._error
        if self._left:
            raise WorkersLost(
                f"{', '.join(map(str, self._left))}: the worker died {self._settings.restarts + 1} times. What is done "
                "is kept, and all other shards are done: find out why (memory?), and run the same command again."
            )
        return [self._results[shard.index] for shard in self._settings.shards]

    def _hire(self) -> Any:
        # Ray would start a dead one again by itself, but who counts what happened to a shard must see every death.
        options = {"num_cpus": self._settings.cpus_per_worker, "max_restarts": 0, "max_concurrency": 2}
        return self._ray.remote(_Worker).options(**options).remote()

    def _take(self, worker: Any) -> None:
        """Give a worker the next shard, or let it go."""
        if self._waiting and self._error is None:
            shard = self._waiting.popleft()
            self._running[worker.run.remote(self._work, shard)] = worker, shard
        else:
            self._ray.kill(worker)

    def _watch(self) -> None:
        while self._running:
            ended, _ = self._ray.wait(list(self._running), timeout=_LOOK_SECONDS)
            for call in ended:
                self._end(call)

    def _end(self, call: Any) -> None:
        worker, shard = self._running.pop(call)
        errors = self._ray.exceptions
        try:
            self._results[shard.index] = self._ray.get(call)
            self._tell(f"{shard} is done, {len(self._running) + len(self._waiting)} to go.")
        except errors.RayActorError as death:
            # Whoever only seems dead must not go on beside his successor.
            self._ray.kill(worker)
            self._bury(shard, death)
            worker = self._hire()
        except errors.RayTaskError as failed:
            self._stop(failed.cause if isinstance(failed.cause, UserError) else failed)
        except errors.RayError as failed:
            self._stop(Resumable(f"Ray: {failed} What is done is kept: run the same command again to go on."))
        self._take(worker)

    def _bury(self, shard: RecordShard, death: Exception) -> None:
        """Have the shard of a dead worker done by another, unless it has cost too many."""
        self._deaths[shard] += 1
        again = self._deaths[shard] <= self._settings.restarts
        (self._waiting if again else self._left).append(shard)
        reason = " ".join(str(death).split())
        self._tell(f"a worker died on {shard}, which is {'started again' if again else 'left'}: {reason}")

    def _stop(self, error: Exception) -> None:
        """Have the others finish what they have under way, and take nothing more."""
        if self._error is None:
            self._error = error
            for worker, _ in self._running.values():
                worker.stop.remote()


@contextmanager
def _ray(settings: RaySettings) -> Iterator[Any]:
    """Ray, connected. One that the caller has connected already is used, and left as it is."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it is read when Ray is imported and by every process it starts
    try:
        import ray  # noqa: PLC0415 - large, and for few
    except ImportError as missing:
        raise UserError("running on a cluster needs Ray. Run: pip install 'eclose[chat,postgres,ray]'") from missing
    if ray.is_initialized():
        yield ray
        return
    before = signal.getsignal(signal.SIGTERM)
    ray.init(**_connection(settings))
    try:
        # Asked to end, stop as by Ctrl+C: what Ray has put here would end the process with everything under way.
        _on_termination(signal.default_int_handler)
        yield ray
    finally:
        ray.shutdown()
        _on_termination(before)


def _on_termination(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # nobody else may
        signal.signal(signal.SIGTERM, handler)


def _connection(settings: RaySettings) -> dict[str, Any]:
    quiet = {"logging_level": logging.WARNING}
    if settings.address is not None:
        return {**quiet, "address": settings.address}
    return {
        **quiet,
        "address": "local",
        "num_cpus": max(1, round(settings.workers * settings.cpus_per_worker + 0.5)),
        "object_store_memory": _OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
