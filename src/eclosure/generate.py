"""Let a model answer questions: instances in, responses out, each with its trace, its answer and the raw completion.

The protocol of appendix A.2: the structured prompt, greedy decoding, one completion for each input, inputs in the order
of their ids. A generation without a finished answer is kept and counted, not asked again. A run may be killed at any
moment; the same call goes on, and what was answered is not asked, or paid, twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eclosure.benchmarks.formats import Format
from eclosure.benchmarks.load import detect_file, scan_instances
from eclosure.chat.budget import Estimate, estimate
from eclosure.chat.connect import CallSettings, Connection, connected, find_price
from eclosure.chat.failures import CallFailure, FailureKind
from eclosure.chat.model import ChatModel, Decoding, Finish, Reply, Request
from eclosure.chat.named import Named, Served, find_model
from eclosure.chat.preflight import refuse_idle_adapter
from eclosure.chat.recorded import replay
from eclosure.core.identity import content_hash
from eclosure.core.instance import Instance
from eclosure.core.response import Response
from eclosure.errors import SettingError
from eclosure.protocol.response import Order, ResponsePrompt
from eclosure.store.database import WriterLock, is_url
from eclosure.store.export import export
from eclosure.store.ledger import Ledger
from eclosure.store.manifest import Manifest
from eclosure.store.runner import Job, Rejected, Runner, read_value
from eclosure.store.spool import Spool
from eclosure.store.stage import Stage

if TYPE_CHECKING:
    from eclosure.chat.prices import Price
    from eclosure.core.response import Source

JOB = "generate"
RESPONSES = "responses.jsonl"
LEDGER = "ledger.sqlite"
REFUSAL = "refusal"
_SAID = frozenset({FailureKind.LENGTH, FailureKind.EMPTY})
"""What is no failure here: the model answered, and what it said is an incomplete generation."""

Watch: TypeAlias = Callable[["Runner[Instance]", "Connection | None", int], AbstractContextManager[None]]
"""Entered while a run is under way; told of the runner, the connection (None for a replay) and how many records."""


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """What is asked and how the reply is drawn: everything that decides the responses, apart from model and questions.

    The defaults are the paper's.
    """

    demonstrations: int = 2
    order: Order = Order.EVIDENCE_FIRST
    max_new_tokens: int = 1_024
    thinking: bool | None = None
    """Whether a model that can think shall; None is off where the server is one's own, else left to the provider."""
    limit: int | None = None
    """Only so many questions, the first by id."""
    format: Format = Format.AUTO

    @property
    def prompt(self) -> ResponsePrompt:
        """What precedes a question."""
        return ResponsePrompt(self.demonstrations, self.order)


@dataclass(frozen=True)
class Generated:
    """A finished run."""

    stage: Stage
    manifest: Manifest
    again: bool
    """Whether it was finished before, so that there was nothing to do."""

    @property
    def incomplete(self) -> Mapping[str, int]:
        """Generations without a submitted answer, by reason; part of the accepted."""
        found: Mapping[str, int] = self.manifest.calls["incomplete"]
        return found


