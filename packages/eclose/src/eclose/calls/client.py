"""Connect a model: the layers around its endpoint that make calls safe, resumable and limited.

A request passes two of them: ``RetryingModel`` repeats a failed request until the circuit breaker stops the run, and
``PaidOnceModel`` reads from top to bottom what becomes of one attempt.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.calls.budget import RunBudget
from eclose.calls.http.endpoint import find_model_route, open_endpoint
from eclose.calls.paid_once import PaidOnceModel
from eclose.calls.prices import USD, find_listed_price, read_price_currency, read_prices, to_millionths
from eclose.calls.rate_limit import AdaptiveLimiter, RateLimits
from eclose.calls.retry import CircuitBreaker, RetryingModel, RetryPolicy
from eclose.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from eclose.calls.ledger.ledger import Ledger
    from eclose.calls.model import ChatModel
    from eclose.calls.prices import ModelPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """Limits, deadlines and prices of calls. Requests do not depend on them, so a run may continue with others."""

    concurrency: int = 64
    """Largest number of requests in flight; the actual number adapts to the server."""
    slow_start: bool = True
    """Whether to start with eight requests in flight and adapt; otherwise all are sent at once."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    deadline: float = 120.0
    """Seconds for one call."""
    semantic_attempts: int = 1
    """Attempts where the model refuses or does not match the schema."""
    breaker_failures: int = 20
    """Service failures in a row after which the run stops, once ``breaker_seconds`` have passed."""
    breaker_seconds: float = 60.0
    """Seconds without a success after which the run stops, after ``breaker_failures``."""
    budget: float | None = None
    """Largest cost of the whole run, in the currency of the price file; None for no cap."""
    prices: Path | None = None
    """File of prices; None for the published prices."""
    unpriced: bool = False
    """Whether a model without a known price may be used."""

    @property
    def currency(self) -> str:
        """Currency of budget and prices."""
        return USD if self.prices is None else read_price_currency(self.prices)

    @property
    def workers(self) -> int:
        """Records in progress: twice the calls in flight, so that writing to the ledger leaves no slot empty."""
        return 2 * self.concurrency

    @property
    def rate_limits(self) -> RateLimits:
        """Bounds of the rate limit."""
        return RateLimits(
            # The capacity of the server is unknown at the start; from eight the limit doubles with every round of
            # replies.
            start=min(8, self.concurrency) if self.slow_start else self.concurrency,
            ceiling=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


class ModelConnection:
    """A connected model with the budget and rate limit of its calls."""

    def __init__(self, model: RetryingModel, budget: RunBudget, limiter: AdaptiveLimiter) -> None:
        self.model = model
        self.budget = budget
        self.limiter = limiter


@asynccontextmanager
async def open_connection(
    name: str, ledger: Ledger, settings: CallSettings, *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[ModelConnection]:
    """Open the endpoint of a model by its name, and connect it."""
    async with await open_endpoint(find_model_route(name, environ=environ), settings.deadline) as endpoint:
        yield await connect_model(endpoint, ledger, settings, price=find_price(endpoint.name, settings))


async def connect_model(
    model: ChatModel,
    ledger: Ledger,
    settings: CallSettings,
    *,
    price: ModelPrice | None = None,
    budget: RunBudget | None = None,
) -> ModelConnection:
    """Put the layers around a model. Several models of one run share its ``budget``."""
    if price is None and settings.budget is not None:
        raise SettingError(f"{model.name}: --budget needs a price. Give one in a file, as prices in a recipe.")
    # Loaded from the ledger and not started at zero: the cap applies to the whole run, with its earlier sessions.
    budget = budget or await load_run_budget(ledger, settings)
    policy = RetryPolicy(
        semantic_attempts=settings.semantic_attempts,
        breaker_failures=settings.breaker_failures,
        breaker_seconds=settings.breaker_seconds,
    )
    # The breaker knows the limiter, to let waiting requests pass when it opens; they then meet its error.
    limiter = AdaptiveLimiter(settings.rate_limits)
    breaker = CircuitBreaker(policy, limiter)
    paid = PaidOnceModel(model, ledger, breaker, price=price, budget=budget)
    return ModelConnection(RetryingModel(paid.name, paid.complete, breaker), budget, limiter)


async def load_run_budget(ledger: Ledger, settings: CallSettings) -> RunBudget:
    """Return the budget of a run, with the costs of all processes so far from the ledger."""
    budget = RunBudget(None if settings.budget is None else to_millionths(settings.budget))
    budget.currency = settings.currency
    budget.update(await ledger.compute_account())
    return budget


def find_price(name: str, settings: CallSettings) -> ModelPrice | None:
    """Return the price of a model; None where it is unknown and ``unpriced`` allows that."""
    prices = {} if settings.prices is None else read_prices(settings.prices)
    try:
        return find_listed_price(name, prices, settings.currency)
    except SettingError:
        # A budget always needs a price: without one every call would count as free and the cap would never be reached.
        if settings.unpriced and settings.budget is None:
            return None
        raise
