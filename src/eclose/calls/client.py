"""From a model's name to something that can be asked: reached over HTTP, paced, patient, within its budget, recorded.

The order of the layers is what makes it safe. A request is first looked for in the ledger; then it queues; when its
turn has come it is noted and its worst cost set aside, in one transaction; only then does it leave. What comes back is
on disk before it is used.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.calls.budget import Budget
from eclose.calls.cache import CachedModel, CallAccounts, JournalingModel, SettlingModel
from eclose.calls.prices import USD, find_listed_price, read_currency, read_prices, to_millionths
from eclose.calls.rate_limit import Limiter, RateLimits
from eclose.calls.retry import RetryingModel, RetryPolicy
from eclose.errors import SettingError
from eclose.models.openai.endpoint import EndpointSettings, find_route, open_endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from eclose.calls.prices import Price
    from eclose.models.interface import ChatModel
    from eclose.store.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How a model is called. None of it changes what is asked, so a run may go on with other values."""

    concurrency: int = 64
    """Requests under way at most; the number follows what the server bears."""
    slow_start: bool = True
    """Whether to find out what the server bears, from eight on. Without, all of them leave at once."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    deadline: float = 120.0
    """Seconds for one call."""
    semantic_attempts: int = 1
    """Times a record is asked where the model refuses or answers in the wrong shape."""
    breaker_failures: int = 20
    """Failures of the service in a row after which the run stops, once ``breaker_seconds`` have passed."""
    breaker_seconds: float = 60.0
    """Seconds without a success after which the run stops, once there were ``breaker_failures``."""
    budget: float | None = None
    """What the whole run may cost, in the currency of the price file; None for no cap."""
    prices: Path | None = None
    """A file of prices."""
    unpriced: bool = False
    """Whether a model without a known price may be asked."""

    @property
    def currency(self) -> str:
        """The currency of budget and prices."""
        return USD if self.prices is None else read_currency(self.prices)

    @property
    def workers(self) -> int:
        """Records in progress: more than calls under way, so that keeping books never leaves a place empty."""
        return 2 * self.concurrency

    @property
    def pace(self) -> RateLimits:
        """The bounds of the limit."""
        return RateLimits(
            start=min(8, self.concurrency) if self.slow_start else self.concurrency,
            ceiling=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


class ModelConnection:
    """A model in use, and what its use has come to."""

    def __init__(self, model: RetryingModel, budget: Budget) -> None:
        self.model = model
        self.budget = budget


@asynccontextmanager
async def open_connection(
    name: str, ledger: Ledger, settings: CallSettings, *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[ModelConnection]:
    """The model of this name, with everything that was answered before at hand."""
    wanted = EndpointSettings(deadline=settings.deadline, connections=settings.concurrency)
    async with await open_endpoint(find_route(name, environ=environ), wanted) as endpoint:
        yield await connect_model(endpoint, ledger, settings, price=find_price(endpoint.name, settings))


async def connect_model(
    model: ChatModel,
    ledger: Ledger,
    settings: CallSettings,
    *,
    price: Price | None = None,
    budget: Budget | None = None,
) -> ModelConnection:
    """The layers around a model that sends. Several models of one run share its ``budget``."""
    if price is None and settings.budget is not None:
        raise SettingError(f"{model.name}: a budget needs a price. Give one in a price file.")
    budget = budget or await load_budget(ledger, settings)
    books = CallAccounts(ledger, price, budget)
    patience = RetryPolicy(
        semantic_attempts=settings.semantic_attempts,
        breaker_failures=settings.breaker_failures,
        breaker_seconds=settings.breaker_seconds,
    )
    patient = RetryingModel(
        JournalingModel(model, books),
        patience,
        Limiter(settings.pace),
        between=lambda limited: CachedModel(SettlingModel(limited, books), ledger),
    )
    return ModelConnection(patient, budget)


async def load_budget(ledger: Ledger, settings: CallSettings) -> Budget:
    """Return what a run may cost, with what all processes of the same command have cost so far, or may have."""
    budget = Budget(None if settings.budget is None else to_millionths(settings.budget))
    budget.currency = settings.currency
    budget.update(await ledger.compute_account())
    return budget


def find_price(name: str, settings: CallSettings) -> Price | None:
    """The price of a model; None where it may be asked without."""
    prices = {} if settings.prices is None else read_prices(settings.prices)
    try:
        return find_listed_price(name, prices, settings.currency)
    except SettingError:
        if settings.unpriced and settings.budget is None:
            return None
        raise
