"""A model whose calls are kept in the ledger: what was answered once is never asked again, here or in a later run.

The intent is on disk before a request leaves, the reply before anybody sees it. A bad answer of the model itself is an
answer, and kept like one: it was paid, and the same question would be answered the same way again.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclosure.chat.budget import TokenCount, known_cost, tokens_at_most, worst_usage
from eclosure.chat.failures import UNKNOWN_USAGE, CallFailure, FailureKind
from eclosure.chat.model import Around, Reply, Request, request_identity
from eclosure.core.identity import canonical_bytes, content_hash, hash_of
from eclosure.errors import RecordError, Resumable, UserError
from eclosure.store.ledger import Intent, Settled
from eclosure.store.records import encode, parse
from eclosure.store.runner import working_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eclosure.chat.model import ChatModel
    from eclosure.chat.prices import Price
    from eclosure.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """What a model answered badly, as it is kept."""

    kind: FailureKind
    problem: str
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What came back, as it is kept: what the model said, and what was wrong with it if anything."""

    reply: Reply | None
    failure: KeptFailure | None = None


def call_key(name: str, request: Request) -> str:
    """What a call is known by, in every run and on every machine."""
    return content_hash(request_identity(name, request))


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
        identity = request_identity(name, request)
        spelled = canonical_bytes(identity)
        known = _Keyed(request, identity, spelled, hash_of(spelled))
        _keyed.set(known)
    return known


def settled_of(key: str, answer: Reply | CallFailure, *, cost: int, attempts: int = 1) -> Settled:
    """A reply, or a bad answer of the model's own, as the ledger keeps it."""
    if isinstance(answer, CallFailure):
        kept = Kept(answer.reply, KeptFailure(answer.kind, answer.problem, answer.raw))
    else:
        kept = Kept(answer)
    usage = UNKNOWN_USAGE if kept.reply is None else kept.reply.usage
    return Settled(key, encode(kept), (usage.prompt_tokens, usage.completion_tokens), cost, attempts)


def reply_of(settled: Settled) -> Reply:
    """The reply that is kept; where the model answered badly, that is raised again."""
    kept = parse(Kept, json.loads(settled.body))
    if kept.failure is not None:
        raise CallFailure(kept.failure.kind, kept.failure.problem, reply=kept.reply, raw=kept.failure.raw)
    assert kept.reply is not None
    return kept.reply


class Recorded(Around):
    """A ``ChatModel`` that looks into the ledger first. Those who ask the same at once wait for one answer."""

    def __init__(self, model: ChatModel, ledger: Ledger) -> None:
        super().__init__(model)
        self._ledger = ledger
        self._asked: dict[str, tuple[asyncio.Lock, int]] = {}

    async def complete(self, request: Request) -> Reply:
        """The reply, old or new."""
        key = _known(self.name, request).key
        async with self._alone(key):
            if (settled := await self._ledger.find(key)) is not None:
                return reply_of(settled)
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


class Noted(Around):
    """A ``ChatModel`` that notes every send before it leaves, and what came of it after."""

    def __init__(
        self, model: ChatModel, ledger: Ledger, price: Price | None = None, count: TokenCount = tokens_at_most
    ) -> None:
        super().__init__(model)
        self._ledger = ledger
        self._price = price
        self._count = count

    async def complete(self, request: Request) -> Reply:
        """The reply, which is on disk by then."""
        known = _known(self.name, request)
        key = known.key
        worst = 0 if self._price is None else self._price.cost(worst_usage(request, self._count))
        if (settled := await self._intend(known, worst)) is not None:
            return reply_of(settled)
        try:
            answer: Reply | CallFailure = await self._model.complete(request)
        except Resumable:
            await self._ledger.release(key)  # it never left
            raise
        except CallFailure as failure:
            if not failure.kind.semantic:
                if failure.unpaid:
                    await self._ledger.release(key)
                raise
            answer = failure
        return await self._settle(key, answer, worst)

    async def _intend(self, known: _Keyed, worst: int) -> Settled | None:
        """Note what is to be sent; the reply instead where another worker has got it meanwhile."""
        stage, record_id = working_on.get()
        try:
            await self._ledger.intend(Intent(known.key, known.identity, stage, record_id, worst, known.spelled))
        except RecordError:
            if (settled := await self._ledger.find(known.key)) is None:
                raise
            return settled
        return None

    async def _settle(self, key: str, answer: Reply | CallFailure, worst: int) -> Reply:
        known = known_cost(answer, self._price)
        settled = settled_of(key, answer, cost=worst if known is None else known)
        try:
            await self._ledger.settle(settled)
        except RecordError:
            # Another worker asked the same at the same time and was first: all go on with one answer.
            if (first := await self._ledger.find(key)) is None:
                raise
            settled = first
        return reply_of(settled)


class NotRecordedError(UserError):
    """A replay was asked for something that is not in the ledger."""


class _Nobody:
    """The model behind a replay."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request) -> Reply:
        key = call_key(self.name, request)
        raise NotRecordedError(
            f"{self.name}: no reply to {key} is in the ledger, and a replay asks nobody. Run it with the model first, "
            "or with the settings that run had."
        )


def replay(name: str, ledger: Ledger) -> Recorded:
    """A model that answers out of the ledger alone."""
    return Recorded(_Nobody(name), ledger)
