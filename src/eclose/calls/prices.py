"""Prices of tokens. Amounts are whole millionths of the currency, rounded up: sums are exact and never too low."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.models.interface import Usage

MILLION = 1_000_000
USD = "USD"
"""The currency of the published prices, and of a price file that names none."""
_CURRENCY = "currency"
_FIELDS = ("input", "output")


def format_money(amount: int, currency: str = USD) -> str:
    """Return an amount of millionths for people: ``0.74 USD``."""
    return f"{format_amount(amount)} {currency}"


def format_amount(amount: int) -> str:
    """Return an amount of millionths as ``1,234.56``; below a cent it keeps all its digits."""
    value = Decimal(amount) / MILLION
    return f"{value:,.2f}" if value >= Decimal("0.01") or not amount else f"{value:f}".rstrip("0")


@dataclass(frozen=True, slots=True)
class Price:
    """Millionths of the currency for a million tokens."""

    prompt: int
    completion: int

    @classmethod
    def of(cls, prompt: Decimal | float | str, completion: Decimal | float | str) -> Price:
        """From amounts of the currency for a million tokens, as price lists print them."""
        return cls(to_millionths(prompt), to_millionths(completion))

    def cost(self, usage: Usage) -> int:
        """What a call costs, in millionths, rounded up."""
        exact = usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion
        return -(-exact // MILLION)


def to_millionths(amount: Decimal | float | str) -> int:
    """An amount of the currency in whole millionths, rounded up; SettingError where it is none."""
    try:
        exact = Decimal(str(amount)) * MILLION
    except InvalidOperation:
        raise SettingError(f"{amount!r} is no amount.") from None
    if isinstance(amount, bool) or not exact.is_finite() or exact < 0:
        raise SettingError(f"{amount!r} is no amount: use a number that is not negative.")
    return int(exact.to_integral_value(ROUND_CEILING))


def read_prices(path: Path | str) -> dict[str, Price]:
    """Return prices by ``provider/model`` from YAML or JSON, such as ``openai/gpt-x: {input: 1.25, output: 10}``.

    They are per million tokens, as providers print them, in US dollars unless the file says ``currency: EUR``.
    """
    path = Path(path)
    prices, problems = {}, []
    for name, entry in _listed(path).items():
        if name == _CURRENCY:
            continue
        try:
            prices[str(name)] = _price(entry)
        except SettingError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise SettingError(f"{path}: {' '.join(problems)}")
    return prices


def read_currency(path: Path | str) -> str:
    """Return the currency of a price file: three capital letters under ``currency``, ``USD`` where there is none."""
    currency = _listed(Path(path)).get(_CURRENCY, USD)
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise SettingError(f"{path}: currency: expected three capital letters, such as USD or EUR.")
    return currency


def _listed(path: Path) -> Mapping[str, Any]:
    listed = _load(path)
    if not isinstance(listed, Mapping):
        raise SettingError(f"{path}: expected a price for each model, such as name: {{input: 1.25, output: 10}}.")
    return listed


def _price(entry: object) -> Price:
    if not isinstance(entry, Mapping) or set(entry) != set(_FIELDS):
        raise SettingError("give input and output, per million tokens, and nothing else.")
    return Price.of(entry["input"], entry["output"])


def _load(path: Path) -> Any:
    text = path.read_text("utf-8")
    try:
        if path.suffix == ".json":
            return json.loads(text, parse_float=Decimal)
        return _yaml(text)
    except ValueError as error:
        raise SettingError(f"{path}: cannot be read: {error}.") from error


def _yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 - optional
    except ImportError as missing:
        raise SettingError("prices in YAML need pyyaml. Run: pip install pyyaml, or write them as JSON.") from missing
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def find_listed_price(name: str, prices: Mapping[str, Price], currency: str = USD) -> Price:
    """Return the price of ``provider/model``: the user's own, else that of ``genai-prices`` where it is installed.

    A server given by its address may be listed by its whole name (``host:port/model``), without its port
    (``host/model``), or by the model alone. An unknown price is refused, since a budget that rests on it would not
    hold. Published prices are in US dollars, so with prices in another ``currency`` they are not used.
    """
    bare = name.partition("@")[0]
    server, _, model = bare.partition("/")
    names = (name, bare, f"{server.rpartition(':')[0]}/{model}", model)
    price = next((prices[known] for known in names if known in prices), None)
    if price is None and currency == USD:
        price = _published(bare)
    if price is None:
        known = "" if currency == USD else f" in {currency}"
        raise SettingError(
            f"{name}: no price is known{known}. Add it to a price file ({name}: {{input: …, output: …}}, per million "
            "tokens), or run without prices (--no-price)."
        )
    return price


def _published(name: str) -> Price | None:
    """From the list that comes with ``genai-prices``; nothing is fetched."""
    try:
        from genai_prices import Usage, calc_price  # noqa: PLC0415 - optional
    except ImportError:
        return None
    provider, _, model = name.partition("/")
    try:
        # A million of each, so that where long prompts cost more it is their price: too high rather than too low.
        price = calc_price(Usage(input_tokens=MILLION, output_tokens=MILLION), model, provider_id=provider)
    except LookupError:
        return None
    return Price.of(price.input_price, price.output_price)
