"""Flags that all commands share that ask a model, each also found in the environment: how it is called, and what for.

None of them changes what is asked, so a run may go on with other values.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eclose.cli.shared.output import printable, say

if TYPE_CHECKING:
    from eclose.calls.budget import CostEstimate
    from eclose.calls.client import CallSettings
    from eclose.calls.forecast import UsageForecast
    from eclose.calls.ray.run import RunFactory
    from eclose.calls.run import RunResult
    from eclose.models.openai.endpoint import ServerAddress
    from eclose.models.resolve import ModelRef


def _option(flag: str, help: str, **settings: Any) -> Any:  # noqa: A002 - as typer calls it
    """A flag that is also found in the environment, under its name with ``ECLOSE_`` before it."""
    variable = "ECLOSE_" + flag.removeprefix("--").replace("-", "_").upper()
    return typer.Option(flag, help=help, envvar=variable, show_envvar=False, **settings)


def env_option(flag: str, help: str, **settings: Any) -> Any:  # noqa: A002
    """A flag without a default to show, also found in the environment."""
    return _option(flag, help, show_default=False, **settings)


class Engine(StrEnum):
    """Where calls are made from."""

    PROCESS = "process"
    RAY = "ray"


ModelName = Annotated[str, env_option("--model", "provider/model, a base URL, a model's folder, or vllm:NAME.")]
JudgeName = Annotated[
    str, env_option("--judge", "Who judges: provider/model, a base URL, a model's folder, or vllm:NAME.")
]
EngineName = Annotated[Engine, _option("--engine", "Where the calls are made from: this process, or workers of Ray.")]
Workers = Annotated[int, _option("--workers", "How many, with --engine ray.", min=1)]
RayAddress = Annotated[
    str | None, env_option("--ray-address", "A running cluster; auto for this machine's.  [default: one of our own]")
]


class Asking(NamedTuple):
    """What the flags below say."""

    calls: CallSettings
    base_url: ServerAddress
    dry_run: bool
    ledger: str | None
    retry: bool
    replay: bool
    force: bool

    def model(self, name: str) -> ModelRef:
        """The model that is meant, wherever it is."""
        from eclose.integrations.inspect.model import PREFIX, ThroughInspect
        from eclose.models.resolve import find_model

        if name.startswith(PREFIX):
            _refuse_file_address(name, self.base_url.url)
            return ThroughInspect(name.removeprefix(PREFIX), self.base_url.url, server=self.base_url.name)
        return find_model(name, base_url=self.base_url, keyless=self.sends_nothing)

    @property
    def sends_nothing(self) -> bool:
        """Whether no model is asked, so that no API key is needed."""
        return self.dry_run or self.replay

    @property
    def flags(self) -> dict[str, Any]:
        """As whoever runs an inquiry takes them, with somebody to watch it."""
        from eclose.cli.shared.progress import watched

        flags = {"ledger": self.ledger, "retry": self.retry, "replay": self.replay, "force": self.force}
        return {**flags, "watch": watched}


def _refuse_file_address(name: str, base_url: str | None) -> None:
    """Refuse to send a provider of Inspect to an address from ``.env``: it would take its own key there."""
    from eclose.cli.shared.dotenv import FILE, address_from_file
    from eclose.errors import SettingError

    if address_from_file("ECLOSE_BASE_URL") and base_url == os.environ["ECLOSE_BASE_URL"]:
        raise SettingError(
            f"{name}: {FILE} gives ECLOSE_BASE_URL, and a provider of Inspect would send its own key there. "
            f"Run eclose --env-file {FILE} … if you trust the file, or remove the line."
        )


def _asking(
    *,
    base_url: Annotated[
        str | None,
        env_option("--base-url", "Where an OpenAI-compatible server listens, such as http://127.0.0.1:8000/v1."),
    ] = None,
    server_name: Annotated[
        str | None,
        env_option(
            "--server-name",
            "The name of that server in records and ledger, by which its replies are found again.  "
            "[default: its host and port]",
        ),
    ] = None,
    concurrency: Annotated[int, _option("--concurrency", "Calls under way at most.", min=1)] = 64,
    requests_per_minute: Annotated[int | None, env_option("--requests-per-minute", "Send no faster.", min=1)] = None,
    tokens_per_minute: Annotated[
        int | None, env_option("--tokens-per-minute", "Read and write no faster.", min=1)
    ] = None,
    deadline: Annotated[float, _option("--deadline", "Seconds for one call.", min=0.1)] = 120.0,
    breaker_failures: Annotated[
        int,
        _option("--breaker-failures", "Failed calls in a row that stop the run, after --breaker-seconds.", min=1),
    ] = 20,
    breaker_seconds: Annotated[
        float,
        _option("--breaker-seconds", "Seconds without a success that stop the run, after --breaker-failures.", min=0),
    ] = 60.0,
    budget: Annotated[
        float | None, env_option("--budget", "What the run may cost at most, in the currency of the prices.", min=0)
    ] = None,
    prices: Annotated[
        Path | None,
        env_option(
            "--prices", "Prices per million tokens, YAML or JSON: name: {input: 1.25, output: 10}; currency: USD."
        ),
    ] = None,
    no_price: Annotated[bool, _option("--no-price", "Ask a model whose price is not known.")] = False,
    ledger: Annotated[
        str | None,
        env_option("--ledger", "Where calls are kept: a file, or postgresql://…  [default: ledger.sqlite in the run]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens and cost; send and write nothing.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what was quarantined.")] = False,
    replay: Annotated[bool, typer.Option("--replay", help="Answer from the ledger alone; nothing is sent.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
) -> Asking:
    from eclose.calls.client import CallSettings
    from eclose.errors import SettingError
    from eclose.models.openai.endpoint import ServerAddress

    if no_price and budget is not None:
        raise SettingError("--no-price and --budget: a budget needs a price. Leave one of them out.")
    calls = CallSettings(
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        deadline=deadline,
        breaker_failures=breaker_failures,
        breaker_seconds=breaker_seconds,
        budget=budget,
        prices=prices,
        unpriced=no_price,
    )
    return Asking(calls, ServerAddress(base_url, server_name), dry_run, ledger, retry, replay, force)


def asks_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of everybody who asks a model; it takes them as one value, ``asking``."""
    own, shared = (inspect.signature(one, eval_str=True) for one in (command, _asking))
    mine = [parameter for name, parameter in own.parameters.items() if name != "asking"]

    @wraps(command)
    def with_flags(**given: Any) -> None:
        flags = {name: given.pop(name) for name in shared.parameters}
        warn_of_network_file(flags["ledger"], given.get("out") or Path())
        command(**given, asking=_asking(**flags))

    both = [*mine, *shared.parameters.values()]
    # What typer reads: the names, kinds and defaults here, and the annotations there.
    with_flags.__signature__ = own.replace(parameters=both)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in both}
    return with_flags