@dataclass(frozen=True)
class Plan:
    """A run before it is begun: who is asked what, and where it goes."""

    model: Named
    settings: GenerateSettings
    stage: Stage
    _system: str = field(init=False)

    def __post_init__(self) -> None:
        """Responses of one system have a part of their ids in common, whatever file their questions came from."""
        object.__setattr__(self, "_system", content_hash(_deciding(self.model, self.settings))[7:19])

    @property
    def decoding(self) -> Decoding:
        """How a reply is drawn."""
        return _decoding(self.model, self.settings)

    def spool(self) -> Spool[Instance]:
        """The questions in the order of their ids."""
        layout = Format(self.stage.settings["format"])
        return Spool(Instance, scan_instances(self.stage.inputs[0], format=layout), limit=self.settings.limit)

    def request(self, instance: Instance) -> Request:
        """What is asked."""
        prompt = self.settings.prompt
        return Request(tuple(prompt.messages(instance.question, instance.evidence)), self.decoding)

    def response(self, instance: Instance, reply: Reply) -> Response:
        """What was said."""
        source: Source = self.model.source
        return Response.from_completion(
            f"{instance.id}-{self._system}",
            instance.id,
            reply.text,
            source,
            cut_off=reply.finish is not Finish.STOP,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal as it is shown beside the responses."""

    problem: str
    raw: str | None


async def plan(
    instances: Path | str,
    model: Named | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    *,
    deadline: float = 120.0,
    replay: bool = False,
) -> Plan:
    """What is to be done. A server is asked for its model's name where only its address is given."""
    settings = settings or GenerateSettings()
    model = find_model(model) if isinstance(model, str) else model
    if isinstance(model, Served):
        if replay and not model.route.model:
            raise SettingError("a replay asks nobody, not even for a model's name. Name the model beside the base URL.")
        model = await model.settled(deadline)
    elif settings.thinking:
        raise SettingError("thinking: a model in this process is asked without. Use a server for it.")
    path = Path(instances)
    layout = detect_file(path) if settings.format is Format.AUTO else settings.format
    told = _deciding(model, settings) | {"limit": settings.limit, "format": layout.value}
    return Plan(model, settings, Stage("generate", told, (path,), Path(out) / RESPONSES))


def _deciding(model: Named, settings: GenerateSettings) -> dict[str, Any]:
    return {
        **model.identity,
        "prompt": settings.prompt.hash,
        "demonstrations": settings.demonstrations,
        "order": settings.order.value,
        "decoding": _decoding(model, settings).plain,
    }


def _decoding(model: Named, settings: GenerateSettings) -> Decoding:
    thinking = model.thinking if settings.thinking is None else settings.thinking
    return Decoding(max_tokens=settings.max_new_tokens, thinking=thinking)


def forecast(plan: Plan, calls: CallSettings | None = None) -> Estimate:
    """Calls, tokens and cost, before anything is sent. What a ledger already holds is not taken off."""
    price = _price(plan.model, replace(calls or CallSettings(), unpriced=True, budget=None))
    with plan.spool() as spool:
        return estimate((plan.request(one.value) for one in spool if one.value is not None), price)


async def generate(
    instances: Path | str,
    model: Named | str,
    out: Path | str,
    settings: GenerateSettings | None = None,
    calls: CallSettings | None = None,
    *,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: Watch = lambda _runner, _connection, _total: nullcontext(),
) -> Generated:
    """Write ``responses.jsonl`` into a folder, with its manifest and what was set aside.

    ``ledger`` is a file or a ``postgresql://`` URL, ``ledger.sqlite`` in the folder by default. ``retry`` tries again
    what was quarantined. ``replay`` answers out of the ledger alone. ``force`` replaces what other work has written.
    """
    # One completion for each input: a bad answer is an answer.
    calls = replace(calls or CallSettings(), semantic_attempts=1)
    planned = await plan(instances, model, out, settings, deadline=calls.deadline, replay=replay)
    stage = planned.stage
    broken_off = stage.out.exists() and not stage.manifest_path.exists() and not force
    if not broken_off and (done := stage.finished(force=force)) is not None and not (retry and done.counts.quarantined):
        return Generated(stage, done, again=True)
    where = ledger or stage.out.with_name(LEDGER)
    async with AsyncExitStack() as stack:
        if is_url(where):
            stage.out.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(WriterLock(stage.out, "generate").release)
        books = await stack.enter_async_context(Ledger.open(where, run=stage.work))
        if broken_off and not await books.tally(JOB):
            stage.finished()  # somebody else's file: refused
        if retry:
            # From here on the run is not finished any more, and whoever stops it now goes on without being told to.
            stage.manifest_path.unlink(missing_ok=True)
            await books.reopen(JOB)
        run = _Run(planned, calls, books, watch)
        manifest = await (run.replayed() if replay else run.asked())
    return Generated(stage, manifest, again=False)


@dataclass(frozen=True)
class _Run:
    """A run under way."""

    plan: Plan
    calls: CallSettings
    ledger: Ledger
    watch: Watch

    async def replayed(self) -> Manifest:
        """Out of the ledger alone."""
        return await self._through(replay(self.plan.model.name, self.ledger), None)

    async def asked(self) -> Manifest:
        """By the model itself."""
        model = self.plan.model
        async with AsyncExitStack() as stack:
            sender = await stack.enter_async_context(self._opened(model))
            if isinstance(model, Served) and model.base is not None:
                base = await stack.enter_async_context(self._opened(model.at_base()))
                await refuse_idle_adapter(_Single(sender, self), _Single(base, self))
            connection = await self.connected(sender)
            return await self._through(connection.model, connection)

    def _opened(self, model: Named) -> AbstractAsyncContextManager[ChatModel]:
        return model.opened(deadline=self.calls.deadline, concurrency=self.calls.concurrency)

    async def connected(self, sender: ChatModel) -> Connection:
        """The layers around a model, with what was spent so far."""
        return await connected(sender, self.ledger, self.calls, price=_price(self.plan.model, self.calls))

    async def _through(self, model: ChatModel, connection: Connection | None) -> Manifest:
        """Every question to its end, and everything written."""

        async def respond(instance: Instance) -> Response | Rejected:
            return await answer(model, self.plan, instance)

        with self.plan.spool() as spool:
            job = Job(JOB, respond, Response)
            runner: Runner[Instance] = Runner(
                self.ledger, [job], lambda instance: instance.id, workers=self.calls.workers
            )
            with self.watch(runner, connection, len(spool)):
                await runner.run(spool)
        told = {**(await self.ledger.usage())._asdict(), "incomplete": await self._incomplete()}
        return await export(self.ledger, self.plan.stage, [JOB], runner.progress.received, told)

    async def _incomplete(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        async for outcome in self.ledger.outcomes(JOB):
            if outcome.kind == "accepted" and (why := read_value(Response, outcome).incomplete) is not None:
                found[why.value] += 1
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Single:
    """A ``ChatModel`` for a few calls before a run, each within what the calls before it left of the budget."""

    sender: ChatModel
    run: _Run

    @property
    def name(self) -> str:
        return self.sender.name

    async def complete(self, request: Request) -> Reply:
        return await (await self.run.connected(self.sender)).model.complete(request)


async def answer(model: ChatModel, plan: Plan, instance: Instance) -> Response | Rejected:
    """One question to one model. What was cut off or empty is a response without an answer, a refusal is none."""
    try:
        reply = await model.complete(plan.request(instance))
    except CallFailure as failure:
        if failure.kind is FailureKind.REFUSAL:
            return Rejected(REFUSAL, Refused(failure.problem, failure.raw))
        if failure.kind not in _SAID or failure.reply is None:
            raise
        reply = failure.reply
    return plan.response(instance, reply)


def _price(model: Named, calls: CallSettings) -> Price | None:
    """None for weights of one's own, which cost nothing by the token."""
    return find_price(model.name, calls) if isinstance(model, Served) else None
