"""Work for a cluster, and a driver of its own process, to be killed: every record is one question to a model server.

``python -m tests.calls.cluster.cluster_work settings.json``: one JSON line on standard output says how it ended.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eclose.calls.client import CallSettings, ModelConnection, open_connection
from eclose.calls.cluster.shared_limit import RateLimitShare, share_rate_limit
from eclose.calls.cluster.workers import RaySettings, RecordShard, ShardStopSignal, run_shards_on_ray
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Request
from eclose.calls.record_loop import JobRunner, RecordJob
from eclose.errors import UserError
from eclose.files.jsonl import scan_records

RUN = "asking"


@dataclass(frozen=True)
class Item:
    id: str
    text: str


@dataclass(frozen=True)
class Answer:
    text: str


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What a shard needs to know."""

    ledger: str
    base_url: str
    items: str
    pids: str
    """A folder with a file for every shard under way, named after it, that holds the process at it."""
    concurrency: int = 16
    requests_per_minute: int | None = None
    lease_seconds: float = 3.0
    workers: int = 2
    shards_per_worker: int = 2
    restarts: int = 3
    address: str | None = None
    """Of a cluster that runs; None to start one."""
    deadly: str = ""
    """A record whose worker dies."""
    broken: str = ""
    """A record that stops the run."""

    @property
    def calls(self) -> CallSettings:
        return CallSettings(
            concurrency=self.concurrency, requests_per_minute=self.requests_per_minute, unpriced=True, deadline=20
        )


async def ask(asking: Asking, connection: ModelConnection, item: Item) -> Answer:
    if item.id == asking.deadly:
        os._exit(1)
    if item.id == asking.broken:
        raise UserError("this record stops the run.")
    reply = await connection.model.complete(Request(({"role": "user", "content": item.text},)))
    return Answer(reply.text)


async def run_shard(asking: Asking, shard: RecordShard, stop: ShardStopSignal) -> dict[str, Any]:
    note = Path(asking.pids) / str(shard.index)
    note.write_text(str(os.getpid()))
    total = RateLimitShare(asking.concurrency, asking.requests_per_minute)
    lease = {"run": RUN, "model": "world", "lease_seconds": asking.lease_seconds}
    async with (
        Ledger.open(asking.ledger, run=RUN) as ledger,
        open_connection(asking.base_url, ledger, asking.calls, environ={}) as connection,
        share_rate_limit(connection.limiter, total, asking.ledger, **lease),  # type: ignore[arg-type]
    ):
        jobs = [RecordJob("ask", partial(ask, asking, connection), Answer)]
        runner = JobRunner[Item](
            ledger, jobs, lambda item: item.id, workers=asking.calls.workers, in_shard=shard.contains
        )
        stop.listen(runner.stop)
        await runner.run(scan_records(asking.items, Item))
    note.unlink()
    return {"received": runner.progress.received, "before": runner.progress.finished_before, "pid": os.getpid()}


def drive(asking: Asking) -> tuple[int, dict[str, Any]]:
    """Run all shards; return the exit code and what to say about it."""
    ray = RaySettings(
        workers=asking.workers,
        shards_per_worker=asking.shards_per_worker,
        restarts=asking.restarts,
        address=asking.address,
        cpus_per_worker=0.5,
    )
    messages: list[str] = []
    try:
        shards = run_shards_on_ray(partial(run_shard, asking), asking.ledger, ray, tell=messages.append)
    except UserError as error:
        return error.exit_code, {"error": str(error), "kind": type(error).__name__, "told": messages}
    return 0, {"shards": shards, "told": messages}


def write_settings(path: Path, asking: Asking) -> Path:
    path.write_text(json.dumps(asdict(asking)))
    return path


if __name__ == "__main__":
    # Under another name than ``__main__``, which the workers would not find it by.
    from tests.calls.cluster import cluster_work

    code, result = cluster_work.drive(cluster_work.Asking(**json.loads(Path(sys.argv[1]).read_text())))
    sys.stdout.write(json.dumps(result) + "\n")
    sys.exit(code)
