"""A cap that holds: the worst case of every call is set aside before it is sent, and what it cost is settled after.

The sums are those of the ledger, so the cap holds for all processes that work on one run. Amounts are whole millionths
of the currency.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.calls.prices import USD, Price, format_amount, format_money
from eclose.errors import Resumable, SettingError
from eclose.models.interface import Request, Usage
from eclose.models.openai.failures import UNKNOWN_USAGE, CallFailure
from eclose.models.token_counts import TokenCount, bound_usage, estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.models.interface import Reply
    from eclose.store.ledger.rows import RunAccount

LOOK_SECONDS = 0.5
"""Between two looks at what other processes do."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a set of requests will take, before any is sent."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    """If every reply were as long as allowed."""
    cost: int | None
    """Millionths; None without a price."""


def estimate_cost(
    requests: Iterable[Request], price: Price | None, count: TokenCount = estimate_tokens
) -> CostEstimate:
    """Calls, tokens and cost of requests that are each sent once."""
    calls = prompt = completion = 0
    for request in requests:
        usage = bound_usage(request, count)
        calls, prompt, completion = calls + 1, prompt + usage.prompt_tokens, completion + usage.completion_tokens
    return CostEstimate(calls, prompt, completion, None if price is None else price.cost(Usage(prompt, completion)))


class BudgetSpent(Resumable):
    """What is left does not cover the worst case of the next call."""


class Budget:
    """What a run may cost, and what it has cost. As long as no call costs more than its worst case, the cap holds."""

    currency = USD

    def __init__(self, cap: int | None) -> None:
        if cap is not None and cap < 0:
            raise SettingError("a budget is not negative.")
        self.cap = cap
        self.spent = 0
        """What was billed: the cost of the replies."""
        self.reserved = 0
        """What calls under way cost at worst."""
        self.assumed = 0
        """What calls that broke off may have been billed for; not part of what was spent."""
        self._settled = asyncio.Event()

    def __str__(self) -> str:
        """Return ``0.74 of 5.00 USD spent, up to 0.10 USD reserved or possibly billed``."""
        return ", ".join(filter(None, [self.bill, self.risk]))

    @property
    def bill(self) -> str:
        """What was spent: ``0.74 of 5.00 USD spent``."""
        cap = "" if self.cap is None else f" of {format_amount(self.cap)}"
        return f"{format_amount(self.spent)}{cap} {self.currency} spent"

    @property
    def risk(self) -> str:
        """What calls under way (reserved) and broken-off calls (possibly billed) cost at most; empty where nothing."""
        kinds = {"reserved": self.reserved, "possibly billed": self.assumed}
        words = " or ".join(kind for kind, amount in kinds.items() if amount)
        return words and f"up to {format_money(sum(kinds.values()), self.currency)} {words}"

    def show(self, account: RunAccount) -> None:
        """Take over the sums of the ledger, which counts for all processes."""
        self.spent, self.reserved, self.assumed = account

    def reserve(self, amount: int) -> None:
        """Set an amount aside, or refuse."""
        if self.cap is not None and self.spent + self.assumed + self.reserved + amount > self.cap:
            raise self.refusal(amount)
        self.reserved += amount

    def settle(self, reserved: int, spent: int, *, assumed: bool = False) -> None:
        """Put what a call cost, or is assumed to have cost, in the place of what was set aside for it."""
        self.reserved -= reserved
        if assumed:
            self.assumed += spent
        else:
            self.spent += spent
        self._settled.set()

    def refusal(self, amount: int) -> BudgetSpent:
        """Return why a call of this worst case is not sent."""
        return BudgetSpent(
            f"{self}: the next call may cost {format_money(amount, self.currency)}. Raise the budget and run the same "
            "command again to go on."
        )

    async def wait_for_room(self, amount: int) -> None:
        """Wait until a call of this process ends, or a moment for one of another's; refuse where that cannot help."""
        if not self.reserved or (self.cap is not None and self.spent + self.assumed + amount > self.cap):
            raise self.refusal(amount)
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._settled.wait()


def compute_known_cost(answer: Reply | CallFailure, price: Price | None) -> int | None:
    """What an answer cost; None where nobody says, and the worst has to be supposed."""
    if price is None or (isinstance(answer, CallFailure) and answer.unpaid):
        return 0
    reply = answer.reply if isinstance(answer, CallFailure) else answer
    return None if reply is None or reply.usage == UNKNOWN_USAGE else price.cost(reply.usage)
