"""A model whose calls are kept in the ledger: what was answered once is never asked again, here or in a later run.

The intent is on disk before a request leaves, the reply before anybody sees it. A bad answer of the model itself is an
answer, and kept like one: it was paid, and the same question would be answered the same way again.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.calls.budget import LOOK_SECONDS, Budget, compute_known_cost
from eclose.calls.prices import Price
from eclose.core.identity import canonical_bytes, content_hash, hash_canonical_bytes
from eclose.errors import RecordError, Resumable, UserError
from eclose.models.interface import ModelWrapper, Reply, Request, identify_request
from eclose.models.openai.failures import UNKNOWN_USAGE, CallFailure, FailureKind
from eclose.models.token_counts import TokenCount, bound_tokens, bound_usage
from eclose.store.ledger.ledger import CallInFlightError, CallIntent, CapExceededError, Ledger, LedgerReply
from eclose.store.records.jsonl import encode, parse_record
from eclose.store.runs.runner import working_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eclose.models.interface import ChatModel


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """What a model answered badly, as it is kept."""

    kind: FailureKind
    problem: str
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What came back, as it is kept: what the model said, and what was wrong with it if anything."""

    reply: Reply | None
    failure: StoredFailure | None = None


def compute_call_key(name: str, request: Request) -> str:
    """What a call is known by, in every run and on every machine."""
    return content_hash(identify_request(name, request))


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A request as a call is known by it."""

    request: Request
    identity: dict[str, Any]
    spelled: bytes
    key: str


_keyed: ContextVar[_Keyed | None] = ContextVar("keyed", default=None)
"""What this task is about: whoever asks for its key on the way down need not spell and hash it again."""


def _known(name: str, request: Request) -> _Keyed:
    known = _keyed.get()
    if known is None or known.request is not request or known.identity["model"] != name:
        identity = identify_request(name, request)
        spelled = canonical_bytes(identity)
        known = _Keyed(request, identity, spelled, hash_canonical_bytes(spelled))
        _keyed.set(known)
    return known


def encode_answer(key: str, answer: Reply | CallFailure, *, cost: int, attempts: int = 1) -> LedgerReply:
    """A reply, or a bad answer of the model's own, as the ledger keeps it."""
    if isinstance(answer, CallFailure):
        kept = StoredAnswer(answer.reply, StoredFailure(answer.kind, answer.problem, answer.raw))
    else:
        kept = StoredAnswer(answer)
    usage = UNKNOWN_USAGE if kept.reply is None else kept.reply.usage
    return LedgerReply(key, encode(kept), (usage.prompt_tokens, usage.completion_tokens), cost, attempts)


def decode_reply(settled: LedgerReply) -> Reply:
    """The reply that is kept; where the model answered badly, that is raised again."""
    kept = parse_record(StoredAnswer, json.loads(settled.body))
    if kept.failure is not None:
        raise CallFailure(kept.failure.kind, kept.failure.problem, reply=kept.reply, raw=kept.failure.raw)
    assert kept.reply is not None
    return kept.reply


