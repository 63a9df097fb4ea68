"""Cache and journal of calls in the ledger: an answered request is never sent again, in this run or a later one.

The intent is on disk before a request is sent, the reply before it is returned. An unusable answer of the model is
stored like a reply: it was paid, and the same request would get the same answer.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from eclose.calls.budget import POLL_SECONDS, RunBudget, compute_known_cost
from eclose.calls.http.failures import UNKNOWN_USAGE, CallFailure, CallFailureKind
from eclose.calls.ledger.ledger import CallInFlightError, CallIntent, CostCapExceededError, Ledger, LedgerReply
from eclose.calls.model import CallContext, Reply, Request, identify_request
from eclose.calls.tokens import TokenCount, bound_request_usage, bound_token_count
from eclose.errors import RecordError, Resumable, UserError
from eclose.files.jsonl import encode_json_line, parse_dataclass
from eclose.values.identity import canonical_bytes, content_hash, hash_canonical_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from eclose.calls.model import ChatModel
    from eclose.calls.prices import ModelPrice
    from eclose.calls.retry import CircuitBreaker

_NO_CONTEXT = CallContext()


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """An unusable answer as it is stored in the ledger."""

    kind: CallFailureKind
    problem: str
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored in the ledger: the reply, and the failure where it is unusable."""

    reply: Reply | None
    failure: StoredFailure | None = None


def compute_call_key(name: str, request: Request) -> str:
    """Return the key of a call, the same in every run and on every machine."""
    return content_hash(identify_request(name, request))


def encode_stored_answer(key: str, answer: Reply | CallFailure, *, cost: int) -> LedgerReply:
    """Return a reply or an unusable answer in the form of the ledger."""
    if isinstance(answer, CallFailure):
        stored = StoredAnswer(answer.reply, StoredFailure(answer.kind, answer.problem, answer.raw))
    else:
        stored = StoredAnswer(answer)
    usage = UNKNOWN_USAGE if stored.reply is None else stored.reply.usage
    return LedgerReply(
        key=key,
        body=encode_json_line(stored),
        usage=(usage.prompt_tokens, usage.completion_tokens),
        cost=cost,
        attempts=1,
        cached_tokens=usage.cached_tokens,
    )


def decode_stored_reply(settled: LedgerReply) -> Reply:
    """Return the stored reply; raise the stored failure where the answer was unusable."""
    stored = parse_dataclass(StoredAnswer, json.loads(settled.body))
    if stored.failure is not None:
        raise CallFailure(stored.failure.kind, stored.failure.problem, reply=stored.reply, raw=stored.failure.raw)
    assert stored.reply is not None
    return stored.reply


