"""Options shared by the commands that call a model. Each can also be set as ``ECLOSE_NAME`` in the environment.

The options decide how calls are made, not what is sent, so a stopped run may be continued with other values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclose.cli.shared.options import takes_options
from eclose.cli.shared.output import escape_invisible, format_count, print_line
from eclose.cli.shared.recipe import recipe_key
from eclose.errors import SettingError

if TYPE_CHECKING:
    from eclose.calls.budget import CostEstimate
    from eclose.calls.client import CallSettings
    from eclose.calls.cluster.run import RunFactory
    from eclose.calls.cluster.workers import RaySettings
    from eclose.calls.forecast import UsageForecast
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.resolve import ModelRef
    from eclose.calls.run import RunOptions, RunResult


def env_option(flag: str, help: str, **settings: Any) -> Any:  # noqa: A002 - as typer calls it
    """Return a flag that is also read from the environment: ``--base-url`` from ``ECLOSE_BASE_URL``."""
    return typer.Option(flag, help=help, envvar=_variable(flag), show_envvar=False, **settings)


def _setting(flag: str, **settings: Any) -> Any:
    """Return a setting of recipes that is also read from the environment."""
    return recipe_key(flag, envvar=_variable(flag), **settings)


def _variable(flag: str) -> str:
    return "ECLOSE_" + flag.removeprefix("--").replace("-", "_").upper()


_ROLES = frozenset({"model", "judge_model", "constructor", "verifier", "reverifier"})
"""Parameters of commands that name a model to call."""


class CallEngine(StrEnum):
    """Where model calls are made from."""

    PROCESS = "process"
    RAY = "ray"


ModelName = Annotated[
    str, env_option("--model", "Model that answers: provider/model, a base URL, a folder of weights, or vllm:NAME.")
]
JudgeName = Annotated[
    str, env_option("--judge", "Model that judges: provider/model, a base URL, a folder of weights, or vllm:NAME.")
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The shared options of one command, and what follows from them."""

    engine: Annotated[CallEngine, _setting("--engine")] = CallEngine.PROCESS
    workers: Annotated[int, _setting("--workers", min=1)] = 2
    ray_address: Annotated[str | None, _setting("--ray-address")] = None
    base_url: Annotated[
        str | None, env_option("--base-url", "URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
    ] = None
    server_name: Annotated[str | None, _setting("--server-name")] = None
    concurrency: Annotated[int, env_option("--concurrency", "Most calls in flight at once.", min=1)] = 64
    requests_per_minute: Annotated[int | None, _setting("--requests-per-minute", min=1)] = None
    tokens_per_minute: Annotated[int | None, _setting("--tokens-per-minute", min=1)] = None
    deadline: Annotated[float, _setting("--deadline", min=0.1)] = 120.0
    breaker_failures: Annotated[int, _setting("--breaker-failures", min=1)] = 20
    breaker_seconds: Annotated[float, _setting("--breaker-seconds", min=0)] = 60.0
    budget: Annotated[
        float | None,
        env_option(
            "--budget",
            "Most the run may cost, in the currency of the prices (USD unless a file of prices says otherwise).",
            min=0,
        ),
    ] = None
    prices: Annotated[Path | None, _setting("--prices")] = None
    no_price: Annotated[bool, env_option("--no-price", "Call a model without a known price.")] = False
    ledger: Annotated[
        str | None,
        env_option(
            "--ledger",
            "Where calls and replies are stored: a file, or postgresql://…  [default: ledger.sqlite in the run]",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the expected calls, tokens and cost; send and write nothing.")
    ] = False
    retry: Annotated[bool, typer.Option("--retry", help="Process quarantined records again.")] = False
    replay: Annotated[bool, recipe_key()] = False
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Send requests in the provider's batches: half the price, within a day. The rest go as single calls.",
        ),
    ] = False
    batch_poll: Annotated[float, _setting("--batch-poll", min=0)] = 60.0
    batch_wait: Annotated[float | None, _setting("--batch-wait", min=0)] = None
    force: Annotated[
        bool, typer.Option("--force", help="Replace output of other settings or inputs; paid replies are used again.")
    ] = False

    def __post_init__(self) -> None:
        if self.no_price and self.budget is not None:
            raise SettingError("--no-price and --budget: a budget needs a price. Leave one of them out.")

    @property
    def ray(self) -> RaySettings | None:
        """The workers; None where this process does the work."""
        if self.engine is not CallEngine.RAY:
            return None
        from eclose.calls.cluster.workers import RaySettings

        return RaySettings(workers=self.workers, address=self.ray_address)

    @property
    def calls(self) -> CallSettings:
        """Settings of the calls."""
        from eclose.calls.client import CallSettings

        return CallSettings(
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            deadline=self.deadline,
            breaker_failures=self.breaker_failures,
            breaker_seconds=self.breaker_seconds,
            budget=self.budget,
            prices=self.prices,
            unpriced=self.no_price,
        )

    @property
    def server(self) -> ServerAddress:
        """Address and name of the server."""
        from eclose.calls.http.endpoint import ServerAddress

        return ServerAddress(self.base_url, self.server_name)

    @property
    def sends_nothing(self) -> bool:
        """Whether no call is sent, so that no API key is needed."""
        return self.dry_run or self.replay

    @property
    def run_options(self) -> RunOptions:
        """Options of a model run: ledger, run mode, batches and the progress display."""
        from eclose.calls.batches.run import BatchSettings
        from eclose.calls.run import RunOptions
        from eclose.cli.shared.progress import show_run_progress

        return RunOptions(
            ledger=self.ledger,
            retry=self.retry,
            replay=self.replay,
            force=self.force,
            watch=show_run_progress,
            batch=BatchSettings(poll=self.batch_poll, wait=self.batch_wait) if self.batch else None,
            notify=print_line,
        )

    def model(self, name: str) -> ModelRef:
        """Return the model with this name: a provider's, a server's, loaded weights, or one called through Inspect."""
        from eclose.api.resolve import resolve

        return resolve(name, self.server, keyless=self.sends_nothing)


