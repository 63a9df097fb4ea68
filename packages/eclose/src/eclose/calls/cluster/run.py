"""Run models over the records of a file on a Ray cluster: workers take shards and share ledger, budget and limits.

A worker receives a function that builds the run, not the run itself. Models, keys and open files stay on their
machine: every worker finds the model by its name, with a key from its own environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.cluster.shared_limit import share_rate_limits
from eclose.calls.cluster.workers import (
    RaySettings,
    RecordShard,
    ShardStopSignal,
    require_shared_ledger,
    run_shards_on_ray,
)
from eclose.calls.ledger.database import WriterLock
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.record_loop import JobRunner
from eclose.calls.resolve import ServedModelRef
from eclose.calls.run import (
    ModelRun,
    RunOptions,
    RunResult,
    begin_model_run,
    connect_models,
    find_finished_run,
    finish_model_run,
)
from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.files.manifest import Manifest

RunFactory: TypeAlias = Callable[[], Coroutine[Any, Any, ModelRun[Any]]]
"""Coroutine function that builds the same run on any machine: a function of a module, or a ``partial`` of one."""


def run_models_on_ray(
    make_run: RunFactory,
    calls: CallSettings,
    options: RunOptions,
    ray: RaySettings,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> RunResult:
    """Process the records with many workers and write the result. Blocks, and must run in the main thread."""
    if ray.workers > calls.concurrency:
        raise SettingError(
            f"workers: {ray.workers} is more than --concurrency {calls.concurrency}: some would be idle."
        )
    run = asyncio.run(make_run())
    # Every worker opens the model on its own machine, by its name; local weights are named by a path of this machine.
    if local := [model.name for model in run.model_refs if not isinstance(model, ServedModelRef)]:
        raise SettingError(f"{local[0]}: workers of a cluster need a served model. Give the base URL of its server.")
    if (result := find_finished_run(run, options)) is not None:
        return result
    ledger = str(options.ledger)
    require_shared_ledger(ledger)
    # As in one process, a second command with the same --out waits; one with another --out shares the records.
    lock = WriterLock(run.stage.out, run.stage.name)
    try:
        asyncio.run(_begin(run, ledger, options))
        # No event loop runs here: Ray's calls block, and Ctrl+C must reach the main thread.
        received = run_shards_on_ray(partial(work_on_shard, make_run, calls, ledger), ledger, ray, tell=tell)
        manifest = asyncio.run(_finish(run, ledger, sum(received), calls.currency, force=options.force))
    finally:
        lock.release()
    return RunResult(run.stage, manifest, again=False)


async def work_on_shard(
    make_run: RunFactory, calls: CallSettings, ledger_url: str, shard: RecordShard, stop: ShardStopSignal
) -> int:
    """Process one shard in one worker, and return the number of its records."""
    run = await make_run()
    work_id = run.stage.work_id
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(Ledger.open(ledger_url, run=work_id))
        connections = await connect_models(run.model_refs, calls, ledger, stack)
        # Every worker knows the limit of the whole run; the database tells it which share of it is its own.
        await share_rate_limits(connections, calls, ledger_url, stack, run=work_id)
        with run.open_records() as records:
            run.stage.refuse_changed_inputs()
            runner = JobRunner[Any](
                ledger,
                run.jobs,
                run.record_id,
                models=[connections[ref.name].model for ref in run.model_refs],
                workers=calls.workers,
                in_shard=shard.contains,
            )
            stop.listen(runner.stop)
            await runner.run(records)
    return runner.progress.received


async def _begin(run: ModelRun[Any], ledger_url: str, options: RunOptions) -> None:
    async with Ledger.open(ledger_url, run=run.stage.work_id) as ledger:
        await begin_model_run(run, ledger, options)


async def _finish(run: ModelRun[Any], ledger_url: str, received: int, currency: str, *, force: bool) -> Manifest:
    async with Ledger.open(ledger_url, run=run.stage.work_id) as ledger:
        return await finish_model_run(run, ledger, received, currency, force=force)