class PaidOnceModel:
    """A ``ChatModel`` that answers from the ledger, and sends a request without a reply once and pays for it once.

    Concurrent calls of one request wait for one answer. The intent is written behind the rate limit: waiting requests
    have none yet, so a killed process leaves only its requests in flight as possibly billed. The cost is settled
    outside of it, so that writing holds no slot.
    """

    def __init__(
        self,
        model: ChatModel,
        ledger: Ledger,
        breaker: CircuitBreaker,
        *,
        price: ModelPrice | None = None,
        budget: RunBudget | None = None,
        count: TokenCount = bound_token_count,
    ) -> None:
        self.name = model.name
        """Name of the model in records and call keys."""
        self._model = model
        self._ledger = ledger
        self._breaker = breaker
        self._price = price
        self._budget = budget or RunBudget(None)
        self._count = count
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks of the calls that are asked for now, by key; where the first caller fails, the next one sends."""

    async def complete(self, request: Request, context: CallContext = _NO_CONTEXT) -> Reply:
        """Return the stored reply, or send the request and return its reply once that is on disk."""
        identity = identify_request(self.name, request)
        spelled = canonical_bytes(identity)
        key = hash_canonical_bytes(spelled)
        # The lookup is under the lock, so that a second caller of the same request finds the reply that the first one
        # stored.
        async with self._locks.setdefault(key, asyncio.Lock()):
            if (stored := await self._ledger.find_reply(key)) is not None:
                return decode_stored_reply(stored)
            worst = 0 if self._price is None else self._price.cost(bound_request_usage(request, self._count))
            intent = CallIntent(
                key=key,
                request=identity,
                stage=context.step,
                record_id=context.record_id,
                reserved=worst,
                spelled=spelled,
            )
            try:
                async with self._breaker.admit(request):
                    if (stored := await self._write_intent(intent)) is None:
                        async with self._end_unanswered(key):
                            answer: Reply | CallFailure = await self._model.complete(request)
                        self._breaker.record_success()
            except CallFailure as failure:
                # The service failed, so there is no answer to store: a later attempt sends the same key again.
                if not failure.kind.semantic:
                    if failure.unpaid:
                        await self._ledger.release(key)
                    else:
                        await self._ledger.break_off(key)
                    self._budget.settle(worst, 0 if failure.unpaid else worst, assumed=not failure.unpaid)
                    raise
                answer = failure
            # Decoded here and not above: an unusable answer that another process paid for is no failure of this one's
            # call.
            return await self._settle(key, answer, worst) if stored is None else decode_stored_reply(stored)

    async def _write_intent(self, intent: CallIntent) -> LedgerReply | None:
        """Write the intent once the budget covers it and no other process has this call in flight.

        Returns the reply where another process received it since the ledger was asked for one.
        """
        budget = self._budget
        while True:
            try:
                # One transaction checks the cap, reserves the cost and writes the intent: two processes cannot both
                # take the last part of a budget.
                account = await self._ledger.intend(intent, cap=budget.cap)
            except CostCapExceededError as refused:
                budget.update(refused.account)
                await budget.wait_for_room(intent.reserved)
            except CallInFlightError:
                await asyncio.sleep(POLL_SECONDS)
            except RecordError:
                if (settled := await self._ledger.find_reply(intent.key)) is None:
                    raise
                return settled
            else:
                if account is not None:
                    # In the order of the commits: a settlement is awaited through a shield, so its own change of the
                    # sums would come one turn of the loop after totals that include it, and count it twice.
                    asyncio.get_running_loop().call_soon(budget.update, account)
                return None

    @asynccontextmanager
    async def _end_unanswered(self, key: str) -> AsyncIterator[None]:
        """Write the end of a send that is interrupted before the model answers or fails."""
        try:
            yield
        except CallFailure:
            raise  # settled like a reply, or closed
        except Resumable:
            await self._ledger.release(key)  # it was not sent
            raise
        # Cancelled, or a bug after the request left: the provider may bill it, so its worst case stays in the account.
        except BaseException:
            await self._ledger.break_off(key)
            raise

    async def _settle(self, key: str, answer: Reply | CallFailure, worst: int) -> Reply:
        cost = compute_known_cost(answer, self._price)
        settled = encode_stored_answer(key, answer, cost=worst if cost is None else cost)
        try:
            await self._ledger.settle(settled)
        except RecordError:
            # Another process took this one for dead and sent the same request: all continue with the first answer.
            if (first := await self._ledger.find_reply(key)) is None:
                raise
            await self._ledger.break_off(key)
            self._budget.settle(worst, first.cost)
            return decode_stored_reply(first)
        self._budget.settle(worst, settled.cost)
        # As it was stored; reading it back would take a tenth of the processor time of a call.
        return answer if isinstance(answer, Reply) else decode_stored_reply(settled)


class NotRecordedError(UserError):
    """A replay needs a reply that is not in the ledger."""


class ReplayModel:
    """A model that answers from the ledger alone."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        """Name of the model in records and call keys."""
        self._ledger = ledger

    def for_record(self, _context: CallContext) -> ChatModel:
        """Return the same model: a replay writes no calls."""
        return self

    async def complete(self, request: Request) -> Reply:
        """Return the stored reply; raise where the ledger has none."""
        key = compute_call_key(self.name, request)
        if (settled := await self._ledger.find_reply(key)) is None:
            raise NotRecordedError(
                f"{self.name}: the ledger has no reply to {key}, and replay sends nothing. Run without replay first, "
                "or use the settings of the earlier run."
            )
        return decode_stored_reply(settled)