def _refuse_file_address(model: str, base_url: str | None) -> None:
    """Raise where the model names a provider, and an untrusted ``.env`` gives an address that its calls would go to."""
    from eclose.calls.http.providers import MODEL_PROVIDERS
    from eclose.calls.inspect_model import INSPECT_PREFIX
    from eclose.cli.shared.env_file import ENV_FILE, is_address_from_env_file

    provider, slash, _ = model.partition("/")
    if not (slash and (provider in MODEL_PROVIDERS or model.startswith(INSPECT_PREFIX))):
        return
    # A URL given with the flag is the user's own choice, even where .env holds the same variable.
    if base_url:
        variable = "ECLOSE_BASE_URL" if base_url == os.environ.get("ECLOSE_BASE_URL") else None
    else:
        variable = "OPENAI_BASE_URL" if provider == "openai" else None
    if variable is not None and is_address_from_env_file(variable):
        raise SettingError(
            f"{model}: names a provider, and {ENV_FILE} gives {variable}, which would send its calls elsewhere. "
            f"Run eclose --env-file {ENV_FILE} … if you trust the file, or remove the line."
        )


def _check_options(values: dict[str, Any], arguments: dict[str, Any]) -> None:
    for role in _ROLES & arguments.keys():
        # The verifier of construction is a model; that of detection is a folder.
        if isinstance(model := arguments[role], str):
            _refuse_file_address(model, values["base_url"])
    # Before the first call: a corrupt ledger is noticed only later, after replies were paid for.
    warn_about_network_file(values["ledger"], arguments.get("out") or Path())


takes_model_options = takes_options(ModelOptions, "options", _check_options)
"""Adds the options to a command, which takes them as one parameter, ``options``."""


