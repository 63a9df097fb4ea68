"""Run models over all records of a file: resume, replay, retry, and write the result with its manifest.

A finished run is not repeated, an interrupted run continues, a replay sends nothing, and one process at a time writes
to an output file. A subclass of ``ModelRun`` says what is asked about a record and what becomes of the replies.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import eclose
from eclose.calls.adapters import refuse_ineffective_adapter
from eclose.calls.batches.results import chunk_for_ledger
from eclose.calls.batches.run import BatchSettings, ModelBatches, SubmittedBatches
from eclose.calls.client import CallSettings, ModelConnection, connect_model, find_price, load_run_budget
from eclose.calls.ledger.database import WriterLock, is_database_url
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import CallContext
from eclose.calls.paid_once import NotRecordedError, ReplayModel, compute_call_key
from eclose.calls.record_loop import (
    READ_STAGE,
    JobRunner,
    RecordJob,
    RecordRejection,
    list_earlier_versions,
    write_run_results,
)
from eclose.calls.resolve import LocalModelRef, ModelRef, ServedModelRef, index_models_by_name
from eclose.errors import Resumable, SettingError
from eclose.files.manifest import Manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import RUN_LEDGER_FILE
from eclose.files.step import PipelineStep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from eclose.calls.model import ChatModel, Reply, Request, RunModel
    from eclose.calls.prices import ModelPrice
    from eclose.files.jsonl import ReadRecord

T = TypeVar("T")

_log = logging.getLogger(__name__)

RunObserver: TypeAlias = Callable[[JobRunner[Any], Sequence[ModelConnection], int], AbstractContextManager[None]]
"""A context that is entered for the length of a run, with the runner, the connections (none for a replay) and the
number of records; a progress display, for example."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is executed. The options do not change the results."""

    ledger: Path | str | None = None
    """Ledger file or ``postgresql://`` URL; None for ``ledger.sqlite`` beside the result."""
    retry: bool = False
    """Whether to process quarantined records again."""
    replay: bool = False
    """Whether to answer from the ledger alone and send nothing."""
    force: bool = False
    """Whether to replace files that another run has written."""
    watch: RunObserver = lambda _runner, _connections, _total: nullcontext()
    """Observer of the run."""
    batch: BatchSettings | None = None
    """Batches in which requests are sent first; None to send every request as a single call."""
    notify: Callable[[str], None] = lambda _line: None
    """Called with a line of progress about batches."""