class CachedModel(ModelWrapper):
    """A ``ChatModel`` that looks into the ledger first. Those who ask the same at once wait for one answer."""

    def __init__(self, model: ChatModel, ledger: Ledger) -> None:
        super().__init__(model)
        self._ledger = ledger
        self._asked: dict[str, tuple[asyncio.Lock, int]] = {}

    async def complete(self, request: Request) -> Reply:
        """The reply, old or new."""
        key = _known(self.name, request).key
        async with self._alone(key):
            if (settled := await self._ledger.find_reply(key)) is not None:
                return decode_reply(settled)
            return await self._model.complete(request)

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        """One at a time for each key. If the first fails, the next may try."""
        lock, users = self._asked.get(key, (asyncio.Lock(), 0))
        self._asked[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._asked.pop(key)
            if users > 1:
                self._asked[key] = lock, users - 1


class AnsweredByOtherProcess(Exception):  # noqa: N818 - a way out of the queue, not a mistake
    """Another process got the reply to a call while this one waited to send it."""

    def __init__(self, settled: LedgerReply) -> None:
        self.settled = settled


@dataclass(frozen=True, slots=True)
class CallAccounts:
    """Where the calls of a model are noted, and at which price."""

    ledger: Ledger
    price: Price | None = None
    budget: Budget = field(default_factory=lambda: Budget(None))
    count: TokenCount = bound_tokens

    def worst(self, request: Request) -> int:
        """Return what a request costs at worst."""
        return 0 if self.price is None else self.price.cost(bound_usage(request, self.count))


class JournalingModel(ModelWrapper):
    """A ``ChatModel`` that notes every request at the moment it leaves, and sets its worst case aside.

    It stands behind the queue: what waits there is not noted, so a process that is killed leaves no more than its calls
    under way behind.
    """

    def __init__(self, model: ChatModel, books: CallAccounts) -> None:
        super().__init__(model)
        self._books = books

    async def complete(self, request: Request) -> Reply:
        """Return the reply; what it cost is still to be noted."""
        keyed = _known(self.name, request)
        await self._note(keyed, self._books.worst(request))
        try:
            return await self._model.complete(request)
        except CallFailure:
            raise  # what became of it is noted behind the queue, as a reply is
        except Resumable:
            await self._books.ledger.release(keyed.key)  # it never left
            raise
        except BaseException:
            await self._books.ledger.break_off(keyed.key)
            raise

    async def _note(self, keyed: _Keyed, worst: int) -> None:
        """Note the intent once the budget covers it and no other process has the same call under way."""
        stage, record_id = working_on.get()
        intent = CallIntent(keyed.key, keyed.identity, stage, record_id, worst, keyed.spelled)
        ledger, budget = self._books.ledger, self._books.budget
        while True:
            try:
                account = await ledger.intend(intent, cap=budget.cap)
            except CapExceededError as refused:
                budget.show(refused.account)
                await budget.wait_for_room(worst)
            except CallInFlightError:
                await asyncio.sleep(LOOK_SECONDS)
            except RecordError:
                if (settled := await ledger.find_reply(keyed.key)) is None:
                    raise
                raise AnsweredByOtherProcess(settled) from None
            else:
                if account is not None:
                    budget.show(account)
                return


class SettlingModel(ModelWrapper):
    """A ``ChatModel`` that notes what came of every send. The intent was noted by an ``JournalingModel`` further in."""

    def __init__(self, model: ChatModel, books: CallAccounts) -> None:
        super().__init__(model)
        self._books = books

    async def complete(self, request: Request) -> Reply:
        """Return the reply, which is on disk by then."""
        key, worst = _known(self.name, request).key, self._books.worst(request)
        try:
            answer: Reply | CallFailure = await self._model.complete(request)
        except AnsweredByOtherProcess as elsewhere:
            return decode_reply(elsewhere.settled)
        except CallFailure as failure:
            if not failure.kind.semantic:
                await self._end(key, worst, unpaid=failure.unpaid)
                raise
            answer = failure
        return await self._settle(key, answer, worst)

    async def _end(self, key: str, worst: int, *, unpaid: bool) -> None:
        """Note a send without an answer."""
        if unpaid:
            await self._books.ledger.release(key)
        else:
            await self._books.ledger.break_off(key)
        self._books.budget.settle(worst, 0 if unpaid else worst, assumed=not unpaid)

    async def _settle(self, key: str, answer: Reply | CallFailure, worst: int) -> Reply:
        known = compute_known_cost(answer, self._books.price)
        settled = encode_answer(key, answer, cost=worst if known is None else known)
        ledger = self._books.ledger
        try:
            await ledger.settle(settled)
        except RecordError:
            # Another process was taken for dead, sent the same again and was first: all go on with one answer.
            if (first := await ledger.find_reply(key)) is None:
                raise
            await ledger.break_off(key)
            settled = first
        self._books.budget.settle(worst, settled.cost)
        return decode_reply(settled)


class NotRecordedError(UserError):
    """A replay was asked for something that is not in the ledger."""


class _MissingModel:
    """The model behind a replay."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request) -> Reply:
        key = compute_call_key(self.name, request)
        raise NotRecordedError(
            f"{self.name}: no reply to {key} is in the ledger, and a replay asks nobody. Run it with the model first, "
            "or with the settings that run had."
        )


def replay_model(name: str, ledger: Ledger) -> CachedModel:
    """A model that answers out of the ledger alone."""
    return CachedModel(_MissingModel(name), ledger)