def warn_about_network_file(ledger: str | None, folder: Path) -> None:
    """Warn on stderr where the ledger is a file on a network file system, whose locks SQLite cannot rely on."""
    from eclose.calls.ledger import database

    path = folder / "ledger.sqlite" if ledger is None else Path(ledger)
    # Network file systems may grant one lock to two machines, and two writers then destroy the file.
    if (ledger is None or "://" not in ledger) and (kind := database.detect_network_file_system(path)) is not None:
        sys.stderr.write(
            f"eclose: {escape_invisible(path)} is on a network file system ({kind}), where SQLite's locks may fail: "
            "name a local file with --ledger, or a postgresql:// URL.\n"
        )


def run_on_ray_workers(
    make: RunFactory,
    calls: CallSettings,
    options: ModelOptions,
    ray: RaySettings,
    *,
    gpus: float | None = None,
) -> RunResult:
    """Run on Ray workers, and print a line whenever one starts, stops or is lost.

    ``gpus`` are those of each worker, for runs whose workers load weights; None for runs that call served models.
    """

    if options.replay:
        raise SettingError("engine: ray sends calls, so leave replay out.")
    if options.batch:
        raise SettingError("--batch and engine: ray: batches are sent from one process. Leave one of them out.")
    from eclose.calls.cluster.run import run_models_on_ray

    if gpus is not None:
        # Every shard loads the weights, so each worker has one.
        ray = replace(ray, shards_per_worker=1, gpus_per_worker=gpus)
    return run_models_on_ray(make, calls, options.run_options, ray, tell=print_line)


def describe_estimate(estimate: CostEstimate, currency: str) -> str:
    """Return ``40 calls, about 61,000 tokens read and at most 40,960 written, at most about 0.12 USD``."""
    return (
        f"{format_count(estimate.calls, 'call')}, about {estimate.prompt_tokens:,} tokens read and "
        f"at most {estimate.completion_tokens:,} written, {_describe_cost('at most about', estimate.cost, currency)}"
    )


def describe_forecast(forecast: UsageForecast, currency: str) -> str:
    """Return the expected usage and the most: ``40 calls, about 61,000 tokens read and 4,100 written, about 0.08 USD``.

    The most follows in brackets: ``(at most 0.93 USD: 240,000 tokens read and 40,960 written)``.
    """
    most_tokens = f"{forecast.most_prompt_tokens:,} tokens read and {forecast.most_completion_tokens:,} written"
    most = (
        most_tokens
        if forecast.most_cost is None
        else f"{_describe_cost('', forecast.most_cost, currency)}: {most_tokens}"
    )
    cached = ""
    if forecast.cached_cost is not None and forecast.cached_tokens:
        cached = (
            f"; {_describe_cost('about', forecast.cached_cost, currency)} where the provider reads the "
            f"{forecast.cached_tokens:,} tokens that prompts share from its cache"
        )
    return (
        f"{format_count(forecast.calls, 'call')}, about {forecast.prompt_tokens:,} tokens read and "
        f"{forecast.completion_tokens:,} written, {_describe_cost('about', forecast.cost, currency)} (at most {most})"
        f"{cached}"
    )


def _describe_cost(words: str, amount: int | None, currency: str) -> str:
    from eclose.calls.prices import format_money

    if amount is None:
        return "cost unknown (for prices: pip install 'eclose[prices]', or prices: FILE in a recipe)"
    return f"{words} {format_money(amount, currency)}".lstrip()


VllmSettings = Annotated[list[str] | None, recipe_key("--vllm")]


def parse_vllm_settings(words: Sequence[str] | None) -> dict[str, int | float]:
    """Return the settings of vLLM by name."""
    settings: dict[str, int | float] = {}
    for word in words or ():
        name, _, value = word.partition("=")
        try:
            settings[name] = int(value) if value.isdecimal() else float(value)
        except ValueError:
            raise typer.BadParameter(f"vllm: {word}: write NAME=NUMBER, such as tensor_parallel_size=2.") from None
    return settings
