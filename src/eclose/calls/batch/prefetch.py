"""Fetch the replies of a run in batches, before the run itself sends what is still missing one by one.

The jobs of a run are executed against the ledger alone. Every request that has no reply yet is collected, and all of
them go into a batch. Jobs with several requests, each built from the reply before, take one round for each of them.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.calls.batch.results import chunk_for_ledger
from eclose.calls.batch.run import BatchSettings, ModelBatches
from eclose.calls.cache import CachedModel, compute_call_key
from eclose.calls.client import load_run_budget
from eclose.calls.prices import ModelPrice
from eclose.errors import Resumable
from eclose.models.interface import Request
from eclose.models.openai.endpoint import ModelRoute
from eclose.store.runs.runner import RecordRejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from eclose.calls.client import CallSettings
    from eclose.models.interface import ChatModel, Reply
    from eclose.store.ledger.ledger import Ledger
    from eclose.store.records.jsonl import ReadRecord
    from eclose.store.runs.runner import RecordJob


class _ReplyMissingError(Exception):
    """The ledger has no reply to a request; the request is collected."""


@dataclass
class _CollectingModel:
    """Innermost model of a round: every request that reaches it has no reply, and is collected."""

    name: str
    requests: dict[str, tuple[str, Request]] = field(default_factory=dict)
    """Record id and request by the key of the call."""

    async def complete(self, request: Request) -> Reply:
        key = compute_call_key(self.name, request)
        self.requests.setdefault(key, (request.context.record_id, request))
        raise _ReplyMissingError


@dataclass(frozen=True)
class BatchRoute:
    """A served model whose requests go into batches."""

    route: ModelRoute
    price: ModelPrice | None
    """Price of a single call."""


async def prefetch_replies(
    models: Sequence[BatchRoute],
    bind_jobs: Callable[[Sequence[ChatModel]], list[RecordJob[Any, Any]]],
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

    A request that a batch leaves unanswered is not sent in a second one: the run sends it as a single call.

    Args:
        models: Models of the run, in the order in which jobs receive them.
        bind_jobs: Returns the jobs of the run with given models.
        read_records: Reads the records of the run from the start.
        ledger: Ledger of the run, which receives the replies.
        folder: Folder for the files of the batches, one subfolder for each model.
        calls: Settings of the run, for its budget.
        settings: Sizes, waiting times and price of batches.
        stage: Name of the run's step, for the ledger.
        notify: Called with a line whenever batches are sent or collected.

    Raises:
        BudgetSpent: The budget does not cover the next request; the requests before it are sent.
    """
    submitted: set[str] = set()
    while True:
        by_name = await _collect_requests(models, bind_jobs, read_records(), ledger, submitted)
        if not any(by_name.values()):
            return
        for model in {model.route.name: model for model in models}.values():
            if not (requests := by_name[model.route.name]):
                continue
            submitted |= requests.keys()
            price = None if model.price is None else model.price.scaled(settings.price_factor)
            path = folder / re.sub(r"\W+", "-", model.route.name)
            async with ModelBatches(model.route, ledger, path, stage=stage, price=price, settings=settings) as batches:
                sent = await batches.submit(requests.values(), await load_run_budget(ledger, calls))
                notify(
                    f"{model.route.name}: {sent.sent:,} requests sent in {len(sent.batches):,} batches, "
                    f"{sent.under_way:,} in earlier ones; waiting for the replies"
                )
                collected = await batches.collect()
            notify(
                f"{model.route.name}: {collected.answered:,} requests answered in batches, "
                f"{len(collected.unanswered) + len(sent.refused):,} left for single calls"
            )


async def _collect_requests(
    models: Sequence[BatchRoute],
    bind_jobs: Callable[[Sequence[ChatModel]], list[RecordJob[Any, Any]]],
    records: Iterable[ReadRecord[Any]],
    ledger: Ledger,
    submitted: set[str],
) -> Mapping[str, dict[str, tuple[str, Request]]]:
    """Return the requests without a reply by model and key, without those that were in a batch before."""
    collecting = {model.route.name: _CollectingModel(model.route.name) for model in models}
    # Several roles of a run may share a model; they share its collection of requests too.
    jobs = bind_jobs([CachedModel(collecting[model.route.name], ledger) for model in models])
    for chunk in chunk_for_ledger(record.value for record in records if record.value is not None):
        await asyncio.gather(*(_run_jobs(jobs, value) for value in chunk))
    return {
        name: {key: value for key, value in model.requests.items() if key not in submitted}
        for name, model in collecting.items()
    }


async def _run_jobs(jobs: Sequence[RecordJob[Any, Any]], value: Any) -> None:
    """Execute the jobs of a record as far as the ledger has replies."""
    try:
        for job in jobs:
            value = await job.work(value)
            if isinstance(value, RecordRejection):
                return
    except Resumable:
        # The ledger is away: going on would send as single calls, at full price, what belongs into a batch.
        raise
    except Exception:
        # A missing reply ends the record for this round. Any other error the run itself meets and reports.
        return
