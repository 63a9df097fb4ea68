"""Prices of tokens. Amounts are whole millionths of the currency, rounded up, so sums are exact and never too low."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.calls.model import TokenUsage

MILLION = 1_000_000
USD = "USD"
"""Currency of the published prices, and of a price file without ``currency``."""
_CURRENCY = "currency"
_FIELDS = frozenset({"input", "output"})
_CACHED = "cached_input"


def format_money(amount: int, currency: str = USD) -> str:
    """Format an amount of millionths with its currency: ``0.74 USD``."""
    return f"{format_amount(amount)} {currency}"


def format_amount(amount: int) -> str:
    """Format an amount of millionths as ``1,234.56``; amounts below a cent keep all their digits."""
    value = Decimal(amount) / MILLION
    return f"{value:,.2f}" if value >= Decimal("0.01") or not amount else f"{value:f}".rstrip("0")


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Price of a model in millionths of the currency per million tokens."""

    prompt: int
    completion: int
    cached: int | None = None
    """Price of prompt tokens from the provider's cache; None where they cost as much as others."""

    @classmethod
    def of(
        cls,
        prompt: Decimal | float | str,
        completion: Decimal | float | str,
        cached: Decimal | float | str | None = None,
    ) -> ModelPrice:
        """Convert amounts of the currency per million tokens, as printed in price lists."""
        return cls(to_millionths(prompt), to_millionths(completion), None if cached is None else to_millionths(cached))

    def scaled(self, factor: float) -> ModelPrice:
        """Return this share of the price, rounded up: 0.5 for half of it."""
        cached = None if self.cached is None else ceil(self.cached * factor)
        return ModelPrice(ceil(self.prompt * factor), ceil(self.completion * factor), cached)

    def cost(self, usage: TokenUsage) -> int:
        """Return the cost of a call in millionths, rounded up."""
        # Whole numbers throughout; the negated floor division rounds up.
        exact = usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion
        if self.cached is not None:
            exact -= usage.cached_tokens * (self.prompt - self.cached)
        return -(-exact // MILLION)


def to_millionths(amount: Decimal | float | str) -> int:
    """Return an amount of the currency in whole millionths, rounded up; raise where it is not a valid amount."""
    try:
        exact = Decimal(str(amount)) * MILLION
    except InvalidOperation:
        raise SettingError(f"{amount!r} is not an amount. Use a number that is not negative.") from None
    if isinstance(amount, bool) or not exact.is_finite() or exact < 0:
        raise SettingError(f"{amount!r} is not an amount. Use a number that is not negative.")
    return int(exact.to_integral_value(ROUND_CEILING))


def read_prices(path: Path | str) -> dict[str, ModelPrice]:
    """Return prices by ``provider/model`` from YAML or JSON, such as ``openai/gpt-x: {input: 1.25, output: 10}``.

    Prices are per million tokens, in US dollars unless the file says ``currency: EUR``. ``cached_input`` is the price
    of prompt tokens that the provider reports as read from its cache; without it they cost as much as ``input``.
    """
    path = Path(path)
    prices, problems = {}, []
    for name, entry in _load_mapping(path).items():
        if name == _CURRENCY:
            continue
        try:
            prices[str(name)] = _parse_price(entry)
        except SettingError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise SettingError(f"{path}: {' '.join(problems)}")
    return prices


def read_price_currency(path: Path | str) -> str:
    """Return the currency of a price file: three capital letters under ``currency``, ``USD`` where there is none."""
    currency = _load_mapping(Path(path)).get(_CURRENCY, USD)
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise SettingError(f"{path}: currency: expected three capital letters, such as USD or EUR.")
    return currency


def _load_mapping(path: Path) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - takes a moment to load

    try:
        text = path.read_text("utf-8")
        # JSON as decimals, since 0.1 has no exact binary value and sums of money must be exact.
        content = json.loads(text, parse_float=Decimal) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise SettingError(f"{path}: cannot be read: {' '.join(str(error).split())}.") from error
    if not isinstance(content, Mapping):
        raise SettingError(f"{path}: expected a price for each model, such as name: {{input: 1.25, output: 10}}.")
    return content


def _parse_price(entry: object) -> ModelPrice:
    if not isinstance(entry, Mapping) or set(entry) - {_CACHED} != _FIELDS:
        raise SettingError("give two numbers, input and output, per million tokens, and cached_input where it differs.")
    price = ModelPrice.of(entry["input"], entry["output"], entry.get(_CACHED))
    # Reservations take the price of input for the highest.
    if price.cached is not None and price.cached > price.prompt:
        raise SettingError("cached_input is higher than input.")
    return price


def find_listed_price(name: str, prices: Mapping[str, ModelPrice], currency: str = USD) -> ModelPrice:
    """Return the price of ``provider/model`` from ``prices``, else from ``genai-prices`` where that is installed.

    A server given by its address may be listed as ``host:port/model``, as ``host/model`` or by the model alone. An
    unknown price is refused, since a budget could not be kept. Published prices are in US dollars and are not used
    with another ``currency``.
    """
    bare = name.partition("@")[0]  # without the hash of local weights
    server, _, model = bare.partition("/")
    # From the most to the least specific name, so that two servers may have different prices for the same model.
    names = (name, bare, f"{server.rpartition(':')[0]}/{model}", model)
    price = next((prices[listed] for listed in names if listed in prices), None)
    # Published prices are in dollars; a sum of two currencies would be meaningless.
    if price is None and currency == USD:
        price = _find_published(bare)
    if price is None:
        unit = "" if currency == USD else f" in {currency}"
        remedy = "Add it" if find_spec("genai_prices") else "For list prices: pip install 'eclose[prices]'. Or add it"
        raise SettingError(
            f"{name}: no price is known{unit}. {remedy} to a price file ({name}: {{input: …, output: …}}, per million "
            "tokens) and name it as prices in a recipe, or run without prices: --no-price; in Python "
            "CallSettings(unpriced=True)."
        )
    return price


def _find_published(name: str) -> ModelPrice | None:
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415 - optional
    except ImportError:
        return None
    server, _, model = name.partition("/")
    provider, _, resource = server.partition(":")
    if resource.isdecimal():
        return None  # a port: the host of a server of the user's own, whatever its name
    if provider == "vertex":
        model = model.removeprefix("google/")
    try:
        # Ask for a million tokens of each: where long prompts cost more, the higher price applies.
        price = calc_price(Usage(input_tokens=MILLION, output_tokens=MILLION), model, provider_id=provider)
        usage = Usage(input_tokens=MILLION, cache_read_tokens=MILLION, output_tokens=MILLION)
        cached = calc_price(usage, model, provider_id=provider)
    except LookupError:
        return None
    is_cheaper = cached.input_price < price.input_price
    return ModelPrice.of(price.input_price, price.output_price, cached.input_price if is_cheaper else None)
