"""Spending cap of a run: the worst case of a call is reserved before it is sent, and its cost is settled afterwards.

The sums come from the ledger, so the cap holds for all processes of one run. Amounts are whole millionths of the
currency.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.calls.http.failures import UNKNOWN_USAGE, CallFailure
from eclose.calls.model import Request, TokenUsage
from eclose.calls.prices import USD, ModelPrice, format_amount, format_money
from eclose.calls.tokens import TokenCount, bound_request_usage, estimate_token_count
from eclose.errors import Resumable, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.calls.ledger.rows import RunAccount
    from eclose.calls.model import Reply

POLL_SECONDS = 0.5
"""Seconds between two checks of what other processes have done."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Calls, tokens and cost of a set of requests, before any is sent."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    """Completion tokens if every reply had the largest length allowed."""
    cost: int | None
    """Cost in millionths; None without a price."""


def estimate_cost(
    requests: Iterable[Request], price: ModelPrice | None, count: TokenCount = estimate_token_count
) -> CostEstimate:
    """Return calls, tokens and cost of requests that are each sent once."""
    calls = prompt = completion = 0
    for request in requests:
        usage = bound_request_usage(request, count)
        calls, prompt, completion = calls + 1, prompt + usage.prompt_tokens, completion + usage.completion_tokens
    return CostEstimate(
        calls, prompt, completion, None if price is None else price.cost(TokenUsage(prompt, completion))
    )


class BudgetSpent(Resumable):
    """The remaining budget does not cover the worst case of the next call."""


class RunBudget:
    """Cap and current costs of a run. The cap holds as long as no call costs more than its worst case."""

    currency = USD

    def __init__(self, cap: int | None) -> None:
        if cap is not None and cap < 0:
            raise SettingError("--budget must not be negative.")
        self.cap = cap
        self.spent = 0
        """Cost of the replies received, in millionths."""
        self.reserved = 0
        """Worst-case cost of the calls in flight, in millionths."""
        self.assumed = 0
        """Worst-case cost of interrupted calls, which may have been billed; not part of ``spent``."""
        self._settled = asyncio.Event()

    def __str__(self) -> str:
        """Return ``0.74 of 5.00 USD spent, up to 0.10 USD reserved or possibly billed``."""
        return ", ".join(filter(None, [self.bill, self.risk]))

    @property
    def bill(self) -> str:
        """Text of the costs so far: ``0.74 of 5.00 USD spent``."""
        cap = "" if self.cap is None else f" of {format_amount(self.cap)}"
        return f"{format_amount(self.spent)}{cap} {self.currency} spent"

    @property
    def risk(self) -> str:
        """Text of the highest further cost of calls in flight (reserved) and interrupted calls; empty for none."""
        kinds = {"reserved": self.reserved, "possibly billed": self.assumed}
        labels = " or ".join(kind for kind, amount in kinds.items() if amount)
        return labels and f"up to {format_money(sum(kinds.values()), self.currency)} {labels}"

    def update(self, account: RunAccount) -> None:
        """Replace the sums by those of the ledger, which include all processes."""
        self.spent, self.reserved, self.assumed = account

    def reserve(self, amount: int) -> None:
        """Reserve an amount; raise ``BudgetSpent`` where the cap does not cover it."""
        # Interrupted calls count like paid ones: the provider may have billed them, and the cap must hold even then.
        if self.cap is not None and self.spent + self.assumed + self.reserved + amount > self.cap:
            raise self.refusal(amount)
        self.reserved += amount

    def settle(self, reserved: int, spent: int, *, assumed: bool = False) -> None:
        """Replace a reservation by the cost of the call, or by its assumed cost where the bill is unknown."""
        self.reserved -= reserved
        if assumed:
            self.assumed += spent
        else:
            self.spent += spent
        self._settled.set()

    def refusal(self, amount: int) -> BudgetSpent:
        """Return the error for a call with this worst-case cost."""
        return BudgetSpent(
            f"{self}: the next call may cost {format_money(amount, self.currency)}. Raise --budget and run the same "
            "command again to continue."
        )

    async def wait_for_room(self, amount: int) -> None:
        """Wait until a call of this process ends, at most ``POLL_SECONDS``; raise where waiting cannot help."""
        # Waiting helps only while a call in flight may turn out cheaper than its reservation.
        if not self.reserved or (self.cap is not None and self.spent + self.assumed + amount > self.cap):
            raise self.refusal(amount)
        # A call of this process sets the event; calls of other processes are seen after the time-out.
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._settled.wait()


def compute_known_cost(answer: Reply | CallFailure, price: ModelPrice | None) -> int | None:
    """Return the cost of an answer; None where the usage is unknown and the worst case has to be assumed."""
    # Without a price, and for a failure that is certainly not billed, the cost is zero.
    if price is None or (isinstance(answer, CallFailure) and answer.unpaid):
        return 0
    reply = answer.reply if isinstance(answer, CallFailure) else answer
    return None if reply is None or reply.usage == UNKNOWN_USAGE else price.cost(reply.usage)
