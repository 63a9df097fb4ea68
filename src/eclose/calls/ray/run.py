"""The same inquiry by many workers on a cluster: each takes a shard of the records, all share books and limits.

What is sent to a worker is how to make the inquiry, not the inquiry: models, keys and open files stay where they are,
so every machine finds the model by its name, with a key from its own environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.client import CallSettings, connect_model
from eclose.calls.ray.shared_limit import LimitShare, share_limit
from eclose.calls.ray.workers import RaySettings, RecordShard, require_shared_ledger, run_on_ray, when_stopped
from eclose.calls.run import ModelRun, RunResult, begin_run, find_finished_run, find_model_price, finish_run
from eclose.errors import SettingError
from eclose.models.resolve import ModelRef, ServedModelRef, index_by_name
from eclose.store.ledger.database import WriterLock
from eclose.store.ledger.ledger import Ledger
from eclose.store.runs.runner import Runner

if TYPE_CHECKING:
    from eclose.models.interface import ChatModel
    from eclose.store.runs.manifest import Manifest

RunFactory: TypeAlias = Callable[[], Awaitable[tuple[ModelRun[Any], Sequence[ModelRef]]]]
"""A function of a module, or a ``partial`` of one, that makes the inquiry, and says who is asked, wherever it is
called."""


def run_models_on_ray(
    make: RunFactory,
    calls: CallSettings,
    ledger: str,
    ray: RaySettings,
    *,
    retry: bool = False,
    force: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> RunResult:
    """Ask with many workers, then write what came of it. Blocks, and belongs to the main thread."""
    if ray.workers > calls.concurrency:
        raise SettingError(f"{ray.workers} workers share {calls.concurrency} calls under way: some would have none.")
    inquiry, models = asyncio.run(_made(make))
    if here := [model.name for model in models if not isinstance(model, ServedModelRef)]:
        raise SettingError(f"{here[0]}: workers of a cluster ask a model that is served. Give its base URL.")
    if (done := find_finished_run(inquiry.stage, retry=retry, force=force)) is not None:
        inquiry.beforehand()
        inquiry.afterwards()
        return done
    require_shared_ledger(ledger)
    # As in one process: the same command with the same --out waits for its turn. With another it shares the records.
    lock = WriterLock(inquiry.stage.out, inquiry.stage.name)
    try:
        asyncio.run(_begun(inquiry, models, ledger, retry=retry, force=force))
        received = run_on_ray(partial(_work, make, calls, ledger), ledger, ray, tell=tell)
        manifest = asyncio.run(_finished(inquiry, models, ledger, sum(received), calls.currency))
    finally:
        lock.release()
    return RunResult(inquiry.stage, manifest, again=False)


async def _made(make: RunFactory) -> tuple[ModelRun[Any], Sequence[ModelRef]]:
    return await make()


async def _work(make: RunFactory, calls: CallSettings, ledger: str, shard: RecordShard) -> int:
    """One shard, in one worker; how many records it had."""
    inquiry, models = await make()
    run = inquiry.stage.work_id
    total = LimitShare(calls.concurrency, calls.requests_per_minute, calls.tokens_per_minute)
    async with AsyncExitStack() as stack:
        books = await stack.enter_async_context(Ledger.open(ledger, run=run))
        asked: dict[str, ChatModel] = {}
        for model in index_by_name(models).values():
            opened = model.open(deadline=calls.deadline, concurrency=calls.concurrency)
            sender = await stack.enter_async_context(opened)
            connection = await connect_model(sender, books, calls, price=find_model_price(model, calls))
            limits = share_limit(connection.model.limiter, total, ledger, run=run, model=model.name)
            await stack.enter_async_context(limits)
            asked[model.name] = connection.model
        with inquiry.records() as records:
            inquiry.stage.refuse_changed_inputs()
            jobs = inquiry.jobs(*(asked[model.name] for model in models))
            runner = Runner[Any](books, jobs, inquiry.id_of, workers=calls.workers, mine=shard.contains)
            when_stopped(runner.stop)
            await runner.run(records)
    return runner.progress.received


async def _begun(inquiry: ModelRun[Any], models: Sequence[ModelRef], ledger: str, *, retry: bool, force: bool) -> None:
    async with Ledger.open(ledger, run=inquiry.stage.work_id) as books:
        await begin_run(inquiry, models, books, retry=retry, force=force)


async def _finished(
    inquiry: ModelRun[Any], models: Sequence[ModelRef], ledger: str, received: int, currency: str
) -> Manifest:
    async with Ledger.open(ledger, run=inquiry.stage.work_id) as books:
        return await finish_run(inquiry, models, books, received, currency)
