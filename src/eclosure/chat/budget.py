"""A cap that holds: the worst case of every call is set aside before it is sent, and what it cost is settled after.

Amounts are whole millionths of the currency. Belongs to one event loop, like everything that sends.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclosure.chat.failures import UNKNOWN_USAGE, CallFailure
from eclosure.chat.model import Around, Request, Usage
from eclosure.chat.prices import MILLION, Price
from eclosure.errors import Resumable, SettingError

if TYPE_CHECKING:
    from eclosure.chat.model import ChatModel, Reply

TokenCount: TypeAlias = Callable[[str], int]
"""Tokens of a text; a tokenizer's own count fits here."""
_PER_MESSAGE = 16
"""Tokens a chat template may add to a turn: roles, separators, a date."""
_WORDS = re.compile(r"[A-Za-z ]+")


def tokens_at_most(text: str) -> int:
    """No tokenizer makes more tokens than bytes: a bound, some four times too high for English."""
    return len(text.encode("utf-8", "surrogatepass"))


def tokens_about(text: str) -> int:
    """A third of the letters, and every digit, sign and foreign byte as one: high by a quarter or so, seldom low."""
    letters = sum(len(run) for run in _WORDS.findall(text))
    return -(-letters // 3) + len(text.encode("utf-8", "surrogatepass")) - letters


def worst_usage(request: Request, count: TokenCount = tokens_at_most) -> Usage:
    """The tokens of a request and of the longest reply it allows."""
    prompt = sum(count(message["content"]) + _PER_MESSAGE for message in request.messages)
    if request.schema is not None:
        prompt += count(json.dumps(dict(request.schema.schema))) + _PER_MESSAGE
    return Usage(prompt, request.decoding.max_tokens)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a set of requests will take, before any is sent."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    """If every reply were as long as allowed."""
    cost: int | None
    """Millionths; None without a price."""


def estimate(requests: Iterable[Request], price: Price | None, count: TokenCount = tokens_about) -> Estimate:
    """Calls, tokens and cost of requests that are each sent once."""
    calls = prompt = completion = 0
    for request in requests:
        usage = worst_usage(request, count)
        calls, prompt, completion = calls + 1, prompt + usage.prompt_tokens, completion + usage.completion_tokens
    return Estimate(calls, prompt, completion, None if price is None else price.cost(Usage(prompt, completion)))


class BudgetSpent(Resumable):
    """What is left does not cover the worst case of the next call."""


class Budget:
    """What a run may cost. As long as no call costs more than its worst case, ``spent`` never exceeds the cap."""

    def __init__(self, cap: int | None) -> None:
        if cap is not None and cap < 0:
            raise SettingError("a budget is not negative.")
        self.cap = cap
        self.spent = 0
        self.reserved = 0
        self.assumed = 0
        """The part of what was spent that nobody confirmed: calls that broke off and may have been charged."""
        self._settled = asyncio.Event()

    def __str__(self) -> str:
        """For a progress line."""
        of = "" if self.cap is None else f" of {self.cap / MILLION:.2f}"
        return f"{self.spent / MILLION:.2f}{of} spent"

    def reserve(self, amount: int) -> None:
        """Set an amount aside, or refuse."""
        if self.cap is not None and self.spent + self.reserved + amount > self.cap:
            raise BudgetSpent(
                f"{self} and {self.reserved / MILLION:.2f} set aside for calls under way: the next call may cost "
                f"{amount / MILLION:.4f}. Raise the budget and run the same command again to go on."
            )
        self.reserved += amount

    def settle(self, reserved: int, spent: int, *, assumed: bool = False) -> None:
        """Put what a call cost in the place of what was set aside for it."""
        self.reserved -= reserved
        self.spent += spent
        self.assumed += spent if assumed else 0
        self._settled.set()

    async def hold(self, amount: int) -> None:
        """Reserve as soon as calls under way give back what they did not need; refuse when even that cannot help."""
        while self.cap is not None and self.spent + self.reserved + amount > self.cap >= self.spent + amount:
            self._settled.clear()
            await self._settled.wait()
        self.reserve(amount)

    @asynccontextmanager
    async def held(self, worst: int) -> AsyncIterator[Held]:
        """An amount set aside while the block lasts. A block that does not say what it cost, cost all of it."""
        await self.hold(worst)
        held = Held()
        try:
            yield held
        finally:
            self.settle(worst, worst if held.cost is None else held.cost, assumed=held.cost is None)


def known_cost(answer: Reply | CallFailure, price: Price | None) -> int | None:
    """What an answer cost; None where nobody says, and the worst has to be supposed."""
    if price is None or (isinstance(answer, CallFailure) and answer.unpaid):
        return 0
    reply = answer.reply if isinstance(answer, CallFailure) else answer
    return None if reply is None or reply.usage == UNKNOWN_USAGE else price.cost(reply.usage)


@dataclass(slots=True)
class Held:
    """What a call turned out to cost; None while nobody knows."""

    cost: int | None = None


class Budgeted(Around):
    """A ``ChatModel`` that sends nothing the budget does not cover."""

    def __init__(self, model: ChatModel, budget: Budget, price: Price, count: TokenCount = tokens_at_most) -> None:
        super().__init__(model)
        self._budget = budget
        self._price = price
        self._count = count

    async def complete(self, request: Request) -> Reply:
        """The reply, paid."""
        async with self._budget.held(self._price.cost(worst_usage(request, self._count))) as held:
            try:
                reply = await self._model.complete(request)
            except CallFailure as failure:
                held.cost = known_cost(failure, self._price)
                raise
            held.cost = known_cost(reply, self._price)
            return reply
