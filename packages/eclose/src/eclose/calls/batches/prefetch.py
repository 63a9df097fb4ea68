"""Fetch the replies of a run in batches, before the run itself sends what is still missing one by one.

The jobs of a run are executed against the ledger alone. Every request that has no reply yet is collected, and all of
them go into a batch. Jobs with several requests, each built from the reply before, take one round for each of them.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.calls.batches.results import chunk_for_ledger
from eclose.calls.batches.run import BatchSettings, ModelBatches, SubmittedBatches
from eclose.calls.client import load_run_budget
from eclose.calls.http.endpoint import ModelRoute
from eclose.calls.model import CallContext
from eclose.calls.paid_once import NotRecordedError, ReplayModel, compute_call_key
from eclose.calls.prices import ModelPrice
from eclose.calls.record_loop import RecordRejection
from eclose.errors import Resumable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from pathlib import Path

    from eclose.calls.client import CallSettings
    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import ChatModel, Reply, Request
    from eclose.calls.record_loop import RecordJob
    from eclose.files.jsonl import ReadRecord


class _CollectingModel(ReplayModel):
    """A model that answers from the ledger, and collects the requests without a reply."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.requests: dict[str, tuple[str, Request]] = {}
        """Record id and request by the key of the call."""
        self._record_id = ""

    def for_record(self, context: CallContext) -> ChatModel:
        model = copy(self)
        model._record_id = context.record_id
        return model

    async def complete(self, request: Request) -> Reply:
        try:
            return await super().complete(request)
        except NotRecordedError:
            self.requests.setdefault(compute_call_key(self.name, request), (self._record_id, request))
            raise


@dataclass(frozen=True)
class BatchRoute:
    """A served model whose requests go into batches."""

    route: ModelRoute
    price: ModelPrice | None
    """Price of a single call."""


class BatchesUnderWay(Resumable):
    """Batches are not finished within the time that the run was to wait for them."""


async def prefetch_replies(
    models: Sequence[BatchRoute],
    jobs: Sequence[RecordJob],
    record_id: Callable[[Any], str],
    read_records: Callable[[], Iterable[ReadRecord[Any]]],
    ledger: Ledger,
    folder: Path,
    calls: CallSettings,
    settings: BatchSettings,
    *,
    stage: str,
    notify: Callable[[str], None],
) -> None:
    """Send the requests of all records in batches, and wait for the replies.

    ``models`` are in the order in which jobs receive them; each has a subfolder of ``folder``. ``notify`` gets a line
    whenever batches are sent or collected. A request that a batch leaves unanswered is not sent in a second one: the
    run sends it as a single call.

    Raises:
        BudgetSpent: The budget does not cover the next request; the requests before it are sent.
        BatchesUnderWay: The batches took longer than ``settings.wait``; the next run collects them.
    """
    unanswered: set[str] = set()
    # A model that stands for several roles is asked once.
    by_name = {model.route.name: model for model in models}
    while True:
        async with AsyncExitStack() as stack:
            submitted: dict[str, tuple[ModelBatches, SubmittedBatches]] = {}
            # All models before the first wait: the batches of one are answered while those of another are built.
            for name, model in by_name.items():
                path = folder / re.sub(r"\W+", "-", name)
                price = None if model.price is None else model.price.scaled(settings.price_factor)
                batches = ModelBatches(model.route, ledger, path, stage=stage, price=price, settings=settings)
                await stack.enter_async_context(batches)
                requests = _collect_requests(model, models, jobs, record_id, read_records(), ledger, unanswered)
                sent = await batches.submit(requests, await load_run_budget(ledger, calls))
                if sent.received:
                    submitted[name] = batches, sent
                    notify(
                        f"{name}: {sent.sent:,} requests sent in {len(sent.batches):,} batches, "
                        f"{sent.under_way:,} in earlier ones; waiting for the replies"
                    )
            if not submitted:
                return
            for name, (batches, sent) in submitted.items():
                unanswered |= await _collect_replies(name, batches, sent, settings.wait, notify)


async def _collect_replies(
    name: str, batches: ModelBatches, sent: SubmittedBatches, wait: float | None, notify: Callable[[str], None]
) -> set[str]:
    collected = await batches.collect(wait=wait)
    if collected.under_way:
        raise BatchesUnderWay(
            f"{name}: {collected.under_way:,} requests are in batches that are not finished yet, and "
            f"{collected.answered:,} are answered. Run the same command again to collect them."
        )
    left = [*collected.unanswered, *sent.refused]
    notify(f"{name}: {collected.answered:,} requests answered in batches, {len(left):,} left for single calls")
    return {request.key for request in left}


async def _collect_requests(
    model: BatchRoute,
    models: Sequence[BatchRoute],
    jobs: Sequence[RecordJob],
    record_id: Callable[[Any], str],
    records: Iterable[ReadRecord[Any]],
    ledger: Ledger,
    unanswered: set[str],
) -> AsyncIterator[list[tuple[str, Request]]]:
    """Yield the requests to a model without a reply, group by group, without those that a batch left unanswered."""
    # Several roles of a run may share a model; they share its collection of requests too.
    collecting = {each.route.name: _CollectingModel(each.route.name, ledger) for each in models}
    collectors = [collecting[each.route.name] for each in models]
    # A group at a time: the requests of ten million records do not fit into memory.
    for chunk in chunk_for_ledger(record.value for record in records if record.value is not None):
        await asyncio.gather(*(_run_jobs(jobs, record_id, value, collectors) for value in chunk))
        requests = collecting[model.route.name].requests
        yield [request for key, request in requests.items() if key not in unanswered]
        for each in collecting.values():
            each.requests.clear()


async def _run_jobs(
    jobs: Sequence[RecordJob], record_id: Callable[[Any], str], value: Any, models: Sequence[_CollectingModel]
) -> None:
    try:
        for job in jobs:
            context = CallContext(job.name, record_id(value))
            value = await job.work(value, *(model.for_record(context) for model in models))
            if isinstance(value, RecordRejection):
                return
    except Resumable:
        # The ledger is away: going on would send as single calls, at full price, what belongs into a batch.
        raise
    except Exception:
        # A missing reply ends the record for this round. Any other error the run itself meets and reports.
        return
