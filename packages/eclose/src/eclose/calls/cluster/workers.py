"""Runs on a Ray cluster: records are split into shards, and a worker on any machine takes one shard at a time.

Each worker does the work of a single process on its shard, and all write to one PostgreSQL ledger. Ray places and
watches the workers; the shard of a dead worker is started again and continues from the ledger. Ray holds no state that
a run needs in order to continue.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from eclose.calls.ledger.database import is_database_url
from eclose.calls.record_loop import RunStoppedError
from eclose.errors import Resumable, SettingError, UserError
from eclose.values.identity import hash_sort_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

_OBJECT_STORE_BYTES = 100 * 2**20
"""Object store of a local Ray. Records do not pass through it, so a small one is enough."""
_POLL_SECONDS = 1.0
_WORK_MODULE = "eclose.calls.cluster.run"
"""Module that workers import when they start, with nearly all that the work of a shard needs."""


class WorkersLost(Resumable):
    """Workers died so often on a shard that it was abandoned."""


@dataclass(frozen=True, slots=True)
class RecordShard:
    """A part of the records of a run, the same on every machine; the default is all records."""

    index: int = 0
    of: int = 1

    def contains(self, record_id: str) -> bool:
        """Return whether a record belongs to this shard."""
        # By the hash of the id and not by position: all machines agree without counting, and the shards have similar
        # sizes.
        return int(hash_sort_key("shard", record_id)[:16], 16) % self.of == self.index

    def __str__(self) -> str:
        """Return the text for messages, counted from 1."""
        return f"shard {self.index + 1} of {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """Number and place of workers. They do not change the results, so a run may continue with other values."""

    workers: int = 2
    shards_per_worker: int = 4
    """Shards per worker. More than one: a fast worker takes another shard, and a dead worker loses less."""
    restarts: int = 3
    """Number of restarts of a shard after the death of its worker."""
    address: str | None = None
    """Address of a running cluster, ``auto`` for the one of this machine; None starts Ray on this machine."""
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    """GPUs of each worker, for work that loads weights; without one a worker sees no GPU of its machine."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1." for name in ("workers", "shards_per_worker") if getattr(self, name) < 1
        ]
        if self.restarts < 0:
            problems.append("restarts must not be negative.")
        if self.cpus_per_worker <= 0:
            problems.append("cpus_per_worker must be positive.")
        if self.gpus_per_worker < 0:
            problems.append("gpus_per_worker must not be negative.")
        if problems:
            raise SettingError(" ".join(problems))

    @property
    def shards(self) -> list[RecordShard]:
        """All shards of the run."""
        of = self.workers * self.shards_per_worker
        return [RecordShard(index, of) for index in range(of)]


