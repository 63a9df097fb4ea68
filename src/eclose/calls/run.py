"""Models asked about every record of a file: what all commands that do so have in common.

Finished work is not done again, work that broke off goes on, a replay asks nobody, and whoever else writes to the same
run is kept out. What is asked, and what is made of the replies, is for the command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from eclose.calls.cache import replay_model as replayed
from eclose.calls.client import CallSettings, ModelConnection, connect_model, find_price, load_budget
from eclose.calls.prices import USD
from eclose.models.adapter_check import refuse_idle_adapter
from eclose.models.interface import ChatModel, ModelWrapper, Reply, Request
from eclose.models.resolve import LocalModelRef, ModelRef, ServedModelRef, index_by_name
from eclose.store.ledger.database import WriterLock, is_url
from eclose.store.ledger.ledger import Ledger
from eclose.store.records.counts import Counts
from eclose.store.runs.export import export_run
from eclose.store.runs.folder import LEDGER
from eclose.store.runs.manifest import Manifest
from eclose.store.runs.runner import Job, Runner
from eclose.store.runs.step import RunStep
from eclose.store.runs.unfinished import remove_start_note, write_start_note

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.calls.budget import Budget
    from eclose.calls.prices import Price
    from eclose.store.records.jsonl import ReadRecord

T = TypeVar("T")

RunObserver: TypeAlias = Callable[[Runner[Any], Sequence[ModelConnection], int], AbstractContextManager[None]]
"""Entered while a run is under way; told of the runner, the connections (none for a replay) and how many records."""


class Records(Protocol[T]):
    """Records that can be counted before they are gone through."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __iter__(self) -> Iterator[ReadRecord[T]]:
        """Each of them."""
        ...


def observe_nothing(
    _runner: Runner[Any], _connections: Sequence[ModelConnection], _total: int
) -> AbstractContextManager[None]:
    """Nobody looks."""
    return nullcontext()


async def _nothing(_: Ledger) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class ModelRun(Generic[T]):
    """What is asked, of what, and where the answers go."""

    stage: RunStep
    records: Callable[[], AbstractContextManager[Records[T]]]
    """The records, opened when they are needed."""
    id_of: Callable[[T], str]
    jobs: Callable[..., Sequence[Job[Any, Any]]]
    """Made with the models that are asked, one argument each."""
    notes: Callable[[Ledger], Awaitable[Mapping[str, Any]]] = _nothing
    """What else the manifest should tell, found in the ledger when all is done."""
    beforehand: Callable[[], None] = lambda: None
    """Writes other files beside the result before a model is called; does nothing where that is done."""
    afterwards: Callable[[], None] = lambda: None
    """Writes what follows from the result beside it; does nothing where that is done."""
    sources: Mapping[str, Counts] = field(default_factory=dict)
    """Where the records of files that are read beside the main one went; filled when ``records`` is opened."""

    def job_names(self, models: Sequence[ModelRef], ledger: Ledger) -> list[str]:
        """What the jobs are called, for whoever asks nothing."""
        return [job.name for job in self.jobs(*(replayed(model.name, ledger) for model in models))]


@dataclass(frozen=True)
class RunResult:
    """A run that came to its end."""

    stage: RunStep
    manifest: Manifest
    again: bool
    """Whether it was finished before, so that there was nothing to do."""


async def run_models(
    inquiry: ModelRun[T],
    models: Sequence[ModelRef],
    calls: CallSettings,
    *,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: RunObserver = observe_nothing,
) -> RunResult:
    """Ask, and write what came of it, with its manifest and what was set aside.

    ``ledger`` is a file or a ``postgresql://`` URL, ``ledger.sqlite`` beside the result by default. ``retry`` tries
    again what was quarantined. ``replay`` answers out of the ledger alone. ``force`` replaces what other work wrote.
    """
    stage = inquiry.stage
    if (done := find_finished_run(stage, retry=retry, force=force)) is not None:
        inquiry.beforehand()
        inquiry.afterwards()  # an earlier run may have ended before it came to that
        return done
    where = ledger or stage.out.with_name(LEDGER)
    async with AsyncExitStack() as stack:
        if is_url(where):
            stage.out.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(WriterLock(stage.out, stage.name).release)
        books = await stack.enter_async_context(Ledger.open(where, run=stage.work_id))
        await begin_run(inquiry, models, books, retry=retry, force=force)
        run = _Run(inquiry, models, calls, books, watch)
        manifest = await (run.replayed() if replay else run.asked())
    return RunResult(stage, manifest, again=False)


def find_finished_run(stage: RunStep, *, retry: bool, force: bool) -> RunResult | None:
    """The same work, finished earlier; None when there is something to do, or it broke off while it was written."""
    if _broken_off(stage, force=force):
        return None
    done = stage.claim(force=force)
    return None if done is None or (retry and done.counts.quarantined) else RunResult(stage, done, again=True)


