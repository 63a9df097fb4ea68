"""What tokens cost. Amounts are whole millionths of the currency, rounded up: sums are exact and never too low."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclosure.errors import SettingError

if TYPE_CHECKING:
    from eclosure.chat.model import Usage

MILLION = 1_000_000
_FIELDS = ("input", "output")


@dataclass(frozen=True, slots=True)
class Price:
    """Millionths of the currency for a million tokens."""

    prompt: int
    completion: int

    @classmethod
    def of(cls, prompt: Decimal | float | str, completion: Decimal | float | str) -> Price:
        """From amounts of the currency for a million tokens, as price lists print them."""
        return cls(millionths(prompt), millionths(completion))

    def cost(self, usage: Usage) -> int:
        """What a call costs, in millionths, rounded up."""
        exact = usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion
        return -(-exact // MILLION)


def millionths(amount: Decimal | float | str) -> int:
    """An amount of the currency in whole millionths, rounded up; SettingError where it is none."""
    try:
        exact = Decimal(str(amount)) * MILLION
    except InvalidOperation:
        raise SettingError(f"{amount!r} is no amount.") from None
    if isinstance(amount, bool) or not exact.is_finite() or exact < 0:
        raise SettingError(f"{amount!r} is no amount: use a number that is not negative.")
    return int(exact.to_integral_value(ROUND_CEILING))


def read_prices(path: Path | str) -> dict[str, Price]:
    """Prices by ``provider/model`` from YAML or JSON, such as ``openai/gpt-x: {input: 1.25, output: 10}``.

    They are per million tokens, as providers print them.
    """
    path = Path(path)
    listed = _load(path)
    if not isinstance(listed, Mapping):
        raise SettingError(f"{path}: expected a price for each model, such as name: {{input: 1.25, output: 10}}.")
    prices, problems = {}, []
    for name, entry in listed.items():
        try:
            prices[str(name)] = _price(entry)
        except SettingError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise SettingError(f"{path}: {' '.join(problems)}")
    return prices


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


def price_of(name: str, prices: Mapping[str, Price]) -> Price:
    """Return the price of ``provider/model``: the user's own, else that of the ``genai-prices`` package if installed.

    A server of one's own may be listed by its whole name (``host:port/model``), without its port (``host/model``), or
    by the model alone. An unknown price is refused: a budget cannot rest on it.
    """
    bare = name.partition("@")[0]
    server, _, model = bare.partition("/")
    names = (name, bare, f"{server.rpartition(':')[0]}/{model}", model)
    price = next((prices[known] for known in names if known in prices), None) or _published(bare)
    if price is None:
        raise SettingError(
            f"{name}: no price is known. Add it to a price file ({name}: {{input: …, output: …}}, per million tokens), "
            "or run without prices (--no-price)."
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