def run_shards_on_ray(
    work: ShardWork[T],
    ledger: Path | str,
    settings: RaySettings,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> list[T]:
    """Run the work on every shard, and return the results in the order of the shards.

    The work is pickled, so it is a function of a module, or a ``partial`` of one with picklable settings. It opens the
    ledger itself. An error in one shard stops the others after their records in progress.
    """
    require_shared_ledger(ledger)
    with connect_to_ray(settings) as ray:
        return _WorkerPool(ray, work, settings, tell).run()


_CONTINUE = "Finished work is kept: run the same command again to continue."


def require_shared_ledger(ledger: Path | str) -> None:
    """Raise unless the ledger is a database that takes several writers."""
    if not is_database_url(ledger):
        raise SettingError(
            f"{ledger}: workers of a cluster write concurrently, and a file takes one writer. "
            "Pass a PostgreSQL database: --ledger postgresql://user@host/name."
        )


class ShardStopSignal:
    """A request to stop that the work of a shard can listen to."""

    def __init__(self) -> None:
        self._requested = False
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function when the run is asked to stop; at once where that has happened."""
        self._listeners.append(listener)
        if self._requested:
            listener()

    def request(self) -> None:
        """Ask the run to stop."""
        self._requested = True
        for listener in self._listeners:
            listener()

    def clear_listeners(self) -> None:
        """Remove the listeners of a finished shard."""
        self._listeners.clear()


ShardWork: TypeAlias = "Callable[[RecordShard, ShardStopSignal], Awaitable[T]]"


class _Worker:
    """A worker process. Its methods are asynchronous, so that ``stop`` is received while ``run`` is in progress."""

    def __init__(self, folder: str) -> None:
        self._stop = ShardStopSignal()
        # Relative paths of the command mean the same here, where this machine has its folder.
        with suppress(OSError):
            os.chdir(folder)

    async def run(self, work: ShardWork[T], shard: RecordShard) -> T:
        self._stop.clear_listeners()  # those of the shard before
        return await work(shard, self._stop)

    async def stop(self) -> None:
        self._stop.request()


class _WorkerPool(Generic[T]):
    """The workers of one run and their shards."""

    def __init__(self, ray: Any, work: ShardWork[T], settings: RaySettings, tell: Callable[[str], None]) -> None:
        self._ray = ray
        self._work = work
        self._settings = settings
        self._tell = tell
        self._waiting = deque(settings.shards)
        self._running: dict[Any, tuple[Any, RecordShard]] = {}
        self._results: dict[int, T] = {}
        self._deaths: Counter[RecordShard] = Counter()
        self._abandoned: list[RecordShard] = []
        self._error: Exception | None = None

    def run(self) -> list[T]:
        """Return the results in the order of the shards."""
        try:
            for _ in range(self._settings.workers):
                self._assign(self._start_worker())
            self._watch()
        except KeyboardInterrupt:
            # A second Ctrl+C ends the run at once.
            self._tell("stopping after the records in progress; press Ctrl+C again to stop at once.")
            self._stop(RunStoppedError(f"stopped. {_CONTINUE}"))
            self._watch()
        finally:
            for worker, _ in self._running.values():
                self._ray.kill(worker)
        if self._error is not None:
            raise self._error
        if self._abandoned:
            raise WorkersLost(
                f"{', '.join(map(str, self._abandoned))}: the worker died {self._settings.restarts + 1} times. "
                f"The reason is often too little memory. {_CONTINUE}"
            )
        return [result for _, result in sorted(self._results.items())]

    def _start_worker(self) -> Any:
        # Ray's own restarts are off, so that every death is seen and counted against its shard.
        # Two concurrent calls per worker: ``run``, and ``stop`` beside it.
        settings = self._settings
        placement = {"num_cpus": settings.cpus_per_worker, "num_gpus": settings.gpus_per_worker}
        return self._ray.remote(_Worker).options(**placement, max_restarts=0, max_concurrency=2).remote(os.getcwd())

    def _assign(self, worker: Any) -> None:
        if self._waiting and self._error is None:
            shard = self._waiting.popleft()
            self._running[worker.run.remote(self._work, shard)] = worker, shard
        else:
            self._ray.kill(worker)

    def _watch(self) -> None:
        while self._running:
            ended, _ = self._ray.wait(list(self._running), timeout=_POLL_SECONDS)
            for call in ended:
                self._end(call)

    def _end(self, call: Any) -> None:
        worker, shard = self._running.pop(call)
        errors = self._ray.exceptions
        try:
            self._results[shard.index] = self._ray.get(call)
            self._tell(f"{shard} is finished, {len(self._running) + len(self._waiting)} remaining.")
        except errors.RayActorError as death:
            # A worker that only seems dead must not continue beside its successor.
            self._ray.kill(worker)
            self._deaths[shard] += 1
            restart = self._deaths[shard] <= self._settings.restarts
            (self._waiting if restart else self._abandoned).append(shard)
            reason = " ".join(str(death).split())
            self._tell(f"a worker died on {shard}, which is {'started again' if restart else 'abandoned'}: {reason}")
            worker = self._start_worker()
        except errors.RayTaskError as failed:
            self._stop(failed.cause if isinstance(failed.cause, UserError) else failed)
        except errors.RayError as failed:
            self._stop(Resumable(f"Ray: {failed} {_CONTINUE}"))
        self._assign(worker)

    def _stop(self, error: Exception) -> None:
        """Ask all workers to finish their records in progress and take no further one."""
        if self._error is None:
            self._error = error
            for worker, _ in self._running.values():
                worker.stop.remote()


@contextmanager
def connect_to_ray(settings: RaySettings) -> Iterator[Any]:
    """Connect to Ray for the length of the block. An existing connection of the caller is used and left open."""
    _set_environment(settings)
    try:
        import ray  # noqa: PLC0415 - optional
    except ImportError as missing:
        raise UserError("running on a cluster needs Ray. Run: pip install 'eclose[postgres,ray]'") from missing
    if ray.is_initialized():
        yield ray
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**_connection(settings))
    except Exception as error:
        if settings.address is not None:
            raise
        # Ray gives its processes 30 seconds, which a busy machine may exceed.
        raise Resumable(
            f"Ray did not start: {' '.join(str(error).split())} Nothing was sent: run the same command again, or start "
            "a cluster with ray start --head and set ray_address: auto in a recipe."
        ) from error
    try:
        # SIGTERM stops the run like Ctrl+C; Ray's own handler would end the process with calls in flight.
        _on_termination(signal.default_int_handler)
        yield ray
    finally:
        ray.shutdown()
        _on_termination(before)


def _set_environment(settings: RaySettings) -> None:
    # Ray reads these when it is imported, and every process that it starts.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if settings.address is None:
        # The switch that keeps Ray on loopback on macOS and Windows. Without it Ray replaces 127.0.0.1 by the machine's
        # address in the network, and its processes listen on every interface.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


def _on_termination(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # signals can be set only there
        signal.signal(signal.SIGTERM, handler)


def _connection(settings: RaySettings) -> dict[str, Any]:
    quiet = {"logging_level": logging.WARNING}
    if settings.address is not None:
        return {**quiet, "address": settings.address}
    return {
        **quiet,
        "address": "local",
        # Rounded up: a worker that waits for a CPU that never comes would wait forever.
        "num_cpus": max(1, round(settings.workers * settings.cpus_per_worker + 0.5)),
        "object_store_memory": _OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
        "_system_config": {
            # Workers import it while the driver still connects: 2 to 5 s less until the first call on two cores.
            "preload_python_modules": [_WORK_MODULE],
            # Ray's default is 15, to keep its own processes responsive. On a busy machine such workers hardly run.
            "worker_niceness": 0,
        },
    }