def _broken_off(stage: RunStep, *, force: bool) -> bool:
    """Whether there is a result without its manifest, which is written last."""
    return stage.out.exists() and not stage.manifest_path.exists() and not force


async def begin_run(
    inquiry: ModelRun[Any], models: Sequence[ModelRef], books: Ledger, *, retry: bool, force: bool
) -> None:
    """Refuse to go on with somebody else's file; open again what is to be tried again."""
    stage, names = inquiry.stage, inquiry.job_names(models, books)
    if _broken_off(stage, force=force) and not any([await books.count_outcomes(name) for name in names]):
        stage.claim()  # not this run's: refused
    write_start_note(stage, force=force)
    inquiry.beforehand()
    if retry:
        # From here on the run is not finished any more, and whoever stops it now goes on without being told to.
        stage.manifest_path.unlink(missing_ok=True)
        for name in names:
            await books.reopen_quarantined(name)


async def finish_run(
    inquiry: ModelRun[Any], models: Sequence[ModelRef], books: Ledger, received: int, currency: str = USD
) -> Manifest:
    """Write what came of every record."""
    notes = {**(await books.compute_usage())._asdict(), "currency": currency, **await inquiry.notes(books)}
    names = inquiry.job_names(models, books)
    manifest = await export_run(books, inquiry.stage, names, received, notes, inquiry.sources)
    inquiry.afterwards()
    remove_start_note(inquiry.stage)
    return manifest


@dataclass(frozen=True)
class _Run(Generic[T]):
    """A run under way."""

    inquiry: ModelRun[T]
    models: Sequence[ModelRef]
    calls: CallSettings
    ledger: Ledger
    watch: RunObserver

    async def replayed(self) -> Manifest:
        """Out of the ledger alone."""
        return await self._through([replayed(model.name, self.ledger) for model in self.models], [])

    async def asked(self) -> Manifest:
        """By the models themselves. One that is named twice is reached once."""
        different = index_by_name(self.models)
        async with AsyncExitStack() as stack:
            senders = {name: await self._reached(model, stack) for name, model in different.items()}
            budget = await load_budget(self.ledger, self.calls)
            connections = {
                name: await self._connected(model, senders[name], budget) for name, model in different.items()
            }
            asked = [connections[model.name].model for model in self.models]
            return await self._through(asked, list(connections.values()))

    async def _reached(self, model: ModelRef, stack: AsyncExitStack) -> ChatModel:
        sender = await stack.enter_async_context(self._opened(model))
        if isinstance(model, ServedModelRef) and model.base is not None:
            base = await stack.enter_async_context(self._opened(model.base_ref()))
            await refuse_idle_adapter(_Single(sender, model, self), _Single(base, model, self))
        return sender

    def _opened(self, model: ModelRef) -> AbstractAsyncContextManager[ChatModel]:
        return model.open(deadline=self.calls.deadline, concurrency=self.calls.concurrency)

    async def _connected(self, model: ModelRef, sender: ChatModel, budget: Budget) -> ModelConnection:
        price = find_model_price(model, self.calls)
        return await connect_model(sender, self.ledger, self.calls, price=price, budget=budget)

    async def single(self, model: ModelRef, sender: ChatModel) -> ChatModel:
        """For one call before the run, with what is left of the budget by then."""
        return (await self._connected(model, sender, await load_budget(self.ledger, self.calls))).model

    async def _through(self, models: Sequence[ChatModel], connections: Sequence[ModelConnection]) -> Manifest:
        """Every record to its end, and everything written."""
        jobs = self.inquiry.jobs(*models)
        with self.inquiry.records() as records:
            self.inquiry.stage.refuse_changed_inputs()
            runner: Runner[T] = Runner(self.ledger, jobs, self.inquiry.id_of, workers=self.calls.workers)
            with self.watch(runner, connections, len(records)):
                await runner.run(records)
        return await finish_run(self.inquiry, self.models, self.ledger, runner.progress.received, self.calls.currency)


class _Single(ModelWrapper):
    """A ``ChatModel`` for a few calls before a run, each within what the calls before it left of the budget."""

    def __init__(self, sender: ChatModel, model: ModelRef, run: _Run[Any]) -> None:
        super().__init__(sender)
        self._named = model
        self._run = run

    async def complete(self, request: Request) -> Reply:
        return await (await self._run.single(self._named, self._model)).complete(request)


def find_model_price(model: ModelRef, calls: CallSettings) -> Price | None:
    """None for weights of one's own, which cost nothing by the token."""
    return None if isinstance(model, LocalModelRef) else find_price(model.name, calls)