def warn_of_network_file(ledger: str | None, folder: Path) -> None:
    """Warn on stderr where a ledger in a file would lie on a network file system, whose locks SQLite cannot rely on."""
    from eclose.store.ledger import network_mounts

    path = folder / "ledger.sqlite" if ledger is None else Path(ledger)
    if (ledger is None or "://" not in ledger) and (
        kind := network_mounts.detect_network_file_system(path)
    ) is not None:
        sys.stderr.write(
            f"eclose: {printable(path)} is on a network file system ({kind}), where SQLite's locks may fail: "
            "name a local file with --ledger, or a postgresql:// URL.\n"
        )


def run_on_workers(
    make: RunFactory, calls: CallSettings, asking: Asking, workers: int, address: str | None
) -> RunResult:
    """The same by workers of Ray, with a line for everything that happens to them."""
    from eclose.calls.ray.run import run_models_on_ray
    from eclose.calls.ray.workers import RaySettings

    ray = RaySettings(workers=workers, address=address)
    ledger = asking.ledger or "ledger.sqlite"
    return run_models_on_ray(make, calls, ledger, ray, retry=asking.retry, force=asking.force, tell=say)


def shown_estimate(estimate: CostEstimate, currency: str) -> str:
    """Return ``40 calls, about 61,000 tokens read and at most 40,960 written, at most about 0.12 USD``."""
    return (
        f"{estimate.calls:,} calls, about {estimate.prompt_tokens:,} tokens read and "
        f"at most {estimate.completion_tokens:,} written, {_cost('at most about', estimate.cost, currency)}"
    )


def shown_forecast(forecast: UsageForecast, currency: str) -> str:
    """Return what is expected, then the most: ``40 calls, about 61,000 tokens read and 4,100 written, about 0.08 USD``.

    In brackets follows ``(at most 0.93 USD: 240,000 tokens read and 40,960 written)``.
    """
    most_tokens = f"{forecast.most_prompt_tokens:,} tokens read and {forecast.most_completion_tokens:,} written"
    most = most_tokens if forecast.most_cost is None else f"{_cost('', forecast.most_cost, currency)}: {most_tokens}"
    return (
        f"{forecast.calls:,} calls, about {forecast.prompt_tokens:,} tokens read and "
        f"{forecast.completion_tokens:,} written, {_cost('about', forecast.cost, currency)} (at most {most})"
    )


def _cost(words: str, amount: int | None, currency: str) -> str:
    from eclose.calls.prices import format_money

    return "cost unknown" if amount is None else f"{words} {format_money(amount, currency)}".lstrip()