class RecordSequence(Protocol[T]):
    """Records of a run, in order and with a known number."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ReadRecord[T]]: ...


@dataclass(frozen=True)
class ModelRun(Generic[T]):
    """Models asked about every record of a file, with the result written to ``stage.out``."""

    stage: PipelineStep
    source_counts: dict[str, RecordCounts] = field(default_factory=dict, init=False)
    """Counts of further input files; filled by ``open_records``."""

    @property
    def model_refs(self) -> Sequence[ModelRef]:
        """The models, in the order in which jobs receive them."""
        raise NotImplementedError

    @property
    def jobs(self) -> Sequence[RecordJob]:
        """The jobs of every record, in order."""
        raise NotImplementedError

    def open_records(self) -> AbstractContextManager[RecordSequence[T]]:
        """Open the records of the input files."""
        raise NotImplementedError

    def record_id(self, record: Any) -> str:
        """Return the id of a record, or of the result of any job on it."""
        return str(record.id)

    def check_output(self, *, force: bool) -> None:
        """Raise where files beside the result are in the way; called before anything is sent."""

    def write_inputs(self, *, force: bool) -> None:
        """Write files beside the result before a model is called; do nothing where they exist."""

    def write_derived(self, *, force: bool) -> None:
        """Write files that follow from the finished result; do nothing where they exist."""

    async def collect_notes(self, _ledger: Ledger) -> Mapping[str, Any]:
        """Return further facts for the manifest, from the ledger of the finished run."""
        return {}


@dataclass(frozen=True)
class RunResult:
    """A finished run with its manifest."""

    stage: PipelineStep
    manifest: Manifest
    again: bool
    """Whether the run was finished before, so that nothing was sent."""


async def run_models_on_records(
    run: ModelRun[Any], calls: CallSettings | None = None, options: RunOptions | None = None
) -> RunResult:
    """Process every record of a run, and write the result, its manifest and the records that were set aside."""
    calls, options, stage = calls or CallSettings(), options or RunOptions(), run.stage
    if (result := find_finished_run(run, options)) is not None:
        return result
    where = options.ledger or stage.out.with_name(RUN_LEDGER_FILE)
    async with AsyncExitStack() as stack:
        if is_database_url(where):
            # A ledger file admits one writer. A database is shared, so the output file is locked instead.
            stage.out.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(WriterLock(stage.out, stage.name).release)
        ledger = await stack.enter_async_context(Ledger.open(where, run=stage.work_id))
        await begin_model_run(run, ledger, options)
        connections = {} if options.replay else await connect_models(run.model_refs, calls, ledger, stack)
        if options.batch is not None:
            with run.open_records() as records:
                await _prefetch_replies(run, records, calls, options, options.batch, ledger)
            account = await ledger.compute_account()
            for connection in connections.values():
                connection.budget.update(account)
        models: list[RunModel] = [
            ReplayModel(ref.name, ledger) if options.replay else connections[ref.name].model for ref in run.model_refs
        ]
        with run.open_records() as records:
            # The files were hashed before; a file that changed until it was opened would be recorded under the wrong
            # hash.
            stage.refuse_changed_inputs()
            runner: JobRunner[Any] = JobRunner(ledger, run.jobs, run.record_id, models=models, workers=calls.workers)
            with options.watch(runner, list(connections.values()), len(records)):
                await runner.run(records)
        manifest = await finish_model_run(run, ledger, runner.progress.received, calls.currency, force=options.force)
    return RunResult(stage, manifest, again=False)


async def _prefetch_replies(
    run: ModelRun[Any],
    records: RecordSequence[Any],
    calls: CallSettings,
    options: RunOptions,
    batch: BatchSettings,
    ledger: Ledger,
) -> None:
    """Send the requests of all records in batches, and wait for the replies.

    Jobs with several requests, each built from the reply before, take one round for each of them. A request that a
    batch leaves unanswered is not sent in a second one: the run sends it as a single call.

    Raises:
        BudgetSpent: The budget does not cover the next request; the requests before it are sent.
        BatchesUnderWay: The batches took longer than ``batch.wait``; the next run collects them.
    """
    if options.replay:
        raise SettingError("--batch and replay: a replay sends nothing. Leave one of them out.")
    if local := [ref.name for ref in run.model_refs if not isinstance(ref, ServedModelRef)]:
        raise SettingError(f"{local[0]}: --batch needs a provider's model. Run without --batch.")
    # A model that stands for several roles is asked once.
    refs = {ref.name: ref for ref in run.model_refs if isinstance(ref, ServedModelRef)}
    prices = {name: find_model_price(ref, calls) for name, ref in refs.items()}
    unanswered: set[str] = set()
    while True:
        async with AsyncExitStack() as stack:
            submitted: dict[str, tuple[ModelBatches, SubmittedBatches]] = {}
            # All models before the first wait: the batches of one are answered while those of another are built.
            for name, ref in refs.items():
                path = run.stage.out.parent / "batches" / re.sub(r"\W+", "-", name)
                price = None if (single := prices[name]) is None else single.scaled(batch.price_factor)
                batches = ModelBatches(ref.route, ledger, path, stage=run.stage.name, price=price, settings=batch)
                await stack.enter_async_context(batches)
                requests = _collect_requests(run, name, records, ledger, unanswered)
                sent = await batches.submit(requests, await load_run_budget(ledger, calls))
                if sent.received:
                    submitted[name] = batches, sent
                    options.notify(
                        f"{name}: {sent.sent:,} requests sent in {len(sent.batches):,} batches, "
                        f"{sent.under_way:,} in earlier ones; waiting for the replies"
                    )
            if not submitted:
                return
            for name, (batches, sent) in submitted.items():
                collected = await batches.collect(wait=batch.wait)
                if collected.under_way:
                    raise BatchesUnderWay(
                        f"{name}: {collected.under_way:,} requests are in batches that are not finished yet, and "
                        f"{collected.answered:,} are answered. Run the same command again to collect them."
                    )
                remaining = [*collected.unanswered, *sent.refused]
                unanswered |= {request.key for request in remaining}
                options.notify(
                    f"{name}: {collected.answered:,} requests answered in batches, "
                    f"{len(remaining):,} left for single calls"
                )


async def _collect_requests(
    run: ModelRun[Any], name: str, records: Iterable[ReadRecord[Any]], ledger: Ledger, unanswered: set[str]
) -> AsyncIterator[list[tuple[str, Request]]]:
    """Yield the requests to a model without a reply, group by group, without those that a batch left unanswered."""
    # Several roles of a run may share a model; they share its collection of requests too.
    collecting = {ref.name: _CollectingModel(ref.name, ledger) for ref in run.model_refs}
    collectors = [collecting[ref.name] for ref in run.model_refs]
    # A group at a time: the requests of ten million records do not fit into memory.
    for chunk in chunk_for_ledger(record.value for record in records if record.value is not None):
        await asyncio.gather(*(_run_jobs(run, value, collectors) for value in chunk))
        yield [request for key, request in collecting[name].requests.items() if key not in unanswered]
        for each in collecting.values():
            each.requests.clear()


async def _run_jobs(run: ModelRun[Any], value: Any, models: Sequence[_CollectingModel]) -> None:
    try:
        for job in run.jobs:
            context = CallContext(job.name, run.record_id(value))
            value = await job.work(value, *(model.for_record(context) for model in models))
            if isinstance(value, RecordRejection):
                return
    except Resumable:
        # The ledger is away: going on would send as single calls, at full price, what belongs into a batch.
        raise
    except Exception:
        # A missing reply ends the record for this round. Any other error the run itself meets and reports.
        return


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


class BatchesUnderWay(Resumable):
    """Batches are not finished within the time that the run was to wait for them."""


def find_finished_run(run: ModelRun[Any], options: RunOptions) -> RunResult | None:
    """Return the result of the same run if it is finished; None where there is something to do."""
    run.check_output(force=options.force)
    stage = run.stage
    # A result without its manifest, which is written last, was interrupted.
    if stage.out.exists() and not stage.manifest_path.exists() and not options.force:
        return None
    # The manifest is written last and lists the hashes of the files, so it proves a complete and unchanged result.
    manifest = stage.claim(force=options.force)
    if manifest is None or (options.retry and manifest.counts.quarantined):
        return None
    # The earlier process may have been killed after the manifest and before these files.
    run.write_inputs(force=options.force)
    run.write_derived(force=options.force)
    return RunResult(stage, manifest, again=True)


async def begin_model_run(run: ModelRun[Any], ledger: Ledger, options: RunOptions) -> None:
    """Refuse an output file of another run, write the start note, and reopen quarantined records for a retry."""
    stage, names = run.stage, [job.name for job in run.jobs]
    if stage.out.exists() and not options.force and not any([await ledger.count_outcomes(name) for name in names]):
        if stage.origin is None:
            stage.claim()  # raises where the file is not of this run
        raise stage.lost_ledger()
    stage.note_start(ledger.id, force=options.force)
    if earlier := await list_earlier_versions(ledger):
        _log.warning(
            "eclose %s worked on this run before eclose %s: its results may mix both.",
            ", ".join(earlier),
            eclose.__version__,
        )
    run.write_inputs(force=options.force)
    if stage.origin is not None:
        # What was missing from the inputs may have been added since; reading them again costs nothing.
        await ledger.reopen_quarantined(READ_STAGE)
    if options.retry:
        # Without its manifest the run counts as unfinished: if it is stopped now, it continues without --retry.
        stage.manifest_path.unlink(missing_ok=True)
        for name in names:
            await ledger.reopen_quarantined(name)


async def finish_model_run(
    run: ModelRun[Any], ledger: Ledger, received: int, currency: str, *, force: bool = False
) -> Manifest:
    """Write the outcome of every record, the manifest and the derived files."""
    notes = {**(await ledger.compute_usage())._asdict(), "currency": currency, **await run.collect_notes(ledger)}
    names = [job.name for job in run.jobs]
    manifest = await write_run_results(ledger, run.stage, names, received, notes, run.source_counts)
    run.write_derived(force=force)
    # Removed last: a process that is killed before this line finds its note again and continues.
    run.stage.remove_start_note()
    return manifest


async def connect_models(
    model_refs: Sequence[ModelRef], calls: CallSettings, ledger: Ledger, stack: AsyncExitStack
) -> dict[str, ModelConnection]:
    """Connect each different model once, all within one budget; return the connections by name."""
    refs = index_models_by_name(model_refs)
    # By name: a model in two roles (constructor and verifier) has one connection and one rate limit.
    senders = {name: await _open_model(ref, calls, ledger, stack) for name, ref in refs.items()}
    budget = await load_run_budget(ledger, calls)  # after the adapter checks, which may have spent a part of it
    return {
        name: await connect_model(senders[name], ledger, calls, price=find_model_price(ref, calls), budget=budget)
        for name, ref in refs.items()
    }


async def _open_model(ref: ModelRef, calls: CallSettings, ledger: Ledger, stack: AsyncExitStack) -> ChatModel:
    """Open a model; raise where it is a served adapter that the server does not apply."""
    sender = await stack.enter_async_context(ref.open(deadline=calls.deadline, concurrency=calls.concurrency))
    # Some servers answer a request for an unknown adapter with the base model: a trained model would be measured as
    # untrained.
    if isinstance(ref, ServedModelRef) and ref.base is not None:
        base_ref = ref.base_ref()
        base = await stack.enter_async_context(base_ref.open(deadline=calls.deadline, concurrency=calls.concurrency))
        price, budget = find_model_price(ref, calls), await load_run_budget(ledger, calls)
        probes = [await connect_model(model, ledger, calls, price=price, budget=budget) for model in (sender, base)]
        await refuse_ineffective_adapter(*(probe.model for probe in probes))
    return sender


def find_model_price(model: ModelRef, calls: CallSettings) -> ModelPrice | None:
    """Return the price of a model; None for local weights, which have no price per token."""
    return None if isinstance(model, LocalModelRef) else find_price(model.name, calls)


def find_forecast_price(model: ModelRef, calls: CallSettings) -> ModelPrice | None:
    """Return the price of a model for a forecast: None where it is unknown, whatever the settings demand of a run."""
    return find_model_price(model, replace(calls, unpriced=True, budget=None))
